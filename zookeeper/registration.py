"""How processes describe themselves in ZooKeeper (as JSON, under their names), and a worker's znode, which is kept
there for as long as the process lives."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass, fields
from itertools import chain, count
from typing import Any, TypeVar

from zookeeper.errors import AuthorityError, AuthorityUnavailable, NameTaken, Superseded
from zookeeper.session import BadVersion, NodeExists, NoNode, Session

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
"""Names of deployments, workers and controllers: they are used in paths, as host names and as file names."""

EVERYWHERE = ("", "0.0.0.0", "::")
"""Addresses that stand for all addresses of a machine: a process can listen there, but others cannot reach it there."""


def check_name(name: str, what: str) -> str:
    """The name itself. Raises ValueError if it is not valid."""
    if not NAME.fullmatch(name):
        raise ValueError(f'"{name}" is not a name of a {what}: use up to 64 letters, digits, ".", "_" and "-"')
    return name


def advertised(host: str, advertise: str | None) -> str:
    """The address where others reach a process that listens at ``host``. Raises ValueError if that is not one
    machine."""
    place = advertise or host
    if place in EVERYWHERE:
        raise ValueError(f'the others cannot reach this process at "{place}": --advertise names a host')
    return place


@dataclass(frozen=True, slots=True)
class WorkerDescriptor:
    """A worker process that runs."""

    name: str
    host: str
    """The address that other machines reach it at."""
    port: int
    incarnation: int
    """Greater than that of any earlier process of the same name."""
    pid: int
    data: str
    """The name of its data directory (``worker/belonging.py``): workers with one name open the same shards."""
    reader_map: str = ""
    """The directory of its reader map, absolute: processes of the same host read it."""


@dataclass(frozen=True, slots=True)
class ControllerDescriptor:
    """A controller process that leads or stands by."""

    name: str
    host: str
    port: int
    """The port of its control interface, HTTP."""
    pid: int


@dataclass(frozen=True, slots=True)
class ApiDescriptor:
    """An api process that runs."""

    name: str
    host: str
    port: int
    """The port on which other api processes reach it, which is not that of its clients."""
    incarnation: int
    pid: int


Descriptor = TypeVar("Descriptor", WorkerDescriptor, ControllerDescriptor, ApiDescriptor)


def to_json(descriptor: WorkerDescriptor | ControllerDescriptor | ApiDescriptor) -> bytes:
    return json.dumps(asdict(descriptor), ensure_ascii=False).encode()


def from_json(kind: type[Descriptor], data: bytes) -> Descriptor:
    """Unknown keys are ignored: a newer process may add some. Raises ValueError for anything else that does not fit."""
    try:
        given: Any = json.loads(data)
        known = {field.name: given[field.name] for field in fields(kind) if field.name in given}
        descriptor = kind(**known)
    except (ValueError, TypeError, AttributeError) as error:
        raise ValueError(f"no {kind.__name__}: {data[:200]!r}") from error
    for field in fields(kind):
        wanted = int if field.type == "int" else str
        if type(getattr(descriptor, field.name)) is not wanted:
            raise ValueError(f'no {kind.__name__}: "{field.name}" is not {wanted.__name__}')
    return descriptor


POLL_SECONDS = 0.1
"""Seconds between looks at another process's znode of our name, which goes when that session ends."""
REPEAT_SECONDS = 1.0
"""Seconds between attempts to register again after an error."""
SUCCESSOR_SECONDS = 0.5
"""The wait after our znode was deleted while our session lives: a newer process of our name is about to make its own.
We wait for that process so long: if we made ours again at once, the two would delete each other's for ever."""

_log = logging.getLogger("headrace.zookeeper")


