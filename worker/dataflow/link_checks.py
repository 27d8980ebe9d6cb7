"""What another worker sends over a link, held against the graph before its domain handles it.

The decoder has seen to it that a packet is one: fields of their types, rows of values. Here it is known which nodes a
link feeds, and what columns they have. A row of another width or type would break an operator in the middle of a step,
in a place where only a bug of ours is expected, and end the worker; a packet out of sequence would do so at once. What
does not fit changes nothing. (That a row is *true* nobody can see here: a sender is believed what fits.)

Rows are looked at by a function that is generated for each node. It takes a quarter of the time that decoding takes.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable
from datetime import timedelta
from decimal import Decimal
from typing import Any

from domains.engine.domain import Domain
from domains.language import documents, durations
from domains.language.compiled import compiled
from domains.language.temporal import canonical_date, canonical_datetime
from domains.language.types import DOUBLE, Column, Delta, Kind, Row, SqlType, Value
from domains.operators.operator import Vertex
from domains.plan.graph import Columns, NodeIndex
from domains.plan.packets import DOMAINS_MAX, LinkId, LinkUpdate, Pattern, Upquery, receiver_of, sender_of
from worker.dataflow.batch import LinkPacket
from worker.protocol.messages import ProtocolError

_log = logging.getLogger("headrace.worker")

WEIGHT_MAX = 2**31
"""A reader has an entry for each of equal rows: no sender has so many."""
GREATEST = 10**81
"""Of an integer's amount: DECIMAL has 65 digits, and sums some more."""

FirstStrange = Callable[[Iterable[Delta]], Row | None]
Refused = Callable[[ProtocolError], None]
"""Hears of a packet that was refused, on the dataflow thread."""


def told(error: ProtocolError) -> None:
    """Where it is not known any more over which connection it came."""
    _log.warning("refused what another worker sent: %s", error)


class LinkChecks:
    """Those of one domain. What it knows of nodes is to be forgotten (``clear``) where the graph changes."""

    def __init__(self, domain: Domain) -> None:
        self._domain = domain
        self._rows: dict[tuple[LinkId, NodeIndex], FirstStrange | str] = {}
        """The check of what a link brings to a node, or why it brings nothing there."""
        self._broken: dict[LinkId, int] = {}
        """The links whose next packet was refused, each with its epoch."""

    def clear(self) -> None:
        self._rows.clear()

    def refusal(self, packet: LinkPacket) -> ProtocolError | None:
        """Why a packet of another worker, for the link as the domain knows it, is none."""
        why = self._upquery(packet) if isinstance(packet, Upquery) else self._update(packet)
        if not why:
            return None
        ends = f"from domain {sender_of(packet.link)} to domain {receiver_of(packet.link)}"
        return ProtocolError(f"a link {ends}: {why}", hint="do all workers run the same version of headrace?")

    def is_over(self, packet: LinkPacket) -> bool:
        """Whether a packet that was refused comes just after one that was, as that of a sender who goes on: then the
        link stands still. Other numbers are those of who is no sender of this link."""
        if isinstance(packet, Upquery):
            return False
        end = self._domain.links.incoming.get(packet.link)
        ahead = packet.sequence - 1 - (end.sequence if end is not None else 0)
        if ahead == 0:
            self._broken[packet.link] = packet.epoch
        return ahead == 1 and self._broken.get(packet.link) == packet.epoch

    def _update(self, packet: LinkUpdate) -> str:
        domain, link = self._domain, packet.link
        end = domain.links.incoming.get(link)
        follows = end.sequence if end is not None else 0
        if packet.sequence != follows + 1:
            return f"packet {packet.sequence} follows packet {follows}"
        if not 0 <= sender_of(link) < DOMAINS_MAX:
            return f"there is no domain {sender_of(link)}"
        for node, deltas in packet.deltas:
            if why := self._misfit(link, node, deltas):
                return why
        if packet.fills or packet.evictions or packet.ended or packet.unfilled:
            return self._others(packet)
        return ""

    def _others(self, packet: LinkUpdate) -> str:
        """Of all that is no delta."""
        link = packet.link
        for fill in packet.fills:
            if why := self._misfit(link, fill.node, fill.rows):
                return why
            if any(weight < 0 for _, weight in fill.rows):
                return f"a fill of node {fill.node} takes rows away"
        for node, pattern in packet.evictions:
            if why := self._eviction(link, node, pattern):
                return why
        for node in (*packet.ended, *(each.node for each in packet.unfilled)):
            if why := self._misfit(link, node, ()):
                return why
        return ""

    def _misfit(self, link: LinkId, node: NodeIndex, deltas: Iterable[Delta]) -> str:
        """Why these rows do not come to the node over the link."""
        strange = self._rows.get((link, node)) or self._made(link, node)
        if isinstance(strange, str):
            return strange
        row = strange(deltas)
        return "" if row is None else self._why(node, row)

    def _made(self, link: LinkId, node: NodeIndex) -> FirstStrange | str:
        vertex = self._domain.vertices.get(node)
        sources = None if vertex is None else self._domain.ingresses.sources.get(vertex)
        if vertex is None:
            made: FirstStrange | str = _nothing  # It was removed, or is to come: the domain passes over it.
        elif sources is None or link not in sources.links:
            made = f"node {node} is not fed by this link"
        else:
            made = _first_strange(vertex.node.columns)
        self._rows[link, node] = made
        return made

    def _eviction(self, link: LinkId, node: NodeIndex, pattern: Pattern) -> str:
        why = self._misfit(link, node, ())
        if why or node not in self._domain.vertices:
            return why
        columns = self._domain.vertices[node].node.columns
        if len(pattern.columns) != len(pattern.values) or not pattern.values:
            return f"a pattern of {len(pattern.values)} values for {len(pattern.columns)} columns"
        for alike, value in zip(pattern.columns, pattern.values, strict=True):
            if not alike or not all(0 <= at < len(columns) and is_key(value, columns[at].type) for at in alike):
                return f"a pattern of other columns than those of node {node}"
        return ""

    def _upquery(self, packet: Upquery) -> str:
        route = self._domain.links.route(packet.link, packet.node)
        return "" if route is None else _strange_keys(route[0], packet.columns, packet.keys)

    def _why(self, node: NodeIndex, row: Row) -> str:
        """What is strange about a row."""
        columns = self._domain.vertices[node].node.columns
        if len(row) != len(columns):
            return f"a row of {len(row)} values for the {len(columns)} columns of node {node}"
        for value, column in zip(row, columns, strict=True):
            if not fits(value, column.type):
                return f'a {type(value).__name__} in column "{column.name}" ({column.type}) of node {node}'
        return f"a row of node {node} comes too often"


