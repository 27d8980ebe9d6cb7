"""Packets over links of who knows the secret, and is no worker of ours, or a broken one: none of them is done, and the
worker that they are for goes on.

What fits, and is only untrue, is believed: the tests say where that begins.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from domains.language.collating.collation import Collation, key_of
from domains.language.types import BIGINT, JSON, TEXT, Column, Row, SqlType
from domains.plan.graph import DomainIndex, Ingress, NodeIndex
from domains.plan.packets import (
    DOMAINS_MAX,
    Fill,
    Insert,
    LinkId,
    LinkUpdate,
    Pattern,
    Unfilled,
    Upquery,
    link_between,
    receiver_of,
)
from tests.kit.leading_workers import SECRET, Led, leading
from worker.dataflow.domain_host import DomainHost
from worker.dataflow.link_checks import is_key
from worker.protocol.messages import ProtocolError, Role, StreamAck, StreamFrame, StreamOpen
from worker.wire import codec
from worker.wire.connection import Connection, connect, greeting

SQL = """
CREATE TABLE notes (id INT PRIMARY KEY, place INT NOT NULL, body TEXT, day DATE, at DATETIME, price DECIMAL(8,2),
  weight DOUBLE, document JSON, took TIME, raw BLOB);
CREATE VIEW ByPlace AS SELECT place, COUNT(*) AS n, SUM(price) AS paid, MAX(YEAR(day)) AS year FROM notes
  WHERE place = ? GROUP BY place;
CREATE VIEW ByDay AS SELECT id, body, DAYNAME(day) AS name, at, weight, document->>'$.a' AS a, took, raw FROM notes
  WHERE place = ? ORDER BY id
"""
BASE, VIEWS = DomainIndex(0), DomainIndex(1)
RIGHT: tuple[Any, ...] = (
    *(1, 7, "a leaf", "2026-01-31", "2026-01-31 08:00:00", Decimal("1.50"), 2.5, '{"a": 1}'),
    *(timedelta(hours=1), b"\xff"),
)
NOT = {
    "INT": ("x", b"\xff", 2**1000, timedelta(1), math.nan),
    "TEXT": (1, b"\xff", timedelta(1)),
    "DATE": ("yesterday", "2026-02-30", 20260131),
    "DATETIME": ("noon", "2026-01-31 25:00:00", 1.0),
    "DECIMAL": ("1.50", b"1.5", -math.inf),
    "DOUBLE": ("1.5", math.nan, math.inf, timedelta(1)),
    "JSON": ("{", 1, None.__class__.__name__ + "!"),
    "TIME": ("01:00:00", timedelta(hours=900), 1),
    "BLOB": ("text", 1),
}


class Sender:
    """What says that it is another process of a worker: a stream to one worker, over which it sends what it likes."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._number = 0

    async def send(self, *packets: Any) -> None:
        items = tuple(map(codec.encode, packets))
        self._connection.tell(StreamFrame(self._number + 1, items))
        self._number += len(items)
        async with asyncio.timeout(30):
            while (await self._connection.ask(StreamOpen(1))).number < self._number:
                await asyncio.sleep(0.01)


@asynccontextmanager
async def sending(led: Led, to: str) -> AsyncIterator[Sender]:
    hello = greeting("main", Role.WORKER, "broken", 1)
    port = led.workers[to].port
    connection = await connect("127.0.0.1", port, hello, handler=lambda *_: None, secret=SECRET)
    assert isinstance(await connection.ask(StreamOpen(1)), StreamAck)
    yield Sender(connection)
    connection.close()


async def at(led: Led, name: str, look: Callable[[DomainHost], Any]) -> Any:
    """What a look at the domains finds, after all that was sent before."""
    return await asyncio.wrap_future(led.own[name].dataflow.control(lambda hosted, _: look(hosted)))


def place_of(link: LinkId) -> Callable[[DomainHost], tuple[int, int]]:
    """The epoch of a link at its receiver, and the number of the last packet that was taken."""

    def look(hosted: DomainHost) -> tuple[int, int]:
        domain = hosted.hosts[receiver_of(link)].domain
        end = domain.links.incoming.get(link)
        return domain.link_epoch(link), 0 if end is None else end.sequence

    return look


@asynccontextmanager
async def two(tmp_path: Path) -> AsyncIterator[tuple[Led, LinkId, NodeIndex]]:
    """The bases at "a" and the views at "b"; the link between them, and the ingress that has all columns."""
    async with leading(tmp_path, SQL, names=("a", "b"), shards=1, groups=2) as led:
        await led.write(Insert("notes", (RIGHT,)))
        assert b'"n":1' in await led.page("ByPlace", (7,))
        assert b'"name":"Saturday"' in await led.page("ByDay", (7,))
        await led.quiet()
        nodes = [node for node in led.state.flow.nodes.values() if isinstance(node.operator, Ingress)]
        widest = max(nodes, key=lambda node: len(node.columns))
        yield led, link_between(BASE, VIEWS), widest.index


LOOKS: list[tuple[Any, Any]] = [
    *(((99,), ((7,),)), ((-1,), ((7,),)), ((0, 0), ((7, 7),)), ((0,), ((7, 7),)), ((0,), ((b"\xff",),))),
    ((0,), ((math.nan,),)),
]
"""Columns and keys of look-ups that no ingress of these views asks for."""
PATTERN = Pattern(((0,),), (7,), True)
PATTERNS = (
    *(replace(PATTERN, columns=columns) for columns in (((99,),), ((-1,),), ((0,), (1,)), ((),))),
    *(replace(PATTERN, values=(b"\xff",)), Pattern((), (), True)),
)


