"""The workers that are there, and the watch over them.

A worker *registers* with the Authority and becomes a *member* once it has answered the leader. From then on the leader
believes only what it hears itself: a member stays one while it answers heartbeats, even where its registration lapses
(ZooKeeper may be away while the data plane goes on), and it is lost

* at once, when its connection breaks and nobody listens at its address, or another process does;
* when nothing was heard from it for ``dead_after`` seconds, be it stopped, hung or cut off.

A connection that breaks and can be made again is no loss, but what was asked over it may be undone: that is announced
as a *shake*. A process that was lost and is heard again joins again, as any other does; what it still hosts is old by
then and is closed. In both cases what was said over the connection before may arrive yet, at any time: that is counted
(``again``), and a recovery raises the epoch before anything else, so that it is refused.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from controller.cluster.leader.handles import Connect, Deposed, WorkerGone, WorkerHandle
from controller.migrating.executor import Interrupted
from domains.errors import HeadraceError
from domains.plan.graph import DomainIndex
from worker.protocol.messages import ConnectionLost, Ping, Pong, StaleEpoch
from zookeeper.authority import ClusterAuthority, StateChange
from zookeeper.errors import AuthorityError
from zookeeper.registration import WorkerDescriptor

RECONNECT_SECONDS = 0.05
"""Between two tries to reach a worker whose connection broke: a few within the time that a heartbeat may take."""

_log = logging.getLogger("headrace.controller")


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds. Tests and the simulator pass others."""

    heartbeat: float = 0.5
    dead_after: float = 2.0
    """Longer than a pause of a busy machine, shorter than users' patience."""
    join_patience: float = 2.0
    """How long a leader that takes over waits for the workers that had domains, before these go to others."""
    commit_patience: float = 3.0
    """How long a change waits for ZooKeeper to answer: an ensemble that elects a new leader needs less."""
    rebalance_after: float = 1.0
    """How long after a worker joined domains are moved to it: several often join together."""
    trust_after: float = 10.0
    """… to one that was lost with domains and came back: one that crashes again and again would take them away each
    time. Nobody waits for it, others have its domains."""
    calm_patience: float = 10.0
    """How long a change waits for a recovery that is under way."""
    retry: float = 0.5
    """Between rounds of a recovery that cannot go on (a shard that no worker can open, ZooKeeper away)."""
    poll: float = 0.001
    """Between two looks at how far the links are; it doubles up to fifty times that. What is waited for is mostly one
    sync of a disk, and while a domain moves views wait for it."""


class Watcher(Protocol):
    """The leader's side of the fleet's events. Called on the event loop, between two steps of others."""

    @property
    def epoch(self) -> int: ...

    def joined(self, worker: str) -> None: ...

    def gone(self, worker: str) -> None:
        """It is no member any more."""

    def shaken(self, worker: str) -> None:
        """Its connection broke and was made again: what was asked over the old one may be undone."""

    def broken(self, worker: str, domains: Mapping[DomainIndex, int]) -> None:
        """Domains of these incarnations could not end a step there, and serve nothing. Each heartbeat reports them."""

    def deposed(self, reason: str) -> None:
        """A worker follows a later leader."""


@dataclass(slots=True, eq=False)
class Member:
    descriptor: WorkerDescriptor
    handle: WorkerHandle
    heard: float
    """The loop's time at which the last answered heartbeat was sent."""
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
    """How often a process was connected to that had been before. A process that is new has nothing on its way to it."""
    _met: dict[str, int] = field(default_factory=dict)
    """The latest incarnation of each worker that was connected to."""
    _absent: set[str] = field(default_factory=set)
    """Registered, but nobody listens at their addresses: dead, and not yet forgotten by ZooKeeper."""
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
        """Whether it is registered, or perhaps was a moment ago, and is not known to be gone: a ZooKeeper that hung
        ends all sessions at once, this process's own too, and then they register again."""
        upheaval_over = self.authority.lost_at + self.timing.join_patience
        lately = asyncio.get_running_loop().time() < upheaval_over
        return (lately or worker in self.registered) and worker not in self._absent

    async def ask(self, worker: str, message: Any) -> Any:
        """What the worker answers.

        :raises Interrupted: it is not known whether it was done.
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

    def _refused(self, error: StaleEpoch) -> HeadraceError:
        """An epoch of our own that is newer than the message's is no other leader."""
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
        """Until it answers, or is not registered any more."""
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
        """Returns when the worker has answered; raises WorkerGone when it surely cannot."""
        while True:
            sent = asyncio.get_running_loop().time()
            try:
                if member.handle.lost.is_set():
                    await self._again(member)
                pong: Pong = await member.handle.ask(Ping(self.watcher.epoch))
                member.heard = sent
                self.watcher.broken(member.descriptor.name, pong.broken)
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
