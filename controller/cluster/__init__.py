"""The cluster: its controller, which decides which worker hosts each domain, and the side of it that serves.

All decisions are in one small document in ZooKeeper (``state``), replaced by compare-and-set (``ledger``). A leader
writes it and makes the workers do what it says; api processes read it to find the workers. Neither needs the other to
go on::

    candidate ──► leader ─┬─ fleet        the workers that are there: heartbeats, losses, joins
                          ├─ recovery     report → decide → open, link, build again     (placing, reconcile: pure)
                          ├─ performing   migrations, while no recovery is under way
                          ├─ automatic    views of what is asked again and again: in no recipe
                          └─ ledger ──► state ──► ZooKeeper ──► directory ─► deployment ─► api
                                          ▲                        │
                             Replica: the planned dataflow         └─ domain_router, connections, cluster_hosts

Three numbers tell late messages of the past from those of the present:

* the **epoch** of the state grows with each leader and each round of recovery. Workers refuse commands of an older one;
* a domain's **incarnation** is the epoch in which it was opened. Packets of an older one are dropped;
* a worker's **process** number grows with each start, since another process may answer under the same name.

All that the leader does may be done twice, and what it leaves half done shows in the workers' reports. So one procedure
mends everything, be it a lost worker, a lost leader, a failed migration, or a write to ZooKeeper whose answer was lost:
decide anew, compare, repair (``recovery``). It never touches healthy domains.
"""
