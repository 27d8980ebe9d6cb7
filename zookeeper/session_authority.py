"""The cluster's use of a session: the same for the real ZooKeeper and for its twin.

::

    /headrace/<deployment>              {"format": 1, "id": …}
        state                           replaced by compare-and-set
        controller                      ephemeral: who leads
        candidates/<name>               ephemeral: who leads or stands by
        workers/<name>                  ephemeral: who is there

Nothing here trusts a watch to say what has changed. A watch only wakes a task, which looks again; so a lost connection,
after which watches are gone, is one more reason to look.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import TypeVar

from zookeeper.authority import STATE_BYTES_MAX, Listener, StateChange
from zookeeper.errors import AuthorityError, AuthorityUnavailable, ForeignDeployment, StateConflict, StateTooLarge
from zookeeper.registration import (
    ControllerDescriptor,
    Descriptor,
    Registration,
    WorkerDescriptor,
    check_name,
    from_json,
    to_json,
)
from zookeeper.session import BadVersion, Link, NodeExists, NoNode, Session, Watch, Znode

# One candidacy for leader.
#
# There are two or three candidates, so they simply race for the znode ``controller``: whoever makes it leads, the
# others watch it and race again when it goes. A queue of sequential znodes would save a handful of requests once in a
# while, and cost a second step between being next in line and being visible as the leader.

REPEAT_SECONDS = 1.0
"""Between attempts where ZooKeeper answers, but with an error that will not go away by itself."""


class SessionElection:
    """See :class:`zookeeper.authority.Election`, which it implements."""

    def __init__(
        self, session: Session, path: str, name: str, data: bytes, check: Callable[[], Awaitable[None]]
    ) -> None:
        """``check`` raises AuthorityError where the deployment is no longer the one that the candidate knows."""
        self._session = session
        self._check = check
        self._controller = f"{path}/controller"
        self._candidate = f"{path}/candidates/{name}"
        self._data = data
        self._led_by: int | None = None
        """The session that made the znode: the lead ends with it."""
        self._leads = asyncio.Event()
        self._lost = asyncio.Event()
        session.listen(self._linked)
        self._task = asyncio.create_task(self._run(), name="election")

    @property
    def lost(self) -> asyncio.Event:
        return self._lost

    async def elected(self) -> None:
        waits = [asyncio.create_task(each.wait()) for each in (self._leads, self._lost)]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waits:
                each.cancel()
        if self._lost.is_set():
            raise AuthorityError("the candidacy is over", hint="stand again")

    async def resign(self) -> None:
        self.stop()
        await asyncio.gather(self._task, return_exceptions=True)
        for path in (self._controller, self._candidate):
            try:
                node = await self._session.get(path)
                if node.owner == self._session.id:
                    await self._session.delete(path, node.version)
            except (NoNode, BadVersion):
                continue
            except AuthorityUnavailable as error:
                _log.warning("resigned, but ZooKeeper does not know yet: %s", error)
                return

    def stop(self) -> None:
        """End it here; the znodes go with the session."""
        self._task.cancel()
        self._lost.set()

    def _linked(self, link: Link) -> None:
        if link is Link.LOST and self._led_by is not None:
            self._lost.set()

    async def _run(self) -> None:
        while not self._lost.is_set():
            fired = asyncio.Event()
            try:
                if await self._look(fired):
                    await fired.wait()
            except AuthorityUnavailable:
                await self._session.until_connected()
            except (AuthorityError, NoNode) as error:
                _log.error("cannot take part in the election of a leader: %s", error)
                await asyncio.sleep(REPEAT_SECONDS)

    async def _look(self, fired: asyncio.Event) -> bool:
        """One look at who leads, and what follows from it; whether there is something to wait for now."""
        node = await self._session.look(self._controller, fired.set)
        if self._led_by is not None:
            if node is None or node.owner != self._led_by:
                self._lost.set()
            return not self._lost.is_set()
        await self._check()
        await self._stand()
        if node is None:
            try:
                await self._session.create(self._controller, self._data, ephemeral=True)
            except NodeExists:
                return False  # Another was first; look who.
            return False  # Looked at once more: then there is a watch on it.
        if node.owner == self._session.id:
            self._led_by = node.owner
            self._leads.set()
        return True

    async def _stand(self) -> None:
        """The candidate's own znode, for those who list the candidates. One that a dead namesake left makes room."""
        try:
            await self._session.create(self._candidate, self._data, ephemeral=True)
        except NodeExists:
            try:
                node = await self._session.get(self._candidate)
                if node.owner != self._session.id:
                    await self._session.delete(self._candidate, node.version)
                    await self._session.create(self._candidate, self._data, ephemeral=True)
            except (NoNode, NodeExists, BadVersion):
                return  # It changes under our hands; it is only for show, and the next look tries again.


ROOT = "/headrace"
FORMAT = 1
"""Of what lies under a deployment's znode. A process that knows another one must not touch it."""

WRITES_TRIED = 3
"""A write whose answer was lost, and that proves not to have been done, is sent again so often."""

