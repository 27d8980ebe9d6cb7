"""The Authority of a cluster: its state by compare-and-set, who is there, and who leads.

Written once over a :class:`zookeeper.session.Session`, and so the same for the real ZooKeeper and for its twin in
memory::

    /headrace/<deployment>              {"format": 1, "id": …}
        state                           replaced by compare-and-set
        controller                      ephemeral: who leads
        candidates/<name>               ephemeral: who leads or stands by
        workers/<name>                  ephemeral: who is there
        apis/<number>                   ephemeral: the api processes
        accounts/<bucket>               ``accounts.py``

All of them are for who has the deployment's secret, where there is one (``secret.py``).

A watch is not trusted to say what has changed: it only wakes a task, which looks again. So a lost connection, after
which watches are gone, is one more reason to look. Likewise a change is only announced, and whoever hears of it reads
again: an extra announcement does no harm, and several changes may be announced as one.

Everything runs on one event loop. Methods raise AuthorityUnavailable if ZooKeeper does not answer in time.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from enum import Enum
from typing import TypeVar

from zookeeper.accounts import ZnodeAccounts
from zookeeper.errors import AuthorityError, AuthorityUnavailable, ForeignDeployment, StateConflict, StateTooLarge
from zookeeper.registration import (
    ApiDescriptor,
    ControllerDescriptor,
    Descriptor,
    NumberedRegistration,
    Registration,
    WorkerDescriptor,
    check_name,
    from_json,
    to_json,
)
from zookeeper.secret import Secret, ZnodeGuard
from zookeeper.session import BadVersion, Link, NodeExists, NoNode, Session, Watch, Znode

ROOT = "/headrace"
FORMAT = 1
"""The format of the znodes below a deployment's. A process that knows another format must not touch them."""

STATE_BYTES_MAX = 1_000_000
"""ZooKeeper refuses packets of more than 1,048,575 bytes (jute.maxbuffer) unless all its servers are told otherwise."""

SESSION_TIMEOUT = 1.5
"""Seconds without a sign of life after which the registrations of a process are removed. With less, a pause of a busy
machine looks like a death; with more, a dead leader is noticed later."""

WRITES_TRIED = 3
"""How often a write is sent whose answers were lost and that turned out not to have been done."""

START_SECONDS = 10.0
"""How long a starting process retries broken connections. On a busy machine sessions end within their first second, and
one part that gave up would keep the whole cluster from starting."""
AGAIN_SECONDS = 0.1
"""Seconds between two such retries."""

RETRY_SECONDS = 1.0
"""Seconds between attempts if ZooKeeper answers with an error that will not go away by itself."""

_log = logging.getLogger("headrace.zookeeper")

Answer = TypeVar("Answer")


class StateChange(Enum):
    STATE = "state"
    WORKERS = "workers"
    LEADER = "leader"
    """The leader, or the candidates."""
    CONNECTION = "connection"
    """``connected`` has changed, or the session was lost and begun anew."""


class Election:
    """One candidacy for leader. When it is lost it is over: ``candidate`` gives another.

    The two or three candidates race for the znode ``controller``: whoever creates it leads, and the others watch it and
    race again when it goes. A queue of sequential znodes would rarely save a few requests, and would add a second step
    between being next in line and being visible as the leader.
    """

    def __init__(
        self, session: Session, path: str, name: str, data: bytes, check: Callable[[], Awaitable[None]]
    ) -> None:
        """``check`` raises AuthorityError if the deployment is no longer the one that the candidate knows."""
        self.lost = asyncio.Event()
        """Set once it is known that the session is gone, or that another leads. A lost connection to ZooKeeper does not
        set it: while all of ZooKeeper is away nobody else can lead, and the epoch fences off a leader that does not
        know that it was succeeded."""
        self._session = session
        self._check = check
        self._controller = f"{path}/controller"
        self._candidate = f"{path}/candidates/{name}"
        self._data = data
        self._led_by: int | None = None
        """The session that made the znode: the lead ends with it."""
        self._leads = asyncio.Event()
        session.listen(self._linked)
        self._task = asyncio.create_task(self._run(), name="election")

    async def elected(self) -> None:
        """Returns when this candidate leads. Waits through lost connections and sessions."""
        waits = [asyncio.create_task(each.wait()) for each in (self._leads, self.lost)]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waits:
                each.cancel()
        if self.lost.is_set():
            raise AuthorityError("the candidacy is over", hint="stand again")

    async def resign(self) -> None:
        """Give up the lead or the candidacy."""
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
        """End it in this process; the znodes go with the session."""
        self._task.cancel()
        self.lost.set()

    def _linked(self, link: Link) -> None:
        if link is Link.LOST and self._led_by is not None:
            self.lost.set()

    async def _run(self) -> None:
        while not self.lost.is_set():
            fired = asyncio.Event()
            try:
                if await self._look(fired):
                    await fired.wait()
            except AuthorityUnavailable:
                await self._session.until_connected()
            except (AuthorityError, NoNode) as error:
                _log.error("cannot take part in the election of a leader: %s", error)
                await asyncio.sleep(RETRY_SECONDS)

    async def _look(self, fired: asyncio.Event) -> bool:
        """Look at who leads, and act on it. False: look again at once."""
        node = await self._session.look(self._controller, fired.set)
        if self._led_by is not None:
            if node is None or node.owner != self._led_by:
                self.lost.set()
            return not self.lost.is_set()
        await self._check()
        await self._stand()
        if node is None:
            with suppress(NodeExists):  # Another was first.
                await self._session.create(self._controller, self._data, ephemeral=True)
            return False  # The next look sets a watch on it.
        if node.owner == self._session.id:
            self._led_by = node.owner
            self._leads.set()
        return True

    async def _stand(self) -> None:
        """Create the candidate's own znode, for those who list candidates, in place of a dead namesake's."""
        try:
            await self._session.create(self._candidate, self._data, ephemeral=True)
        except NodeExists:
            try:
                node = await self._session.get(self._candidate)
                if node.owner != self._session.id:
                    await self._session.delete(self._candidate, node.version)
                    await self._session.create(self._candidate, self._data, ephemeral=True)
            except (NoNode, NodeExists, BadVersion):
                return  # It is changing right now, and is only for display: the next look tries again.