class Registration:
    """Creates the znode, and creates it again when its session was lost or somebody deleted it."""

    def __init__(
        self,
        session: Session,
        folder: str,
        descriptor: WorkerDescriptor,
        superseded: asyncio.Event,
        check: Callable[[], Awaitable[None]],
    ) -> None:
        """``check`` raises AuthorityError if the deployment is no longer the one that the data belong to."""
        self._session = session
        self._check = check
        self._path = f"{folder}/{descriptor.name}"
        self._descriptor = descriptor
        self._data = to_json(descriptor)
        self._superseded = superseded
        self._made_in = 0
        """The session in which the znode was last created."""
        self._task: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        """Raises NameTaken, AuthorityUnavailable."""
        await self._register()
        self._task = asyncio.create_task(self._keep(), name="registration")

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def withdraw(self, name: str) -> None:
        """Make room for another descriptor of this process; if its name is another, delete the present znode."""
        self.stop()
        if name != self._descriptor.name:
            try:
                node = await self._session.get(self._path)
                if node.owner == self._session.id:
                    await self._session.delete(self._path)
            except NoNode:
                return

    async def _register(self) -> None:
        loop = asyncio.get_running_loop()
        # The znode of a process that was killed stays until its session ends, rounded up to a tick of the server.
        deadline = loop.time() + 2 * self._session.timeout
        while True:
            await self._check()
            try:
                await self._session.create(self._path, self._data, ephemeral=True)
                self._made_in = self._session.id
                return
            except NodeExists:
                if await self._replaced():
                    self._made_in = self._session.id
                    return
            except NoNode:
                raise AuthorityError(
                    f'"{self._path}" cannot be made: the deployment was deleted from ZooKeeper',
                    hint="restore its state: docs/operations.md",
                ) from None
            if loop.time() > deadline:
                raise NameTaken(
                    f'another worker is registered as "{self._descriptor.name}"',
                    hint="give each worker a name and a data directory of its own",
                )
            await asyncio.sleep(POLL_SECONDS)

    async def _replaced(self) -> bool:
        """Take the name over from ourselves or from an earlier process of this worker; False: look again later."""
        mine = self._descriptor
        try:
            node = await self._session.get(self._path)
            if node.owner == self._session.id:
                await self._session.set(self._path, self._data, node.version)
                return True
            try:
                other = from_json(WorkerDescriptor, node.data)
            except ValueError:
                return False
            if (other.host, other.data) != (mine.host, mine.data):
                return False
            if other.incarnation > mine.incarnation:
                raise Superseded(
                    f'a newer process is registered as worker "{mine.name}" (pid {other.pid})',
                    hint="this one was replaced; stop it",
                )
            # The same worker, started again, need not wait for the end of the dead one's session.
            await self._session.delete(self._path, node.version)
            await self._session.create(self._path, self._data, ephemeral=True)
        except (NoNode, NodeExists, BadVersion):
            return False
        return True

    async def _keep(self) -> None:
        yielded = False
        while True:
            fired = asyncio.Event()
            try:
                node = await self._session.look(self._path, fired.set)
                if node is not None and node.owner == self._session.id:
                    yielded = False
                    await fired.wait()
                elif node is None and self._made_in == self._session.id and not yielded:
                    yielded = True
                    await asyncio.sleep(SUCCESSOR_SECONDS)
                else:
                    await self._register()
                    _log.info('worker "%s" is registered again', self._descriptor.name)
            except AuthorityUnavailable:
                await self._session.until_connected()
            except Superseded as error:
                _log.error("%s", error)
                self._superseded.set()
                return
            except AuthorityError as error:
                _log.error("cannot register again: %s", error)
                await asyncio.sleep(REPEAT_SECONDS)


class NumberedRegistration:
    """The znode of an api process, under the smallest number that no other has. It is made again, under the same number
    where that is still free, when the session was lost."""

    def __init__(
        self, session: Session, folder: str, descriptor: ApiDescriptor, check: Callable[[], Awaitable[None]]
    ) -> None:
        self.number = 0
        """0 until it is registered for the first time."""
        self._session = session
        self._check = check
        self._folder = folder
        self._data = to_json(descriptor)
        self._task: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        """Register, or go on trying to."""
        try:
            await self._register()
        except AuthorityError as error:
            _log.warning("this api process is not registered yet: %s", error)
        self._task = asyncio.create_task(self._keep(), name="registration of the api process")

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _register(self) -> None:
        await self._check()
        before = [self.number] if self.number else []
        for number in chain(before, count(1)):
            if await self._taken(number):
                return

    async def _taken(self, number: int) -> bool:
        """Take a number. An answer may have been lost, so the znode that is there may be ours."""
        path = f"{self._folder}/{number}"
        try:
            await self._session.create(path, self._data, ephemeral=True)
        except NoNode:
            raise AuthorityError(f'"{path}" cannot be made: the deployment was deleted from ZooKeeper') from None
        except NodeExists:
            try:
                node = await self._session.get(path)
            except NoNode:
                return False  # It has just gone. Another number does as well.
            if node.owner != self._session.id:
                return False
        self.number = number
        return True

    async def _keep(self) -> None:
        while True:
            fired = asyncio.Event()
            try:
                node = await self._session.look(f"{self._folder}/{self.number}", fired.set) if self.number else None
                if node is not None and node.owner == self._session.id:
                    await fired.wait()
                else:
                    await self._register()
            except AuthorityUnavailable:
                await self._session.until_connected()
            except AuthorityError as error:
                _log.error("this api process cannot be registered: %s", error)
                await asyncio.sleep(REPEAT_SECONDS)
