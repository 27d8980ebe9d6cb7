"""Drills: something bad is done to a real cluster under load, and what it did to the users is counted.

::

    headrace drill worker-kill ─► running.py ─┬─ cluster.py   `headrace up` in a process of its own, its parts' numbers
                                              │               and `python -m loadgen.drills`: writes, reads, judgement
                                              ├─ stage.py     what the cluster says of itself, and when
                                              └─ faults.py    kill -9, SIGSTOP …; links.py where the fault is in
                                                   │            the network
             catalogue.py  which drills there are  │
             running.py    goals, JSON, picture ◄──┘

The load knows nothing of the cluster but its address. The drill knows the processes by the numbers that the supervisor
writes down, and asks ZooKeeper and ``/v1/status`` what the cluster has noticed. What a drill needs and this machine
does not allow is refused before anything is started, with the reason.
"""
