"""Names in reach of an expression: which column does ``s.id`` mean?"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from domains.errors import SqlError, UnknownName
from domains.language.expressions import Expression, Field
from domains.language.types import TableSchema
from migrations.catalog import unknown
from migrations.parse.reading import exp, place


@dataclass(frozen=True, slots=True)
class Bound:
    """A column in reach: under a name, and where its value stands in the row."""

    table: str
    """The table's alias, as written; "" where there is none."""
    name: str
    field: Field
    merged: bool = False
    """The other half of a USING or NATURAL column: found by its qualified name only, and not in ``*``."""


Outer = Callable[[exp.Column], Expression | None]


class Scope:
    """The columns of one FROM clause (or one table), found by name in any case.

    ``outer`` says what a column is in the queries around a subquery; None: it is no column there either.
    """

    def __init__(self, bounds: Iterable[Bound], outer: Outer | None = None) -> None:
        self.bounds = tuple(bounds)
        self.outer = outer
        self._by_name: dict[str, list[Bound]] = {}
        for bound in self.bounds:
            self._by_name.setdefault(bound.name.lower(), []).append(bound)

    @staticmethod
    def of_table(schema: TableSchema, alias: str | None = None) -> Scope:
        """The live columns of one base table, at their positions in the stored row."""
        table = alias or schema.title.rpartition(".")[2]
        columns = schema.columns
        return Scope(Bound(table, columns[i].name, Field(i, columns[i].type)) for i in schema.live())

    def resolve(self, column: exp.Column) -> Expression:
        """The field that a column reference means, or what it is in the queries around.

        :raises UnknownName: with the nearest name.
        :raises SqlError: the name is ambiguous.
        """
        found = self.find(column.name, column.table)
        outside = self.outer(column) if found is None and self.outer is not None else None
        return outside or found or self.own(column)

    def own(self, column: exp.Column) -> Field:
        """The field that a column reference means here.

        :raises UnknownName, SqlError: as ``resolve``.
        """
        found = self.find(column.name, column.table)
        if found is None:
            raise self._unknown(column)
        return found

    def find(self, name: str, table: str = "") -> Field | None:
        """The field of that name, or None.

        :raises SqlError: several columns have it.
        """
        candidates = self._candidates(name, table)
        if not table:
            candidates = [bound for bound in candidates if not bound.merged] or candidates
        if len({bound.field for bound in candidates}) > 1:
            tables = sorted({bound.table for bound in candidates})
            where = " and ".join(f'"{candidate}"' for candidate in tables[:3])
            raise SqlError(f'column "{name}" is ambiguous: it is in {where}', hint=f'write "{tables[0]}.{name}"')
        return candidates[0].field if candidates else None

    def fields(self, name: str) -> list[Field]:
        """Every column that an unqualified name could mean."""
        candidates = self._candidates(name, "")
        return list(dict.fromkeys(b.field for b in [b for b in candidates if not b.merged] or candidates))

    def star(self, table: str = "") -> list[Bound]:
        """The columns of ``*`` or ``table.*``.

        :raises UnknownName: there is no such table here.
        """
        if not table:
            return [bound for bound in self.bounds if not bound.merged]
        found = [bound for bound in self.bounds if bound.table.lower() == table.lower()]
        if not found:
            raise unknown("table", table, self.tables())
        return sorted(found, key=lambda bound: bound.field.position)

    def tables(self) -> list[str]:
        """The aliases in reach, in order."""
        return list(dict.fromkeys(bound.table for bound in self.bounds if bound.table))

    def _candidates(self, name: str, table: str) -> list[Bound]:
        named = self._by_name.get(name.lower(), [])
        return [bound for bound in named if bound.table.lower() == table.lower()] if table else list(named)

    def _unknown(self, column: exp.Column) -> UnknownName:
        line, at = place(column)
        if column.table and column.table.lower() not in {table.lower() for table in self.tables()}:
            error = unknown("table", column.table, self.tables())
        else:
            names = (bound.name for bound in self.bounds if not column.table or _same(bound.table, column.table))
            error = unknown("column", _written(column), names, like=column.name)
        found = UnknownName(error.message, hint=error.hint, line=line, column=at)
        found.what = "column"
        return found


def _same(one: str, other: str) -> bool:
    return one.lower() == other.lower()


def _written(column: exp.Column) -> str:
    return f"{column.table}.{column.name}" if column.table else column.name
