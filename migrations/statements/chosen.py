"""UPDATE and DELETE whose rows a SELECT chooses: with joins, correlated subqueries, WITH, ORDER BY with LIMIT.

::

    UPDATE t JOIN u ON … SET t.a = u.b + 1 WHERE …
      ──►  SELECT t.id, t.a, …, u.b + 1 FROM t JOIN u ON … WHERE …       the rows, and what is set beside them
      ──►  Amend(rows, beside, a = beside[0])                            one step of the engine

The SELECT is evaluated over one cut of the base tables. Another write may come between it and the step that writes, as
between two statements of an application. The rows that are written are safe from that: the step does nothing unless
all of them are stored still as the SELECT saw them, and then whoever asks chooses anew.

Of several tables that are written to (``UPDATE t JOIN u … SET t.a = 1, u.b = 2``, ``DELETE t, u FROM …``) the SELECT
has the rows of each, and the step writes all of them in one commit (``Amend.also``): each row once, however often it
was matched.

What is set may name other tables only in the SELECT, so it is computed there. An expression of the row alone is left to
the step, where a later assignment sees an earlier one's value.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from domains.errors import SqlError, Unsupported
from domains.language.expressions import Constant, Expression, Field
from domains.language.types import Column, Row, TableSchema, Value
from domains.plan.packets import Amend
from migrations.catalog import Catalog
from migrations.parse.reading import exp, nodes, text_of
from migrations.query.expressions import calls
from migrations.query.expressions.scalar import Setting, scalar
from migrations.query.expressions.scope import Scope
from migrations.statements.constants import NO_COLUMNS, at_time, placeholders
from migrations.statements.definitions.sharded import factor, refuse_moving
from migrations.statements.names import column_position, written_table
from migrations.statements.statement import ChosenTable, ChosenWrite, SelectStatement, WriteStatement
from migrations.statements.stored import assignments, is_default, refuse_generated, stamps
from migrations.statements.subqueries import literal_node

_CLOCK_TYPES = {"datetime": "DATETIME", "date": "DATE"}


def is_joined(node: exp.Expr) -> bool:
    """Whether UPDATE or DELETE names more than one table."""
    return bool(node.args.get("using") or node.this.args.get("joins") or len(node.args.get("tables") or ()) > 1)


def choose(node: exp.Update | exp.Delete, catalog: Catalog, params: tuple[Value, ...], now: str) -> ChosenWrite:
    """:raises Unsupported: what is set depends on the order of the assignments; or several tables are written to, and
    their rows may be in different shards.
    :raises SqlError, UnknownName: the table or column that is written to is not in reach, or ambiguous.
    """
    verb = node.key.upper()
    node = _stated(node, params, now)
    if is_joined(node) and (node.args.get("order") or node.args.get("limit")):
        raise SqlError(f"{verb} of several tables takes no ORDER BY and no LIMIT", hint="choose the rows in a subquery")
    source = (node.args.get("using") or [node.this])[0]
    shown: list[exp.Expr] = []
    tables: list[ChosenTable] = []
    for target, items in _targets(node, [source, *(join.this for join in source.args.get("joins") or ())], catalog):
        if target.name.lower() in _ctes(node):
            raise SqlError(f'"{target.name}" is a name of WITH, which cannot be written to')
        schema = written_table(catalog, _plain(target))
        _refuse_unsure(verb, schema, target, source)
        first = len(shown)
        for at in schema.live():
            column = exp.column(*(exp.to_identifier(n, quoted=True) for n in (schema.columns[at].name, _named(target))))
            shown.append(exp.alias_(column, f"row_{len(shown)}", quoted=True) if first else column)
        changes = _changes(node, schema, _named(target), items, shown, now) if isinstance(node, exp.Update) else None
        refuse_moving(schema, (position for position, _ in changes or ()), catalog.shards)
        times = stamps(schema, (position for position, _ in changes), now) if changes is not None else ()
        tables.append(ChosenTable(schema, range(first, len(shown)), changes, times))
    _refuse_spread(verb, [table.schema for table in tables], catalog.shards)
    select = exp.Select(expressions=shown, from_=exp.From(this=source))
    for clause in ("with_", "where", "order", "limit"):
        if node.args.get(clause) is not None:
            select.set(clause, node.args[clause])
    if node.args.get("ignore") and not node.args.get("order"):
        schema = tables[0].schema  # In the order that a write without a choice takes.
        keys = [exp.Ordered(this=shown[schema.live().index(at)].copy()) for at in schema.primary_key]
        select.set("order", exp.Order(expressions=keys) if keys else None)
    timed = at_time(select, now)
    draws = _draws(timed)
    if draws and is_joined(node):
        raise Unsupported(f"RAND() or UUID() in {verb} with joins", hint="choose the rows by WHERE id IN (SELECT …)")
    statement = SelectStatement(timed, text_of(timed), of_now=timed is not select or draws, draws=draws, now=now)
    # Equal rows are chosen, or draw their values, one by one.
    single = bool(node.args.get("limit")) or draws
    return ChosenWrite(tuple(tables), statement, single, ignore=bool(node.args.get("ignore")))


def _named(target: exp.Table) -> str:
    return str(target.alias_or_name)


def _changes(
    node: exp.Update, schema: TableSchema, alias: str, items: Sequence[exp.Expr], shown: list[exp.Expr], now: str
) -> tuple[tuple[int, Expression | int], ...]:
    """What is set of one table; what depends on more than its row is ``shown`` behind its columns."""
    joined, rows = is_joined(node), len(shown)
    changes: list[tuple[int, Expression | int]] = []
    scope = Scope.of_table(schema, alias)
    set_before: set[str] = set()
    for item in items:
        position = column_position(schema, item.this.name, item.this)
        value = item.args["expression"]
        if not is_default(value):
            refuse_generated(schema, (position,))
        if is_default(value) or not (_draws(value) or (_reads_columns(value) if joined else _asks(value))):
            plain = exp.EQ(this=exp.column(item.this.this), expression=value)
            changes += assignments([plain], schema, scope, Setting(place=node.key.upper()), now)
        else:
            if not joined:
                _refuse_order(value, set_before, alias)
            changes.append((position, len(shown) - rows))
            shown.append(exp.alias_(exp.paren(value), f"value_{len(shown)}", quoted=True))
        set_before.add(item.this.name.lower())
    return tuple(changes)


def chosen(write: ChosenWrite, columns: Sequence[Column], rows: Sequence[Row]) -> WriteStatement:
    """The write, given what its SELECT answered (values as the engine has them). A row that several rows of the other
    tables match is there once, with the first of them."""
    first, *others = (_amended(write, table, columns, rows) for table in write.tables)
    return WriteStatement(replace(first, also=tuple(others)), write.returning)


def _amended(write: ChosenWrite, table: ChosenTable, columns: Sequence[Column], rows: Sequence[Row]) -> Amend:
    schema = table.schema
    live, width = schema.live(), len(schema.columns)
    behind = range(table.columns.start + len(live), table.columns.stop)
    found: list[tuple[Row, Row]] = []
    for answer in rows:
        values: list[Value] = [None] * width
        for at, value in zip(live, answer[table.columns.start : behind.start], strict=True):
            values[at] = value
        if not any(values[at] is None for at in schema.primary_key):  # An outer join found no row of this table.
            found.append((tuple(values), answer[behind.start : behind.stop]))
    if not write.single:
        first: dict[Row, Row] = {}
        for row, extra in found:
            first.setdefault(row, extra)
        found = list(first.items())
    given: list[tuple[int, Expression]] = []
    for position, change in table.changes or ():
        if isinstance(change, int):
            given.append((position, Field(width + change, columns[behind[change]].type)))
        else:
            given.append((position, change))
    stored = tuple([row for row, _ in found])
    beside = tuple([extra for _, extra in found]) if table.changes else ()
    changes = None if table.changes is None else tuple(given)
    told = write.returning is not None
    return Amend(schema.name, stored, beside, changes, write.single, told, table.stamps, ignore=write.ignore)


def _stated(node: exp.Update | exp.Delete, params: tuple[Value, ...], now: str) -> exp.Update | exp.Delete:
    """The statement with its parameters, and the time, written as literals: the SELECT has its values in another order,
    and knows no time."""
    node = node.copy()
    for mark, value in zip(placeholders(node), params, strict=True):
        mark.replace(literal_node(value))
    setting = Setting(now=now, place=node.key.upper())
    for part in list(node.find_all(*calls.NODES)):
        kind = calls.CLOCK.get(calls.spelled(part)[0])
        if kind in _CLOCK_TYPES:
            moment = scalar(part, NO_COLUMNS, setting)
            assert isinstance(moment, Constant)
            part.replace(exp.Cast(this=literal_node(moment.value), to=exp.DataType.build(_CLOCK_TYPES[kind], "mysql")))
    return node


def _targets(
    node: exp.Update | exp.Delete, tables: Sequence[exp.Expr], catalog: Catalog
) -> list[tuple[exp.Table, list[exp.Expr]]]:
    """The tables that are written to, as FROM has them, each with its assignments.

    :raises Unsupported: one of them is written to under two names.
    """
    verb = node.key.upper()
    by_name = {table.alias_or_name.lower(): table for table in tables if isinstance(table, exp.Table)}
    found: dict[str, tuple[exp.Table, list[exp.Expr]]] = {}
    if isinstance(node, exp.Delete):
        listed = [node.this, *(join.this for join in node.this.args.get("joins") or () if node.args.get("using"))]
        for named in node.args.get("tables") or listed:
            target = by_name.get(named.alias_or_name.lower())
            if target is None:
                raise SqlError(f'{verb} names "{named.alias_or_name}", which FROM does not have')
            found[_named(target).lower()] = target, []
    else:
        for item in node.expressions:
            if not isinstance(item, exp.EQ) or not isinstance(item.this, exp.Column):
                raise SqlError(f'"{text_of(item)[:60]}" is not an assignment', hint="write column = expression")
            target = _owner(item.this, by_name, catalog)
            found.setdefault(_named(target).lower(), (target, []))[1].append(item)
    names = [target.name.lower() for target, _ in found.values()]
    for name in names:
        if names.count(name) > 1:
            raise Unsupported(f'{verb} that writes to table "{name}" under two names', hint=f"one {verb} for each")
    return list(found.values())


def _refuse_spread(verb: str, schemas: Sequence[TableSchema], shards: int) -> None:
    """All that a statement writes is one commit, which is a matter of one shard."""
    if len(schemas) > 1 and any(factor(schema, shards) > 1 for schema in schemas):
        names = " and ".join(f'"{schema.name}"' for schema in schemas)
        raise Unsupported(
            f"{verb} of tables {names}, whose rows may be in different shards",
            hint=f"one {verb} for each table; or SHARD BY (…) SHARDS 1 for all of them",
        )


def _owner(column: exp.Column, by_name: dict[str, exp.Table], catalog: Catalog) -> exp.Table:
    """The table of FROM whose column is set."""
    if column.table:
        found = by_name.get(column.table.lower())
        if found is None:
            raise SqlError(f'unknown table "{column.table}" in SET')
        return found
    if len(by_name) == 1:
        return next(iter(by_name.values()))
    having = []
    for table in by_name.values():
        known = catalog.named(table.name)
        if known is not None and known.position(column.name) is not None:
            having.append(table)
    if len(having) != 1:
        what = "is ambiguous" if having else "is in no table that is updated"
        raise SqlError(f'column "{column.name}" {what}', hint="write table.column")
    return having[0]


def _plain(target: exp.Table) -> exp.Table:
    return exp.Table(this=target.this, db=target.args.get("db"))


def _ctes(node: exp.Expr) -> set[str]:
    clause = node.args.get("with_")
    return {cte.alias.lower() for cte in clause.expressions} if clause is not None else set()


def _refuse_unsure(verb: str, schema: TableSchema, target: exp.Table, source: exp.Expr) -> None:
    """Refuse a table without a primary key: a row of NULLs and none at all look the same behind an outer join."""
    sides = {str(join.args.get("side") or "").upper() for join in source.args.get("joins") or ()} - {""}
    if not schema.primary_key and sides and not (target is source and sides == {"LEFT"}):
        raise Unsupported(
            f'{verb} of table "{schema.title}", which has no PRIMARY KEY, on the side of an outer join that may be '
            "missing",
            hint="use an inner join",
        )


def _asks(node: exp.Expr) -> bool:
    return node.find(exp.Query, exp.Exists) is not None


def _draws(node: exp.Expr) -> bool:
    return any(map(calls.is_drawn, nodes(node)))


def _reads_columns(node: exp.Expr) -> bool:
    return _asks(node) or node.find(exp.Column) is not None


def _refuse_order(value: exp.Expr, set_before: set[str], alias: str) -> None:
    """MySQL assigns from left to right; the SELECT sees the row as it was."""
    for column in _outer_columns(value, alias):
        if column.name.lower() in set_before:
            raise Unsupported(
                f'a subquery that reads "{column.name}" after it was assigned', hint="assign it after the subquery"
            )


def _outer_columns(value: exp.Expr, alias: str) -> Iterator[exp.Column]:
    for column in value.find_all(exp.Column):
        if not column.table or column.table.lower() == alias.lower():
            yield column
