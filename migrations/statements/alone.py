"""A write whose text is long, read and bound in a process of its own, which gives its rows in parts.

What comes back is the operation, values and expressions of ours: a tree would cost as much to send as to make. It holds
for the tables that it was made for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import islice
from types import MappingProxyType

from domains.language.types import Row, TableSchema
from domains.plan.packets import Insert, Operation
from migrations.catalog import Catalog
from migrations.parse.measure import SqlLimits, measure
from migrations.statements.constants import miscounted
from migrations.statements.interpret import split
from migrations.statements.prepared import PreparedStatement
from migrations.statements.statement import WriteStatement

ROWS_TOGETHER = 500
"""In a part: a millisecond for whoever takes it."""
WRITES = ("INSERT", "REPLACE", "UPDATE", "DELETE")


def read_alone(
    sql: str, tables: Mapping[str, TableSchema] | None, shards: int, now: str, limits: SqlLimits
) -> Iterator[Operation | tuple[Row, ...]]:
    """The operation, and an Insert's rows behind it. Nothing where the text is no single write without parameters and
    subqueries, and where there are no ``tables`` to bind it to: then it was only measured.

    :raises LimitExceeded: with the limit's name.
    :raises HeadraceError: what is wrong with it.
    """
    found = measure(sql, limits)
    if tables is None or found.statements != 1 or found.selects or found.first not in WRITES:
        return
    parsed = split(sql)
    if len(parsed) != 1:
        return
    prepared = PreparedStatement(parsed[0])
    if prepared.parameters:
        raise miscounted("text", prepared.parameters, 0)
    statement = prepared.interpret(Catalog(MappingProxyType(dict(tables)), shards=shards), (), now)
    if not isinstance(statement, WriteStatement) or statement.returning is not None:
        return
    operation = statement.operation
    if not isinstance(operation, Insert):
        yield operation
        return
    yield replace(operation, rows=())
    rows = iter(operation.rows)
    while part := tuple(islice(rows, ROWS_TOGETHER)):
        yield part
