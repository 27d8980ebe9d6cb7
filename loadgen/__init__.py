"""Measuring tools: load, benchmarks and drills. A distribution of their own, which no server needs.

::

    headrace loadgen   running.py: a workload (workloads/) on a target (peers/) at a pace (pace/), and its report/
    headrace bench     bench/: the engine against hand-written code, clusters of several sizes, recovery, databases
    headrace drill     drills/: break a cluster under load, and count what its users noticed

What puts load on a server (the rooms of the first line, and ``drills/load/``) knows Headrace by HTTP only, so that it
sees what any client would see. ``bench/`` and ``drills/`` start servers and reach into them.
"""
