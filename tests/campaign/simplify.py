"""Simpler versions of one operation, for shrinking. The list is a function of the operation, so that a path of
choices can be written on a command line and walked again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tests.campaign.queries import Compound, Cut, Query, Select, View, named_columns
from tests.campaign.statements import AdHoc, Aim, Compare, CreateView, Delete, Insert, Lookup, Operation, Steps, Update
from tests.campaign.terms import Term


def simpler(operation: Operation) -> list[Operation]:
    """Most promising first."""
    return list(_simpler(operation))


def _simpler(operation: Operation) -> Iterator[Operation]:
    match operation:
        case Insert():
            yield from _simpler_insert(operation)
        case Aim(write, salt):
            yield from (Aim(each, salt) for each in _simpler(write) if isinstance(each, Insert | Update | Delete))
        case Update(drawn=True) | Delete(drawn=True):
            yield replace(operation, drawn=False)
        case Update(ignore=True):
            yield replace(operation, ignore=False)
        case Update(_, assignments, where):
            if len(assignments) > 1:
                for i in range(len(assignments)):
                    yield replace(operation, assignments=assignments[:i] + assignments[i + 1 :])
            for term in _simpler_terms(where):
                yield replace(operation, where=term)
        case Delete(_, where):
            for term in _simpler_terms(where):
                yield replace(operation, where=term)
        case CreateView(view):
            for query in simpler_queries(view.query):
                yield CreateView(View(view.name, query, view.external))
        case AdHoc(query):
            for smaller in simpler_queries(query):
                yield replace(operation, query=smaller)
        case Lookup(_, _, count) if count > 1:
            yield replace(operation, count=1)
        case Steps(_, count) if count > 1:
            yield replace(operation, count=1)
        case Compare(_, every):
            if every:
                yield replace(operation, every=False)
        case _:
            pass


def _simpler_insert(insert: Insert) -> Iterator[Insert]:
    rows = insert.rows
    if len(rows) > 2:
        yield replace(insert, rows=rows[: len(rows) // 2])
        yield replace(insert, rows=rows[len(rows) // 2 :])
    if len(rows) > 1:
        for i in range(len(rows)):
            yield replace(insert, rows=rows[:i] + rows[i + 1 :])
    if insert.mode:
        yield replace(insert, mode="", assignments=())
    if len(insert.columns) > 1:
        for i in range(len(insert.columns)):
            columns = insert.columns[:i] + insert.columns[i + 1 :]
            yield replace(insert, columns=columns, rows=tuple(row[:i] + row[i + 1 :] for row in rows))


def simpler_queries(query: Query) -> Iterator[Query]:
    if query.order and query.cut.limit is None:
        yield replace(query, order=())
    if query.cut.limit is not None:
        yield replace(query, cut=Cut())
        if query.cut.offset != 0:
            yield replace(query, cut=replace(query.cut, offset=0))
    if isinstance(query, Compound):
        yield from query.branches if query.recursive is None else query.branches[:1]
        for i, branch in enumerate(query.branches):
            for smaller in _without_conditions(branch):
                yield replace(query, branches=(*query.branches[:i], smaller, *query.branches[i + 1 :]))
        return
    yield from _without_conditions(query)
    yield from _fewer_sources(query)
    yield from _fewer_outputs(query)
    if query.partial_by:
        yield replace(query, partial_by=())
    if query.eager:
        yield replace(query, eager=False)
    if query.distinct:
        yield replace(query, distinct=False)
    if query.group:
        for i in range(len(query.group)):
            group = query.group[:i] + query.group[i + 1 :]
            if query.group[i] not in [output.term for output in query.outputs]:
                yield replace(query, group=group)


def _without_conditions(select: Select) -> Iterator[Select]:
    if select.having is not None:
        yield replace(select, having=None)
    for i in range(len(select.where)):
        yield replace(select, where=select.where[:i] + select.where[i + 1 :])
    for i, term in enumerate(select.where):
        for smaller in _simpler_terms(term):
            if smaller is not None:
                yield replace(select, where=(*select.where[:i], smaller, *select.where[i + 1 :]))


def _fewer_outputs(select: Select) -> Iterator[Select]:
    if len(select.outputs) > 1 and not select.order and not select.star:
        for i in range(len(select.outputs)):
            yield replace(select, outputs=select.outputs[:i] + select.outputs[i + 1 :])
    for i, output in enumerate(select.outputs):
        if output.term.arguments and not output.term.aggregate and select.group is None and not select.order:
            for argument in output.term.arguments:
                if argument.type != output.term.type:
                    continue
                changed = replace(output, term=argument, aliased=True)
                yield replace(select, outputs=(*select.outputs[:i], changed, *select.outputs[i + 1 :]))


def _fewer_sources(select: Select) -> Iterator[Select]:
    used = {alias for alias, _ in named_columns(replace(select, sources=()))}
    last = select.sources[-1]
    if len(select.sources) > 1 and last.alias not in used:
        yield replace(select, sources=select.sources[:-1])
    for i, source in enumerate(select.sources):
        if isinstance(source.relation, View):
            continue
        if isinstance(source.relation, Select | Compound):
            names = [name for _, name in sorted(p for p in named_columns(select) if p[0] == source.alias)]
            for inner in simpler_queries(source.relation):
                shown = [output.name for output in inner.outputs]
                if all(name in shown for name in names) and len(set(shown)) == len(shown) and not select.star:
                    changed = replace(source, relation=inner, cte=None)
                    yield replace(select, sources=(*select.sources[:i], changed, *select.sources[i + 1 :]))
        if source.on is not None and source.join in ("LEFT JOIN", "RIGHT JOIN"):
            yield replace(select, sources=(*select.sources[:i], replace(source, join="JOIN"), *select.sources[i + 1 :]))


def _simpler_terms(term: Term | None) -> Iterator[Term | None]:
    if term is None:
        return
    if not any(part.parameter is not None for part in term.walk()):
        yield None
    if term.text in ("({0} AND {1})", "({0} OR {1})", "(NOT {0})"):
        yield from term.arguments
