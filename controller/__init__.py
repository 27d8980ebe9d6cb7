"""The controller: decides what the dataflow is, and carries the decision out.

It turns statements into changes of the recipe, carries their plans out on the domains step by step, and answers
requests to a deployment (``deployment.py``, the one door that ``api/`` goes through).

::

    api ──► Deployment ──► statements/ ──► change_of (pure) ──► migrating/: steps ──► domains
                │                                    └──► recipe ──► Authority
                └──► lookups/ ──► reader map (a hit) or a Read to the domain (a miss), then the reader map

``embedded/`` is the deployment in one process; it needs no ZooKeeper and no JVM. An engine (``local_engine.py``) opens
its stores; when the disk fails it, the next one takes its place (``reopening.py``). ``cluster/`` is the deployment over
many processes.
"""
