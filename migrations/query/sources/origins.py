"""Where the columns of an answer come from, by the text of its query: what MySQL tells clients of each column.

A column keeps its table, and that column's keys, through all that leaves its values as they are: a join, a view, a
derived table, a CTE. The side of an outer join that may be missing admits NULL. What MySQL calls the table of such a
column is what stands in the query's own FROM; the origin of an expression has its title alone.

Names are found as the planner finds them, by the same :class:`Scope`: the field of a :class:`Bound` is a place among
the origins. A query has been planned before it is read here, so that all names in it are right.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from domains.language.expressions import Field
from domains.language.types import NULL, Column, Origin, TableSchema
from migrations.catalog import Catalog
from migrations.parse.grammar import SCHEMA
from migrations.parse.reading import exp, text_of
from migrations.parse.temporary import plain_name
from migrations.query.expressions.aggregates import aggregates_in
from migrations.query.expressions.scope import Bound, Scope
from migrations.query.sources.json_tables import titles_of
from migrations.query.sources.names import alias_columns, merged_names

Origins = tuple[Origin, ...]
_SHAPED = ("group", "having", "distinct", "limit")


def with_origins(
    columns: Sequence[Column], query: exp.Expr, names: Sequence[str], catalog: Catalog
) -> tuple[Column, ...]:
    """The columns of a query's answer with their origins; ``names`` are given to them, if any are."""
    found = _renamed(_Reader(catalog).query(query, {}), names)
    assert len(found) == len(columns), "each column of an answer has an origin"
    return tuple(replace(column, origin=origin) for column, origin in zip(columns, found, strict=True))


def own_columns(table: TableSchema) -> tuple[Column, ...]:
    """Those of ``SELECT * FROM`` this table."""
    schema, _, named = plain_name(table.title).rpartition(".")
    origins = _of_table(table, named, schema or SCHEMA, named)
    return tuple(Column(each.title, table.columns[each.at].type, each) for each in origins)


@dataclass(frozen=True, slots=True)
class _Side:
    """A part of FROM."""

    bounds: tuple[Bound, ...]


