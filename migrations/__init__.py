"""The planner: from SQL text and the running dataflow to an ordered list of steps. Pure.

A *migration* is a change of the running dataflow: views and tables come and go. Nothing here performs one; the planner
returns steps, as values that can be printed, compared and undone::

    text ── parse/ ─► statements/ ── a change of schema ──────────────────────┐
                          │                                                   ▼
                          └── CREATE VIEW ─► query/ ─► joint_graph/ ─► flow/: dataflow ─► plan: steps, and their undoing
                                           operators,  equal things    placed, with  commands
                                           parameters  as one node     state, why    for domains

The same recipe gives the same graph, node for node, so a recipe is all that a restart needs. Therefore nothing here
depends on anything but its arguments: no clock, no randomness, no order of a set.

==================  ============================================================================================
``parse/``          statements from text, the only room that imports sqlglot; an unknown construct is refused by name
``query/``          a SELECT as a tree of operators with parameters; its passes are a tuple in ``select.py``
``statements/``     every other statement, as a value
``joint_graph/``    all views' operators in one graph, equal ones once; what each node keeps, and why
``flow/``           placed nodes, with ingresses and egresses between domains, in shards; the steps of a migration
``backfill/``       building full state in bulk; ``backfill/spark/`` runs it in Spark
``spark_sql/``      a view's text as Spark SQL, for ``headrace verify``
``catalog``         tables and views by name, and who reads whom
``change``          one entry of the recipe, worked out; ``recipe`` is all of them
==================  ============================================================================================
"""
