"""The lines: what a hostile client does, for as long as it is let, and what it is to hear.

To add one, write a coroutine that takes a ``Target`` and put it into ``LINES``; ``asking`` makes one of SQL.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

SECONDS = 120.0


@dataclass
class Target:
    """Where, and what came of it."""

    port: int
    rng: random.Random
    heard: dict[str, int] = field(default_factory=dict)
    """How often each status, or ``closed``, or ``silent`` for :data:`SECONDS`."""
    said: str = ""
    """The latest error's message."""

    def hears(self, status: str, body: bytes = b"") -> None:
        self.heard[status] = self.heard.get(status, 0) + 1
        if body and status != "200":
            self.said = json.loads(body)["error"]["message"]


Line = Callable[[Target], Awaitable[None]]


async def answer(target: Target, reader: asyncio.StreamReader) -> None:
    """Take one, or the end."""
    try:
        async with asyncio.timeout(SECONDS):
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n", 1)[0])
            target.hears(head.split()[1].decode(), await reader.readexactly(length))
    except (asyncio.IncompleteReadError, ConnectionError):
        target.hears("closed")
    except TimeoutError:
        target.hears("silent")


async def post(target: Target, path: str, body: bytes) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", target.port, limit=2**26)
    try:
        writer.write(
            b"POST %b HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n" % (path.encode(), len(body)) + body
        )
        await answer(target, reader)
    finally:
        writer.close()


def asking(make: Callable[[random.Random], str]) -> Line:
    """One text of SQL after another."""

    async def line(target: Target) -> None:
        while True:
            body = await asyncio.to_thread(lambda: json.dumps({"sql": make(target.rng)}).encode())
            await post(target, "/v1/sql", body)

    return line


def _numbers(count: int) -> Callable[[random.Random], str]:
    return lambda rng: f"SELECT a FROM t WHERE a IN ({','.join([str(rng.randrange(10**6))] * count)})"


def _insert(rng: random.Random) -> str:
    return "INSERT INTO bag VALUES " + ",".join(f"({rng.randrange(10**6)},1)" for _ in range(80_000))


def _select(rng: random.Random) -> str:
    """A long one that is allowed."""
    columns = ",".join(f"a + {each} AS c{each}" for each in range(900))
    return f"SELECT {columns} FROM t WHERE a IN ({','.join(str(rng.randrange(10**6)) for _ in range(9_000))})"


def _heavy(rng: random.Random) -> str:
    """One that is short enough for the event loop, and takes a while in each of its hands."""
    number = rng.randrange(10**6)
    columns = ", ".join(f"COALESCE(x.a, {number}) + y.a * {each} AS c{each}" for each in range(14))
    return (
        f"SELECT {columns}, COUNT(*) FROM t x JOIN t y ON x.id = y.id LEFT JOIN t z ON z.id = y.a WHERE x.a < {number} "
        f"AND (y.b LIKE 'x%' OR z.a BETWEEN 3 AND {number}) GROUP BY x.a, y.a ORDER BY c1, c2 LIMIT 10"
    )


def _folded(rng: random.Random) -> str:
    return f"SELECT STR_TO_DATE(REPEAT('1', 1000000), REPEAT('%d', 100000)), {rng.randrange(10**6)}"


def _made(rng: random.Random) -> str:
    name = f"Made{rng.randrange(10)}"
    return f"CREATE OR REPLACE EXT VIEW {name} AS SELECT a, COUNT(*) FROM t WHERE a > ? GROUP BY a; DROP VIEW {name}"


def getting(path: str, body: Callable[[random.Random], object]) -> Line:
    """One body of JSON after another."""

    async def line(target: Target) -> None:
        while True:
            await post(target, path, json.dumps(body(target.rng)).encode())

    return line


async def rows_as_json(target: Target) -> None:
    body = json.dumps({"rows": [{"a": each, "b": each} for each in range(80_000)]}).encode()
    while True:
        await post(target, "/v1/tables/bag/rows", body)


async def references(target: Target) -> None:
    """Look-ups that refer to one, as many as may be, with as many keys as fit."""
    looked: list[object] = [{"view": "V", "keys": [[each] for each in range(10)]}]
    looked += [{"view": "V", "keys": [[{"each": [0, "id"]}]] * 200} for _ in range(100)]
    body = json.dumps({"lookups": looked}).encode()
    while True:
        await post(target, "/v1/lookups", body)


async def unread(target: Target) -> None:
    """Requests one behind the other, whose answers nobody reads."""
    page = b"GET /v1/views/Wide?id=1 HTTP/1.1\r\nhost: localhost\r\n\r\n"
    while True:
        _, writer = await asyncio.open_connection("127.0.0.1", target.port)
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        try:
            for _ in range(500):
                writer.write(page * 1_000)
                async with asyncio.timeout(0.5):
                    await writer.drain()
        except (TimeoutError, ConnectionError):
            target.hears("closed")
            await asyncio.sleep(0.5)
        finally:
            writer.transport.abort()


