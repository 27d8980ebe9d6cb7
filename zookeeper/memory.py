"""ZooKeeper's twin: the same znodes, sessions and watches in memory, on one event loop, without threads or chance.

Tests and simulations cut and mend connections, let sessions expire, and stop and start the whole service. Time is the
loop's, so a loop with virtual time passes hours in a moment.

::

    MemoryZooKeeper ── znodes ── sessions ──► expiry: call_later(timeout) while a session is cut off
         ▲    ▲
         │    └── MemorySession ── MemoryAuthority (one process)
         └── cut, mend, expire, stop, start
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

from zookeeper.authority import SESSION_TIMEOUT, ClusterAuthority
from zookeeper.errors import AccessRefused, AuthorityUnavailable
from zookeeper.secret import Secret
from zookeeper.session import BadVersion, Link, NodeExists, NoNode, Watch, Znode

Answer = TypeVar("Answer")


class MemoryZooKeeper:
    """The service. ``delay`` is how many seconds each request and each answer travels."""

    def __init__(self, *, timeout: float = SESSION_TIMEOUT, delay: float = 0.0) -> None:
        self.timeout = timeout
        self.delay = delay
        self.running = True
        self._znodes: dict[str, Znode] = {"/": Znode(b"", 0, 0)}
        self._sessions: dict[int, MemorySession] = {}
        """The sessions that live, connected or not."""
        self._expiries: dict[int, asyncio.TimerHandle] = {}
        self._returning: list[MemorySession] = []
        """Sessions of processes that can reach it again since it was stopped; it may have ended them before."""
        self._owners: dict[str, frozenset[str]] = {}
        """Of znodes that are not open to all."""
        self.secret: Secret | None = None
        """That of the deployments, for authorities that are made from here on."""
        self._last_session = 0
        self._deployments = 0

    def authority(self, deployment: str = "main") -> MemoryAuthority:
        """One process's authority; not started yet."""
        return MemoryAuthority(self, deployment)

    def new_id(self) -> str:
        self._deployments += 1
        return f"memory-{self._deployments}"

    # --- what happens to it -----------------------------------------------------------------------------------

    def stop(self) -> None:
        """Stop answering. Sessions do not age meanwhile: ZooKeeper measures their time."""
        self.running = False
        for timer in self._expiries.values():
            timer.cancel()
        self._expiries.clear()
        for session in list(self._sessions.values()):
            session.drop()

    def start(self) -> None:
        """Every session has its whole timeout again to come back."""
        self.running = True
        for session in list(self._sessions.values()):
            if session.reachable:
                session.join()
            else:
                self._let_expire(session)
        returning, self._returning = self._returning, []
        for session in returning:
            if session.reachable and not session.connected:
                session.join()

    def returns(self, session: MemorySession) -> None:
        """Its process can reach this again, when it runs."""
        self._returning.append(session)

    def forget(self) -> None:
        """Lose the disks: no znode and no session is left."""
        for path in [each for each in self._znodes if each != "/"]:
            del self._znodes[path]
            self._changed(path, listing=True)
        self._owners.clear()
        for session in list(self._sessions.values()):
            self.expire(session)

    def expire(self, session: MemorySession) -> None:
        """End the session, whether its process is connected or not."""
        self._end(session.id)
        if self.running and session.reachable:
            session.lose()
            session.join()

    # --- for sessions -----------------------------------------------------------------------------------------

    def lives(self, id: int) -> bool:
        return id in self._sessions

    def admit(self, session: MemorySession) -> int:
        self._last_session += 1
        self._sessions[self._last_session] = session
        return self._last_session

    def hear_of(self, session: MemorySession) -> None:
        """A sign of life."""
        timer = self._expiries.pop(session.id, None)
        if timer is not None:
            timer.cancel()

    def miss(self, session: MemorySession) -> None:
        if self.running and self.lives(session.id):
            self._let_expire(session)

    def dismiss(self, session: MemorySession) -> None:
        self.hear_of(session)
        self._end(session.id)

    def _let_expire(self, session: MemorySession) -> None:
        self.hear_of(session)
        loop = asyncio.get_running_loop()
        self._expiries[session.id] = loop.call_later(self.timeout, self._end, session.id)

    def _end(self, id: int) -> None:
        self._expiries.pop(id, None)
        if self._sessions.pop(id, None) is None:
            return
        for path in [path for path, node in self._znodes.items() if node.owner == id]:
            del self._znodes[path]
            self._owners.pop(path, None)
            self._changed(path, listing=True)

    # --- znodes -----------------------------------------------------------------------------------------------

    def find(self, path: str) -> Znode | None:
        return self._znodes.get(path)

    def get(self, path: str) -> Znode:
        node = self._znodes.get(path)
        if node is None:
            raise NoNode(path)
        return node

    def children(self, path: str) -> list[str]:
        self.get(path)
        return [each.rpartition("/")[2] for each in self._znodes if each != "/" and _parent(each) == path]

    def check(self, path: str, bearers: Iterable[str]) -> None:
        """Raises AccessRefused."""
        owners = self._owners.get(path)
        if owners is not None and owners.isdisjoint(bearers):
            raise AccessRefused(f'ZooKeeper refuses access to "{path}"', hint="give the deployment's secret")

    def protect(self, path: str, owners: frozenset[str]) -> None:
        self.get(path)
        if owners:
            self._owners[path] = owners
        else:
            self._owners.pop(path, None)

    def create(self, path: str, data: bytes, owner: int) -> None:
        if path in self._znodes:
            raise NodeExists(path)
        self.get(_parent(path))
        self._znodes[path] = Znode(data, 0, owner)
        self._changed(path, listing=True)

    def ensure(self, path: str) -> list[str]:
        """Answers which were created."""
        names = path.strip("/").split("/")
        each = ["/" + "/".join(names[: number + 1]) for number in range(len(names))]
        missing = [path for path in each if path not in self._znodes]
        for path in missing:
            self.create(path, b"", 0)
        return missing

    def set(self, path: str, data: bytes, version: int) -> int:
        node = self.get(path)
        if version not in (-1, node.version):
            raise BadVersion(path)
        self._znodes[path] = Znode(data, node.version + 1, node.owner)
        self._changed(path, listing=False)
        return node.version + 1

    def delete(self, path: str, version: int) -> None:
        if version not in (-1, self.get(path).version):
            raise BadVersion(path)
        del self._znodes[path]
        self._owners.pop(path, None)
        self._changed(path, listing=True)

    def _changed(self, path: str, *, listing: bool) -> None:
        for session in self._sessions.values():
            session.fire(session.watched, path)
            if listing:
                session.fire(session.listed, _parent(path))