def _strange_keys(vertex: Vertex, columns: Columns, keys: Iterable[Row]) -> str:
    """Why nothing can be looked up so."""
    known = vertex.node.columns
    if len(set(columns)) != len(columns) or not all(0 <= at < len(known) for at in columns):
        return f"a look-up by other columns than those of node {vertex.node.index}"
    types = [known[at].type for at in columns]
    for key in keys:
        if len(key) != len(types) or not all(map(is_key, key, types)):
            return f"a look-up by a key of other types than node {vertex.node.index} has"
    return ""


def _nothing(deltas: Iterable[Delta]) -> Row | None:
    return None


# --- values -----------------------------------------------------------------------------------------------------------


def _is_day(text: str) -> bool:
    return canonical_date(text) is not None


def _is_moment(text: str) -> bool:
    return canonical_datetime(text) is not None


def _is_document(text: str) -> bool:
    try:
        documents.value_of(text)
    except (ValueError, RecursionError):
        return False
    return True


_NAMES: dict[str, Any] = {
    "Decimal": Decimal,
    "timedelta": timedelta,
    "greatest": GREATEST,
    "longest": durations.LONGEST,
    "is_finite": math.isfinite,
    "is_day": _is_day,
    "is_moment": _is_moment,
    "is_document": _is_document,
}
_NUMBER = (
    "(type({0}) is int and -greatest < {0} < greatest or type({0}) is float and is_finite({0}) or type({0}) is Decimal)"
)
_TESTS = {
    Kind.INTEGER: _NUMBER,
    Kind.DOUBLE: _NUMBER,
    Kind.DECIMAL: _NUMBER,
    Kind.TEXT: "type({0}) is str",
    Kind.BLOB: "type({0}) is bytes",
    Kind.DATE: "type({0}) is str and is_day({0})",
    Kind.DATETIME: "type({0}) is str and is_moment({0})",
    Kind.TIME: "type({0}) is timedelta and -longest <= {0} <= longest",
    Kind.JSON: "type({0}) is str and is_document({0})",
    Kind.NULL: "False",
}
"""Source of what an operator takes for granted of a value that is not NULL. NULL may be anywhere: an outer join makes
it, whatever the column of the table says. Numbers are of any kind: an ENUM's place is computed as a float, whatever the
type of the column that it comes to."""


def fits(value: Value, type: SqlType) -> bool:
    """Whether a value may be in a column: the test of ``_first_strange`` for one of them."""
    return value is None or _first_strange((Column("", type),))([((value,), 1)]) is None


def is_key(value: Value, type: SqlType) -> bool:
    """Whether a value may be in a key of a column: what its equality makes of one, or what it may be compared with. A
    text and a number are: where they are equal to none, there is nothing at such a key."""
    if isinstance(value, bytes):
        return type.equality is not None or fits(value, type)
    return isinstance(value, str) or fits(value, type) or fits(value, DOUBLE)


_MADE: dict[tuple[SqlType, ...], FirstStrange] = {}
MADE_MAX = 1000
"""Functions that are remembered; then all are made anew."""


def _first_strange(columns: tuple[Column, ...]) -> FirstStrange:
    """The first row of deltas that these columns do not have; None where all fit."""
    types = tuple(column.type for column in columns)
    if (known := _MADE.get(types)) is not None:
        return known
    tests = " and ".join(f"({_TESTS[type.kind].format(f'v{at}')} or v{at} is None)" for at, type in enumerate(types))
    often = f"weight != 1 and weight != -1 and not 0 < abs(weight) < {WEIGHT_MAX}"
    lines = ["def first_strange(deltas):", "    for row, weight in deltas:"]
    lines.append(f"        if len(row) != {len(types)} or {often}: return row")
    if types:
        lines.append(f"        {''.join(f'v{at}, ' for at in range(len(types)))} = row")
        lines.append(f"        if not ({tests}): return row")
    names = dict(_NAMES)
    exec(compiled("\n".join(lines), "<link checks>"), names)
    if len(_MADE) >= MADE_MAX:
        _MADE.clear()
    made: FirstStrange = names["first_strange"]
    _MADE[types] = made
    return made
