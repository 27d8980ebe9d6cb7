"""A server on a free port over a deployment in memory, and the bytes to say to it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from ssl import SSLContext
from typing import Any

import uvicorn
from fake_deployment import FakeDeployment

from api.app import create_app
from api.doors.asgi import AsgiDoor
from api.doors.browsers import answering_pages
from api.doors.tls import Tls, TlsConnection
from api.doors.wire_http import WireHttp
from api.limits import Admission, Limits
from controller.access.keeper import Keeper
from headrace.serving.server import config as server_config
from headrace.settings import Settings

SCHEMA = """
CREATE TABLE stories (id BIGINT NOT NULL PRIMARY KEY, author BIGINT NOT NULL, title TEXT);
CREATE VIEW ById AS SELECT id, title FROM stories WHERE id = ?
"""
WITHIN = 60.0


class Site:
    """A server on a free port."""

    def __init__(self, server: uvicorn.Server, deployment: FakeDeployment, ways: list[str]) -> None:
        self.server = server
        self.deployment = deployment
        self.ways = ways
        """Requests that went the long way."""
        self.tls: Tls | None = None
        self.ssl: SSLContext | None = None
        """With which it is spoken to; None: plainly."""
        self.port: int = server.servers[0].sockets[0].getsockname()[1]

    def hold_inserts(self) -> asyncio.Event:
        """Inserts wait from now on, until it is set."""
        going, real = asyncio.Event(), self.deployment.insert

        async def slow(*given: Any) -> Any:
            await going.wait()
            return await real(*given)

        self.deployment.insert = slow  # type: ignore[method-assign, assignment]
        return going

    async def say(self, *parts: bytes, answers: int) -> list[bytes]:
        """What it answers to the parts, each sent by itself, without the date."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, ssl=self.ssl)
        async with asyncio.timeout(WITHIN):
            for part in parts:
                writer.write(part)
                await writer.drain()
                await asyncio.sleep(0)
            found = [await one_answer(reader) for _ in range(answers)]
            writer.close()
            await writer.wait_closed()
        return found


async def one_answer(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    length = re.search(rb"content-length: (\d+)", head)
    assert length is not None, head
    return re.sub(rb"date: [^\r]*\r\n", b"", head) + await reader.readexactly(int(length[1]))


@asynccontextmanager
async def served(
    protocol: type[asyncio.Protocol] = WireHttp,
    limits: Limits | None = None,
    tls: tuple[SSLContext, SSLContext] | None = None,
    hosts: Sequence[str] = ("*",),
    origins: Sequence[str] = (),
    keeper: Keeper | None = None,
    **settings: Any,
) -> AsyncIterator[Site]:
    """``tls``: the server's, and its clients'."""
    deployment = FakeDeployment()
    await deployment.execute(SCHEMA)
    deployment.accounts = keeper
    admission = Admission(limits or Limits(max_body_size=20_000))
    app, ways = create_app(deployment, admission=admission, hosts=hosts, origins=origins), []
    real = app._route

    async def counted(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            ways.append(scope["path"])
        await real(scope, receive, send)

    app._routed = answering_pages(counted, origins)
    below = None if tls is None else Tls(tls[0], admission)
    async with listening(app, protocol, below, **settings) as server:
        site = Site(server, deployment, ways)
        site.ssl, site.tls = None if tls is None else tls[1], below
        yield site


@asynccontextmanager
async def listening(
    app: AsgiDoor, protocol: type[asyncio.Protocol] = WireHttp, below: Tls | None = None, **settings: Any
) -> AsyncIterator[uvicorn.Server]:
    """The application on a free port."""
    config = server_config(app, Settings())
    assert config.http is WireHttp
    config.http, config.port = protocol, 0
    if below is not None:
        config.http = partial(TlsConnection, below, protocol)
    for name, value in settings.items():
        setattr(config, name, value)
    server = uvicorn.Server(config)
    config.load()
    server.lifespan = config.lifespan_class(config)
    await server.startup()
    await server.on_tick(0)
    try:
        yield server
    finally:
        await server.shutdown()
        if below is not None:
            below.close()


def asked(line: str, body: bytes = b"", headers: Sequence[str] = ()) -> bytes:
    lines = [f"{line} HTTP/1.1", "host: x", *headers, f"content-length: {len(body)}", "", ""]
    return "\r\n".join(lines).encode() + body


INSERT = asked("POST /v1/tables/stories/rows", b'{"rows":[{"id":1,"author":2,"title":"one"}]}')
PAGE = asked("GET /v1/views/ById?id=1")
MANY = asked("POST /v1/lookups", b'{"lookups":[{"view":"ById","keys":[[1]]}]}')
LOOKUP = asked("POST /v1/views/ById/lookup", b'{"keys":[[1],[2]]}')
STATUS = asked("GET /healthz")
