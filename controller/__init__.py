"""The controller: decides what the dataflow is, and carries the decision out.

It turns statements into changes of the recipe, carries out their plans on the domains step by step, and answers
requests to a deployment (``deployment.py``, the only interface that ``api/`` uses).

::

    api ──► Deployment ──► statements/ ──► change_of (pure) ──► migrating/: steps ──► domains
                │                                    └──► recipe ──► Authority
                └──► lookups/ ──► reader map (a hit) or a Read to the domain (a miss), then the reader map

``embedded/`` is the deployment in one process, without ZooKeeper and JVM. Its engine (``local_engine.py``) opens the
stores; after a failure of the disk another engine takes its place (``reopening.py``). ``cluster/`` is the deployment
over many processes.
"""
