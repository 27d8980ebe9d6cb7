"""A worker's znode, kept there for as long as the process lives."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from zookeeper.descriptors import WorkerDescriptor, from_json, to_json
from zookeeper.errors import AuthorityError, AuthorityUnavailable, NameTaken, Superseded
from zookeeper.session import BadVersion, NodeExists, NoNode, Session

POLL_SECONDS = 0.1
"""Between looks at a znode of our name that another process left: it goes when that one's session ends."""
REPEAT_SECONDS = 1.0
"""Between attempts to register again where something keeps us out."""
SUCCESSOR_SECONDS = 0.5
"""For whoever deleted our znode while our session lived to make theirs: it is a newer process of our name, which does
so in its next request. Were ours made again at once, the two would take turns for as long as both live."""

_log = logging.getLogger("headrace.zookeeper")


class Registration:
    """Makes the znode, and makes it again when its session was lost or somebody deleted it."""

    def __init__(
        self,
        session: Session,
        folder: str,
        descriptor: WorkerDescriptor,
        superseded: asyncio.Event,
        check: Callable[[], Awaitable[None]],
    ) -> None:
        """``check`` raises AuthorityError where the deployment is no longer the one that the data belong to."""
        self._session = session
        self._check = check
        self._path = f"{folder}/{descriptor.name}"
        self._descriptor = descriptor
        self._data = to_json(descriptor)
        self._superseded = superseded
        self._made_in = 0
        """The session in which the znode was made last."""
        self._task: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        """Raises NameTaken, AuthorityUnavailable."""
        await self._register()
        self._task = asyncio.create_task(self._keep(), name="registration")

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def withdraw(self, name: str) -> None:
        """Make room for another descriptor of this process; the znode of another name goes."""
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
        # A process that died without a word is there until its session ends, to the next tick of the server.
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
        """Whether what stands under our name could be brought to be ours; if not, look again later."""
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
            # The same worker, started again: nobody has to wait for the end of the dead one's session.
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