class ClusterAuthority:
    """One process's session with the Authority: ``KazooAuthority`` or ``MemoryAuthority``."""

    def __init__(
        self, session: Session, deployment: str, new_id: Callable[[], str], secret: Secret | None = None
    ) -> None:
        self.deployment = check_name(deployment, "deployment")
        self.secret = secret
        """The deployment's. None: whoever reaches its ports and ZooKeeper is believed."""
        self.deployment_id = ""
        """Differs from that of any other deployment of the name (``worker/belonging.py``); known after ``start``."""
        self.lost_at = float("-inf")
        """The loop's time at which this process's session was last lost."""
        self.superseded = asyncio.Event()
        """Set when a newer process registers under this worker's name: this one is replaced."""
        self._session = session
        self._new_id = new_id
        self._path = f"{ROOT}/{deployment}"
        self._listeners: list[Callable[[StateChange], None]] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._registration: Registration | None = None
        self._numbered: NumberedRegistration | None = None
        self._elections: list[Election] = []
        session.listen(self._linked)

    @property
    def connected(self) -> bool:
        return self._session.connected

    async def start(self, *, create: bool = False) -> None:
        """Connect. ``create`` makes the deployment if there is none.

        :raises ForeignDeployment: there is no deployment of the name, or it is not ours.
        :raises AuthorityUnavailable, NotZooKeeper, AccessRefused: there is no session.
        """
        guard = None if self.secret is None else ZnodeGuard(self.secret, self._session, ROOT, self.deployment)
        await self._session.start()
        try:
            self.deployment_id = await _patiently(lambda: self._open(create))
            if guard is not None:
                if create:
                    await _patiently(guard.protect)
                self._tasks.append(asyncio.create_task(guard.follow(protects=create), name="access to znodes"))
        except BaseException:
            await self._session.close()
            raise
        session, path = self._session, self._path
        self._follow(StateChange.STATE, lambda watch: session.look(f"{path}/state", watch))
        self._follow(StateChange.WORKERS, lambda watch: session.children(f"{path}/workers", watch))
        self._follow(StateChange.LEADER, lambda watch: session.look(f"{path}/controller", watch))
        self._follow(StateChange.LEADER, lambda watch: session.children(f"{path}/candidates", watch))

    async def _open(self, create: bool) -> str:
        """The id of the deployment, after making it if ``create`` is set and it is not there."""
        if create:
            await self._session.ensure(ROOT)
            with suppress(NodeExists):  # Another controller was first, or this is not our first start.
                await self._session.create(self._path, _document(self._new_id()))
        try:
            id = self._id_in(await self._session.get(self._path))
        except NoNode:
            raise await self._missing() from None
        for folder in ("workers", "candidates", "apis"):
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
                f'deployment "{self.deployment}" has format {format}, and this Headrace knows format {FORMAT}',
                hint="run the version of Headrace that its other processes run",
            )
        return id

    async def _check(self) -> None:
        """Raises ForeignDeployment if ZooKeeper has lost the deployment, or somebody has made it anew since: a process
        that knows the former one must not act on the state and the registrations of the new one."""
        try:
            id = self._id_in(await self._session.get(self._path))
        except NoNode:
            raise self._lost("is gone") from None
        if id != self.deployment_id:
            raise self._lost("is another one now")

    def _lost(self, how: str) -> ForeignDeployment:
        return ForeignDeployment(
            f'deployment "{self.deployment}" in ZooKeeper at "{self._session.address}" {how}',
            hint="if ZooKeeper has lost its data, restore the state: docs/operations.md",
        )

    async def _missing(self) -> ForeignDeployment:
        try:
            names = ", ".join(f'"{name}"' for name in sorted(await self._session.children(ROOT)))
        except NoNode:
            names = ""
        return ForeignDeployment(
            f'there is no deployment "{self.deployment}" in ZooKeeper at "{self._session.address}"'
            + (f"; there are {names}" if names else ""),
            hint="check --deployment; a deployment is made by the first controller that is started for it",
        )

    async def close(self) -> None:
        """End the session: this process's registrations are removed at once."""
        for election in self._elections:
            election.stop()
        for task in self._tasks:
            task.cancel()
        for registration in (self._registration, self._numbered):
            if registration is not None:
                registration.stop()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._session.close()

    async def become(self, id: str) -> None:
        """Give the deployment the id that it had before its state was restored. Nobody else may be there."""
        node = await self._session.get(self._path)
        await self._session.set(self._path, _document(id), node.version)
        self.deployment_id = id

    # --- state ----------------------------------------------------------------------------------------------

    async def read(self) -> tuple[bytes | None, int]:
        """The state and its version, including every write that ended before the call; (None, 0) before the first."""
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
        """Replace the state that was read at ``version``; answers the new version.

        Raises StateConflict, StateTooLarge, and AuthorityUnavailable, with ``maybe_done`` if it may have been written.
        """
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
                # The answer was lost: a read tells whether it was done.
                try:
                    now, at = await self.read()
                except AuthorityUnavailable:
                    raise error from None
                if (now, at) == (state, version + 1):
                    return at
                if at != version:
                    raise StateConflict(f"the state is at version {at}, not {version}", hint="read it again") from None
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
        """Register under ``descriptor.name``, and again by itself whenever the session was lost. A second call replaces
        the first. An earlier process of the same host and data directory is replaced at once.

        :raises NameTaken: another process of the name is alive.
        """
        check_name(descriptor.name, "worker")
        if self._registration is not None:
            await self._registration.withdraw(descriptor.name)
        workers = f"{self._path}/workers"
        self._registration = Registration(self._session, workers, descriptor, self.superseded, self._check)
        await _patiently(self._registration.begin)

    async def workers(self) -> Mapping[str, WorkerDescriptor]:
        """The workers by name, sorted."""
        return await self._described(WorkerDescriptor, "workers")

    async def register_api(self, descriptor: ApiDescriptor) -> NumberedRegistration:
        """Register an api process, now or as soon as that can be, and again whenever the session was lost."""
        self._numbered = NumberedRegistration(self._session, f"{self._path}/apis", descriptor, self._check)
        await self._numbered.begin()
        return self._numbered

    async def apis(self) -> Mapping[int, ApiDescriptor]:
        """The api processes, by their numbers."""
        found = await self._described(ApiDescriptor, "apis")
        return dict(sorted((int(number), api) for number, api in found.items() if number.isdecimal()))

    def accounts(self) -> ZnodeAccounts:
        """Where the accounts are kept; to be started."""
        return ZnodeAccounts(self._session, self._path)

    async def candidates(self) -> Mapping[str, ControllerDescriptor]:
        """All that stand or lead, by name, sorted."""
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

    def candidate(self, descriptor: ControllerDescriptor) -> Election:
        """Stand for leader from now on."""
        check_name(descriptor.name, "controller")
        election = Election(self._session, self._path, descriptor.name, to_json(descriptor), self._check)
        self._elections = [each for each in self._elections if not each.lost.is_set()]
        self._elections.append(election)
        return election

    async def leader(self) -> ControllerDescriptor | None:
        return await self._description(ControllerDescriptor, "controller")

    # --- changes --------------------------------------------------------------------------------------------

    def on_change(self, listener: Callable[[StateChange], None]) -> None:
        """Call the listener at each change from now on, on the event loop."""
        self._listeners.append(listener)

    def _linked(self, link: Link) -> None:
        if link is Link.LOST:
            self.lost_at = asyncio.get_running_loop().time()
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
        """Announce changes; only after the watch is set again, so that no change goes unseen in between."""
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
    """Repeat a request that may be done twice while connections break. Raises AuthorityUnavailable."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + START_SECONDS
    while True:
        try:
            return await act()
        except AuthorityUnavailable:
            if loop.time() >= deadline:
                raise
        await asyncio.sleep(AGAIN_SECONDS)
