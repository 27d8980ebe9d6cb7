"""How a SELECT becomes the nodes that compute it.

A query becomes a :class:`~migrations.query.relation.Relation`: a plan (a tree of the engine's operators), its outputs,
and the parameters that it *carries*. Nothing enters the joint graph before all of the query is known to be right::

    sqlglot tree ─► whole: WITH ─┬─► setops: UNION ──────────────┐
                                 └─► select: PASSES over a Block │
                                       read_sources   FROM       ├─► Relation ─► view: reader, names, emit ─► JointGraph
                                       filter_rows    WHERE      │
                                       group_rows     GROUP BY   │
                                       filter_groups  HAVING     │
                                       add_windows    OVER       │
                                       list_outputs   SELECT     │
                                       sort_rows      ORDER BY ──┘

A block works on *stages* (FROM's rows, then the groups). In a stage the columns of all sources stand side by side in
one wide row, conditions are expressions over it, and ``joins.arrange`` decides at its end what is joined with what.

``column = ?`` is no condition. The column is carried up, visible or hidden, through joins, groups (which it joins),
DISTINCT and LIMIT (which then hold for each of its values), until the view's reader makes a key of it. All other
parameters stay in their expressions (``late``), and the expressions go up beside the plan: what reads one is done to
the reader's rows at each look-up (``finish``). A query that reads such a relation and nothing else is done at the
look-up, too, behind it. One that joins it is put off till then (``plans/put_off.py``), what has it as a value or a list
asks it first (``plans/parts.py``), and one that combines it refuses it.

Files, from below: ``scope`` and ``scalar`` (with ``calls``, ``literals``) read expressions; ``terms`` and ``plan``
rewrite; ``joins`` and ``stage`` arrange; ``parameters``, ``aggregates`` and ``subqueries`` take their constructs out of
expressions; ``source``, ``grouping``, ``windows``, ``select`` are the passes; ``view`` and ``finish`` make a reader of
them.
"""