async def pipelined(target: Target) -> None:
    """A thousand writes in one piece."""
    body = b'{"rows":[{"a":1,"b":1}]}'
    one = b"POST /v1/tables/bag/rows HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n" % len(body) + body
    while True:
        reader, writer = await asyncio.open_connection("127.0.0.1", target.port)
        writer.write(one * 1_000)
        while not reader.at_eof():
            await answer(target, reader)
            if target.heard.get("429"):
                break
        writer.close()


async def headers(target: Target) -> None:
    """200 MB of them on ten connections."""

    async def one() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", target.port)
        writer.write(b"GET /healthz HTTP/1.1\r\n")
        try:
            for number in range(2_000):
                writer.write(b"".join([b"x-%d: %d\r\n" % (number, each) for each in range(500)]))
                await writer.drain()
        except ConnectionError:
            pass
        await answer(target, reader)
        writer.close()

    while True:
        await asyncio.gather(*[one() for _ in range(10)])


async def unfinished(target: Target) -> None:
    """Sixty bodies of 31 of 32 MB, of which the last byte never comes."""

    async def one() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", target.port)
        writer.write(b"POST /v1/sql HTTP/1.1\r\nhost: localhost\r\ncontent-length: 32000000\r\n\r\n")
        try:
            for _ in range(31):
                writer.write(b" " * 1_000_000)
                await writer.drain()
            await asyncio.wait_for(answer(target, reader), 2)
        except (ConnectionError, TimeoutError):
            await answer(target, reader) if reader.at_eof() else None
        writer.transport.abort()

    while True:
        await asyncio.gather(*[one() for _ in range(60)])


async def dripping(target: Target) -> None:
    """A byte now and then, on a hundred connections."""

    async def one() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", target.port)
        writer.write(b"POST /v1/sql HTTP/1.1\r\nhost: localhost\r\ncontent-length: 3000\r\n\r\n")
        try:
            coming = asyncio.ensure_future(answer(target, reader))
            while not coming.done():
                writer.write(b" ")
                await asyncio.sleep(0.05)
        except ConnectionError:
            pass
        writer.transport.abort()

    while True:
        await asyncio.gather(*[one() for _ in range(100)])


async def connections(target: Target) -> None:
    """As many as there may be, and more."""
    opened: list[asyncio.StreamWriter] = []
    try:
        while True:
            reader, writer = await asyncio.open_connection("127.0.0.1", target.port)
            opened.append(writer)
            if len(opened) > 300:
                await answer(target, reader)
                for each in opened:
                    each.transport.abort()
                opened.clear()
    finally:
        for each in opened:
            each.transport.abort()


LINES: dict[str, tuple[Line, str]] = {
    "million numbers": (asking(_numbers(1_000_000)), "413"),
    "list": (asking(_numbers(120_000)), "413"),
    "columns": (asking(lambda rng: "SELECT " + ",".join(["1"] * 100_000)), "413"),
    "insert": (asking(_insert), "200"),
    "rows": (rows_as_json, "200"),
    "statements": (asking(lambda rng: "SELECT 1;" * 20_000), "413"),
    "statements allowed": (asking(lambda rng: "SELECT 1;" * 1_000), "200"),
    "shapes": (
        asking(lambda rng: f"SELECT a + {rng.randrange(10**6)} AS n FROM t WHERE a > {rng.randrange(10**6)} LIMIT 1"),
        "200",
    ),
    "heavy": (asking(_heavy), "200"),
    "cross join": (
        asking(lambda rng: f"SELECT COUNT(*) FROM t x, t y WHERE x.a + y.a < -{rng.randrange(10**6)}"),
        "200",
    ),
    "select": (asking(_select), "200"),
    "explain": (asking(lambda rng: "EXPLAIN " + _select(rng)), "200"),
    "folding": (asking(_folded), "413"),
    "long texts": (asking(lambda rng: f"SELECT REPEAT(x.b, 100), {rng.randrange(10**6)} FROM t x, t y"), "413"),
    "definitions": (asking(_made), "200"),
    "finish": (getting("/v1/views/Late/lookup", lambda rng: {"keys": [[rng.randrange(90), "x%"]]}), "200"),
    "pages": (getting("/v1/views/Whole/lookup", lambda rng: {"keys": [[]]}), "200"),
    "brackets": (asking(lambda rng: "SELECT " + "(" * 490_000 + ")" * 490_000), "413"),
    "references": (references, "413"),
    "unread": (unread, "closed"),
    "pipelined": (pipelined, "429"),
    "headers": (headers, "431"),
    "bodies": (unfinished, "503"),
    "dripping": (dripping, "408"),
    "connections": (connections, "429"),
}
"""By name; the status, or ``closed``, that is heard at least once. What asks much of a SELECT belongs here too."""
