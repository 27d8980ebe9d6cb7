"""The planner: from SQL text and what runs already to an ordered list of steps. Pure.

A *migration* is a change of the running dataflow: views and tables that come and go. Nothing in this room performs
one; it only says what is to be done, as values that can be printed, compared and taken back::

    text ── parse ──► statements/ ── a change of schema ──────────────────────┐
                          │                                                   ▼
                          └── CREATE VIEW ──► query/ ──► joint_graph ──► dataflow ──► plan ──► steps, and their undoing
                                            operators,   equal things    placed, with  commands
                                            parameters   as one node     state, why    for domains

The same recipe gives the same graph, node for node, so a recipe is all that a restart needs. Therefore nothing
here may depend on anything but its arguments: no clock, no randomness, no order of a set.

==================  ============================================================================================
``syntax``          the only module that imports sqlglot, with what is not MySQL taken out of its parser
``grammar``         what of its trees is known; anything else is refused by name
``writing``         a query's tree as a text that reads back as the same tree
``parse``           statements from text; errors get line and column here
``tree``            quick walks over what it gives
``catalog``         tables and views by name, and who reads whom
``query/``          a SELECT as a tree of operators with parameters; its passes are a tuple in ``select.py``
``statements/``     every other statement, as a value that says what is to be done
``joint_graph``     all views' operators in one graph, equal ones once
``provenance``      where a column comes from: what decides whether a node may be partial
``materialize``     what each node keeps, by which columns, and why it is full where it is
``dataflow``        placed nodes with ingresses and egresses between domains; ``extension`` adds a migration's
``sharding``        how each operator stands in shards, and what it wants of its parents
``routing``         which shards a write goes to, and which shard has a key
``plan``            the steps, each for one domain, reversible until the last
``change``          one entry of the recipe worked out; ``recipe`` is all of them
``explain``         a view's part of the dataflow as a tree
==================  ============================================================================================
"""
