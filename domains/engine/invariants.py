"""The eight rules of the package's essay as code: what must hold between any two steps of a domain.

Every filled entry of a partial index must equal its operator over what the parents hold *now*, read without filling
anything; full state must be all of that. One comparison covers several rules: a hole met on the way breaks rule 2 or 3
(something that was consulted was evicted and the entry stayed), a different result breaks rule 1 (an update was lost,
doubled or dropped). Since parents are checked alike, equality reaches down from the base tables by induction.

:func:`check_links` adds the edge between domains: at quiescence an ingress holds what its source would answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from domains.engine.domain import Domain
from domains.engine.pulls import Peek
from domains.language.types import Delta, Row
from domains.operators.edges import ReaderOperator
from domains.operators.operator import Found, Vertex
from domains.operators.state import Index, RowIndex
from domains.plan.commands import Part
from domains.plan.deltas import consolidate, group_by_key, key_function
from domains.plan.graph import Columns, NodeIndex
from domains.plan.packets import LinkId
from domains.plan.traits import is_ingress, traits_of

ReaderRows = Callable[[NodeIndex, Row], Iterable[Delta] | None]
"""The reader map's rows for a key; None for a hole."""


def check_domain(domain: Domain, reader_rows: ReaderRows) -> None:
    """Raises AssertionError with the entry that breaks a rule."""
    peek = Peek()
    for vertex in domain.vertices.values():
        if vertex.building:
            continue
        for index in vertex.indexes.values():
            assert index.bytes >= 0, f"{vertex} accounts {index.bytes} bytes"
            assert index.bytes or not len(index), f"{vertex} accounts no bytes for {len(index)} entries"
            if is_ingress(vertex.node.operator):
                continue
            if not index.partial:
                _check_full(domain, vertex, index, reader_rows)
                continue
            for key in list(index.keys()):
                _check_entry(domain, peek, vertex, index, key, reader_rows)
    summed = sum(index.bytes for vertex in domain.vertices.values() for index in vertex.indexes.values())
    assert domain.accounted_bytes() == summed, f"{domain.accounted_bytes()} bytes are accounted, not {summed}"
    for vertex, columns, key in domain.ingresses.pending:
        assert key not in vertex.indexes[columns], f"{vertex} has {key} filled and pending"


def _check_entry(domain: Domain, peek: Peek, vertex: Vertex, index: Index, key: Row, reader_rows: ReaderRows) -> None:
    assert None not in key, f"{vertex}: a NULL in key {key}"
    if collated := dict(vertex.collations):
        assert not any(
            at in collated and isinstance(value, str) for at, value in zip(index.columns, key, strict=True)
        ), f"{vertex}: a text in key {key}, where its collation's key should be"

    def where() -> str:
        return f"domain {domain.index}: {vertex} by {index.columns} at {key}"

    material = vertex.operator.compute(peek, index.columns, [key])[0]
    assert material is not None, f"{where()} stands on a hole (rules 2, 3)"
    if isinstance(vertex.operator, ReaderOperator):
        rows = reader_rows(vertex.index, key)
        assert rows is not None, f"{where()} is filled here and a hole in the reader map"
        held, anew = dict(consolidate(rows)), dict(consolidate(material))
        assert held == anew, f"{where()} holds {held}, not {anew} (rule 1)"
    else:
        assert index.agrees(key, material), (
            f"{where()} holds {list(index.get(key) or ())}, not what follows from {list(material)} (rule 1)"
        )


class _Whole(Peek):
    """Reads all that a node has out of any full index that it has: full state is seldom indexed by no column."""

    def find(self, vertex: Vertex, columns: Columns, keys: Sequence[Row]) -> list[Found]:
        full = next((index for index in vertex.indexes.values() if not index.partial), None)
        if columns or full is None or isinstance(vertex.operator, ReaderOperator):
            return super().find(vertex, columns, keys)
        return [_all_of(full)] * len(keys)


def _check_full(domain: Domain, vertex: Vertex, index: Index, reader_rows: ReaderRows) -> None:
    """All of it at once. What a full index is keyed by need not be such that its operator could compute one key."""
    groups = next((each for each in vertex.indexes.values() if not isinstance(each, RowIndex)), None)
    places, collations = index.columns, vertex.collations
    if groups is not None and isinstance(index, RowIndex):
        material: Found = _all_of(groups)  # Further indexes of an aggregate have the rows that its groups show.
    else:
        (material,) = vertex.operator.compute(_Whole(), (), [()])
        traits = traits_of(vertex.node.operator)
        if traits.groups_by is not None:
            places, *_ = traits.origins(index.columns, [len(parent.node.columns) for parent in vertex.parents])
            collations = vertex.parents[0].collations
    if material is None:
        return  # It stands on what another domain sends and this one does not keep.
    if isinstance(vertex.operator, ReaderOperator):
        held, anew = dict(consolidate(reader_rows(vertex.index, ()) or ())), dict(consolidate(material))
        assert held == anew, f"domain {domain.index}: {vertex}, which is full, holds {held}, not {anew} (rule 1)"
        return
    by_key = group_by_key(consolidate(material), key_function(places, collations))
    for key in {*index.keys(), *by_key}:
        follows = by_key.get(key, [])
        assert index.agrees(key, follows), (
            f"domain {domain.index}: {vertex}, which is full, by {index.columns} at {key} holds "
            f"{list(index.get(key) or ())}, not what follows from {follows} (rule 1)"
        )


def _all_of(index: Index) -> list[Delta]:
    return [delta for key in list(index.keys()) for delta in index.get(key) or ()]


def check_links(domains: Iterable[Domain]) -> None:
    """Check that with nothing on its way, every filled entry of an ingress is what its source holds, and holds without
    a hole."""
    domains = list(domains)
    senders: dict[tuple[LinkId, NodeIndex], tuple[Vertex, Part | None]] = {}
    for domain in domains:
        for link, end in domain.links.outgoing.items():
            for ingress, (egress, part) in end.routes.items():
                senders[link, ingress] = (egress.parents[0], part)
    for domain in domains:
        for vertex, sources in domain.ingresses.sources.items():
            for index in vertex.indexes.values():
                if not index.partial or vertex.building:
                    continue
                for key in list(index.keys()):
                    total: list[Delta] = []
                    for link in sources.links:
                        source, part = senders[link, vertex.index]
                        rows = Peek().find(source, index.columns, [key])[0]
                        if link in sources.of_key(index.columns, key):
                            assert rows is not None, f"{vertex} holds {key}, of which its source has lost something"
                        total.extend(delta for delta in rows or () if part is None or part.has(delta[0]))
                    assert index.agrees(key, total), f"{vertex} at {key} differs from its source at quiescence"
