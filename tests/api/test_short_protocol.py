"""The short way answers as uvicorn's own does, in order, whatever else is on the connection."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from served_bytes import INSERT, LOOKUP, MANY, PAGE, STATUS, WITHIN, Site, asked, one_answer, served

from api.doors.wire_http import Head, HttpProtocol, WireHttp, head_of, target_of

ODD = [
    PAGE,
    MANY,
    LOOKUP,
    asked("GET /v1/views/ById?id=%31"),
    asked("GET /v1/views/By%49d?id=1"),
    asked("GET /v1/views/Nothing?id=1"),
    asked("GET /v1/views/ById"),
    asked("GET /v1/views/ById?id=1", b"what is this"),
    asked("POST /v1/lookups", b'{"lookups":[{"view":"ById","keys":[[1]]},{"view":"ById"'),
    asked("POST /v1/lookups", b'{"lookups":[{"view":"ById","keys":[[1]]},{"view":"No","keys":[]}]}'),
    asked("POST /v1/lookups", b""),
    asked("POST /v1/lookups", b" " * 30_000),
    asked("PATCH /v1/lookups", b"{}"),
    asked("POST /v1/lookups?x=1", b'{"lookups":[{"view":"ById","keys":[[1]]}]}'),
    asked("POST /v1/lookups", b"{}", ["headrace-token: nonsense"]),
    asked("POST /v1/lookups", b'{"lookups":[]}', ["Origin: http://elsewhere"]),
    asked("PATCH /v1/tables/stories/rows", b'{"key":{"id":1},"set":{}}', ["Origin: http://elsewhere"]),
    asked("PATCH /v1/tables/stories/rows", b'{"key":{"id":1},"set":{"title":"uno"}}'),
    asked("DELETE /v1/tables/stories/rows", b'{"key":{"id":1},"set":1}'),
    asked("DELETE /v1/tables/stories/rows", b'{"key":{"id":9}}'),
    asked("POST /v1/sql", b'{"sql":"UPDATE stories SET title = ? WHERE id = ?","params":["uno",1]}'),
    asked("POST /v1/sql", b'{"sql":"SELEC"}', ["Origin: http://elsewhere"]),
    asked("POST /v1/sql", b'{"sql":7}'),
    asked("PATCH /v1/sql", b"{}"),
    asked("GET /v1/views/ById?id=1", headers=["connection: keep-alive"]),
    asked("GET /v1/views/ById?id=1", headers=["Connection: Close"]),
    asked("DELETE /v1/tables/stories/rows", b'{"key":{"id":1}}', ["connection: close"]),
    b'POST /v1/lookups HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\ne\r\n{"lookups":[]}\r\n0\r\n\r\n',
    b"GET /v1/views/ById?id=1 HTTP/1.1\r\nhost: x\r\n\r\n",
    b"GET /v1/views/ById?id=1 HTTP/1.1\r\nhost: x\r\n\x01bad: header\r\n\r\n",
    b"POST /v1/lookups HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\n{} ",
    b"POST /v1/lookups HTTP/1.1\r\nhost: x\r\ncontent-length: -2\r\n\r\n{}",
    b"\r\n" + PAGE,
]
INSERT_LAST = asked("POST /v1/tables/stories/rows", INSERT.partition(b"\r\n\r\n")[2], ["connection: close"])


@pytest.mark.parametrize("request_bytes", ODD, ids=range(len(ODD)))
async def test_the_answer_is_that_of_the_long_way(request_bytes: bytes) -> None:
    said = []
    for protocol in (HttpProtocol, WireHttp):
        async with served(protocol) as site:
            await site.say(INSERT, answers=1)
            said.append(await site.say(request_bytes, answers=1))
    long, short = ([(lines(answer), answer.partition(b"\r\n\r\n")[2]) for answer in each] for each in said)
    assert long == short


def lines(answer: bytes) -> list[bytes]:
    status, *headers = answer.partition(b"\r\n\r\n")[0].split(b"\r\n")
    return [status, *sorted(headers)]


async def test_hot_calls_go_the_short_way_and_others_do_not() -> None:
    async with served() as site:
        await site.say(INSERT, PAGE, MANY, LOOKUP, answers=4)
        assert site.ways == []
        await site.say(PAGE, STATUS, answers=2)
        await site.say(PAGE, answers=1)
        assert site.ways == ["/healthz"]


async def test_the_last_request_of_a_connection_goes_the_short_way_too() -> None:
    """And nothing behind it is done, whether its answer is there at once or is awaited."""
    for last in (asked("GET /v1/views/ById?id=1", headers=["Connection: close"]), INSERT_LAST):
        async with served() as site:
            reader, writer = await asyncio.open_connection("127.0.0.1", site.port)
            async with asyncio.timeout(WITHIN):
                writer.write(last + INSERT + STATUS)
                answer = await one_answer(reader)
                assert await reader.read() == b""
            writer.close()
            assert answer.startswith(b"HTTP/1.1 200")
            assert b"connection: close" in answer
            assert site.ways == []
            (again,) = await site.say(asked("POST /v1/views/ById/lookup", b'{"keys":[[1]]}'), answers=1)
            assert (b"one" in again) == (last is INSERT_LAST)


@pytest.mark.parametrize("size", [1, 7, 64, 100_000])
async def test_answers_leave_in_the_order_of_the_requests(size: int) -> None:
    """Pipelined, hits and misses, short and long ways among one another, in pieces of any size."""
    requests = [INSERT, PAGE, STATUS, MANY, LOOKUP, STATUS, STATUS, PAGE, MANY, INSERT, PAGE]
    stream = b"".join(requests)
    async with served() as site:
        found = await site.say(*(stream[at : at + size] for at in range(0, len(stream), size)), answers=len(requests))
    row = b'{"id":1,"title":"one"}'
    bodies = [answer.partition(b"\r\n\r\n")[2] for answer in found]
    assert [body for body in bodies if b"token" not in body and b"error" not in body] == [
        b'{"rows":[' + row + b"]}",
        b'{"status":"ok"}',
        b'{"results":[[[' + row + b"]]]}",
        b'{"results":[[' + row + b"],[]]}",
        b'{"status":"ok"}',
        b'{"status":"ok"}',
        b'{"rows":[' + row + b"]}",
        b'{"results":[[[' + row + b"]]]}",
        b'{"rows":[' + row + b"]}",
    ]
    assert b"token" in bodies[0]
    assert b"constraint_violation" in bodies[9]


async def test_a_stop_waits_for_the_answer_under_way() -> None:
    async with served() as site:
        going = site.hold_inserts()
        answers = asyncio.create_task(site.say(INSERT, answers=1))
        async with asyncio.timeout(WITHIN):
            while not site.server.server_state.tasks:
                await asyncio.sleep(0.001)
            stopping = asyncio.create_task(site.server.shutdown())
            (connection,) = site.server.server_state.connections
            while not connection._closing:  # type: ignore[union-attr]
                await asyncio.sleep(0.001)
            going.set()
            (answer,) = await answers
            await stopping
        assert answer.startswith(b"HTTP/1.1 200")
        assert b"connection: close" in answer


KEPT = 0.2
"""Seconds until an idle connection is closed."""


async def is_kept_while_used(site: Site) -> bool:
    """False where a busy machine held us up for longer than a connection may be idle: that shows nothing."""
    reader, writer = await asyncio.open_connection("127.0.0.1", site.port)
    loop = asyncio.get_running_loop()
    began = last = loop.time()
    longest = 0.0
    try:
        while last < began + 5 * KEPT:
            writer.write(PAGE)
            await one_answer(reader)
            await asyncio.sleep(KEPT / 4)
            longest, last = max(longest, loop.time() - last), loop.time()
        assert await reader.read() == b"", "closed once nothing came"
    except (asyncio.IncompleteReadError, ConnectionError):
        assert max(longest, loop.time() - last) > KEPT / 2, "closed while it was used"
        return False
    finally:
        writer.close()
    return True


async def test_an_idle_connection_is_closed_and_a_used_one_is_not() -> None:
    async with served(timeout_keep_alive=KEPT) as site, asyncio.timeout(WITHIN):
        while not await is_kept_while_used(site):
            pass


async def test_who_is_gone_is_not_answered() -> None:
    async with served() as site:
        going = asyncio.Event()

        async def slow(*given: Any) -> Any:
            await going.wait()
            raise AssertionError("nobody hears this")

        site.deployment.insert = slow  # type: ignore[method-assign, assignment]
        _, writer = await asyncio.open_connection("127.0.0.1", site.port)
        async with asyncio.timeout(WITHIN):
            writer.write(INSERT + PAGE)
            while not site.server.server_state.tasks:
                await asyncio.sleep(0.001)
            writer.transport.abort()
            going.set()
            while site.server.server_state.tasks or site.server.server_state.connections:
                await asyncio.sleep(0.001)


async def test_what_is_done_for_who_is_gone_ends() -> None:
    """A SELECT that is evaluated is stopped so."""
    async with served() as site:
        begun, stopped = asyncio.Event(), asyncio.Event()

        async def endless(*given: Any, **more: Any) -> Any:
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                stopped.set()

        site.deployment.execute = endless  # type: ignore[method-assign]
        _, writer = await asyncio.open_connection("127.0.0.1", site.port)
        writer.write(asked("POST /v1/sql", b'{"sql": "SELECT 1 FROM t"}'))
        async with asyncio.timeout(WITHIN):
            await begun.wait()
            writer.close()
            await stopped.wait()


def test_request_lines_of_the_short_way() -> None:
    assert target_of(b"GET /v1/views/v?id=%207 HTTP/1.1") == ("GET", "/v1/views/v", b"id=%207")
    assert target_of(b"POST /v1/lookups HTTP/1.1") == ("POST", "/v1/lookups", b"")
    for line in (
        b"GET /v1/views/v HTTP/1.0",
        b"GET /v1/a%20b HTTP/1.1",
        b"GET /v1/v#x HTTP/1.1",
        b"GET http://x/v1/ HTTP/1.1",
    ):
        assert target_of(line) is None


def test_blocks_of_headers_of_the_short_way() -> None:
    assert head_of(b"host: x\r\ncontent-length: 12") == Head(12, is_last=False, authorization=None, host=b"x")
    assert head_of(b"host: x\r\nConnection: keep-alive") == Head(0, is_last=False, authorization=None, host=b"x")
    assert head_of(b"host: x\r\nConnection: Close") == Head(0, is_last=True, authorization=None, host=b"x")
    by_proxy = b"host: x\r\nX-Forwarded-For: 192.0.2.1"
    assert head_of(by_proxy) == Head(0, is_last=False, authorization=None, host=b"x", forwarded=True)
    asks = b"host: x\r\nAuthorization: Bearer hrk_Aa"
    assert head_of(asks) == Head(0, is_last=False, authorization=b"Bearer hrk_Aa", host=b"x")
    for block in (
        b"host: x\r\nContent-Length: 1\r\ncontent-length: 1",
        b"Expect: 100-continue",
        b"connection: close, upgrade",
        b"connection: close\r\nconnection: keep-alive",
        b"headrace-token: h1.e30",
        b"authorization: Bearer a\r\nauthorization: Bearer b",
        b"transfer-encoding: chunked",
        b"x" * 5000 + b": y",
        b"no colon",
    ):
        assert head_of(block) is None
