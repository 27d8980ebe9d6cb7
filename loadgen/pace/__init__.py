"""Pace: an open loop that is honest about itself.

Requests *arrive* at times that were decided beforehand, whatever the target does meanwhile. A bounded number of them is
under way; those that find no room wait, and their waiting counts. Two times are kept of each: the *service time*, from
sending to the answer, and the *sojourn time*, from the arrival to the answer. When a target stalls for a second, a loop
that waits for each answer counts one slow request; here everything that arrived meanwhile has its part of that second
in its sojourn time::

    due times ──► loop.py ── job ──► one of so many sessions ──► the target
    (seeded,         │                                              ▲
    exponential)     │ due, begun, done                             │ CPU, memory
                     ▼                                              │
                 point.py: what was measured at one rate ◄─── processes.py
                 (histograms, by the second); is it valid?

A run knows its own cost too: its processor time, and how late it noticed arrivals. Where those say that the generator
was the bottleneck, the point is not valid, whatever its numbers.
"""
