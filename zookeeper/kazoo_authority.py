"""The real ZooKeeper, through kazoo: the one module that imports it.

kazoo calls back from its own threads. These calls are only handed over to the event loop, in kazoo's order, so that a
lost session is known before any answer that comes on the next one. Requests are kazoo's asynchronous ones; no thread
of ours waits for an answer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol
from uuid import uuid4

from kazoo.client import KazooClient
from kazoo.exceptions import (
    AuthFailedError,
    BadVersionError,
    ConnectionClosedError,
    ConnectionLoss,
    KazooException,
    NoAuthError,
    NodeExistsError,
    NoNodeError,
    OperationTimeoutError,
    SessionExpiredError,
    SessionMovedError,
)
from kazoo.protocol.states import KazooState
from kazoo.security import OPEN_ACL_UNSAFE, make_digest_acl

from zookeeper.address import Address, Finding, is_loopback, joined, parse_address, probe
from zookeeper.authority import SESSION_TIMEOUT, START_SECONDS, ClusterAuthority
from zookeeper.errors import AccessRefused, AuthorityError, AuthorityUnavailable, NotZooKeeper
from zookeeper.secret import Secret, secret_of
from zookeeper.session import BadVersion, Link, NodeExists, NoNode, Watch, Znode

PROBE_AGAIN_SECONDS = 0.1

ANSWER_SECONDS = 5.0
"""Seconds for a request on an open connection. kazoo gives up a silent connection after about a second; this is a
backstop."""

RECONNECT = {"max_tries": -1, "delay": 0.05, "backoff": 2, "max_jitter": 0.4, "max_delay": 0.5}
"""The pace of reconnecting: for ever, and soon. Sessions are short, and a process that comes back late has lost its
session."""

ATTEMPTS = 2
"""Within the life of a session. A server that is just starting may accept a connection and then neither answer nor
close it (3.9.5: a close fails before there is a database). kazoo waits for the session's time divided by the number of
hosts: with a single host the session is over by then. Not more than 2, since a new session waits for a disk."""

LINKS = {
    KazooState.CONNECTED: Link.CONNECTED,
    KazooState.SUSPENDED: Link.SUSPENDED,
    KazooState.LOST: Link.LOST,
}
GONE = (ConnectionLoss, ConnectionClosedError, SessionExpiredError, SessionMovedError, OperationTimeoutError)

_log = logging.getLogger("headrace.zookeeper")
# kazoo logs every attempt to connect; what matters is logged here, once.
logging.getLogger("kazoo").setLevel(logging.CRITICAL)


class KazooSession:
    """See :class:`zookeeper.session.Session`, which it implements."""

    def __init__(self, address: Address, timeout: float, auth: str | None) -> None:
        self.address = str(address)
        self.timeout = timeout
        self.id = 0
        self._hosts = address
        self.is_private = not address.path and all(is_loopback(host) for host, _ in address.hosts)
        hosts = address.hosts if len(address.hosts) > 1 else address.hosts * ATTEMPTS
        self._client = KazooClient(
            hosts=str(replace(address, path="", hosts=hosts)),
            timeout=timeout,
            connection_retry=RECONNECT,
            auth_data=set(),  # Not None: ``allow`` adds to it.
        )
        self._borne: set[str] = set()
        self._introducing: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop
        self._connected = asyncio.Event()
        self._closed = False
        self._listeners: list[Callable[[Link], None]] = []
        self._awaited: set[asyncio.Future[Any]] = set()
        self.allow([auth] if auth else [])

    @property
    def connected(self) -> bool:
        return self._connected.is_set()

    def listen(self, listener: Callable[[Link], None]) -> None:
        self._listeners.append(listener)

    def allow(self, bearers: Sequence[str]) -> None:
        # With names and passwords, znodes are readable with these only.
        self._client.default_acl = [make_digest_acl(*each.split(":", 1), all=True) for each in bearers] or None
        for each in bearers:
            if each not in self._borne:
                self._borne.add(each)
                self._client.auth_data.add(("digest", each))  # Sent with each new connection.
                if self.connected:
                    self._introducing = asyncio.create_task(self._introduce(each, self._introducing))

    async def start(self) -> None:
        """Raises AuthorityUnavailable, NotZooKeeper."""
        self._loop = asyncio.get_running_loop()
        await self._found(self._loop.time() + START_SECONDS)
        self._client.add_listener(self._changed)
        await asyncio.to_thread(self._client.start_async)
        try:
            async with asyncio.timeout(START_SECONDS):
                await self._connected.wait()
        except TimeoutError:
            await self.close()
            raise AuthorityUnavailable(
                f'ZooKeeper at "{self.address}" gives no session within {START_SECONDS:g} s',
                hint="does it have a quorum? see its log",
            ) from None
        except BaseException:
            await self.close()
            raise

    async def _found(self, deadline: float) -> None:
        """Wait until a ZooKeeper answers at one of the hosts. Another kind of server is an error at once: kazoo would
        retry for ever."""
        while True:
            found = await asyncio.gather(*(probe(host, port) for host, port in self._hosts.hosts))
            findings = [finding for finding, _ in found]
            if Finding.ZOOKEEPER in findings:
                return
            late = self._loop.time() >= deadline
            if Finding.STRANGER in findings or (late and Finding.SILENT in findings):
                wrong = Finding.STRANGER if Finding.STRANGER in findings else Finding.SILENT
                host, port = self._hosts.hosts[findings.index(wrong)]
                raise NotZooKeeper(
                    f'what answers at "{joined(host, port)}" is not ZooKeeper',
                    hint="check --zookeeper; ZooKeeper's usual port is 2181",
                )
            if late:
                raise AuthorityUnavailable(
                    f'cannot reach ZooKeeper at "{self.address}": {found[0][1]}',
                    hint="is it running, and does --zookeeper name it?",
                )
            await asyncio.sleep(PROBE_AGAIN_SECONDS)

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._client.remove_listener(self._changed)
        await asyncio.to_thread(self._stop)
        self._connected.clear()
        for future in self._awaited:
            if not future.done():
                future.set_exception(ConnectionClosedError())

    def _stop(self) -> None:
        try:
            self._client.stop()
            self._client.close()
        except Exception as error:
            # The session ends by itself when nobody keeps it alive.
            _log.warning("could not end the session with ZooKeeper: %r", error)

    async def until_connected(self) -> None:
        await self._connected.wait()

    # --- from kazoo's threads -----------------------------------------------------------------------------------

    def _changed(self, state: str) -> None:
        id = self._client.client_id
        self._hand_over(self._linked, LINKS[state], id[0] if id is not None else 0)

    def _hand_over(self, function: Callable[..., object], *arguments: object) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(function, *arguments)

    # --- on the loop --------------------------------------------------------------------------------------------

    def _linked(self, link: Link, id: int) -> None:
        if link is Link.CONNECTED:
            self.id = id
            self._connected.set()
        else:
            self._connected.clear()
        if not self._closed:
            _log.log(
                logging.INFO if link is Link.CONNECTED else logging.WARNING,
                'session with ZooKeeper at "%s": %s',
                self.address,
                link.value,
            )
        for listener in list(self._listeners):
            listener(link)

    async def _ask(self, begin: Callable[[], Any], path: str, *, changes: bool = False) -> Any:
        try:
            async with asyncio.timeout(self.timeout):
                await self._connected.wait()
                while self._introducing is not None and not self._introducing.done():
                    await asyncio.wait([self._introducing])
        except TimeoutError:
            raise self._unavailable(False) from None
        if self._closed:
            raise self._unavailable(False)
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                return await self._answered(begin())
        except TimeoutError:
            raise self._unavailable(changes) from None
        except KazooException as error:
            raise self._translated(error, path, changes) from error

    async def _answered(self, asked: Any) -> Any:
        """Of kazoo's own future, which is awaited until it ends, whoever leaves. Raises KazooException."""
        future: asyncio.Future[Any] = self._loop.create_future()
        self._awaited.add(future)
        future.add_done_callback(self._awaited.discard)
        asked.rawlink(lambda answer: self._hand_over(_settle, future, answer))
        return await asyncio.shield(future)

    def _unavailable(self, maybe_done: bool) -> AuthorityUnavailable:
        what = "the connection broke" if maybe_done else "there is no connection"
        return AuthorityUnavailable(
            f'ZooKeeper at "{self.address}" cannot be reached: {what}',
            hint="reads and writes of rows go on; try again when it is back",
            maybe_done=maybe_done,
        )

    def _translated(self, error: KazooException, path: str, changes: bool) -> Exception:
        match error:
            case NoNodeError():
                return NoNode(path)
            case NodeExistsError():
                return NodeExists(path)
            case BadVersionError():
                return BadVersion(path)
            case NoAuthError() | AuthFailedError():
                return AccessRefused(
                    f'ZooKeeper at "{self.address}" refuses access to "{path}"',
                    hint="give what the deployment was made with: --secret-file, or the setting zookeeper_auth",
                )
            case _ if isinstance(error, GONE):
                return self._unavailable(changes)
            case _:
                return AuthorityError(f'ZooKeeper at "{self.address}" answers "{type(error).__name__}" for "{path}"')

    async def _introduce(self, bearer: str, earlier: asyncio.Task[None] | None) -> None:
        """To the server of this connection, while nothing else is asked: ZooKeeper answers a name and password ahead of
        what was asked before, and kazoo takes each answer for that to its oldest question."""
        if earlier is not None:
            await asyncio.wait([earlier])
        if self._awaited:
            await asyncio.wait(self._awaited)
        with suppress(KazooException):  # The connection broke, and the next one is told as it begins.
            await self._answered(self._client.add_auth_async("digest", bearer))

    def _watch(self, watch: Watch | None) -> Callable[[object], None] | None:
        if watch is None:
            return None
        return lambda event: self._hand_over(watch)

    def _at(self, path: str) -> str:
        """The znode's full path. (kazoo's own ``chroot`` does not create it.)"""
        return self._hosts.path + path

    async def sync(self) -> None:
        await self._ask(lambda: self._client.sync_async("/"), "/")

    async def ensure(self, path: str) -> None:
        await self._ask(lambda: self._client.ensure_path_async(self._at(path)), path, changes=True)

    async def protect(self, path: str) -> None:
        wanted = self._client.default_acl or OPEN_ACL_UNSAFE
        present, _ = await self._ask(lambda: self._client.get_acls_async(self._at(path)), path)
        if set(present) != set(wanted):
            await self._ask(lambda: self._client.set_acls_async(self._at(path), wanted), path, changes=True)

    async def get(self, path: str) -> Znode:
        data, stat = await self._ask(lambda: self._client.get_async(self._at(path)), path)
        return Znode(data, stat.version, stat.ephemeralOwner)

    async def look(self, path: str, watch: Watch) -> Znode | None:
        """``exists`` also watches for a znode to be created; ``get`` does not."""
        stat = await self._ask(lambda: self._client.exists_async(self._at(path), watch=self._watch(watch)), path)
        return None if stat is None else Znode(b"", stat.version, stat.ephemeralOwner)

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        names: list[str] = await self._ask(
            lambda: self._client.get_children_async(self._at(path), watch=self._watch(watch)), path
        )
        return names

    async def create(self, path: str, data: bytes, *, ephemeral: bool = False) -> None:
        await self._ask(
            lambda: self._client.create_async(self._at(path), data, ephemeral=ephemeral), path, changes=True
        )

    async def set(self, path: str, data: bytes, version: int) -> int:
        stat = await self._ask(lambda: self._client.set_async(self._at(path), data, version), path, changes=True)
        number: int = stat.version
        return number

    async def delete(self, path: str, version: int = -1) -> None:
        await self._ask(lambda: self._client.delete_async(self._at(path), version), path, changes=True)


