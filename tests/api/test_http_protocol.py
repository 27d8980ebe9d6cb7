"""What is no HTTP, what is silent and what offers other protocols, on both ways into the application."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from served_bytes import INSERT, MANY, PAGE, STATUS, WITHIN, Site, asked, served

from api.doors.wire_http import HttpProtocol, WireHttp

GARBAGE = b"this is no request\r\n\r\n"
SQL = asked("POST /v1/sql", b'{"sql": "SELECT 1"}')


KEPT = 0.5
"""Seconds that the silent are borne: not so short that a busy machine makes us one before we have said anything."""


@pytest.fixture(params=[HttpProtocol, WireHttp])
def protocol(request: pytest.FixtureRequest) -> Any:
    return request.param


async def all_said(site: Site, *parts: bytes, ends: bool = False) -> list[bytes]:
    """All answers until the server closes the connection. ``ends``: our half of it is closed first."""
    reader, writer = await asyncio.open_connection("127.0.0.1", site.port)
    async with asyncio.timeout(WITHIN):
        for part in parts:
            writer.write(part)
            await writer.drain()
        if ends:
            writer.write_eof()
        said = await reader.read()
        writer.close()
    return [b"HTTP/1.1" + each for each in said.split(b"HTTP/1.1")[1:]]


def refused(answer: bytes) -> bool:
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 "), answer
    assert b"content-type: application/json" in head
    assert b"connection: close" in head
    return json.loads(body)["error"]["code"] == "bad_request"


@pytest.mark.parametrize(
    "unreadable",
    [
        GARBAGE,
        b"\x16\x03\x01\x02\x00\x01\x00",
        b"FOO / HTTP/1.1\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nbad header\r\n\r\n",
        b"CONNECT x:80 HTTP/1.1\r\n\r\n",
        b"POST /v1/sql HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"POST /v1/sql HTTP/1.1\r\ncontent-length: 99999999999999999999999\r\n\r\n",
    ],
)
async def test_the_unreadable_is_refused_as_anything_else(protocol: Any, unreadable: bytes) -> None:
    async with served(protocol) as site:
        (answer,) = await all_said(site, unreadable)
        assert refused(answer)


async def test_the_unreadable_is_refused_in_its_turn(protocol: Any) -> None:
    """Else its refusal would be taken for the answer to the write before it, which is done."""
    async with served(protocol) as site:
        for unreadable in (GARBAGE, b"POST /v1/sql HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n"):
            sql, status, write, last = await all_said(site, SQL + STATUS + INSERT + unreadable)
            assert b'"results"' in sql
            assert b'"ok"' in status
            assert b"token" in write or b"constraint_violation" in write
            assert refused(last)


async def test_the_refusal_arrives_where_more_was_on_its_way(protocol: Any) -> None:
    """A connection that is closed while bytes arrive is reset, and an answer that was not read yet is lost."""
    async with served(protocol, timeout_keep_alive=KEPT) as site:
        (answer,) = await all_said(site, GARBAGE, *[b"more of it " * 1000] * 20)
        assert refused(answer)


async def test_a_body_that_becomes_unreadable_after_its_answer_has_no_second_one(protocol: Any) -> None:
    async with served(protocol) as site:
        reader, writer = await asyncio.open_connection("127.0.0.1", site.port)
        async with asyncio.timeout(WITHIN):
            writer.write(b"GET /healthz HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n")
            said = await reader.readuntil(b"}")
            writer.write(b"zz\r\n")
            assert said.endswith(b'{"status":"ok"}')
            assert await reader.read() == b""
            writer.close()


@pytest.mark.parametrize("request_bytes", [SQL, MANY])
async def test_an_offer_of_another_protocol_is_not_heard(protocol: Any, request_bytes: bytes) -> None:
    """Java's client sends these with each request; its bodies were lost."""
    offers = b"\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEAAEAA\r\n"
    head, _, rest = request_bytes.partition(b"\r\n")
    async with served(protocol) as site:
        for answer in await site.say(head + offers + rest, PAGE, answers=2):
            assert answer.startswith(b"HTTP/1.1 200")


async def test_who_falls_silent_is_not_waited_for(protocol: Any) -> None:
    said = (b"", b"GET /healthz HT", SQL[:-3], PAGE[:-1], STATUS + STATUS[:-4])
    async with served(protocol, timeout_keep_alive=KEPT) as site:
        answers = await asyncio.gather(*(all_said(site, each) for each in said))
        assert [len(each) for each in answers] == [0, 0, 0, 0, 1]


async def test_an_empty_line_does_not_hold_a_connection(protocol: Any) -> None:
    async with served(protocol, timeout_keep_alive=KEPT) as site:
        reader, writer = await asyncio.open_connection("127.0.0.1", site.port)
        async with asyncio.timeout(WITHIN):
            writer.write(STATUS)
            await reader.readuntil(b"}")
            writer.write(b"\r\n")
            assert await reader.read() == b""
            writer.close()


@pytest.mark.parametrize("kind", ["awaited", "pipelined"])
async def test_who_has_closed_its_half_is_answered(protocol: Any, kind: str) -> None:
    async with served(protocol, timeout_keep_alive=KEPT) as site:
        going = site.hold_inserts()
        requests = [INSERT, STATUS, PAGE] if kind == "pipelined" else [INSERT]
        answers = asyncio.create_task(all_said(site, *requests, ends=True))
        async with asyncio.timeout(WITHIN):
            while not site.server.server_state.tasks:
                await asyncio.sleep(0.001)
            # The time for the silent passes meanwhile, which is not meant for those who wait.
            await asyncio.sleep(1.2 * KEPT)
            going.set()
            found = await answers
        assert [answer[:12] for answer in found] == [b"HTTP/1.1 200"] * len(requests)
