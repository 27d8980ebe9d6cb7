"""Where accounts are kept: a file in the data directory, or znodes of a cluster. What an account is, others know.

::

    FileAccounts     accounts.json, mode 0600, replaced whole; looked at twice a second, so another process may write it
    ZnodeAccounts    /headrace/<deployment>/accounts/<0 … 31>, each a part of the accounts by a hash of their names,
                     replaced by compare-and-set, and watched: 10,000 accounts are some 6 MB, a znode takes 1 MB

Both keep documents by name, and tell a listener which have changed, whoever changed them: an api process hears of a
change by another one within a second. They are no part of the recipe: views are planned without them, and a back-up of
tables carries nobody's password away.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import logging
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol
from zlib import crc32

from zookeeper.errors import AccountsDamaged, AuthorityError, AuthorityUnavailable, StateConflict, StateTooLarge
from zookeeper.session import BadVersion, NodeExists, NoNode, Session

AccountDocument = dict[str, Any]
"""JSON-ready."""
Changed = Callable[[Mapping[str, AccountDocument | None]], None]
"""Is told the documents that are new or other ones, and None for those that are gone."""
EditAccount = Callable[[AccountDocument | None], AccountDocument | None]
"""The new document out of the present one; may be called again where another process was faster. None: there is none.
"""

FORMAT = 1
FILE = "accounts.json"
POLL_SECONDS = 1.5
"""Within two seconds a change holds in every process."""
BUCKETS = 32
"""Znodes that accounts are spread over. Their number is fixed with the format."""
BUCKET_BYTES_MAX = 1_000_000
TRIED = 20
"""Attempts at a change, against others who change accounts of the same bucket."""
AGAIN_SECONDS = 0.5
"""Between attempts to look at a bucket that ZooKeeper refuses."""

_log = logging.getLogger("headrace.zookeeper")


class AccountStore(Protocol):
    async def start(self, changed: Changed) -> None:
        """Tell of all accounts that are there before it returns, and then of changes. Raises AuthorityError."""

    async def change(self, name: str, edit: EditAccount) -> None:
        """Replace an account's document; on disk, and told of, when this returns. Raises AuthorityError, and what
        ``edit`` raises: then nothing was changed."""

    async def close(self) -> None: ...


def _encoded(accounts: Mapping[str, AccountDocument]) -> bytes:
    return json.dumps({"format": FORMAT, "accounts": accounts}, ensure_ascii=False, sort_keys=True).encode()


def _decoded(data: bytes, where: str) -> dict[str, AccountDocument]:
    """:raises AccountsDamaged: it is not what was written."""
    try:
        document: dict[str, Any] = json.loads(data) if data else {"format": FORMAT, "accounts": {}}
        if document["format"] != FORMAT:
            raise ValueError(f"format {document['format']} is of a later version of Headrace")
        accounts: dict[str, AccountDocument] = document["accounts"]
        if not all(isinstance(each, dict) for each in accounts.values()):
            raise ValueError("an account is no object")
        return accounts
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise AccountsDamaged(
            f"the accounts in {where} cannot be read: {error}", hint="restore them from a back-up: docs/security.md"
        ) from error


def _difference(
    before: Mapping[str, AccountDocument], after: Mapping[str, AccountDocument]
) -> dict[str, AccountDocument | None]:
    found: dict[str, AccountDocument | None] = {
        name: document for name, document in after.items() if before.get(name) != document
    }
    return {**found, **{name: None for name in before if name not in after}}


class FileAccounts:
    """See :class:`AccountStore`. One file, which other processes may change, too (``headrace admin``)."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / FILE
        self._seen: tuple[int, int, int] | None = None
        self._known: dict[str, AccountDocument] = {}
        self._changed: Changed = lambda documents: None
        self._task: asyncio.Task[None] | None = None

    async def start(self, changed: Changed) -> None:
        self._changed = changed
        self._look()
        self._task = asyncio.create_task(self._poll(), name="accounts")

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _poll(self) -> None:
        told = ""
        while True:
            await asyncio.sleep(POLL_SECONDS)
            try:
                self._look()
                told = ""
            except AuthorityError as error:  # Those that are known go on: nobody is let in by damage.
                if str(error) != told:
                    _log.error("%s", error)
                told = str(error)

    def _look(self) -> None:
        """Read the file if it is another one than was seen. A file that is gone changes nothing while it runs: a server
        that has accounts never opens because a file was deleted."""
        try:
            found = self.path.stat()
        except FileNotFoundError:
            return
        except OSError as error:
            raise AccountsDamaged(f'cannot read "{self.path}": {error.strerror}') from error
        seen = (found.st_ino, found.st_mtime_ns, found.st_size)
        if seen != self._seen:
            known = self._read()
            self._seen = seen
            self._take(known)

    def _read(self) -> dict[str, AccountDocument]:
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise AccountsDamaged(f'cannot read "{self.path}": {error.strerror}') from error
        if not data:
            raise AccountsDamaged(f'"{self.path}" is empty', hint="restore it from a back-up: docs/security.md")
        return _decoded(data, f'"{self.path}"')

    def _take(self, known: dict[str, AccountDocument]) -> None:
        changes = _difference(self._known, known)
        self._known = known
        if changes:
            self._changed(changes)

    async def change(self, name: str, edit: EditAccount) -> None:
        try:
            await asyncio.to_thread(self._replace, name, edit)
        except OSError as error:
            raise AuthorityError(f'cannot write "{self.path}": {error.strerror}') from error
        self._look()

    def _replace(self, name: str, edit: EditAccount) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        lock = os.open(self.path.with_name(FILE + ".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)  # Let go with the descriptor.
            known = self._read()
            document = edit(known.get(name))
            known = {other: each for other, each in known.items() if other != name}
            if document is not None:
                known[name] = document
            self._write(_encoded(known))
        finally:
            os.close(lock)

    def _write(self, data: bytes) -> None:
        beside = self.path.with_name(FILE + ".new")
        with suppress(FileNotFoundError):
            beside.unlink()
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(self.path)
        directory = os.open(self.path.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


class ZnodeAccounts:
    """See :class:`AccountStore`. While ZooKeeper does not answer, what was last known goes on."""

    def __init__(self, session: Session, path: str) -> None:
        """``path``: the deployment's."""
        self._session = session
        self._folder = f"{path}/accounts"
        self._known: dict[int, dict[str, AccountDocument]] = {}
        self._versions: dict[int, int] = {}
        self._changed: Changed = lambda documents: None
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self, changed: Changed) -> None:
        self._changed = changed
        await self._session.ensure(self._folder)
        await asyncio.gather(*(self._read(bucket) for bucket in range(BUCKETS)))
        self._tasks = [asyncio.create_task(self._follow(each), name=f"accounts {each}") for each in range(BUCKETS)]

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _path(self, bucket: int) -> str:
        return f"{self._folder}/{bucket}"

    async def _follow(self, bucket: int) -> None:
        while True:
            fired = asyncio.Event()
            try:
                node = await self._session.look(self._path(bucket), fired.set)
                if (-1 if node is None else node.version) > self._versions.get(bucket, -1):
                    await self._read(bucket)
            except AuthorityUnavailable:
                await self._session.until_connected()
                continue
            except (AuthorityError, NoNode) as error:
                _log.error("cannot follow the accounts: %s", error)
                await asyncio.sleep(AGAIN_SECONDS)
                continue
            await fired.wait()

    async def _read(self, bucket: int) -> int:
        """Take what is there; the version, or −1 where there is no such znode."""
        try:
            node = await self._session.get(self._path(bucket))
        except NoNode:
            return -1
        self._take(bucket, _decoded(node.data, "ZooKeeper"), node.version)
        return node.version

    def _take(self, bucket: int, known: dict[str, AccountDocument], version: int) -> None:
        if version <= self._versions.get(bucket, -1):
            return  # An answer that was overtaken.
        changes = _difference(self._known.get(bucket, {}), known)
        self._known[bucket], self._versions[bucket] = known, version
        if changes:
            self._changed(changes)

    async def change(self, name: str, edit: EditAccount) -> None:
        bucket = crc32(name.encode()) % BUCKETS
        for _ in range(TRIED):
            await self._session.sync()
            version = await self._read(bucket)
            known = dict(self._known.get(bucket, {}))
            document = edit(known.pop(name, None))
            if document is not None:
                known[name] = document
            data = _encoded(known)
            if len(data) > BUCKET_BYTES_MAX:
                raise StateTooLarge("there are too many accounts", hint="drop some, or their keys")
            try:
                if version < 0:
                    await self._session.create(self._path(bucket), data)
                    version = 0
                else:
                    version = await self._session.set(self._path(bucket), data, version)
            except (BadVersion, NodeExists, NoNode):
                continue
            self._take(bucket, known, version)
            return
        raise StateConflict(f'others keep changing accounts beside "{name}"', hint="try again")