class MemorySession:
    """See :class:`zookeeper.session.Session`, which it implements."""

    address = "memory"
    is_private = False

    def __init__(self, server: MemoryZooKeeper) -> None:
        self.timeout = server.timeout
        self.id = 0
        self._server = server
        self._listeners: list[Callable[[Link], None]] = []
        self._connected = asyncio.Event()
        self._connection = 0
        """Counts connections: an answer arrives only over the one that carried its request."""
        self._owners: frozenset[str] = frozenset()
        """Of what is made."""
        self._borne: set[str] = set()
        self.reachable = True
        self.watched: dict[str, list[Watch]] = {}
        self.listed: dict[str, list[Watch]] = {}

    @property
    def connected(self) -> bool:
        return self._connected.is_set()

    def listen(self, listener: Callable[[Link], None]) -> None:
        self._listeners.append(listener)

    def allow(self, bearers: Sequence[str]) -> None:
        self._owners = frozenset(bearers)
        self._borne |= self._owners

    async def start(self) -> None:
        if not (self._server.running and self.reachable):
            await asyncio.sleep(self._server.timeout)
        if not (self._server.running and self.reachable):
            raise AuthorityUnavailable("ZooKeeper cannot be reached", hint="it was stopped or cut off by the test")
        self.join()

    async def close(self) -> None:
        self.drop()
        self.reachable = False
        self._server.dismiss(self)

    async def until_connected(self) -> None:
        await self._connected.wait()

    # --- the connection ---------------------------------------------------------------------------------------

    def cut(self) -> None:
        """Cut the process off: its session expires after the timeout, which it learns when it is back."""
        self.reachable = False
        self.drop()
        self._server.miss(self)

    def mend(self) -> None:
        self.reachable = True
        if self._server.running:
            self.join()
        else:
            self._server.returns(self)

    def drop(self) -> None:
        """Lose the connection, and with it all watches, which are called as by ZooKeeper's clients."""
        if not self._connected.is_set():
            return
        self._connected.clear()
        self._connection += 1
        self._tell(Link.SUSPENDED)
        for watches in (self.watched, self.listed):
            for path in list(watches):
                self.fire(watches, path)

    def join(self) -> None:
        if self.id and self._server.lives(self.id):
            self._server.hear_of(self)
        else:
            if self.id:
                self.lose()
            self.id = self._server.admit(self)
        if not self._connected.is_set():
            self._connected.set()
            self._tell(Link.CONNECTED)

    def lose(self) -> None:
        self.drop()
        self.id = 0
        self._tell(Link.LOST)

    def fire(self, watches: dict[str, list[Watch]], path: str) -> None:
        for watch in watches.pop(path, ()):
            asyncio.get_running_loop().call_later(self._server.delay, watch)

    def _tell(self, link: Link) -> None:
        for listener in list(self._listeners):
            listener(link)

    # --- requests ---------------------------------------------------------------------------------------------

    async def _ask(self, act: Callable[[], Answer], *, changes: bool = False) -> Answer:
        """Send, act, answer; the connection may be cut before or after the act."""
        try:
            async with asyncio.timeout(self.timeout):
                await self._connected.wait()
        except TimeoutError:
            raise AuthorityUnavailable("ZooKeeper cannot be reached", hint="try again later") from None
        connection = self._connection
        await asyncio.sleep(self._server.delay)
        self._still(connection, changes)
        try:
            return act()
        finally:
            await asyncio.sleep(self._server.delay)
            self._still(connection, changes)

    def _still(self, connection: int, changes: bool) -> None:
        if self._connection != connection:
            raise AuthorityUnavailable("the connection to ZooKeeper broke", hint="try again later", maybe_done=changes)

    async def sync(self) -> None:
        await self._ask(lambda: None)

    async def ensure(self, path: str) -> None:
        def act() -> None:
            for each in self._server.ensure(path):
                self._server.protect(each, self._owners)

        await self._ask(act, changes=True)

    async def protect(self, path: str) -> None:
        def act() -> None:
            self._server.check(path, self._borne)
            self._server.protect(path, self._owners)

        await self._ask(act, changes=True)

    async def get(self, path: str) -> Znode:
        def act() -> Znode:
            self._server.check(path, self._borne)
            return self._server.get(path)

        return await self._ask(act)

    async def look(self, path: str, watch: Watch) -> Znode | None:
        """As in ZooKeeper anybody may."""

        def act() -> Znode | None:
            self.watched.setdefault(path, []).append(watch)
            node = self._server.find(path)
            return None if node is None else replace(node, data=b"")

        return await self._ask(act)

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        def act() -> list[str]:
            self._server.check(path, self._borne)
            names = self._server.children(path)
            if watch is not None:
                self.listed.setdefault(path, []).append(watch)
            return names

        return await self._ask(act)

    async def create(self, path: str, data: bytes, *, ephemeral: bool = False) -> None:
        def act() -> None:
            self._server.check(_parent(path), self._borne)
            self._server.create(path, data, self.id if ephemeral else 0)
            self._server.protect(path, self._owners)

        await self._ask(act, changes=True)

    async def set(self, path: str, data: bytes, version: int) -> int:
        def act() -> int:
            self._server.check(path, self._borne)
            return self._server.set(path, data, version)

        return await self._ask(act, changes=True)

    async def delete(self, path: str, version: int = -1) -> None:
        def act() -> None:
            self._server.check(_parent(path), self._borne)
            self._server.delete(path, version)

        await self._ask(act, changes=True)


class MemoryAuthority(ClusterAuthority):
    """A process's authority over a :class:`MemoryZooKeeper`, and what a test may do to it."""

    def __init__(self, server: MemoryZooKeeper, deployment: str) -> None:
        self.session = MemorySession(server)
        self._server = server
        super().__init__(self.session, deployment, server.new_id, server.secret)

    def cut(self) -> None:
        """Cut the connection. If it is never mended, this looks like a crash from outside."""
        self.session.cut()

    def mend(self) -> None:
        self.session.mend()

    def expire(self) -> None:
        self._server.expire(self.session)


def _parent(path: str) -> str:
    return path.rpartition("/")[0] or "/"
