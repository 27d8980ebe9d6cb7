"""Each limit of the ways in: the request past it gets an answer that names it, and the others are served."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from served_bytes import INSERT, PAGE, STATUS, WITHIN, Site, asked, one_answer, served

from api.doors.http_protocol import HttpProtocol
from api.doors.wire_http import WireHttp
from api.limits import PIECES_A_TURN, Admission, Limits


@pytest.fixture(params=[HttpProtocol, WireHttp], ids=["long", "short"])
def protocol(request: pytest.FixtureRequest) -> Any:
    return request.param


class Client:
    """A connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def say(self, *parts: bytes) -> None:
        self.writer.write(b"".join(parts))

    async def hears(self) -> tuple[int, dict[str, Any]]:
        """Status and body of the next answer."""
        async with asyncio.timeout(WITHIN):
            answer = await one_answer(self.reader)
        return int(answer.split()[1]), json.loads(answer.partition(b"\r\n\r\n")[2])

    async def is_refused(self, status: int, code: str, limit: str) -> None:
        found, body = await self.hears()
        error = body["error"]
        assert (found, error["code"]) == (status, code)
        assert f'"{limit}"' in error["message"]
        assert error["hint"]
        async with asyncio.timeout(WITHIN):
            assert await self.reader.read() == b""


@asynccontextmanager
async def client(site: Site) -> AsyncIterator[Client]:
    reader, writer = await asyncio.open_connection("127.0.0.1", site.port)
    try:
        yield Client(reader, writer)
    finally:
        writer.close()


def admission(site: Site) -> Admission:
    found = site.server.config.loaded_app.admission
    assert isinstance(found, Admission)
    return found


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(WITHIN):
        while not holds():
            await asyncio.sleep(0.005)


async def is_quiet(site: Site) -> None:
    """Nothing is counted any more once the clients have gone."""
    counts = admission(site)
    await until(lambda: (counts.connections, counts.received, counts.unsent, counts.waiting) == (0, 0, 0, 0))


HEADS = {
    "one": b"x: " + b"a" * 5_000,
    "many": b"\r\n".join(b"x%d: 1" % number for number in range(150)),
}


@pytest.mark.parametrize("head", HEADS.values(), ids=HEADS)
@pytest.mark.parametrize("ends", [True, False])
async def test_headers(protocol: Any, head: bytes, ends: bool) -> None:
    """Also where they never end, and after the answers to what came before."""
    async with served(protocol, Limits(max_header_size=4_000)) as site:
        async with client(site) as one:
            one.say(STATUS, b"GET /healthz HTTP/1.1\r\nhost: x\r\n", head)
            if ends:
                one.say(b"\r\n\r\n")
            elif head is HEADS["many"]:  # Their number counts when they are there whole, their bytes at once.
                one.say(b"\r\n", head * 4)
            assert (await one.hears())[0] == 200
            await one.is_refused(431, "headers_too_large", "max_header_size")
        await is_quiet(site)
        assert admission(site).refused == {"max_header_size": 1}


async def test_url(protocol: Any) -> None:
    async with served(protocol, Limits(max_header_size=4_000)) as site, client(site) as one:
        one.say(asked("GET /v1/views/ById?id=" + "1" * 5_000))
        await one.is_refused(414, "url_too_long", "max_header_size")


async def test_pipelined_requests(protocol: Any) -> None:
    """While one is awaited; those before are answered, and nothing after them is done."""
    async with served(protocol, Limits(max_pipelined=3)) as site:
        async with client(site) as one:
            going = site.hold_inserts()
            one.say(INSERT, *[PAGE] * 3, INSERT * 20)
            await until(lambda: "max_pipelined" in admission(site).refused)
            going.set()
            for _ in range(4):
                assert (await one.hears())[0] == 200
            await one.is_refused(429, "too_many_requests", "max_pipelined")
        await is_quiet(site)


