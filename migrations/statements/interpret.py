"""One dispatcher: a parsed statement to what it means."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from domains.errors import Unsupported
from domains.language.expressions import Constant
from domains.language.types import Value
from migrations.catalog import Catalog
from migrations.parse.reading import Parsed, exp, parse, text_of
from migrations.query.expressions.scalar import Setting
from migrations.query.select import constant_select, reads_nothing
from migrations.statements import dml
from migrations.statements.constants import (
    Argument,
    at_time,
    check_params,
    constant_of,
    draws_values,
    placeholders,
    scalars,
)
from migrations.statements.definitions import alter, ddl
from migrations.statements.policies import defining
from migrations.statements.sessions import show
from migrations.statements.sessions.session_values import NO_SESSION, SessionValues, with_session_values
from migrations.statements.statement import ConstantSelect, SelectStatement, Statement
from migrations.statements.subqueries import literal_node


def split(sql: str) -> list[Parsed]:
    """The statements of a text; ``DROP TABLE a, b`` is two.

    :raises SqlSyntaxError: with line and column.
    """
    statements: list[Parsed] = []
    for parsed in parse(sql):
        names = parsed.expression.args.get("tables") if isinstance(parsed.expression, exp.Drop) else None
        if not names or len(names) == 1:
            statements.append(parsed)
            continue
        for name in names:
            single = parsed.expression.copy()
            single.set("tables", [name.copy()])
            exists = "IF EXISTS " if single.args.get("exists") else ""
            statements.append(Parsed(single, f"DROP {single.args['kind']} {exists}{text_of(name)}"))
    return statements


def interpret_one(
    parsed: Parsed, catalog: Catalog, params: Sequence[Any], now: str, session: SessionValues = NO_SESSION
) -> Statement:
    """The meaning of one statement, given the values of its ``?``, the time (``2026-01-31 08:00:00``) and who asks.

    A definition (CREATE, ALTER, DROP) takes no values, and of the time what the recipe has, or "".

    :raises HeadraceError: of the kinds that the called modules name.
    """
    node = parsed.expression
    if isinstance(node, (exp.Create, exp.Alter, exp.Drop)):
        return _definition(parsed, catalog, now)
    parsed = with_session_values(parsed, session)
    node = parsed.expression
    arguments = check_params(parsed, params)
    if isinstance(node, (exp.Insert, exp.Update, exp.Delete)):
        return dml.write(parsed, catalog, scalars(arguments), now)
    if isinstance(node, exp.TruncateTable):
        return dml.truncate(parsed, catalog, checked=bool(session.variables.get("foreign_key_checks", True)))
    if isinstance(node, exp.Query):
        return _select(parsed, node, arguments, now)
    if isinstance(node, exp.Show):
        given = _given(node, scalars(arguments))
        setting = Setting(placeholder=lambda mark: given[id(mark)], now=now, place="SHOW")
        return show.show(parsed, catalog, arguments, setting, session)
    if isinstance(node, exp.Describe):
        return show.describe(parsed, catalog, arguments, now, session)
    if isinstance(node, exp.Kill):
        return show.kill(node)
    return show.session(parsed, catalog)


_DEFINITIONS: dict[tuple[type[exp.Expr], str], Callable[[Parsed, Catalog], Statement]] = {
    **dict.fromkeys([(exp.Create, "DATABASE"), (exp.Create, "SCHEMA")], ddl.create_schema),
    **dict.fromkeys([(exp.Drop, "DATABASE"), (exp.Drop, "SCHEMA")], ddl.drop_schema),
    (exp.Create, "TABLE"): ddl.create_table,
    (exp.Create, "VIEW"): ddl.create_view,
    (exp.Create, "INDEX"): alter.create_index,
    (exp.Drop, "TABLE"): ddl.drop_table,
    (exp.Drop, "VIEW"): ddl.drop_view,
    (exp.Drop, "INDEX"): alter.drop_index,
    (exp.Create, "POLICY"): defining.create_policy,
    (exp.Drop, "POLICY"): defining.drop_policy,
}


def _definition(parsed: Parsed, catalog: Catalog, now: str) -> Statement:
    node = parsed.expression
    if isinstance(node, exp.Alter):
        return alter.alter_table(parsed, catalog, now)
    kind = str(node.args.get("kind") or "").upper()
    known = _DEFINITIONS.get((type(node), kind))
    if known is None:
        raise Unsupported(f"{node.key.upper()} {kind}".strip(), hint="tables, views and indexes are there")
    return known(parsed, catalog)


def _select(parsed: Parsed, query: exp.Query, arguments: tuple[Argument, ...], now: str) -> Statement:
    while isinstance(query, exp.Subquery) and not _has_own_clauses(query):
        if not isinstance(query.this, exp.Query):
            raise Unsupported(f"{query.this.key.upper()} as a statement", hint="SELECT … FROM …")
        query = query.this
    if reads_nothing(query):
        return _constant(query, scalars(arguments), now)
    timed = at_time(query, now) if _MAY_ASK_TIME.search(parsed.sql) else query
    draws = draws_values(parsed.sql, query)
    return SelectStatement(timed, parsed.sql, arguments, of_now=timed is not query or draws, draws=draws, now=now)


_MAY_ASK_TIME = re.compile("now|curdate|curtime|current_|localtime|sysdate|utc_|unix_timestamp", re.IGNORECASE)
"""In the text of what :func:`at_time` has something to do for: to go through a tree takes longer."""


def _given(node: exp.Expr, values: tuple[Value, ...]) -> dict[int, Constant]:
    """The value of each ``?``, by the node's id."""
    return {id(mark): constant_of(value) for mark, value in zip(placeholders(node), values, strict=True)}


def _has_own_clauses(query: exp.Subquery) -> bool:
    return any(query.args.get(clause) for clause in ("order", "limit", "offset", "with_"))


def _constant(query: exp.Query, values: tuple[Value, ...], now: str) -> ConstantSelect:
    query = query.copy()
    given = _given(query, values)
    for clause in (query.args.get("limit"), query.args.get("offset")):
        for node in clause.find_all(exp.Placeholder) if clause is not None else ():
            node.replace(literal_node(given[id(node)].value))
    setting = Setting(placeholder=lambda node: given[id(node)], now=now, place="SELECT without FROM")
    answer = constant_select(query, setting)
    return ConstantSelect(answer.columns, answer.rows)
