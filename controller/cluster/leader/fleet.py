"""The workers as the leader sees them: who is there, how they are asked, and the watch over them.

A worker *registers* with the Authority and becomes a *member* once it has answered the leader. From then on the leader
relies on its own heartbeats: a member stays one while it answers them, even if its registration lapses (ZooKeeper may
be away while the data plane goes on), and it is lost

* at once, when its connection breaks and nobody listens at its address, or another process does;
* when it was not heard for ``dead_after`` seconds, because it is stopped, hung or cut off.

A connection that breaks and can be made again is no loss, but requests over it may be undone: that is announced as a
*shake*. A process that was lost and is heard again joins again like any other; the domains that it still hosts are
outdated and are closed. In both cases messages of the old connection may still arrive, at any time. So such connections
are counted (``again``), and a recovery raises the epoch before anything else, so that workers refuse those messages.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from controller.migrating.executor import Interrupted
from domains.errors import HeadraceError, Unavailable
from domains.plan.graph import DomainIndex
from worker.protocol.messages import ConnectionLost, Ping, Pong, Role, StaleEpoch, Welcome
from worker.wire.connection import Connection, connect, greeting
from zookeeper.authority import ClusterAuthority, StateChange
from zookeeper.errors import AuthorityError
from zookeeper.registration import WorkerDescriptor
from zookeeper.secret import Secret

RECONNECT_SECONDS = 0.05
"""Seconds between two attempts to reach a worker whose connection broke: several within the time for a heartbeat."""

_log = logging.getLogger("headrace.controller")


async def together(calls: Iterable[Any]) -> list[Any]:
    """All answers, in order. If some fail, raises the first error once all have ended, so that none goes on
    unnoticed."""
    answers = await asyncio.gather(*calls, return_exceptions=True)
    for answer in answers:
        if isinstance(answer, BaseException):
            raise answer
    return answers


class WorkerGone(Unavailable):
    """The process has surely ended: nobody listens at its address, or another process does."""


class Deposed(HeadraceError):
    """Another controller leads, or may lead: this one stops leading and changes nothing more."""

    code = "deposed"


class WorkerHandle(Protocol):
    """One connection to one process of a worker. Requests are begun in their order, so a ``Report`` reflects those
    before it; answers come in any order."""

    @property
    def descriptor(self) -> WorkerDescriptor: ...

    @property
    def lost(self) -> asyncio.Event:
        """Set when the connection is gone. The process may still be there."""

    async def ask(self, message: Any) -> Any:
        """The worker's answer. Raises the error that it answered, or ConnectionLost."""

    async def close(self) -> None:
        """Unanswered requests fail with ConnectionLost."""


class Connect(Protocol):
    """How the leader reaches a worker: over the wire, or in memory in a simulation."""

    async def __call__(self, worker: WorkerDescriptor) -> WorkerHandle:
        """Raises WorkerGone if the process has surely ended, ConnectionLost if that is not known."""


@dataclass(slots=True)
class WireHandle:
    """See :class:`WorkerHandle`: a worker in another process, over TCP."""

    descriptor: WorkerDescriptor
    _connection: Connection

    @property
    def lost(self) -> asyncio.Event:
        return self._connection.closed

    async def ask(self, message: Any) -> Any:
        return await self._connection.ask(message)

    async def close(self) -> None:
        # Aborted, so that callers that wait for a hung worker get the error now.
        self._connection.abort(ConnectionLost("the controller gave the worker up", sent=True))
        await self._connection.closed.wait()


@dataclass(frozen=True, slots=True)
class Wire:
    """See :class:`Connect`; ``name`` is this controller's."""

    deployment: str
    name: str
    incarnation: int
    secret: Secret | None = None

    async def __call__(self, worker: WorkerDescriptor) -> WorkerHandle:
        hello = greeting(self.deployment, Role.CONTROLLER, self.name, self.incarnation)
        try:
            connection = await connect(worker.host, worker.port, hello, secret=self.secret)
        except ConnectionLost as error:
            if isinstance(error.__context__, ConnectionRefusedError):
                raise WorkerGone(f"nobody listens at {worker.host}:{worker.port}") from error
            raise
        peer = connection.peer
        assert isinstance(peer, Welcome), "a connection is given out after its greeting"
        if (peer.name, peer.incarnation) != (worker.name, worker.incarnation):
            connection.close()
            raise WorkerGone(f'at {worker.host}:{worker.port} there is "{peer.name}", process {peer.incarnation}')
        return WireHandle(worker, connection)


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds. Tests and the simulator pass others."""

    heartbeat: float = 0.5
    dead_after: float = 2.0
    """Longer than the pauses of a busy machine, shorter than users' patience."""
    join_patience: float = 2.0
    """How long a leader that takes over waits for workers that had domains before it gives these to others."""
    commit_patience: float = 3.0
    """How long a change waits for ZooKeeper; an ensemble elects a new leader in less."""
    rebalance_after: float = 1.0
    """How long after a worker has joined domains are moved to it, since several often join together."""
    trust_after: float = 10.0
    """… if it had domains, was lost and came back: a worker that crashes again and again would lose them each time.
    Nobody waits for it, since others host its domains."""
    calm_patience: float = 10.0
    """How long a change waits for the end of a recovery."""
    retry: float = 0.5
    """Seconds between rounds of a recovery that cannot proceed (a shard that no worker can open, ZooKeeper away)."""
    poll: float = 0.001
    """Seconds between two looks at the links' positions; it doubles up to fifty times that. Mostly one sync of a disk
    is waited for, and views wait meanwhile if a domain moves."""


