"""SELECT statements and views as trees, and what can be asked of them: outputs, parameters, what they read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tests.campaign.kinds import Type
from tests.campaign.terms import Parameter, Term, column


@dataclass(frozen=True, slots=True)
class Output:
    term: Term
    name: str
    aliased: bool = True
    """False: a bare column that keeps its own name."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A base table with the columns that it had when the statement was written."""

    name: str
    columns: tuple[tuple[str, Type], ...]


@dataclass(frozen=True, slots=True)
class SoFar:
    """What there is of a recursion, in the branch of it that repeats."""

    name: str
    columns: tuple[tuple[str, Type], ...]


@dataclass(frozen=True, slots=True)
class Source:
    """One entry of FROM. ``join`` is how it is joined to what stands before it: "" (the first), ``JOIN``,
    ``LEFT JOIN``, ``RIGHT JOIN``, ``CROSS JOIN`` or ``,``."""

    alias: str
    relation: Relation
    join: str = ""
    on: Term | None = None
    cte: str | None = None
    """The WITH name under which the relation is written."""

    def columns(self) -> list[Term]:
        return [column(self.alias, name, type) for name, type in shape(self.relation)]


@dataclass(frozen=True, slots=True)
class OrderKey:
    term: Term
    descending: bool = False
    position: int | None = None
    """The output that it is, if it is one: written as its name or number."""
    by_number: bool = False


@dataclass(frozen=True, slots=True)
class Cut:
    """LIMIT and OFFSET, constants or parameters."""

    limit: int | Parameter | None = None
    offset: int | Parameter = 0


@dataclass(frozen=True, slots=True)
class Select:
    outputs: tuple[Output, ...]
    sources: tuple[Source, ...]
    where: tuple[Term, ...] = ()
    group: tuple[Term, ...] | None = None
    """None: no aggregation; (): aggregates without GROUP BY."""
    rollup: bool = False
    """WITH ROLLUP: also grouped by each shorter beginning of the list, with NULL for the rest."""
    group_numbers: bool = False
    """GROUP BY is written with positions where a term is an output."""
    having: Term | None = None
    distinct: bool = False
    star: bool = False
    """The outputs are all columns of the only source, written as ``*``."""
    order: tuple[OrderKey, ...] = ()
    cut: Cut = Cut()
    partial_by: tuple[str, ...] = ()
    """Of a view: the parameters in its hint. It changes what is held, and no answer."""
    eager: bool = False
    """With the hint that sums are made below joins: likewise."""


@dataclass(frozen=True, slots=True)
class Compound:
    """Set operations on branches, from the left; ``operations[i]`` stands before branch i+1. An INTERSECT is the first:
    MySQL would join it before the others, and SQLite would not."""

    branches: tuple[Select, ...]
    operations: tuple[str, ...]
    order: tuple[OrderKey, ...] = ()
    cut: Cut = Cut()
    recursive: str | None = None
    """The name by which the second of two branches reads what there is so far: of WITH RECURSIVE."""

    @property
    def outputs(self) -> tuple[Output, ...]:
        return self.branches[0].outputs


Query = Select | Compound


@dataclass(frozen=True, slots=True)
class View:
    name: str
    query: Query
    external: bool = False


Relation = Stored | SoFar | View | Select | Compound


def shape(relation: Relation) -> list[tuple[str, Type]]:
    """Output columns: name and type. Of a UNION the names of the first branch."""
    if isinstance(relation, Stored | SoFar):
        return list(relation.columns)
    query = relation.query if isinstance(relation, View) else relation
    return [(output.name, output.term.type) for output in query.outputs]


def selects(query: Query) -> tuple[Select, ...]:
    return query.branches if isinstance(query, Compound) else (query,)


def terms(query: Query) -> Iterator[Term]:
    """Every expression of the query's own level, unions included."""
    for select in selects(query):
        yield from (output.term for output in select.outputs)
        yield from (source.on for source in select.sources if source.on is not None)
        yield from select.where
        yield from select.group or ()
        if select.having is not None:
            yield select.having
        yield from (key.term for key in select.order)
    if isinstance(query, Compound):
        yield from (key.term for key in query.order)


def named_columns(select: Select) -> set[tuple[str, str]]:
    """(alias, column) of everything that the SELECT's own expressions name."""
    return {part.column for term in terms(select) for part in term.walk() if part.column is not None}


def relations(query: Query) -> Iterator[Relation]:
    """What the query reads, at every depth (views, not what they read)."""
    for select in selects(query):
        for source in select.sources:
            yield source.relation
            if isinstance(source.relation, Select | Compound):
                yield from relations(source.relation)
    for term in terms(query):
        for part in term.walk():
            for nested in part.nested:
                assert isinstance(nested, Select | Compound)
                yield from relations(nested)


def breadth(query: Query) -> int:
    """How many base tables are joined or united, through views and subqueries, with repetition."""
    total = 0
    for select in selects(query):
        for source in select.sources:
            relation = source.relation.query if isinstance(source.relation, View) else source.relation
            total += 1 if isinstance(relation, Stored | SoFar) else breadth(relation)
    return total


def read_tables(query: Query) -> set[str]:
    """Base tables read, also through views."""
    found: set[str] = set()
    for relation in relations(query):
        if isinstance(relation, Stored):
            found.add(relation.name)
        elif isinstance(relation, View):
            found |= read_tables(relation.query)
    return found


def read_columns(query: Query) -> set[tuple[str, str]]:
    """(table, column) of everything that the query may read (all columns of each table as it saw them)."""
    found: set[tuple[str, str]] = set()
    for relation in relations(query):
        if isinstance(relation, Stored):
            found |= {(relation.name, name) for name, _ in relation.columns}
        elif isinstance(relation, View):
            found |= read_columns(relation.query)
    return found


def used_columns(query: Query) -> set[tuple[str, str]]:
    """(table, column) of what the query names; through a subquery or view: what that one names."""
    found: set[tuple[str, str]] = set()
    for select in selects(query):
        stored = {s.alias: s.relation.name for s in select.sources if isinstance(s.relation, Stored)}
        for term in terms(select):
            for part in term.walk():
                if part.column is not None and part.column[0] in stored:
                    found.add((stored[part.column[0]], part.column[1]))
                for nested in part.nested:
                    assert isinstance(nested, Select | Compound)
                    found |= used_columns(nested)
        for source in select.sources:
            if isinstance(source.relation, View):
                found |= used_columns(source.relation.query)
            elif isinstance(source.relation, Select | Compound):
                found |= used_columns(source.relation)
    return found


def read_views(query: Query) -> list[View]:
    """Views read directly or inside subqueries (not those that they read)."""
    return [relation for relation in relations(query) if isinstance(relation, View)]