def wrong_rows(columns: Sequence[Column]) -> tuple[Row, list[Any]]:
    """A row that a node has, and others that differ in their width, or in one value."""
    names = ("id", "place", "body", "day", "at", "price", "weight", "document", "took", "raw")
    right = tuple(RIGHT[names.index(column.name)] for column in columns)
    rows: list[Any] = [right[:-1], (*right, 1), ()]
    for place, column in enumerate(columns):
        wrong = NOT[str(column.type).split("(")[0]]
        rows += [(*right[:place], each, *right[place + 1 :]) for each in wrong]
    assert len(columns) == len(NOT) + 1
    return right, rows


def wrong_updates(led: Led, link: LinkId, node: NodeIndex, other: NodeIndex, at: tuple[int, int]) -> list[LinkUpdate]:
    """None of them is one that could come next over the link. ``other`` is no ingress."""
    right, rows = wrong_rows(led.state.flow.node(node).columns)
    epoch, sequence = at
    whole = LinkUpdate(link, sequence + 1, epoch, {"notes": 10**6}, (), ((node, ((right, 1),)),))
    empty = replace(whole, deltas=())
    return [
        *(replace(whole, deltas=((node, ((row, 1),)),)) for row in rows),
        *(replace(empty, fills=(Fill(node, (0,), (7,), ((row, 1),)),)) for row in rows),
        *(replace(empty, evictions=((node, pattern),)) for pattern in PATTERNS),
        *(replace(whole, deltas=((node, ((right, weight),)),)) for weight in (0, 2**40, -(2**40))),
        replace(whole, deltas=((other, ((right, 1),)),)),
        replace(empty, ended=(other,)),
        replace(empty, fills=(Fill(node, (0,), (7,), ((right, -1),)),)),
        replace(empty, unfilled=(Unfilled(other, (0,), (7,), ProtocolError("no")),)),
        *(replace(whole, sequence=number) for number in (-1, 0, sequence, 2**70)),
        replace(whole, link=link_between(DomainIndex(DOMAINS_MAX), VIEWS), sequence=1),
    ]


async def test_rows_that_a_node_has_not_are_refused_and_the_worker_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with two(tmp_path) as (led, link, node), sending(led, "b") as sender, sending(led, "a") as asker:
        before = await at(led, "b", place_of(link))
        there = await at(led, "b", lambda hosted: set(hosted.hosts[VIEWS].domain.vertices))
        other = next(
            n.index for n in led.state.flow.nodes.values() if not isinstance(n.operator, Ingress) and n.index in there
        )
        updates = wrong_updates(led, link, node, other, before)
        caplog.set_level(logging.WARNING, "headrace.wire")
        refused = led.own["b"].server.refusals.total
        await sender.send(*updates)
        await asker.send(*(Upquery(link, before[0], node, columns, keys) for columns, keys in LOOKS))
        for name, count in (("b", len(updates)), ("a", len(LOOKS))):
            assert await at(led, name, lambda hosted: hosted.counters.refused) == count, name
            assert led.own[name].dataflow.failure is None
            assert not await at(led, name, lambda hosted: hosted.broken)
        assert led.own["b"].server.refusals.total - refused == len(updates)
        told = [each.getMessage() for each in caplog.records if "a link from domain 0 to domain 1" in each.getMessage()]
        assert len(told) == 2  # At each worker once a minute.
        assert all("refused broken at 127.0.0.1" in each for each in told)
        assert await at(led, "b", place_of(link)) == before
        await led.write(Insert("notes", ((5, *RIGHT[1:]),)))
        token = await led.write(Insert("notes", ((6, *RIGHT[1:]),)))
        assert b'"n":3' in await led.page("ByPlace", (7,), token)
        assert (await led.page("ByDay", (7,), token)).count(b"Saturday") == 3


CASELESS = replace(TEXT, collation=Collation.UCA_0900_AI_CI)


@pytest.mark.parametrize(("type", "value"), [(JSON, '{"a": 1}'), (CASELESS, "Ann"), (BIGINT, 7), (TEXT, "Ann")])
def test_a_key_has_what_its_column_is_compared_by(type: SqlType, value: Any) -> None:
    """Of a text with a collation, and of JSON, a look-up and an eviction carry the key and not the value."""
    assert is_key(value if type.equality is None else key_of(value, type.equality), type)
    assert not is_key(math.inf, type)
    assert is_key("x", type)
    assert is_key(b"\xff", type) == (type.equality is not None)


async def test_what_comes_after_a_packet_that_was_refused_has_the_domain_opened_again(tmp_path: Path) -> None:
    async with two(tmp_path) as (led, link, node), sending(led, "b") as sender:
        epoch, sequence = await at(led, "b", place_of(link))
        ahead = LinkUpdate(link, sequence + 3, epoch, {})
        await sender.send(ahead, replace(ahead, sequence=sequence + 2))
        assert not await at(led, "b", lambda hosted: hosted.broken)  # Nothing is missing: it is only a number.
        empty: Row = ()
        await sender.send(LinkUpdate(link, sequence + 1, epoch, {}, (), ((node, ((empty, 1),)),)))
        assert not await at(led, "b", lambda hosted: hosted.broken)
        await sender.send(replace(ahead, sequence=sequence + 2))
        assert list(await at(led, "b", lambda hosted: hosted.broken)) == [VIEWS]
        assert led.own["b"].dataflow.failure is None
        assert BASE in await at(led, "a", lambda hosted: set(hosted.hosts))
        led.epoch += 10
        await led.place({VIEWS: "b"})  # As a leader does with what a worker reports as broken.
        token = await led.write(Insert("notes", ((5, *RIGHT[1:]),)))
        assert b'"n":2' in await led.page("ByPlace", (7,), token)
