"""The same text, asked again after ALTER TABLE: the tree that it stands for now, or None where it is an error now.

``*`` is what changes. A column that went and came back with its name and type is another column with other values,
which the judge's tables know by themselves.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from tests.campaign.kinds import Type
from tests.campaign.queries import (
    Compound,
    OrderKey,
    Output,
    Query,
    Relation,
    Select,
    SoFar,
    Source,
    Stored,
    View,
    relations,
    selects,
    terms,
)
from tests.campaign.schema import Table
from tests.campaign.terms import Term


def as_it_reads_now(query: Query, tables: Mapping[str, Table]) -> Query | None:
    try:
        now = _query(query, tables)
    except LookupError:
        return None  # ORDER BY names a column of ``*`` that is gone.
    return now if _is_right(now, tables) else None


def every_select(query: Query) -> Iterator[Select]:
    """The query's own, and those in FROM and in expressions, at every depth; not those of views."""
    yield from selects(query)
    for relation in relations(query):
        if isinstance(relation, Select | Compound):
            yield from selects(relation)
    for term in terms(query):
        for part in term.walk():
            for nested in part.nested:
                assert isinstance(nested, Select | Compound)
                yield from every_select(nested)


def types_now(table: Table) -> tuple[tuple[str, Type], ...]:
    return tuple((column.name, column.type) for column in table.columns)


def _query(query: Query, tables: Mapping[str, Table]) -> Query:
    if isinstance(query, Compound):
        return replace(query, branches=tuple(_select(branch, tables) for branch in query.branches))
    return _select(query, tables)


def _select(select: Select, tables: Mapping[str, Table]) -> Select:
    sources = tuple(replace(source, relation=_relation(source.relation, tables)) for source in select.sources)
    if not select.star:
        return replace(select, sources=sources)
    outputs = _star(sources[0])
    return replace(
        select,
        sources=sources,
        outputs=outputs,
        order=tuple(_ordered(key, select.outputs, outputs) for key in select.order),
    )


def _relation(relation: Relation, tables: Mapping[str, Table]) -> Relation:
    match relation:
        case Stored(name):
            return Stored(name, types_now(tables[name]))
        case View() | SoFar():
            return relation  # It keeps its columns.
    return _query(relation, tables)


def _star(source: Source) -> tuple[Output, ...]:
    return tuple(Output(term, term.column[1], aliased=False) for term in source.columns() if term.column is not None)


def _ordered(key: OrderKey, before: Sequence[Output], now: Sequence[Output]) -> OrderKey:
    """Raises LookupError where the column is gone."""
    if key.position is None:
        return key
    if key.by_number:
        return replace(key, term=now[key.position].term)
    place = {output.name: place for place, output in enumerate(now)}[before[key.position].name]
    return replace(key, term=now[place].term, position=place)


def _is_right(query: Query, tables: Mapping[str, Table]) -> bool:
    """Whether every column that is named is there, with the type that it had."""
    for select in every_select(query):
        scope = {term.column: term.type for source in select.sources for term in _columns(source, tables)}
        for term in terms(select):
            for part in term.walk():
                if part.column is not None and scope.get(part.column) != part.type:
                    return False
    return True


def _columns(source: Source, tables: Mapping[str, Table]) -> Sequence[Term]:
    """Those in expressions (``IN (SELECT …)``) still speak of the table as it was."""
    if isinstance(source.relation, Stored):
        source = replace(source, relation=Stored(source.relation.name, types_now(tables[source.relation.name])))
    return source.columns()
