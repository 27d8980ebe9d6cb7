"""A migration whose full part is computed in bulk: chosen, carried out, shown, cancelled. The old graph serves on.

::

    choice.py     slices or bulk? ─ base rows above the threshold, an archive, a runner, nothing in the way
    building.py   AddNodes ─► archive up to now: P ─► job ─► load ─► read the log, replay it ─► Activate
                                  │                    │       ▲
                                  ▼                    ▼       │
    job_files.py            segments, manifests ──► BulkRunner: Spark, or local_runner.py
                                                               └─ child.py: the stages in a process without Spark

Until ``Activate`` nothing that serves has changed: a cancel, a failure or a job that dies takes the new nodes back, and
with them the hold on the log. A worker that is lost has the migration begin again, as always.
"""
