"""A controller's HTTP behind the proof of the secret: api processes and commands come in, strangers hear nothing."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import httpx
import pytest
import uvicorn

from headrace.cluster.control_links import as_operator, behind_gate, to_controllers
from headrace.serving.server import config
from headrace.settings import load
from worker.protocol.messages import Role
from worker.wire.proof import ANSWER_BYTES, MAGIC, Asking
from zookeeper.secret import Secret

OURS, THEIRS = Secret(None, ("1" * 64,)), Secret(None, ("2" * 64,))


async def leads(scope: Any, receive: Any, send: Any) -> None:
    assert scope["type"] == "http"
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            break
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
    await send({"type": "http.response.body", "body": b"it leads: " + body})


@pytest.fixture
async def port() -> AsyncIterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        http = behind_gate(config(leads, load()), OURS)
        server = uvicorn.Server(http)
        serving = asyncio.create_task(server.serve([listening]))
        while not server.started:
            await asyncio.sleep(0.01)
        yield listening.getsockname()[1]
        server.should_exit = True
        await serving


async def asked(port: int, secret: Secret | None, body: bytes = b"") -> str:
    async with httpx.AsyncClient(transport=to_controllers(secret), timeout=20) as client:
        return (await client.post(f"http://127.0.0.1:{port}/v1/migrations", content=body)).text


def commanded(port: int, secret: Secret | None) -> str:
    with httpx.Client(transport=as_operator(secret), timeout=20) as client:
        return client.get(f"http://127.0.0.1:{port}/v1/status").text


async def test_who_has_the_secret_is_answered(port: int) -> None:
    large = b"x" * 3_000_000
    assert await asked(port, OURS, b"one") == "it leads: one"
    assert await asked(port, OURS, large) == f"it leads: {large.decode()}"
    assert await asyncio.gather(*(asked(port, OURS, b"%d" % n) for n in range(30))) == [
        f"it leads: {n}" for n in range(30)
    ]
    assert await asyncio.to_thread(commanded, port, OURS) == "it leads: "
    async with httpx.AsyncClient(transport=to_controllers(OURS)) as client:
        for _ in range(3):  # Over one connection, which has proven it once.
            assert (await client.get(f"http://127.0.0.1:{port}/")).text == "it leads: "


@pytest.mark.parametrize("secret", [None, THEIRS], ids=["none", "another"])
async def test_who_has_not_is_told_where_he_comes_from(port: int, secret: Secret | None) -> None:
    with pytest.raises(httpx.TransportError) as refused:
        await asked(port, secret)
    with pytest.raises(httpx.TransportError) as again:
        await asyncio.to_thread(commanded, port, secret)
    if secret is not None:
        assert "--secret-file" in str(refused.value)
        assert "--secret-file" in str(again.value)
    assert await asked(port, OURS) == "it leads: "


@pytest.mark.parametrize(
    "data",
    [
        b"POST /v1/migrations HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}",
        MAGIC + b"\x00" + bytes(32) + bytes(32),
        Asking(OURS, Role.API, Role.CONTROLLER).first() + b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01" * 1000,
    ],
    ids=["HTTP", "a guess", "HTTP before the proof", "TLS"],
)
async def test_a_stranger_hears_nothing(port: int, data: bytes) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data)
    heard = b""
    with suppress(ConnectionError):
        heard = await asyncio.wait_for(reader.read(), 20)
    writer.transport.abort()
    assert heard == b"" or (heard.startswith(MAGIC) and len(heard) == ANSWER_BYTES)
    assert await asked(port, OURS) == "it leads: "


async def test_a_door_without_a_proof_is_told_nothing() -> None:
    heard = bytearray()

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.extend(await reader.read(4096))
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
        writer.close()

    stranger = await asyncio.start_server(listen, "127.0.0.1", 0)
    with pytest.raises(httpx.ConnectError, match="no proof"):
        await asked(stranger.sockets[0].getsockname()[1], OURS, b"DROP TABLE votes")
    stranger.close()
    assert b"HTTP" not in heard
    assert b"DROP" not in heard