def _settle(future: asyncio.Future[Any], answer: Any) -> None:
    if future.done():
        return
    if answer.exception is not None:
        future.set_exception(answer.exception)
    else:
        future.set_result(answer.value)


class AuthoritySettings(Protocol):
    """What the way to ZooKeeper needs; ``headrace.settings`` has all settings."""

    @property
    def zookeeper(self) -> str | None: ...

    @property
    def zookeeper_auth(self) -> str | None: ...

    @property
    def deployment(self) -> str: ...

    @property
    def session_timeout(self) -> float: ...

    @property
    def secret_file(self) -> Path | None: ...

    @property
    def data(self) -> Path: ...


def authority_of(settings: AuthoritySettings, new_id: str | None = None) -> KazooAuthority:
    """Not started yet. Without a ``secret_file`` the secret is that in the data directory, if there is one there.

    :raises SecretUnusable: there is one, and it cannot be used.
    """
    assert settings.zookeeper is not None
    return KazooAuthority(
        settings.zookeeper,
        settings.deployment,
        session_timeout=settings.session_timeout,
        auth=settings.zookeeper_auth,
        new_id=new_id,
        secret=secret_of(settings.secret_file, settings.data),
    )


class KazooAuthority(ClusterAuthority):
    """A process's authority over the ZooKeeper at ``hosts``.

    With a ``secret`` only processes that have it can use the deployment's znodes; with ``auth``, ``name:password``,
    only its bearer. With both, ``auth`` opens what was made with it before. ``session_timeout`` is in seconds;
    ZooKeeper grants at least two of its ticks. ``new_id`` is the id of a deployment that is made again.
    """

    def __init__(
        self,
        hosts: str,
        deployment: str,
        *,
        session_timeout: float = SESSION_TIMEOUT,
        auth: str | None = None,
        new_id: str | None = None,
        secret: Secret | None = None,
    ) -> None:
        self.session = KazooSession(parse_address(hosts), session_timeout, auth)
        super().__init__(self.session, deployment, lambda: new_id or uuid4().hex, secret)
