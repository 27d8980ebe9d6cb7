"""The one room that knows Spark: jobs over the archive, each in a process of its own. Nothing that serves is in here.

A job is a child process, ``python -m migrations.backfill.spark JOB``, with a Java virtual machine below it. Whoever
wants one starts it by ``launching.py``, which imports no Spark, and hears of it as lines of JSON; so a server pays
for Spark (a second of imports, a JVM of some hundred megabytes) only while a job runs, and not in its own memory even
then::

    parent ── what to do, one line on stdin ──► child ── py4j ──► JVM ──► tasks: Python workers with our own code
       ▲                                          │
       └── {"progress": …} lines, a last one ◄────┘      SIGTERM, or the end of stdin: cancelled, and the JVM with it

==================  ============================================================================================
``settings.py``     which Spark, how large: plain values
``launching.py``    :class:`SparkJob`: starts a child at a low priority, follows it, cancels it, leaves no orphan
``__main__.py``     the child: JSON in, JSON out, signals
``session.py``      the only start and stop of a Spark session, every setting with its reason, our code as a zip
``segments.py``     the archive's files: opened by URL, checked against their manifest before a row of them counts
``fold.py``         a table as of a position: the sum of its weights
``small_jobs.py``   counts tables, reads files that are to be loaded, says what Spark runs with
``verify.py``       the judge: compares a view's SQL by Spark with what its readers hold
``rebuild.py``      base shards as sorted runs
``runner.py``       :class:`SparkRunner`: bulk jobs, as the controller starts them
``bulk.py``         the stages of a bulk job, run
``reporting.py``    rows that tasks have read and fed, while they run; Spark's failures as errors of ours
``daemon.py``       what workers are forked from
==================  ============================================================================================
"""
