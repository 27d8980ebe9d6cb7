"""What a SELECT reads: the names in its FROM clause, and what is known of their columns without planning."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from domains.types import SqlType, TableSchema
from migrations.catalog import Catalog, ViewDefinition
from migrations.parse import exp


@dataclass(frozen=True, slots=True)
class SourceName:
    """One source of a FROM clause."""

    alias: str
    """In lower case."""
    relation: TableSchema | ViewDefinition | None
    """None: a derived table, a CTE, or a name that is not there."""
    optional: bool = False
    """On a side of an outer join that may be missing."""


@dataclass(frozen=True, slots=True)
class Sources:
    names: tuple[SourceName, ...]

    def find(self, column: exp.Column) -> SourceName | None:
        """The source that a column is of, where that is certain."""
        if column.table:
            return next((s for s in self.names if s.alias == column.table.lower()), None)
        if len(self.names) == 1:
            return self.names[0]
        having = [s for s in self.names if not isinstance(s.relation, TableSchema) or _has(s.relation, column.name)]
        return having[0] if len(having) == 1 else None

    def type_of(self, column: exp.Column) -> SqlType | None:
        """The type of a base table's column; None where planning alone could tell."""
        source = self.find(column)
        if source is None or not isinstance(source.relation, TableSchema):
            return None
        position = source.relation.position(column.name)
        return None if position is None else source.relation.columns[position].type

    def is_present(self, columns: Iterable[exp.Column]) -> bool:
        """Whether no outer join can make one of these columns NULL, for certain."""
        if not any(source.optional for source in self.names):
            return True
        found = [self.find(column) for column in columns]
        return all(source is not None and not source.optional for source in found)


def _has(schema: TableSchema, name: str) -> bool:
    return schema.position(name) is not None


def read_sources(select: exp.Select, catalog: Catalog) -> Sources:
    """The sources of a SELECT's own FROM clause, in the order of the text."""
    clause = select.args.get("from_")
    if clause is None:
        return Sources(())
    shadowed = cte_names(select)
    names = _item(clause.this, catalog, shadowed)
    for join in select.args.get("joins") or ():
        names = _joined(names, join, catalog, shadowed)
    return Sources(tuple(names))


def cte_names(query: exp.Expr) -> frozenset[str]:
    """The names that a query's WITH gives, in lower case: they hide tables and views."""
    clause = query.args.get("with_")
    return frozenset(cte.alias.lower() for cte in clause.expressions) if clause is not None else frozenset()


def _item(node: exp.Expr, catalog: Catalog, shadowed: frozenset[str]) -> list[SourceName]:
    relation: TableSchema | ViewDefinition | None = None
    if isinstance(node, exp.Table) and node.name.lower() not in shadowed:
        lower = node.name.lower()
        relation = catalog.tables.get(lower) or catalog.views.get(lower)
    names = [SourceName(node.alias_or_name.lower(), relation)]
    for join in node.args.get("joins") or ():
        names = _joined(names, join, catalog, shadowed)
    return names


def _joined(left: list[SourceName], join: exp.Join, catalog: Catalog, shadowed: frozenset[str]) -> list[SourceName]:
    right = _item(join.this, catalog, shadowed)
    side = str(join.side or "").upper()
    if side in ("LEFT", "FULL"):
        right = [replace(source, optional=True) for source in right]
    if side in ("RIGHT", "FULL"):
        left = [replace(source, optional=True) for source in left]
    return left + right
