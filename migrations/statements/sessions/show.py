"""SHOW, DESCRIBE, EXPLAIN, SET and the statements of sessions."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TypeVar

from domains.errors import SqlError, Unsupported
from domains.language.expressions import Field
from domains.language.functions import call
from domains.language.rewriting import fold
from domains.language.types import TEXT
from migrations.catalog import Catalog, ViewDefinition
from migrations.parse.grammar import VIRTUAL_SCHEMAS
from migrations.parse.reading import Parsed, exp, text_of
from migrations.query.expressions.literals import text
from migrations.query.expressions.scalar import Setting, scalar
from migrations.query.expressions.scope import Bound, Scope
from migrations.statements.constants import Argument, at_time, draws_values, value_of
from migrations.statements.names import known_relation, known_table
from migrations.statements.sessions.session_values import SessionValues
from migrations.statements.sessions.shown_selects import LISTED, listing, schema_of, told
from migrations.statements.statement import (
    Explain,
    Kill,
    NoOperation,
    SelectStatement,
    ShowCreate,
    Shown,
    ShowPolicies,
    ShowProcesslist,
    ShowQueries,
    ShowViews,
    Statement,
    UseSchema,
)

_NONE = Catalog()
_TRANSACTIONS = "BEGIN, COMMIT, ROLLBACK and SAVEPOINT are there, and SET autocommit by itself: each alone on /v1/sql"


def show(
    parsed: Parsed, catalog: Catalog, params: tuple[Argument, ...], setting: Setting, session: SessionValues
) -> Statement:
    """SHOW, with LIKE or WHERE; ``setting`` says what a ``?`` in them is."""
    node = parsed.expression
    what = str(node.args["this"]).upper()
    if node.args.get("like") is not None and node.args.get("where") is not None:
        raise SqlError("SHOW with LIKE and WHERE", hint="write one of them: WHERE … LIKE … AND …")
    if (query := listing(what, node, catalog, session, _pattern(node, setting))) is not None:
        return SelectStatement(
            query, parsed.sql, () if node.args.get("like") is not None else params, now=setting.now or ""
        )
    if (constant := told(what, node, catalog, session)) is not None:
        return constant
    if what == "VIEWS":
        return _chosen(ShowViews(), node, setting)
    if what == "QUERIES":
        return _chosen(ShowQueries(), node, setting)
    if what == "POLICIES":
        target = node.args.get("target")
        return ShowPolicies(None if target is None else known_table(catalog, target).title)
    if what == "PROCESSLIST":
        return _chosen(ShowProcesslist(bool(node.args.get("full"))), node, setting)
    if what in ("CREATE TABLE", "CREATE VIEW"):
        return _show_create(node, catalog, what, session)
    known = f"SHOW {LISTED}, CREATE, WARNINGS, PRIVILEGES, PROCESSLIST, GRANTS, VIEWS, QUERIES and POLICIES are there"
    raise Unsupported(f"SHOW {what}", hint=known)


def _show_create(node: exp.Expr, catalog: Catalog, what: str, session: SessionValues) -> ShowCreate:
    """SHOW CREATE TABLE or VIEW; a view is shown by either, as in MySQL."""
    target = node.args.get("target")
    if target is None or node.args.get("like") is not None or node.args.get("where") is not None:
        raise SqlError(f"SHOW {what} wants one name, and nothing else", hint=f"SHOW {what} name")
    if (schema := schema_of(node, catalog, session)) in VIRTUAL_SCHEMAS:
        raise Unsupported(f"SHOW CREATE of a table of {schema}", hint=f"DESCRIBE {schema}.{target.name}")
    relation = known_relation(catalog, target)
    is_view = isinstance(relation, ViewDefinition)
    if what == "CREATE VIEW" and not is_view:
        raise SqlError(f'"{relation.title}" is a table', hint=f"SHOW CREATE TABLE {relation.title}")
    return ShowCreate(relation.title, is_view)


S = TypeVar("S", bound=Shown)


def _chosen(shown: S, node: exp.Expr, setting: Setting) -> S:
    """The shown rows that fulfil the condition of LIKE, which is on the first column and in any case as names are, or
    of WHERE."""
    pattern, clause = _pattern(node, setting), node.args.get("where")
    scope = Scope(Bound("", name, Field(i, TEXT)) for i, name in enumerate(shown.columns))
    if pattern is not None:
        name, like = (call("lower", each) for each in (scope.bounds[0].field, text(pattern)))
        return replace(shown, where=call("like", name, like))
    return shown if clause is None else replace(shown, where=fold(scalar(clause.this, scope, setting)))


def _pattern(node: exp.Expr, setting: Setting) -> str | None:
    written = node.args.get("like")
    if written is None:
        return None
    pattern = value_of(scalar(written, Scope(()), setting))
    if not isinstance(pattern, str):
        raise SqlError("the pattern of LIKE is not a text", hint="SHOW … LIKE 'pattern'")
    return pattern


def describe(
    parsed: Parsed, catalog: Catalog, params: tuple[Argument, ...], now: str, session: SessionValues
) -> SelectStatement | Explain:
    """DESCRIBE table or view; EXPLAIN view; EXPLAIN [ANALYZE] SELECT. ``EXPLAIN table`` is DESCRIBE, as in MySQL.

    Behind the name of DESCRIBE may stand that of a column, or a pattern.
    """
    node = parsed.expression
    target = node.this
    style = str(node.args.get("style") or "").upper()
    if node.args.get("format") or style not in ("", "ANALYZE"):
        raise Unsupported(f"EXPLAIN {style or 'FORMAT'}", hint="EXPLAIN view, or EXPLAIN [ANALYZE] SELECT …")
    if isinstance(target, exp.Query):
        text = parsed.sql[parsed.sql.upper().index("ANALYZE") + 7 :] if style else re.sub(r"^\s*\w+\s+", "", parsed.sql)
        timed = at_time(target, now)
        draws = draws_values(parsed.sql, target)
        select = SelectStatement(
            timed, text.lstrip(), params, of_now=timed is not target or draws, draws=draws, now=now
        )
        return Explain(select, analyze=bool(style))
    if style:
        raise Unsupported("EXPLAIN ANALYZE of what is no SELECT", hint="EXPLAIN ANALYZE SELECT …")
    if not isinstance(target, exp.Table):
        raise Unsupported(f"EXPLAIN {target.key.upper()}", hint="EXPLAIN view, or EXPLAIN SELECT …")
    if target.args.get("partition") is not None:
        raise Unsupported("partitions of a table", hint=f"DESCRIBE {target.name}")
    if schema_of(node, catalog, session) not in VIRTUAL_SCHEMAS and (explained := _explained(parsed, target, catalog)):
        return explained
    query = listing("COLUMNS", node, catalog, session, _pattern(node, Setting()))
    assert query is not None, "it lists columns"
    return SelectStatement(query, parsed.sql, now=now)


def _explained(parsed: Parsed, target: exp.Expr, catalog: Catalog) -> Explain | None:
    """EXPLAIN view; None: it is DESCRIBE."""
    node = parsed.expression
    name = known_relation(catalog, target.this).title
    explaining = parsed.sql[:7].upper() == "EXPLAIN"
    if explaining and name.lower() in catalog.views and node.args.get("like") is None:
        return Explain(name)
    if explaining and str(node.args.get("kind") or "").upper() == "VIEW":
        raise SqlError(f'"{name}" is a table', hint=f"DESCRIBE {name}")
    return None


def kill(node: exp.Expr) -> Kill:
    """KILL number, or KILL CONNECTION number; KILL QUERY number leaves a connection open.

    :raises SqlError: it is no number.
    """
    kind = node.args.get("kind")
    if kind is not None and kind.name.upper() not in ("QUERY", "CONNECTION"):
        raise SqlError(f"KILL {kind.name.upper()}", hint="KILL number; SHOW PROCESSLIST has the numbers")
    if not isinstance(node.this, exp.Literal) or not node.this.is_int:
        raise SqlError("KILL wants the number of a statement", hint="SHOW PROCESSLIST has the numbers")
    return Kill(int(node.this.name), query=kind is not None and kind.name.upper() == "QUERY")


def session(parsed: Parsed, catalog: Catalog = _NONE) -> NoOperation | UseSchema:
    """Statements that clients send by habit: SET NAMES and system variables do nothing; the rest is refused.
    What SET says of user variables is done by whoever has the request's (``user_variables.py``).

    :raises Unsupported: transactions, locks.
    """
    node = parsed.expression
    if isinstance(node, exp.Set):
        for item in node.expressions:
            _check_set_item(item)
        return NoOperation("sessions have no settings")
    if isinstance(node, exp.Use):
        return UseSchema(catalog.known_schema(node.this.name))
    if parsed.transaction is not None:
        raise Unsupported(f"{parsed.transaction.deed.value} here", hint=_TRANSACTIONS)
    raise Unsupported(f"the statement {parsed.sql.split(None, 1)[0].upper()}")


def check_reach(item: exp.Expr) -> None:
    """:raises Unsupported: what SET sets is not the session's."""
    if str(item.args.get("kind") or "").upper() == "TRANSACTION":
        raise Unsupported("SET TRANSACTION", hint=_TRANSACTIONS)
    assignment = item.this
    if not isinstance(assignment, exp.EQ):
        return
    reach = str(item.args.get("kind") or assignment.this.args.get("kind") or "").upper()
    if reach in ("GLOBAL", "PERSIST", "PERSIST_ONLY"):
        raise Unsupported(f"SET {reach}", hint="a deployment's settings are options of headrace serve and up")
    if assignment.this.name.upper() == "PASSWORD":
        raise Unsupported("SET PASSWORD")