async def test_small_requests_have_room_beside_large_bodies(protocol: Any) -> None:
    """One client that uses ``max_in_flight`` up keeps nobody from a poll."""
    head = b"POST /v1/sql HTTP/1.1\r\nhost: x\r\ncontent-length: 90000\r\n\r\n"
    small = asked("POST /v1/sql", b'{"sql": "SELECT 1"}')
    async with served(protocol, Limits(max_in_flight=30_000)) as site:
        async with client(site) as large, client(site) as poll:
            large.say(head, b" " * 29_900)
            await until(lambda: admission(site).received > 29_800)
            for _ in range(20):
                poll.say(small)
                assert (await poll.hears())[0] == 200
            assert not admission(site).refused
        await is_quiet(site)


async def test_bodies_in_flight(protocol: Any) -> None:
    """Of all connections together; one of usual size is taken still, and all once they have gone."""
    head = b"POST /v1/sql HTTP/1.1\r\nhost: x\r\ncontent-length: 9000\r\n\r\n"
    async with served(protocol, Limits(max_in_flight=30_000)) as site:
        async with client(site) as one, client(site) as two, client(site) as three, client(site) as four:
            for each in (one, two, three):
                each.say(head, b" " * 8_000)
            await until(lambda: admission(site).received > 24_000)
            four.say(head, b" " * 8_000)
            await four.is_refused(503, "overloaded", "max_in_flight")
        await is_quiet(site)
        async with client(site) as one:
            one.say(head, b" " * 8_000)
            await until(lambda: admission(site).received > 8_000)
            one.say(b" " * 1_000)
            assert (await one.hears())[0] == 400


async def test_pieces_of_bodies_that_come_at_once_are_read_in_turns() -> None:
    admission, read = Admission(Limits()), []

    async def piece() -> None:
        await admission.read_on()
        read.append(1)

    pieces = [asyncio.create_task(piece()) for _ in range(2 * PIECES_A_TURN + 1)]
    turns = []
    while len(read) < len(pieces):
        before = len(read)
        await asyncio.sleep(0)
        turns.append(len(read) - before)
    assert turns == [PIECES_A_TURN, PIECES_A_TURN, 1]
    await asyncio.gather(*pieces)


