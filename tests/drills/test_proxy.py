"""The proxy between workers: it knows who connects, cuts only what it is told to, and delivers late in order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from headrace.serving.listening import listen
from loadgen.drills.links import Proxy, Rules
from worker.protocol.messages import ConnectionLost, Ping, Pong, Role
from worker.wire.connection import Connection, connect, greeting
from worker.wire.server import WireServer, serve
from zookeeper.secret import Secret

HERE = "127.0.0.1"
SECRET = Secret(None, ("a secret of this test, " * 2,))


def answer(connection: Connection, message: Any) -> Any:
    assert isinstance(message, Ping)
    return Pong("worker-1", message.epoch)


@pytest.fixture
async def proxy() -> AsyncIterator[Proxy]:
    server: WireServer = await serve(HERE, 0, "main", answer, name="worker-1", incarnation=1, secret=SECRET)
    with listen("127.0.1.1", 0) as free:
        port = free.getsockname()[1]
    proxy = Proxy("worker-1", "127.0.1.1", port, (HERE, server.port), Rules())
    await proxy.start()
    yield proxy
    proxy.close()
    await server.close()


async def connected(proxy: Proxy, name: str, role: Role = Role.WORKER) -> Connection:
    return await connect(proxy.host, proxy.port, greeting("main", role, name, 1), secret=SECRET)


async def test_it_passes_everything_on(proxy: Proxy) -> None:
    connection = await connected(proxy, "worker-2")
    answers = await asyncio.gather(*(connection.ask(Ping(number)) for number in range(200)))
    assert [each.incarnation for each in answers] == list(range(200))
    connection.close()


async def test_it_cuts_between_two_and_nobody_else(proxy: Proxy) -> None:
    cut, other = await connected(proxy, "worker-2"), await connected(proxy, "api-1", Role.API)
    pair = frozenset(("worker-1", "worker-2"))
    proxy.rules.cut(pair)
    async with asyncio.timeout(60):
        await cut.closed.wait()
    with pytest.raises(ConnectionLost):
        await connected(proxy, "worker-2")
    assert (await other.ask(Ping(7))).incarnation == 7
    proxy.rules.mend(pair)
    again = await connected(proxy, "worker-2")
    assert (await again.ask(Ping(8))).incarnation == 8
    again.close()
    other.close()


async def test_it_delivers_late_and_in_order(proxy: Proxy) -> None:
    connection = await connected(proxy, "worker-2")
    proxy.rules.slow(frozenset(("worker-1", "worker-2")), 0.1)
    loop = asyncio.get_running_loop()
    began = loop.time()
    answers = await asyncio.gather(*(connection.ask(Ping(number)) for number in range(50)))
    assert loop.time() - began >= 0.2, "there and back"
    assert [each.incarnation for each in answers] == list(range(50))
    connection.close()