class _Reader:
    """Of one query; it gathers the origins that its scopes name."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._found: list[Origin] = []

    def query(self, node: exp.Expr, ctes: Mapping[str, Origins]) -> Origins:
        clause = node.args.get("with_")
        for cte in () if clause is None else clause.expressions:
            names = [column.name for column in cte.args["alias"].columns]
            ctes = {**ctes, cte.alias.lower(): _renamed(self._below(cte.this, ctes), names)}
        if isinstance(node, exp.Subquery):
            return self.query(node.this, ctes)
        if isinstance(node, exp.SetOperation):  # Rows of several queries are rows of none of them.
            return tuple(Origin(each.title, nullable=each.nullable) for each in self.query(node.this, ctes))
        return self._selected(node, ctes) if isinstance(node, exp.Select) else ()

    def _selected(self, select: exp.Select, ctes: Mapping[str, Origins]) -> Origins:
        clause, shown = select.args.get("from_"), list[Origin]()
        side = _Side(()) if clause is None else self._from(clause.this, select.args.get("joins") or (), ctes)
        scope = Scope(side.bounds)
        for item in select.expressions:
            if isinstance(item, exp.Star) or (isinstance(item, exp.Column) and isinstance(item.this, exp.Star)):
                bounds = scope.star(item.table if isinstance(item, exp.Column) else "")
                shown += [replace(self._found[bound.field.position], title=bound.name) for bound in bounds]
                continue
            whole = item.unalias().unnest()
            named = item.alias_or_name if isinstance(item, (exp.Alias, exp.Column)) else text_of(item)
            field = scope.find(whole.name, whole.table) if isinstance(whole, exp.Column) else None
            shown.append(Origin(named) if field is None else replace(self._found[field.position], title=named))
        return tuple(shown)

    def _below(self, node: exp.Expr, ctes: Mapping[str, Origins]) -> Origins:
        """The columns of a query that another one reads."""
        found = self.query(node, ctes)
        parts = node.expressions if isinstance(node, exp.Select) else []
        is_copy = any(node.args.get(each) for each in _SHAPED) or any(any(aggregates_in(part)) for part in parts)
        if not is_copy and not isinstance(node, exp.SetOperation):
            return found
        return tuple(replace(each, copied=True) for each in found)

    # --- FROM ------------------------------------------------------------------------------------------------------

    def _from(self, first: exp.Expr, joins: Sequence[exp.Join], ctes: Mapping[str, Origins]) -> _Side:
        before, current = tuple[Bound, ...](), self._item(first, ctes)
        for join in joins:
            if not (join.side or join.kind or join.method or join.args.get("on") or join.args.get("using")):
                before, current = (*before, *current.bounds), self._item(join.this, ctes)  # A comma.
            else:
                current = self._joined(current, join, ctes)
        return _Side((*before, *current.bounds))

    def _joined(self, left: _Side, join: exp.Join, ctes: Mapping[str, Origins]) -> _Side:
        right, side = self._item(join.this, ctes), str(join.side or "").upper()
        shared = [column.name for column in join.args.get("using") or ()]
        if str(join.method or "").upper() == "NATURAL":
            theirs = {bound.name.lower() for bound in right.bounds if not bound.merged}
            shared = [b.name for b in left.bounds if not b.merged and b.name.lower() in theirs]
        for optional in (
            *((left,) if side in ("RIGHT", "FULL") else ()),
            *((right,) if side in ("LEFT", "FULL") else ()),
        ):
            for bound in optional.bounds:
                place = bound.field.position
                self._found[place] = replace(self._found[place], nullable=True)
        if side != "FULL" or not shared:
            return _Side(merged_names(left, right, shared, side))
        names = {name.lower() for name in shared}
        sides = (replace(b, merged=b.merged or b.name.lower() in names) for b in (*left.bounds, *right.bounds))
        return _Side((*self._bound("", [Origin(name) for name in shared]), *sides))

    def _item(self, node: exp.Expr, ctes: Mapping[str, Origins]) -> _Side:
        """One source, with the joins in its parentheses."""
        inner = node.this
        if isinstance(node, exp.Subquery) and isinstance(inner, (exp.Table, exp.Subquery)) and not node.alias:
            side = self._item(inner, ctes)
        elif isinstance(inner, exp.JSONTable):
            side = _Side(self._bound(node.alias, [Origin(title, node.alias) for title in titles_of(inner)]))
        elif isinstance(node, exp.Table):
            alias = node.alias or plain_name(node.name).rpartition(".")[2]
            side = _Side(self._bound(alias, _renamed(self._table(node.name, alias, ctes), alias_columns(node))))
        else:
            below = inner.this if isinstance(inner, exp.Subquery) else inner  # LATERAL (SELECT …)
            side = _Side(
                self._bound(node.alias, _of(_renamed(self._below(below, ctes), alias_columns(node)), node.alias))
            )
        for join in node.args.get("joins") or ():
            side = self._joined(side, join, ctes)
        return side

    def _table(self, name: str, alias: str, ctes: Mapping[str, Origins]) -> Origins:
        cte = ctes.get(name.lower())
        if cte is not None:
            return _of(cte, alias)
        schema, view = self._catalog.named(name), self._catalog.views.get(name.lower())
        if schema is not None:
            return _of_table(schema, alias, *self._catalog.placed(plain_name(schema.title)))
        return () if view is None else _of(_renamed(self._below(view.relation, {}), view.columns), alias)

    def _bound(self, table: str, origins: Sequence[Origin]) -> tuple[Bound, ...]:
        begin = len(self._found)
        self._found += origins
        return tuple(Bound(table, each.title, Field(begin + at, NULL)) for at, each in enumerate(origins))


def _of_table(table: TableSchema, alias: str, schema: str, named: str) -> Origins:
    shown = [(at, table.columns[at]) for at in table.live()]
    return tuple(Origin(c.name, alias, named, c.name, schema, table, at, c.nullable) for at, c in shown)


def _of(below: Origins, alias: str) -> Origins:
    """The columns of a query, as one that reads it under this name has them."""
    return tuple(
        replace(each, source=alias, named=each.named if each.copied else alias, column=each.title) for each in below
    )


def _renamed(origins: Origins, names: Sequence[str]) -> Origins:
    if not names:
        return origins
    return tuple(replace(each, title=name) for each, name in zip(origins, names, strict=True))