async def test_what_a_refused_client_still_sends_is_read_in_pieces(
    protocol: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting: list[HttpProtocol] = []
    read_on = HttpProtocol._read_on
    monkeypatch.setattr(HttpProtocol, "_read_on", lambda self: waiting.append(self))
    async with served(protocol, Limits(max_in_flight=30_000)) as site, client(site) as one, client(site) as two:
        one.say(b"POST /v1/sql HTTP/1.1\r\nhost: x\r\ncontent-length: 31000000\r\n\r\n", b" " * 31_000)
        assert (await one.hears())[0] == 503
        one.say(b" " * 30_000_000)
        for pieces in range(1, 4):
            await until(lambda pieces=pieces: len(waiting) == pieces)
            for _ in range(20):
                two.say(PAGE)
                assert (await two.hears())[0] == 200
            assert len(waiting) == pieces
            assert one.writer.transport.get_write_buffer_size() > 0
            read_on(waiting[-1])
        one.writer.transport.abort()


async def test_connections(protocol: Any) -> None:
    for limits, status, code, limit in (
        (Limits(max_connections=2), 503, "overloaded", "max_connections"),
        (Limits(max_connections_per_address=2), 429, "too_many_requests", "max_connections_per_address"),
    ):
        async with served(protocol, limits) as site:
            async with client(site) as one, client(site) as two, client(site) as three:
                await until(lambda site=site: admission(site).connections == 3)
                three.say(PAGE)
                await three.is_refused(status, code, limit)
                for each in (one, two):
                    each.say(STATUS)
                    assert (await each.hears())[0] == 200
            await is_quiet(site)
            assert site.ways == ["/healthz", "/healthz"]


async def test_a_request_that_takes_too_long(protocol: Any) -> None:
    """However its bytes come: a byte now and then, in the head, in the body, or nothing but empty lines."""
    async with served(protocol, Limits(request_timeout=0.3)) as site:
        for start in (b"GET /hea", b"POST /v1/sql HTTP/1.1\r\ncontent-length: 900\r\n\r\n", b"\r\n"):
            async with client(site) as one:
                one.say(start)
                dripping = asyncio.create_task(drip(one, b"\r\n" if start == b"\r\n" else b"a"))
                if start == b"\r\n":
                    async with asyncio.timeout(WITHIN):
                        with suppress(ConnectionResetError):  # By what came after the end.
                            assert await one.reader.read() == b""
                else:
                    await one.is_refused(408, "request_too_slow", "request_timeout")
                dripping.cancel()
        await is_quiet(site)


async def drip(one: Client, piece: bytes) -> None:
    while True:
        one.say(piece)
        await asyncio.sleep(0.02)


async def test_a_client_that_does_not_read(protocol: Any) -> None:
    """What it sends is no longer read, its answers do not pile up, and after a while it is disconnected."""
    row = re.sub(rb'"one"', b'"' + b"x" * 12_000 + b'"', INSERT.partition(b"\r\n\r\n")[2])
    async with served(protocol, Limits(request_timeout=0.5, max_pipelined=10_000)) as site:
        await site.say(asked("POST /v1/tables/stories/rows", row), answers=1)
        async with client(site) as one:
            one.writer.transport.pause_reading()  # type: ignore[attr-defined]
            most = 0
            async with asyncio.timeout(WITHIN):
                while not admission(site).refused:
                    if one.writer.transport.get_write_buffer_size() < 100_000:
                        one.say(PAGE * 100)
                    most = max(most, admission(site).unsent)
                    await asyncio.sleep(0.002)
            assert 0 < most < 1_000_000
            assert admission(site).refused == {"request_timeout": 1}
        await is_quiet(site)


async def test_answers_that_nobody_reads(protocol: Any) -> None:
    """Of all connections together: who has not read for longest is disconnected."""
    row = re.sub(rb'"one"', b'"' + b"x" * 12_000 + b'"', INSERT.partition(b"\r\n\r\n")[2])
    async with served(protocol, Limits(max_in_flight=500_000, max_pipelined=10_000)) as site:
        await site.say(asked("POST /v1/tables/stories/rows", row), answers=1)
        async with asyncio.timeout(WITHIN), asyncio.TaskGroup() as group:
            tasks = [group.create_task(send_only(site)) for _ in range(12)]
            await until(lambda: admission(site).refused.get("max_in_flight", 0) > 2)
            assert admission(site).unsent < 500_000
            for task in tasks:
                task.cancel()
        await is_quiet(site)


async def send_only(site: Site) -> None:
    async with client(site) as one:
        one.writer.transport.pause_reading()  # type: ignore[attr-defined]
        while True:
            one.say(PAGE * 50)
            await asyncio.sleep(0.02)


async def test_requests_that_wait(protocol: Any) -> None:
    """A read that hits does not."""
    async with served(protocol, Limits(max_waiting=2)) as site:
        await site.say(INSERT, PAGE, answers=2)
        going = site.hold_inserts()
        async with client(site) as one, client(site) as two, client(site) as three:
            for each in (one, two):
                each.say(INSERT)
            await until(lambda: admission(site).waiting == 2)
            three.say(INSERT, PAGE)
            status, body = await three.hears()
            assert (status, body["error"]["code"]) == (503, "overloaded")
            assert '"max_waiting"' in body["error"]["message"]
            assert (await three.hears())[0] == 200
            going.set()
            assert {(await each.hears())[0] for each in (one, two)} == {409}
        await is_quiet(site)


async def test_an_answer(protocol: Any) -> None:
    """By whichever call."""
    row = re.sub(rb'"one"', b'"' + b"x" * 12_000 + b'"', INSERT.partition(b"\r\n\r\n")[2])
    sql = [b'{"sql":"SELECT title FROM stories"}', b'{"sql":"' + b"SELECT 'aaaaaaaaa';" * 600 + b'"}']
    async with served(protocol, Limits(max_answer_size=10_000)) as site:
        async with client(site) as one:
            one.say(asked("POST /v1/tables/stories/rows", row))
            assert (await one.hears())[0] == 200
            for request in (
                PAGE,
                asked("POST /v1/views/ById/lookup", b'{"keys":[[1]]}'),
                asked("POST /v1/lookups", b'{"lookups":[{"view":"ById","keys":[[1]]}]}'),
                *[asked("POST /v1/sql", each) for each in sql],
            ):
                one.say(request)
                status, body = await one.hears()
                assert (status, body["error"]["code"]) == (413, "limit_exceeded")
                assert '"max_answer_size", 10000 bytes' in body["error"]["message"]
        await is_quiet(site)
