"""The suites of SQLAlchemy and Alembic, unmodified, by MySQL's protocol: beside MariaDB, test by test.

::

    pip download (sources) ─► cache/ ─► pytest, in an environment of its own ┬─► MariaDB ──► results ┐
                                                                             └─► Headrace ─► results ┴─► differences

``python -m tests.orms`` runs them (``make orms``). What MariaDB passes and Headrace skips is among the differences.
"""
