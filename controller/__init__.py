"""The controller: decides what the dataflow is, and has it so.

It turns statements into changes of the recipe, carries their plans out on the domains step by step, and answers what
the outside asks of a deployment (``deployment.py``, the one door that ``api/`` goes through).

::

    api ──► Deployment ──► statements ──► change_of (pure) ──► steps ──► domains
                │                                    └──► recipe ──► Authority
                └──► look-ups ──► reader map (a hit) or a Read to the domain (a miss), then the reader map

``local.py`` is the deployment in one process; it needs no ZooKeeper and no JVM. What stands on its stores is an engine
(``local_engine.py``), and where the disk fails it the next one takes its place (``reopening.py``).
"""
