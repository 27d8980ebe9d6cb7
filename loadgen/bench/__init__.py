"""``headrace bench``: how fast the engine is, as ratios to what one would otherwise write or run.

Absolute figures say more about the machine than about the program. So each measurement has a peer that does the same
work on the same machine in the same run, turn and turn about, and what counts is the ratio of the medians of the
rounds. A machine that is busy with other things slows both sides; figures by processor time are in the JSON beside
those by the clock.

::

    writes     Dataflow over RocksDB    against    dicts and the same RocksDB writes
    reads      GET of one key           against    constant bytes under the same uvicorn
    keyed      GET with an API key      against    GET of a server without accounts
    lookups    1,000 keys a request     against    a dict under the same uvicorn
    new-view   CREATE VIEW, first read  against    CREATE TABLE AS in DuckDB
    memory     a view under a limit     against    the same view full
    insert     one row after the other  against    MariaDB, where it is installed
    adhoc      SELECTs without a view   against    the same, with the same indexes

``ratios.py`` runs these, and compares the quick ratios of writes, reads and lookups with committed ones (``--guard``).
``headrace bench scale`` (``scaling/``) measures what a request costs on clusters of 1, 2 and 4 workers, ``headrace
bench replay`` how fast base logs are read back, with Spark and without, and ``headrace bench rebuild`` how fast a
cluster recovers a lost disk from the archive, in the same two ways. ``rounds.py`` compares ``headrace loadgen`` on
Headrace with MariaDB, PostgreSQL and Redis, which ``servers.py`` starts. ``docs/performance.md``, ``docs/scaling.md``
and ``docs/benchmarks.md`` have the figures. Only the guard fails because something is slow.
"""