START_SECONDS = 10.0
"""A connection that breaks while a process starts is waited for so long. On a busy machine sessions end that are not a
second old, and a part that gave up then would have all of a cluster not start."""
AGAIN_SECONDS = 0.1
"""Between two attempts at that; a session that is gone is itself waited for."""

RETRY_SECONDS = 1.0
"""Between looks where ZooKeeper answers, but with an error that will not go away by itself."""

_log = logging.getLogger("headrace.zookeeper")

Answer = TypeVar("Answer")


class SessionAuthority:
    """See :class:`zookeeper.authority.ClusterAuthority`, which it implements."""

    def __init__(self, session: Session, deployment: str, new_id: Callable[[], str]) -> None:
        self._session = session
        self._deployment = check_name(deployment, "deployment")
        self._new_id = new_id
        self._path = f"{ROOT}/{deployment}"
        self._id = ""
        self._listeners: list[Listener] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._registration: Registration | None = None
        self._superseded = asyncio.Event()
        self._lost_at = float("-inf")
        self._elections: list[SessionElection] = []
        session.listen(self._linked)

    @property
    def deployment(self) -> str:
        return self._deployment

    @property
    def deployment_id(self) -> str:
        return self._id

    @property
    def connected(self) -> bool:
        return self._session.connected

    @property
    def lost_at(self) -> float:
        return self._lost_at

    @property
    def superseded(self) -> asyncio.Event:
        return self._superseded

    async def start(self, *, create: bool = False) -> None:
        await self._session.start()
        try:
            self._id = await _patiently(lambda: self._open(create))
        except BaseException:
            await self._session.close()
            raise
        session, path = self._session, self._path
        self._follow(StateChange.STATE, lambda watch: session.look(f"{path}/state", watch))
        self._follow(StateChange.WORKERS, lambda watch: session.children(f"{path}/workers", watch))
        self._follow(StateChange.LEADER, lambda watch: session.look(f"{path}/controller", watch))
        self._follow(StateChange.LEADER, lambda watch: session.children(f"{path}/candidates", watch))

    async def _open(self, create: bool) -> str:
        """The id of the deployment, which is made if it is not there and ``create`` allows it."""
        if create:
            await self._session.ensure(ROOT)
            with suppress(NodeExists):  # Another controller was first, or it is not our first start.
                await self._session.create(self._path, _document(self._new_id()))
        try:
            id = self._id_in(await self._session.get(self._path))
        except NoNode:
            raise await self._missing() from None
        for folder in ("workers", "candidates"):
            await self._session.ensure(f"{self._path}/{folder}")
        return id

    def _id_in(self, node: Znode) -> str:
        try:
            given = json.loads(node.data)
            format, id = given["format"], str(given["id"])
        except (ValueError, KeyError, TypeError):
            raise ForeignDeployment(
                f'"{self._path}" in ZooKeeper at "{self._session.address}" is not a deployment of Headrace',
                hint="choose another name with --deployment",
            ) from None
        if format != FORMAT:
            raise ForeignDeployment(
                f'deployment "{self._deployment}" has format {format}, and this Headrace knows format {FORMAT}',
                hint="run the version of Headrace that its other processes run",
            )
        return id

    async def _check(self) -> None:
        """Raises WrongDeployment where ZooKeeper has lost the deployment, or somebody has made it anew since: what is
        decided there, and who is there, is no business of a process that knows the former one."""
        try:
            id = self._id_in(await self._session.get(self._path))
        except NoNode:
            raise self._lost("is gone") from None
        if id != self._id:
            raise self._lost("is another one now")

    def _lost(self, how: str) -> ForeignDeployment:
        return ForeignDeployment(
            f'deployment "{self._deployment}" in ZooKeeper at "{self._session.address}" {how}',
            hint="if ZooKeeper has lost its data, restore the state: docs/operations.md",
        )

    async def _missing(self) -> ForeignDeployment:
        try:
            names = ", ".join(f'"{name}"' for name in sorted(await self._session.children(ROOT)))
        except NoNode:
            names = ""
        return ForeignDeployment(
            f'there is no deployment "{self._deployment}" in ZooKeeper at "{self._session.address}"'
            + (f"; there are {names}" if names else ""),
            hint="check --deployment; a deployment is made by the first controller that is started for it",
        )

    async def close(self) -> None:
        for election in self._elections:
            election.stop()
        for task in self._tasks:
            task.cancel()
        if self._registration is not None:
            self._registration.stop()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._session.close()

    async def become(self, id: str) -> None:
        """Give the deployment another id: one whose state is restored is the one that it was. Nobody else is there."""
        node = await self._session.get(self._path)
        await self._session.set(self._path, _document(id), node.version)
        self._id = id

    # --- state ----------------------------------------------------------------------------------------------

    async def read(self) -> tuple[bytes | None, int]:
        await self._session.sync()
        state, _ = await asyncio.gather(self._state(), self._check())
        return state

    async def _state(self) -> tuple[bytes | None, int]:
        try:
            node = await self._session.get(f"{self._path}/state")
        except NoNode:
            return None, 0
        return node.data, node.version + 1

    async def write(self, state: bytes, version: int) -> int:
        if len(state) > STATE_BYTES_MAX:
            raise StateTooLarge(
                f"the state has {len(state):,} bytes, and ZooKeeper takes {STATE_BYTES_MAX:,}",
                hint="every change of tables and views is an entry of it, a DROP too",
            )
        for _ in range(WRITES_TRIED):
            try:
                return await self._write(state, version)
            except AuthorityUnavailable as error:
                if not error.maybe_done:
                    raise
                # The answer was lost. Whether it was done is known as soon as somebody can be asked.
                try:
                    now, at = await self.read()
                except AuthorityUnavailable:
                    raise error from None
                if (now, at) == (state, version + 1):
                    return at
                if at != version:
                    raise _conflict(at, version) from None
        raise AuthorityUnavailable(f'the connection to ZooKeeper at "{self._session.address}" keeps breaking')

    async def _write(self, state: bytes, version: int) -> int:
        path = f"{self._path}/state"
        try:
            if version == 0:
                await self._session.create(path, state)
                return 1
            return await self._session.set(path, state, version - 1) + 1
        except (NodeExists, NoNode, BadVersion):
            raise StateConflict(f"the state is no longer at version {version}", hint="read it again") from None

    # --- who is there ---------------------------------------------------------------------------------------

    async def register_worker(self, descriptor: WorkerDescriptor) -> None:
        check_name(descriptor.name, "worker")
        if self._registration is not None:
            await self._registration.withdraw(descriptor.name)
        workers = f"{self._path}/workers"
        self._registration = Registration(self._session, workers, descriptor, self._superseded, self._check)
        await _patiently(self._registration.begin)

    async def workers(self) -> Mapping[str, WorkerDescriptor]:
        return await self._described(WorkerDescriptor, "workers")

    async def candidates(self) -> Mapping[str, ControllerDescriptor]:
        return await self._described(ControllerDescriptor, "candidates")

    async def _described(self, kind: type[Descriptor], folder: str) -> Mapping[str, Descriptor]:
        try:
            names = sorted(await self._session.children(f"{self._path}/{folder}"))
        except NoNode:
            raise self._lost("is gone") from None
        found = await asyncio.gather(*(self._description(kind, f"{folder}/{name}") for name in names))
        return {name: each for name, each in zip(names, found, strict=True) if each is not None}

    async def _description(self, kind: type[Descriptor], path: str) -> Descriptor | None:
        try:
            return from_json(kind, (await self._session.get(f"{self._path}/{path}")).data)
        except NoNode:
            return None
        except ValueError as error:
            _log.warning("leaving out %s/%s: %s", self._path, path, error)
            return None

    def candidate(self, descriptor: ControllerDescriptor) -> SessionElection:
        check_name(descriptor.name, "controller")
        election = SessionElection(self._session, self._path, descriptor.name, to_json(descriptor), self._check)
        self._elections = [each for each in self._elections if not each.lost.is_set()]
        self._elections.append(election)
        return election

    async def leader(self) -> ControllerDescriptor | None:
        return await self._description(ControllerDescriptor, "controller")

    # --- changes --------------------------------------------------------------------------------------------

    def on_change(self, listener: Listener) -> None:
        self._listeners.append(listener)

    def _linked(self, link: Link) -> None:
        if link is Link.LOST:
            self._lost_at = asyncio.get_running_loop().time()
        self._announce(StateChange.CONNECTION)

    def _announce(self, change: StateChange) -> None:
        for listener in self._listeners:
            try:
                listener(change)
            except Exception:
                _log.exception("a listener failed on %s", change)

    def _follow(self, change: StateChange, look: Callable[[Watch], Awaitable[object]]) -> None:
        self._tasks.append(asyncio.create_task(self._followed(change, look), name=f"follow {change.value}"))

    async def _followed(self, change: StateChange, look: Callable[[Watch], Awaitable[object]]) -> None:
        """Announced after the watch is set again, so that nothing falls between what is read and what is watched."""
        while True:
            fired = asyncio.Event()
            try:
                await look(fired.set)
            except AuthorityUnavailable:
                await self._session.until_connected()
                continue
            except (AuthorityError, NoNode) as error:
                _log.error("cannot follow the %s of %s: %s", change.value, self._path, error)
                await asyncio.sleep(RETRY_SECONDS)
                continue
            self._announce(change)
            await fired.wait()


def _document(id: str) -> bytes:
    return json.dumps({"format": FORMAT, "id": id}).encode()


async def _patiently(act: Callable[[], Awaitable[Answer]]) -> Answer:
    """A request that may be done twice is repeated while the connection breaks. Raises AuthorityUnavailable."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + START_SECONDS
    while True:
        try:
            return await act()
        except AuthorityUnavailable:
            if loop.time() >= deadline:
                raise
        await asyncio.sleep(AGAIN_SECONDS)


def _conflict(at: int, version: int) -> StateConflict:
    return StateConflict(f"the state is at version {at}, not {version}", hint="read it again")
