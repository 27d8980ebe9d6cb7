"""Statements: SQL text to typed values that say what is to be done, and to nothing that does it.

::

    text ──split──► Parsed, Parsed, …        one for each statement, with its own text
                       │
              interpret_one(parsed, catalog, params, now)
                       │
      ┌────────────────┼──────────────────────┬──────────────────────┐
      ddl, alter       dml → insert, assign   adhoc                  show
      new schemas      operations of the      a SELECT as a view     what the catalog
      and views        engine (packets.py)    and its arguments      and sessions answer

A later statement may depend on DDL before it, so the caller performs each statement before it has the next one
interpreted. Everything here is pure: the time comes in as ``now``, and a subquery of a write is handed back to be
asked (:class:`~migrations.statements.statement.PendingWrite`).
"""
