"""Where the deployment's state is kept, and who may replace it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Protocol


class StateConflict(Exception):
    """The state was replaced by another since it was read; read it again."""


class Authority(Protocol):
    def read(self) -> tuple[bytes | None, int]:
        """The state and its version; (None, 0) before the first write."""

    def write(self, state: bytes, version: int) -> int:
        """Replace the state that was read at ``version``; answers the new version. Raises StateConflict."""


class LocalAuthority:
    """The state in one file, replaced whole: a crash leaves the old one or the new one.

    One process uses a data directory at a time (RocksDB's lock sees to that), so versions are counted in memory.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._version = 1 if path.exists() else 0

    def read(self) -> tuple[bytes | None, int]:
        if self._version == 0:
            return None, 0
        return self._path.read_bytes(), self._version

    def write(self, state: bytes, version: int) -> int:
        if version != self._version:
            raise StateConflict(f"the state is at version {self._version}, not {version}")
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
        self._version += 1
        return self._version
