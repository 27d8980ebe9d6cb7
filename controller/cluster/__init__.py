"""The cluster's controller, and the api side of it: who has which domain, and how that is kept so.

What is decided is one small document in ZooKeeper (``state``), replaced by compare-and-set (``ledger``). A leader
writes it and has the workers become what it says; api processes read it and go to the workers by it. Neither needs the
other to go on::

    candidate ──► leader ─┬─ fleet        who is there: heartbeats, losses, joins
                          ├─ recovery     report → decide → open, link, build again     (placing, reconcile: pure)
                          ├─ performing   migrations, in times of calm
                          └─ ledger ──► state ──► ZooKeeper ──► directory ─► deployment ─► api
                                          ▲                        │
                             replica: the recipe played            └─ domain_router, connections, cluster_hosts

Three numbers keep the past from the present:

* the **epoch** of the state grows with each leader and each round of recovery. Workers refuse commands of an older one;
* a domain's **incarnation** is the epoch in which it was opened. Packets of an older one are dropped, wherever they
  are;
* a worker's **process** number grows with each start. A name that answers again may be nobody that was known.

What the leader does can be done twice, and what it leaves half done is found by what workers report. So there is one
way back from everything, be it a lost worker, a lost leader, a migration that failed, or a write to ZooKeeper whose
answer was lost: decide anew, compare, repair (``recovery``). Healthy domains are never touched by it.
"""
