"""SHOW, DESCRIBE, EXPLAIN, SET and the statements of sessions."""

from __future__ import annotations

import re

from domains.errors import SqlError, Unsupported
from migrations.catalog import Catalog
from migrations.parse import Parsed, exp, text_of
from migrations.statements.constants import Argument
from migrations.statements.names import known_relation
from migrations.statements.statement import (
    Describe,
    Explain,
    NoOperation,
    SelectStatement,
    ShowTables,
    ShowViews,
)

_TRANSACTIONS = "each statement is applied whole or not at all; put rows that belong together into one INSERT"


def show(parsed: Parsed, catalog: Catalog) -> ShowTables | ShowViews | Describe:
    """SHOW [FULL] TABLES, SHOW VIEWS, SHOW COLUMNS FROM table."""
    node = parsed.expression
    what = str(node.args["this"]).upper()
    if any(node.args.get(key) is not None for key in ("like", "where", "db", "offset", "limit")):
        raise Unsupported(f"SHOW {what} with LIKE, WHERE or FROM a database", hint=f"SHOW {what}")
    if what == "TABLES":
        return ShowTables(full=bool(node.args.get("full")))
    if what == "VIEWS":
        return ShowViews()
    if what in ("COLUMNS", "FIELDS") and node.args.get("target") is not None:
        return Describe(known_relation(catalog, node.args["target"]).name, full=bool(node.args.get("full")))
    raise Unsupported(f"SHOW {what}", hint="SHOW TABLES, SHOW VIEWS and SHOW COLUMNS FROM table are there")


def describe(parsed: Parsed, catalog: Catalog, params: tuple[Argument, ...]) -> Describe | Explain:
    """DESCRIBE table or view; EXPLAIN view; EXPLAIN SELECT. ``EXPLAIN table`` is DESCRIBE, as in MySQL."""
    node = parsed.expression
    target = node.this
    if node.args.get("style") or node.args.get("format"):
        raise Unsupported("EXPLAIN with ANALYZE or FORMAT", hint="EXPLAIN view, or EXPLAIN SELECT …")
    if isinstance(target, exp.Query):
        text = re.sub(r"^\s*\w+\s+", "", parsed.sql)
        return Explain(SelectStatement(target, text, params))
    if not isinstance(target, exp.Table):
        raise Unsupported(f"EXPLAIN {target.key.upper()}", hint="EXPLAIN view, or EXPLAIN SELECT …")
    name = known_relation(catalog, target).name
    explaining = parsed.sql[:7].upper() == "EXPLAIN"
    if explaining and name.lower() in catalog.views:
        return Explain(name)
    if explaining and str(node.args.get("kind") or "").upper() == "VIEW":
        raise SqlError(f'"{name}" is a table', hint=f"DESCRIBE {name}")
    return Describe(name)


def session(parsed: Parsed) -> NoOperation:
    """What clients say by habit: SET NAMES and system variables and USE do nothing; the rest would promise too much.

    :raises Unsupported: transactions, user variables, locks.
    """
    node = parsed.expression
    if isinstance(node, exp.Set):
        for item in node.expressions:
            _check_set_item(item)
        return NoOperation("sessions have no settings")
    if isinstance(node, exp.Use):
        return NoOperation("there is one database")
    if isinstance(node, (exp.Transaction, exp.Commit, exp.Rollback)):
        word = {exp.Transaction: "BEGIN", exp.Commit: "COMMIT", exp.Rollback: "ROLLBACK"}[type(node)]
        raise Unsupported(f"transactions ({word})", hint=_TRANSACTIONS)
    raise Unsupported(f"the statement {parsed.sql.split(None, 1)[0].upper()}")


def _check_set_item(item: exp.Expr) -> None:
    if str(item.args.get("kind") or "").upper() == "TRANSACTION":
        raise Unsupported("SET TRANSACTION", hint=_TRANSACTIONS)
    assignment = item.this
    if not isinstance(assignment, exp.EQ):
        return
    if isinstance(assignment.this, exp.Parameter):
        raise Unsupported(f"user variables (@{assignment.this.name})", hint="use a parameter: ?")
    value = text_of(assignment.expression).strip("'\"").upper()
    if assignment.this.name.lower() == "autocommit" and value in ("0", "OFF", "FALSE"):
        raise Unsupported("SET autocommit = 0", hint=_TRANSACTIONS)
