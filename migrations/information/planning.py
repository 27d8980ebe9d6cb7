"""SELECTs of ``information_schema``: planned by the planner of all SELECTs, and the tables that they are asked of."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache

from domains.engine.evaluation import EvaluationPlan
from domains.errors import NotFound, Unsupported
from domains.language.types import Delta, Row, TableSchema, collations_of
from domains.plan.deltas import at_most, key_function
from domains.plan.graph import Columns
from domains.store.walking import Interval
from migrations.catalog import names_read, unknown
from migrations.flow.evaluation_plan import plan_evaluation
from migrations.information.contents import rows_of
from migrations.information.definitions import INFORMATION, virtual_state, virtual_tables
from migrations.information.visible import Visible
from migrations.parse.reading import exp, nodes
from migrations.query.view import PlannedView
from migrations.statements.adhoc.shapes_of_selects import exact_arguments, verbatim
from migrations.statements.constants import Argument
from migrations.statements.statement import SelectStatement


def reads_information(query: exp.Expr, schema: str | None) -> bool:
    """Whether a statement names a table of one of these schemas; ``schema`` is the current one."""
    if schema is not None and schema.lower() in virtual_tables():
        return bool(names_read(query))
    return any(isinstance(node, exp.Table) and node.db.lower() in virtual_tables() for node in nodes(query))


def plan_information(
    statement: SelectStatement, schema: str | None
) -> tuple[PlannedView, EvaluationPlan, Sequence[Argument]]:
    """What :func:`rows` are asked by.

    :raises UnknownName: there is no such table. :raises Unsupported: it reads tables of the deployment beside these.
    """
    state = virtual_state()
    query = _in_one_schema(statement.query, schema)
    made = verbatim(query, state.catalog, statement.params)
    planned, plan = plan_evaluation(state, replace(made, reusable=True).meant())
    return planned, plan, exact_arguments(made.bind(statement.params), planned.placeholders, planned.parameters) or ()


def _in_one_schema(query: exp.Query, schema: str | None) -> exp.Query:
    """The query without names of schemas, and with the columns' own names, as MySQL 8 answers them."""
    query, known = query.copy(), virtual_tables()
    current = (schema or "").lower()
    named = {node.alias.lower() for node in nodes(query) if isinstance(node, exp.CTE)}
    for table in [node for node in nodes(query) if isinstance(node, exp.Table)]:
        db = table.db.lower() or current
        if not table.db and table.name.lower() in (*named, "dual"):
            continue
        if db not in known:
            raise Unsupported(f"tables of {db or 'none'} beside those of {INFORMATION}", hint="ask each by itself")
        if table.name.lower() not in known[db]:
            raise unknown("table", f"{db}.{table.name}", (f"{db}.{each.name}" for each in known[db].values()))
        table.set("db", None)
    for node in nodes(query):
        if isinstance(node, exp.Column):
            node.set("db", None)
    for select in [node for node in nodes(query) if isinstance(node, exp.Select)]:
        group = select.args.get("group")
        grouped = {node.name.lower() for node in group.expressions} if group is not None else None
        select.set("expressions", [_as_mysql_has_it(item, grouped) for item in select.expressions])
    return query


def _as_mysql_has_it(item: exp.Expr, grouped: set[str] | None) -> exp.Expr:
    """A column under its own name in capitals. One that is not ``grouped`` is of any row of its group: dumps ask so, in
    ``sql_mode = ''``."""
    if not isinstance(item, exp.Column) or isinstance(item.this, exp.Star):
        return item
    own = item.name.upper() if item.name.upper() in _names() else item.name
    if grouped is not None and item.name.lower() not in grouped:
        return exp.alias_(exp.Anonymous(this="ANY_VALUE", expressions=[item]), own, quoted=True)
    return exp.alias_(item, own, quoted=True) if own != item.name else item


@cache
def _names() -> frozenset[str]:
    tables = [table for tables in virtual_tables().values() for table in tables.values()]
    return frozenset(column.name for table in tables for column in table.columns)


@dataclass(slots=True)
class VirtualRows:
    """The rows of one of these tables, in the order in which they were made. See
    :class:`domains.store.storage.StoredRows`."""

    schema: TableSchema
    rows: list[Row]

    def find(self, columns: Columns, key: Row) -> list[Delta]:
        key_of = key_function(columns, collations_of(self.schema.columns))
        return [(row, 1) for row in self.rows if key_of(row) == key]

    def find_many(self, columns: Columns, keys: Sequence[Row]) -> list[list[Delta]]:
        return [self.find(columns, key) for key in keys]

    def count_many(self, columns: Columns, keys: Sequence[Row], most: int) -> list[int]:
        return [at_most(self.find(columns, key), most) for key in keys]

    def slices(self, limit: int) -> Iterator[list[Delta]]:
        for start in range(0, len(self.rows), limit):
            yield [(row, 1) for row in self.rows[start : start + limit]]

    @property
    def orders(self) -> tuple[Columns, ...]:
        return ()

    def walk(
        self, order: Columns, interval: Interval, first: int, most: int, *, descending: bool = False
    ) -> Iterator[list[Delta]]:
        raise AssertionError("these tables have no orders")

    def has_index(self, columns: Columns) -> bool:
        return False

    def best_key(self, tied: Collection[int]) -> Columns:
        return ()

    @property
    def row_count(self) -> int:
        return len(self.rows)


@dataclass(frozen=True, slots=True)
class VirtualTables:
    """See :class:`domains.store.storage.TableRows`: what one client sees, while it asks."""

    seen: Visible

    def table(self, name: str) -> VirtualRows:
        schema = virtual_state().catalog.tables.get(name.lower())
        if schema is None:
            raise NotFound(f'no table "{name}"')
        return VirtualRows(schema, rows_of(name.lower(), self.seen))
