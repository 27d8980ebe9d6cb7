"""``information_schema``: the catalog as tables, of which clients ask by SQL what there is.

::

    SHOW INDEX FROM stories ──shown_selects.py──► SELECT … FROM information_schema.STATISTICS WHERE …
                                              │
           catalog, and what who asks may see ├─ rows_of: the rows of the tables that it names
                                              ▼
                    plan_information ─► the planner of all SELECTs ─► EvaluationPlan over these rows

There is one way to ask, since MySQL 8 answers its SHOW statements in the same way: so each has MySQL's names, types and
order of columns in one place, ``definitions.py``, and takes WHERE, joins and all functions. The tables are in no
deployment's catalog. They have rows for the time of one question, and what a client may not see is in no row.
"""
