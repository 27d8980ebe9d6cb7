"""Bulk backfill: the full part of a migration computed from the archive, outside of the workers that serve.

::

    plan, tables at P ──► stages.py ──► Job: stages of tasks, one a domain and stage
                                         │
      fold of each base shard at P ──►  run_task  ──rows by link──► run_task (next stage) ──► …
                                         │                             │
                                         └─► states of full vertices ◄─┘  in files under the staging directory

A task is *our own domain* over a ``MemoryStore``: one set of operator semantics, two places to run it. What runs the
tasks is a :class:`~migrations.backfill.runner.BulkRunner`: Spark, or a child process without it. Who loads what comes
out, and has the log after P followed, is the controller.

==============  ================================================================================================
``job``         what is to be done, as a value: stages, tasks, tables and their positions; and what came out
``stages``      from a dataflow's new nodes to tasks, and which columns of a table each reads
``task``        one task run: tables and links in, states and links out
``runner``      the protocol of who runs a job
==============  ================================================================================================
"""
