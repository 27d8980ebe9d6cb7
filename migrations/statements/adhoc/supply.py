"""Parameters of views that an ad-hoc SELECT reads: ``SELECT … FROM v WHERE id = 7`` where ``v`` has ``id = ?``.

Such a condition is taken out of the SELECT and its value given to the view's parameter, which is named after its
column: the same as ``GET /v1/views/v?id=7``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from domains.errors import SqlError, Unsupported
from domains.language.types import SqlType, TableSchema
from domains.plan.graph import ParameterKind
from migrations.catalog import Catalog, ViewDefinition
from migrations.parse.reading import exp, position

# What a SELECT reads: the names in its FROM clause, and what is known of their columns without planning.


@dataclass(frozen=True, slots=True)
class SourceName:
    """One source of a FROM clause."""

    alias: str
    """In lower case."""
    relation: TableSchema | ViewDefinition | None
    """None: a derived table, a CTE, or a name that is not there."""
    optional: bool = False
    """Whether it is on a side of an outer join that may be missing."""


@dataclass(frozen=True, slots=True)
class SelectSources:
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


def read_sources(select: exp.Select, catalog: Catalog) -> SelectSources:
    """The sources of a SELECT's own FROM clause, in the order of the text."""
    clause = select.args.get("from_")
    if clause is None:
        return SelectSources(())
    shadowed = cte_names(select)
    names = _item(clause.this, catalog, shadowed)
    for join in select.args.get("joins") or ():
        names = _joined(names, join, catalog, shadowed)
    return SelectSources(tuple(names))


def cte_names(query: exp.Expr) -> frozenset[str]:
    """The names that a query's WITH gives, in lower case: they hide tables and views."""
    clause = query.args.get("with_")
    return frozenset(cte.alias.lower() for cte in clause.expressions) if clause is not None else frozenset()


def _item(node: exp.Expr, catalog: Catalog, shadowed: frozenset[str]) -> list[SourceName]:
    relation: TableSchema | ViewDefinition | None = None
    if isinstance(node, exp.Table) and node.name.lower() not in shadowed:
        relation = catalog.named(node.name) or catalog.views.get(node.name.lower())
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


KINDS: dict[type[exp.Expr], ParameterKind] = {
    exp.EQ: ParameterKind.EQUAL,
    exp.In: ParameterKind.IN,
    exp.LT: ParameterKind.LESS,
    exp.LTE: ParameterKind.LESS_EQUAL,
    exp.GT: ParameterKind.GREATER,
    exp.GTE: ParameterKind.GREATER_EQUAL,
}
MIRRORED = {
    ParameterKind.EQUAL: ParameterKind.EQUAL,
    ParameterKind.LESS: ParameterKind.GREATER,
    ParameterKind.LESS_EQUAL: ParameterKind.GREATER_EQUAL,
    ParameterKind.GREATER: ParameterKind.LESS,
    ParameterKind.GREATER_EQUAL: ParameterKind.LESS_EQUAL,
}


@dataclass(frozen=True, slots=True)
class OwnParameter:
    """One ``?`` of a view, or of a view that it reads."""

    name: str
    kind: ParameterKind | None
    """None for those that nothing can supply (LIMIT ?)."""

    def takes(self, column: exp.Column, alias: str, kind: ParameterKind) -> bool:
        """Whether a condition on ``column`` supplies it, where the view is called ``alias``."""
        if column.name.lower() != self.name or (column.table and column.table.lower() != alias):
            return False
        return kind is self.kind or (kind is ParameterKind.EQUAL and self.kind is ParameterKind.IN)


def own_parameters(view: ViewDefinition, catalog: Catalog) -> tuple[OwnParameter, ...]:
    """The parameters of a view in the order of its text, those of a view that it reads where that one's name stands."""
    return tuple(parameter for _, parameter in sorted(_marked(view.relation, catalog), key=lambda item: item[0]))


def _marked(query: exp.Expr, catalog: Catalog) -> list[tuple[tuple[int, ...], OwnParameter]]:
    found: list[tuple[tuple[int, ...], OwnParameter]] = []
    found += [((position(node),), _described(node)) for node in _all_placeholders(query)]
    shadowed = frozenset[str]().union(*(cte_names(part) for part in query.find_all(exp.Query)))
    for table in query.find_all(exp.Table):
        view = catalog.views.get(table.name.lower())
        if view is not None and table.name.lower() not in shadowed:
            at = position(table.this)
            found += [((at, *mark), parameter) for mark, parameter in _marked(view.relation, catalog)]
    return found


def _all_placeholders(query: exp.Expr) -> list[exp.Placeholder]:
    return list(query.find_all(exp.Placeholder))


def _described(node: exp.Placeholder) -> OwnParameter:
    """The parameter by the comparison that its ``?`` stands in."""
    child: exp.Expr = node
    parent = node.parent
    while isinstance(parent, exp.Paren):
        child, parent = parent, parent.parent
    kind: ParameterKind | None = None
    operand: exp.Expr | None = None
    if isinstance(parent, exp.Between):
        kind = ParameterKind.GREATER_EQUAL if parent.args["low"] is child else ParameterKind.LESS_EQUAL
        operand = parent.this
    elif parent is not None and type(parent) in KINDS:
        kind, operand = KINDS[type(parent)], parent.this
        if operand is child:
            kind, operand = MIRRORED.get(kind, kind), parent.args.get("expression")
    written = str(node.this) if node.this else operand.name if isinstance(operand, exp.Column) else "parameter"
    return OwnParameter(written.lower(), kind)


@dataclass(frozen=True, slots=True)
class WantedParameter:
    """A parameter that the SELECT must supply, of the view that it calls ``alias``."""

    alias: str
    view: str
    parameter: OwnParameter

    def missing(self) -> SqlError:
        name = self.parameter.name
        return SqlError(f'view "{self.view}" has the parameter "{name}", which nothing gives', hint=f"WHERE {name} = …")


def reads_views(parts: Sequence[exp.Expr], catalog: Catalog) -> bool:
    """Whether a view may be among what these nodes of a query name."""
    return any(isinstance(part, exp.Table) and part.name.lower() in catalog.views for part in parts)


def wanted(query: exp.Query, sources: SelectSources, catalog: Catalog) -> list[WantedParameter]:
    """Parameters of the views in a SELECT's own FROM clause, in the order of the text.

    :raises Unsupported: a view with parameters stands elsewhere: in a subquery, a UNION, a derived table.
    """
    found = [
        WantedParameter(source.alias, source.relation.name, parameter)
        for source in sources.names
        if isinstance(source.relation, ViewDefinition)
        for parameter in own_parameters(source.relation, catalog)
    ]
    everywhere = len(_marked(query, catalog)) - len(_all_placeholders(query))
    if everywhere != len(found):
        raise Unsupported(
            "an ad-hoc SELECT that reads a view with parameters in a subquery or UNION",
            hint="CREATE EXT VIEW it, or write the view's own query there",
        )
    return found
