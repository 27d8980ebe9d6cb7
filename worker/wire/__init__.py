"""The wire: how processes talk to each other: TCP, frames of msgpack, and a closed list of messages.

Controllers and api processes send a worker *requests*, which it answers; anybody may send *notices*, which have no
answer. Between two workers runs a *stream*: the packets of all links from the domains of one to those of the other,
each once and in order, over one connection after another::

    controller ─ request ─►┐                       ┌► handler ─► answer
    api ──────── request ─►│ Connection ══ TCP ══► Accepted
    worker                 │                       │
      Outbound ─ frames ──►┘                       └► Inbound ─► packets in order ─► domains
         ▲──────────────────────── StreamAck ───────────┘

These hold, and are tested with connections that are cut at random:

* Received bytes can do no more than make an object of a class of the list (``vocabulary.py``): there is no pickle, and
  each field's type is checked. Any other bytes end the connection with an error that says why. A frame's objects take
  some 35 times its bytes, and not more. What is refused is counted, and logged once a minute for each source.
* A sender never waits for the network. Bytes that wait are counted, and the dataflow takes less work when they are
  many.
* A caller learns how its request ended: by an answer, an error of the other side, or ``ConnectionLost``, which says
  whether the request may have been done.

==================  ============================================================================================
``vocabulary.py``   the classes and errors that may be sent, and ``PROTOCOL``, the digest that both sides compare
``codec.py``        objects to bytes and back: the only module that imports msgpack; expressions, updates and errors
``coders.py``       from a field's type to how it is packed and checked
``frames.py``       where one message ends and the next begins; the limits of size
``connection.py``   :class:`Connection` and :func:`connect`: requests, answers, notices, beats
``proof.py``        what comes before all of it: both ends prove the deployment's secret
``server.py``       :class:`WireServer` and :func:`serve`: the greeting, and refusals
``streams.py``      :class:`OutboundStream` and :class:`Inbound`: a stream, without a socket
``peers.py``        :class:`Peers`: the streams to and from all other workers
==================  ============================================================================================
"""