def _check_set_item(item: exp.Expr) -> None:
    check_reach(item)
    assignment = item.this
    if not isinstance(assignment, exp.EQ) or isinstance(assignment.this, exp.Parameter):
        return
    check_variable(assignment.this.name.lower(), text_of(assignment.expression).strip("'\"").upper())


def check_variable(name: str, value: str) -> None:
    """:raises Unsupported: statements would have other answers in a session that has this value."""
    if name == "autocommit" and value in _OFF:
        raise Unsupported("SET autocommit = 0", hint=_TRANSACTIONS)
    if name == "sql_mode" and (other := _OTHER_MODES & set(re.findall(r"\w+", value))):
        raise Unsupported(f"the SQL mode {min(other)}", hint="statements are read as in MySQL's default mode")
    if name in _FIXED and value != "DEFAULT" and value not in _FIXED[name]:
        only = " or ".join(each for each in _FIXED[name]) or "its default"
        raise Unsupported(f"SET {name} = {value}", hint=f"it is {only} here")


_OFF = ("0", "OFF", "FALSE")
_ON = ("1", "ON", "TRUE")
_MODES = (
    "ANSI ANSI_QUOTES DB2 HIGH_NOT_PRECEDENCE MAXDB MSSQL NO_BACKSLASH_ESCAPES "
    "NO_UNSIGNED_SUBTRACTION ORACLE PAD_CHAR_TO_FULL_LENGTH PIPES_AS_CONCAT POSTGRESQL TIME_TRUNCATE_FRACTIONAL"
)
_OTHER_MODES = frozenset(_MODES.split())
"""The modes in which a text means something else. Not NO_AUTO_VALUE_ON_ZERO (``setting.py``), and not those that
are stricter or less strict than we are: we say so."""
_FIXED: dict[str, tuple[str, ...]] = {
    "auto_increment_increment": ("1",),
    "auto_increment_offset": ("1",),
    "default_week_format": ("0",),
    "div_precision_increment": ("4",),
    "explicit_defaults_for_timestamp": _ON,
    "insert_id": (),
    "last_insert_id": (),
    "lc_time_names": ("EN_US",),
    "sql_auto_is_null": _OFF,
    "sql_generate_invisible_primary_key": _OFF,
    "sql_require_primary_key": _OFF,
    "sql_safe_updates": _OFF,
    "sql_select_limit": ("18446744073709551615",),
    "system_versioning_asof": (),
    "time_zone": ("+00:00", "UTC", "SYSTEM"),
    "timestamp": ("0",),
}
"""Variables that an answer depends on in MySQL, and the values that say how it is here."""
