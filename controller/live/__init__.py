"""Live views: who reads a view's answer for some parameters may stay, and is told of each change of it.

::

    worker: Watches ──► Hosts.watch ──► TopicPart ─┐ (one for each shard of the reader)
                                                   ├─► Topic: rows now, and its last steps ──► Subscription ──► a door
                        TopicPart ─────────────────┘        shared by all that watch the same      a cursor

A *topic* is a view with values for its parameters (those that a user's claims give are among them). It has the answer
as it is now, the clock that this reflects, and a ring of its last *steps*. A step is what one moment has changed: the
difference between two answers, whatever made it. A *subscription* is a place among the steps. Where it has fallen out
of the ring, since its client is slow or was away, it is sent the net difference between what it was sent last and now;
so nothing queues up, and nobody who reads slowly holds the dataflow up.

==================  ==============================================================================================
``steps.py``        from two answers to their difference, message by message; offsets
``topics.py``       :class:`Topic`, its parts, its ring
``live_views.py``   :class:`LiveViews`: all topics and subscriptions of a process, their limits, and the passing of time
==================  ==============================================================================================
"""
