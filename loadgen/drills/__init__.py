"""Drills: break a real cluster under load, and count what its users noticed.

::

    headrace drill worker-kill ─► running.py ─┬─ cluster.py   `headrace up` in a process of its own, the numbers of its
                                              │               parts, and the process of load/: reads, writes, judgement
                                              ├─ stage.py     what the cluster says of itself, and when
                                              └─ faults.py    kill -9, SIGSTOP …; links.py for faults of the network
             catalogue.py  all drills
             running.py    goals, JSON; timeline.py draws the picture

The load knows only the cluster's address. The drill finds the processes by the numbers that the supervisor writes down,
and asks ZooKeeper and ``/v1/status`` what the cluster has noticed. If this machine does not allow what a drill needs,
the drill is refused with the reason before anything is started.
"""
