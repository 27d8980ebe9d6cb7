"""The differential campaign: random programs, run by Headrace and by a judge that shares none of its code.

A *case* grows out of one seed: a schema, views, and a list of operations (writes, look-ups, evictions, memory
pressure, restarts, packets delivered one at a time, migrations in the middle). The case runs against a ``Subject``
and, beside it, a ``Judge`` keeps the same tables in SQLite. At quiescence every view must answer what the judge does::

    seed ─► cases ─► operations ──► MySQL text ───► Subject   (subject.py)
              │  terms, queries │                       │ rows
              │  writes         └─► judge's text ► Judge │ (judge.py: SQLite and functions in Python)
              ▼                                     ▼   ▼
            shrink ◄────────── failure ◄──────── comparison

Tables have every kind of column, ENUM, SET and JSON too, keys, CHECK conditions, generated columns and foreign keys
(``schema.py``, ``constraints.py``). Columns, keys, checks and foreign keys come and go, tables are renamed, and columns
have other names, types and places, for a while or for good, with writes, look-ups, evictions and restarts meanwhile.
AUTO_INCREMENT gives numbers that no row has had. What a write leaves behind, in
each table that it cascades to, is a model in Python (``judged_writes.py``), which MariaDB judges in turn
(``tests/comparisons/test_judge_of_writes.py``). ``test_planted.py`` has a mistake for each of these that is found.

Every generated expression is a tree that knows its SQL type and prints itself twice: as MySQL for the subject and as
SQLite with our own functions for the judge. So the judge never parses SQL, and a planner's misreading of a statement
cannot be shared by both sides. Where engines differ the judge follows MySQL 8 (division, AVG, NULL order, casts).

Two more draw text by a grammar, in which one query nests in another: ``beside.py`` beside MariaDB, and ``constants.py``
with parameters in any place, beside the same SELECT with its values written out.

    python -m tests.campaign --seconds 60 --seed 1

A failure is shrunk and printed as a script, with a one-line command that runs the shrunk case again.
"""
