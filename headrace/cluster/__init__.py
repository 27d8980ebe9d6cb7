"""A whole cluster on one machine: ``headrace up``.

A supervisor starts the same processes that run on many machines elsewhere, and stays with them::

    headrace up ─┬─► ZooKeeper, 1 or 3 servers          DIR/zookeeper/1 …      (not where --zookeeper names one)
                 ├─► headrace controller, 1 leads       registers in ZooKeeper
                 ├─► headrace worker, N                 registers in ZooKeeper; DIR/shards, DIR/workers/<name>
                 └─► headrace api, N                    all take from one listening socket, which the supervisor opened

It knows nothing of tables and views. What it does is what an init system does: it starts in order, waits until all is
there, starts again what has died (later and later, if it keeps dying), and stops in the opposite order. The parts talk
among themselves; none of them asks the supervisor for anything, and if it is killed they end, since their standard
input does.

    supervisor.py   the order of things
    child.py        one process that is kept alive, and how long until it is tried again
    parts.py        the commands of the parts, and how a part ends with its supervisor
    directory.py    one supervisor a data directory, what the first start decided, what an earlier one left running
"""
