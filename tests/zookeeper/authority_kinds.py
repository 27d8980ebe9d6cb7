"""Two kinds of ZooKeeper for one contract: the real server with kazoo, and the twin in memory."""

from __future__ import annotations

import asyncio
import itertools
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from headrace.embedding import LoopThread
from tests.kit.tcp_proxy import Proxy
from zookeeper.authority import SESSION_TIMEOUT, ClusterAuthority
from zookeeper.kazoo_authority import KazooAuthority
from zookeeper.memory import MemoryAuthority, MemoryZooKeeper
from zookeeper.secret import Secret
from zookeeper.server import Ensemble

NO_JAVA = shutil.which("java") is None
DEADLINE = 60.0
"""Seconds in which something that must happen has to: many times what it takes."""


PROXIES = 8
"""As many authorities as a test may ask for; they listen before, since ``authority`` does not wait."""


class Kind(Protocol):
    """What the contract's tests need of either kind."""

    def authority(self, deployment: str = "main", secret: Secret | None = None) -> ClusterAuthority: ...

    def be_patient(self) -> None:
        """For what shows that a session is kept: those of authorities made from now on outlive a machine's pauses."""

    def cut(self, authority: Any) -> None: ...

    def mend(self, authority: Any) -> None: ...

    async def expire(self, authority: Any) -> None: ...

    async def down(self) -> None: ...

    async def up(self) -> None: ...

    async def raw(self, authority: Any, act: str, path: str, data: bytes = b"") -> None:
        """Meddle with a znode behind everybody's back."""


class InMemory:
    def __init__(self) -> None:
        # Short, so that what waits for it to pass does not keep the tests.
        self.server = MemoryZooKeeper(timeout=0.3)
        self.made: list[MemoryAuthority] = []

    def authority(self, deployment: str = "main", secret: Secret | None = None) -> MemoryAuthority:
        self.server.secret = secret
        self.made.append(self.server.authority(deployment))
        return self.made[-1]

    def be_patient(self) -> None:
        self.server.timeout = DEADLINE

    def cut(self, authority: MemoryAuthority) -> None:
        authority.cut()

    def mend(self, authority: MemoryAuthority) -> None:
        authority.mend()

    async def expire(self, authority: MemoryAuthority) -> None:
        authority.expire()

    async def down(self) -> None:
        self.server.stop()

    async def up(self) -> None:
        self.server.start()

    async def raw(self, authority: MemoryAuthority, act: str, path: str, data: bytes = b"") -> None:
        await _meddle(authority.session, act, path, data)

    async def close(self) -> None:
        for authority in self.made:
            await authority.close()


class Shared:
    """One server for all the tests of a module, on an event loop of its own: each test has its own."""

    def __init__(self, directory: Path) -> None:
        self._thread = LoopThread()
        self._ensemble = Ensemble(directory)
        self._numbers = itertools.count(1)
        self._thread.run(self._ensemble.start())

    @property
    def address(self) -> str:
        return self._ensemble.address

    def new_path(self) -> str:
        """A znode that no other test lives under."""
        return f"/test{next(self._numbers)}"

    async def kill(self) -> None:
        await asyncio.to_thread(self._thread.run, self._ensemble.kill(1))

    async def restart(self) -> None:
        if not self._ensemble.pids:
            await asyncio.to_thread(self._thread.run, self._ensemble.restart(1))

    def stop(self) -> None:
        self._thread.run(self._ensemble.stop())
        self._thread.stop()


class Real:
    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._path = shared.new_path()
        self._timeout = SESSION_TIMEOUT
        self.made: list[KazooAuthority] = []
        self.proxies: dict[int, Proxy] = {}

    async def start(self) -> None:
        self._spare = [Proxy(int(self._shared.address.rpartition(":")[2])) for _ in range(PROXIES)]
        for proxy in self._spare:
            await proxy.__aenter__()

    def authority(self, deployment: str = "main", secret: Secret | None = None) -> KazooAuthority:
        proxy = self._spare.pop()
        address = f"127.0.0.1:{proxy.port}{self._path}"
        authority = KazooAuthority(address, deployment, session_timeout=self._timeout, secret=secret)
        self.made.append(authority)
        self.proxies[id(authority)] = proxy
        return authority

    def be_patient(self) -> None:
        self._timeout = DEADLINE

    def cut(self, authority: KazooAuthority) -> None:
        self.proxies[id(authority)].close_off()

    def mend(self, authority: KazooAuthority) -> None:
        self.proxies[id(authority)].mend()

    async def expire(self, authority: KazooAuthority) -> None:
        """Whoever closes a connection with the same id and password ends the session of both; if he has it still: the
        one takes it from the other."""
        self.cut(authority)
        other = KazooAuthority(self._shared.address, "main")
        client = other.session._client
        client._session_id, client._session_passwd = authority.session._client.client_id
        await other.session.start()
        await other.session.close()
        self.mend(authority)

    async def down(self) -> None:
        await self._shared.kill()

    async def up(self) -> None:
        await self._shared.restart()

    async def raw(self, authority: KazooAuthority, act: str, path: str, data: bytes = b"") -> None:
        await _meddle(authority.session, act, path, data)

    async def close(self) -> None:
        await asyncio.gather(*(authority.close() for authority in self.made))
        for proxy in (*self.proxies.values(), *self._spare):
            await proxy.__aexit__()
        await self._shared.restart()


async def _meddle(session: Any, act: str, path: str, data: bytes) -> None:
    if act == "delete":
        await session.delete(path)
    elif act == "create":
        await session.create(path, data)
    else:
        await session.set(path, data, -1)


async def until(condition: Callable[[], Any]) -> Any:
    """Wait until the condition, which may be awaited, is true; its value."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + DEADLINE
    while True:
        value = condition()
        if asyncio.iscoroutine(value):
            value = await value
        if value:
            return value
        assert loop.time() < deadline, "it did not come true"
        await asyncio.sleep(0.01)
