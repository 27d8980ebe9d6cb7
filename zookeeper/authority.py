"""Where the deployment's state is kept, and who may replace it."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Protocol

from zookeeper.errors import AuthorityUnavailable, StateConflict

__all__ = ["Authority", "AuthorityUnavailable", "LocalAuthority", "StateConflict"]


class Authority(Protocol):
    async def read(self) -> tuple[bytes | None, int]:
        """The state and its version; (None, 0) before the first write. Raises AuthorityUnavailable."""

    async def write(self, state: bytes, version: int) -> int:
        """Replace the state that was read at ``version``; answers the new version.

        Raises StateConflict, AuthorityUnavailable.
        """


class LocalAuthority:
    """The state in one file, replaced whole: a crash leaves the old one or the new one.

    One process uses a data directory at a time (RocksDB's lock sees to that), so versions are counted in memory. Files
    are read and written in a thread: a sync may take as long as the disk likes, and requests go on meanwhile.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._version = 1 if path.exists() else 0

    async def read(self) -> tuple[bytes | None, int]:
        if self._version == 0:
            return None, 0
        return await asyncio.to_thread(self._path.read_bytes), self._version

    async def write(self, state: bytes, version: int) -> int:
        if version != self._version:
            raise StateConflict(f"the state is at version {self._version}, not {version}", hint="read it again")
        await asyncio.to_thread(self._replace, state)
        self._version += 1
        return self._version

    def _replace(self, state: bytes) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        beside = self._path.with_suffix(".new")
        with beside.open("wb") as file:
            file.write(state)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(self._path)
        directory = os.open(self._path.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