class Watcher(Protocol):
    """What the leader hears of its fleet, on the event loop."""

    @property
    def epoch(self) -> int: ...

    def joined(self, worker: str) -> None: ...

    def gone(self, worker: str) -> None:
        """It is no longer a member."""

    def shaken(self, worker: str) -> None:
        """Its connection broke and was made again: requests over the old one may be undone."""

    def broken(self, worker: str, domains: Mapping[DomainIndex, int]) -> None:
        """Domains of these incarnations could not end a step and serve nothing. Told at each heartbeat."""

    def short(self, worker: str) -> None:
        """State there is over the memory limit, and automatic views have a part in it."""

    def deposed(self, reason: str) -> None:
        """A worker follows a later leader."""


@dataclass(slots=True, eq=False)
class Member:
    descriptor: WorkerDescriptor
    handle: WorkerHandle
    heard: float
    """The loop's time when the last heartbeat that was answered was sent."""
    watch: asyncio.Task[None] | None = None


@dataclass(slots=True)
class Fleet:
    authority: ClusterAuthority
    connect: Connect
    timing: Timing
    watcher: Watcher
    members: dict[str, Member] = field(default_factory=dict)
    registered: dict[str, WorkerDescriptor] = field(default_factory=dict)
    again: int = 0
    """Number of connections to processes that had been connected before: messages of the old ones may still arrive."""
    _met: dict[str, int] = field(default_factory=dict)
    """The latest incarnation of each worker that was ever connected."""
    _absent: set[str] = field(default_factory=set)
    """Workers that are still registered, but nobody listens at their addresses."""
    _joining: dict[str, tuple[WorkerDescriptor, asyncio.Task[None]]] = field(default_factory=dict)
    _closing: dict[int, asyncio.Task[None]] = field(default_factory=dict)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _follow: asyncio.Task[None] | None = None
    _closed: bool = False

    def start(self) -> None:
        self.authority.on_change(self._announced)
        self._changed.set()
        self._follow = asyncio.create_task(self._following())

    async def close(self) -> None:
        self._closed = True
        joining = [task for _, task in self._joining.values()]
        tasks = [self._follow, *joining, *(member.watch for member in self.members.values())]
        for task in tasks:
            if task is not None:
                task.cancel()
        await asyncio.gather(*(task for task in tasks if task is not None), return_exceptions=True)
        for member in self.members.values():
            self._drop(member.handle)
        self.members.clear()
        await asyncio.gather(*self._closing.values(), return_exceptions=True)

    def names(self) -> list[str]:
        return sorted(self.members)

    def may_come(self, worker: str) -> bool:
        """Whether it is registered, or may have been a moment ago, and is not known to be gone: when ZooKeeper hangs,
        all sessions end at once, this process's too, and then all register again."""
        upheaval_over = self.authority.lost_at + self.timing.join_patience
        lately = asyncio.get_running_loop().time() < upheaval_over
        return (lately or worker in self.registered) and worker not in self._absent

    async def ask(self, worker: str, message: Any) -> Any:
        """The worker's answer.

        :raises Interrupted: it is not known whether the request was done.
        :raises Deposed: the worker follows a later leader.
        """
        member = self.members.get(worker)
        if member is None:
            raise Interrupted(f'worker "{worker}" is not there')
        try:
            return await member.handle.ask(message)
        except (ConnectionLost, WorkerGone) as error:
            raise Interrupted(f'worker "{worker}" was lost while it was asked: {error.message}') from error
        except StaleEpoch as error:
            raise self._refused(error) from error

    async def ask_all(self, message: Any) -> dict[str, Any]:
        """The answers of all members; raises the first error of :meth:`ask` once all have ended."""
        names = self.names()
        return dict(zip(names, await together(self.ask(name, message) for name in names), strict=True))

    def _refused(self, error: StaleEpoch) -> HeadraceError:
        """The worker may know a later epoch of our own: then no other leader is meant."""
        if error.epoch > self.watcher.epoch:
            self.watcher.deposed(error.message)
            return Deposed("the workers follow a later leader")
        return Interrupted("a recovery has begun since this was asked")

    # --- who is there -------------------------------------------------------------------------------------------

    def _announced(self, change: StateChange) -> None:
        if change in (StateChange.WORKERS, StateChange.CONNECTION) and not self._closed:
            self._changed.set()

    async def _following(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                self.registered = dict(await self.authority.workers())
            except AuthorityError as error:
                _log.warning("cannot list the workers: %s", error.message)
                await asyncio.sleep(self.timing.heartbeat)
                self._changed.set()
                continue
            for name, descriptor in sorted(self.registered.items()):
                self._consider(name, descriptor)

    def _consider(self, name: str, descriptor: WorkerDescriptor) -> None:
        member = self.members.get(name)
        if member is not None and member.descriptor.incarnation < descriptor.incarnation:
            self._lose(member, "it was started anew")
            member = None
        if member is not None:
            return
        under_way = self._joining.get(name)
        if under_way is not None and not under_way[1].done():
            if under_way[0] == descriptor:
                return
            under_way[1].cancel()
        self._absent.discard(name)
        self._joining[name] = (descriptor, asyncio.create_task(self._join(name, descriptor)))

    async def _join(self, name: str, descriptor: WorkerDescriptor) -> None:
        """Try until it answers, or is no longer registered."""
        while self.registered.get(name) == descriptor:
            try:
                async with asyncio.timeout(self.timing.dead_after):
                    await self._greet(descriptor)
                return
            except StaleEpoch as error:
                self._refused(error)
            except (HeadraceError, TimeoutError) as error:
                _log.info('worker "%s" does not answer yet: %s', name, error)
                if isinstance(error, WorkerGone):
                    self._absent.add(name)
            await asyncio.sleep(self.timing.heartbeat)

    async def _greet(self, descriptor: WorkerDescriptor) -> None:
        began = asyncio.get_running_loop().time()
        handle = await self.connect(descriptor)
        try:
            await handle.ask(Ping(self.watcher.epoch))
        except BaseException:
            self._drop(handle)
            raise
        self._admit(Member(descriptor, handle, began))

    def _admit(self, member: Member) -> None:
        name = member.descriptor.name
        self._absent.discard(name)
        self.again += self._met.get(name) == member.descriptor.incarnation
        self._met[name] = member.descriptor.incarnation
        _log.info('worker "%s" is there', name)
        self.members[name] = member
        member.watch = asyncio.create_task(self._watch(member))
        self.watcher.joined(name)

    # --- heartbeats ---------------------------------------------------------------------------------------------

    async def _watch(self, member: Member) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                async with asyncio.timeout_at(member.heard + self.timing.dead_after):
                    await self._beat(member)
            except TimeoutError:
                self._lose(member, f"nothing was heard from it for {self.timing.dead_after:g} s")
                return
            except WorkerGone as error:
                self._lose(member, error.message)
                return
            try:
                async with asyncio.timeout_at(member.heard + self.timing.heartbeat):
                    await member.handle.lost.wait()
            except TimeoutError:
                assert loop.time() >= member.heard

    async def _beat(self, member: Member) -> None:
        """Returns when the worker has answered; raises WorkerGone if it has surely ended."""
        while True:
            sent = asyncio.get_running_loop().time()
            try:
                if member.handle.lost.is_set():
                    await self._again(member)
                pong: Pong = await member.handle.ask(Ping(self.watcher.epoch))
                member.heard = sent
                self.watcher.broken(member.descriptor.name, pong.broken)
                if pong.is_short:
                    self.watcher.short(member.descriptor.name)
                return
            except StaleEpoch as error:
                if isinstance(self._refused(error), Deposed):
                    return
            except WorkerGone:
                raise
            except HeadraceError as error:
                _log.info('worker "%s" does not answer: %s', member.descriptor.name, error)
            await asyncio.sleep(RECONNECT_SECONDS)

    async def _again(self, member: Member) -> None:
        handle = await self.connect(member.descriptor)
        self._drop(member.handle)
        member.handle = handle
        self.again += 1
        self.watcher.shaken(member.descriptor.name)

    def _lose(self, member: Member, reason: str) -> None:
        name = member.descriptor.name
        if self.members.get(name) is not member:
            return
        _log.warning('worker "%s" is lost: %s', name, reason)
        del self.members[name]
        self._drop(member.handle)
        if member.watch is not None and member.watch is not asyncio.current_task():
            member.watch.cancel()
        self.watcher.gone(name)
        self._changed.set()

    def _drop(self, handle: WorkerHandle) -> None:
        task = asyncio.create_task(handle.close())
        self._closing[id(task)] = task
        task.add_done_callback(lambda done: self._closing.pop(id(done), None))
