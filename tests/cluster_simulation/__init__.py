"""A whole cluster on one thread, from one number: the leader, the workers' domains, the wire between them, ZooKeeper's
twin, clients, and everything that can go wrong.

::

    clients ─┐                        ┌─ Leader (controller/cluster) ── authority twin (zookeeper/memory)
             ├─ VirtualLoop ─ Network ┤
    faults ──┘  (time, processes)     └─ Worker: Hosted, Dataflow, Peers (worker/), over a store that crashes

Some clusters have an archive (``archive.py``): they build views in bulk (``bulk.py``), and lose disks, whose shards an
operator has rebuilt (``rebuilds.py``). What was not archived then may be missing, and nothing else. Of some, back-ups
are taken beside writes and DDL (``backups.py``): each must have all that was acknowledged before it, and the recipe of
its own tables.

In some, transactions go over the shards by api processes that die, too (``transacting.py``): what their clients did and
saw is a history that has to be as serializable as their level says, and nothing is left of any.

What is real: all of ``domains``, ``migrations``, ``worker/hosted``, ``worker/wire`` down to its bytes, the leader, the
elections. What is not: threads, sockets, disks, clocks. Time is a number that jumps to the next thing that happens, so
a minute of a cluster takes some hundredths of a second, and the same seed gives the same run to the last byte.

A *process* is a name under which things run on the loop. One that is killed is never run again, not even to clean up;
one that is stopped (SIGSTOP) is not run until it is woken, and then finds all that has come in the meantime.

In some clusters calls of the shards' stores fail, any of them at any time (``tests/failing_store.py``): what was not
committed is refused; who wrote what was committed and could not be ended is told that the outcome is unknown; the
domain serves nothing until it is opened again; a read that cannot be answered says so.

What must hold is in ``checks.py``; what is done at random in ``scenario.py``; what goes wrong in ``faults.py``, and
beside it ``ambush.py`` and ``disk_faults.py``.
"""
