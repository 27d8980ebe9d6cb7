"""Where the deployment's state is kept, and who may replace it."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from pathlib import Path
from typing import Protocol
from zlib import crc32

from zookeeper.errors import AuthorityUnavailable, SlotsDamaged, StateConflict
from zookeeper.slots import Slots

__all__ = ["Authority", "AuthorityUnavailable", "LocalAuthority", "StateConflict", "go_on_without", "stored_state"]

SLOTTED = b'{"slots": true, '
"""How the file of a state that is a JSON object begins where it has slots beside it: without them, what has followed it
is lost. A file that begins otherwise is of an earlier version, or of a back-up, and needs none."""


class Authority(Protocol):
    async def read(self) -> tuple[bytes | None, int]:
        """The state and its version; (None, 0) before the first write. Raises AuthorityUnavailable."""

    async def write(self, state: bytes, version: int) -> int:
        """Replace the state that was read at ``version``; answers the new version.

        Raises StateConflict, AuthorityUnavailable.
        """


class LocalAuthority:
    """The state in a file, and what it was replaced with since in the two slots of another beside it.

    The first state, and one that is too large for a slot, goes into the file, which is replaced whole; a crash leaves
    the old state or the new one in either case. Closing brings the file up to date, for people who look at it.

    One process uses a data directory at a time (RocksDB's lock sees to that), so versions are counted in memory. Files
    are read and written in a thread: a sync may take as long as the disk likes, and requests go on meanwhile.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._slots = Slots(_slots_beside(path))
        self._version = 1 if path.exists() else 0
        self._base: int | None = None
        """The checksum of what is in the file; None while that is not known for certain, and then no slot is used."""
        self._ahead: bytes | None = None
        """The state where it is in a slot."""

    async def read(self) -> tuple[bytes | None, int]:
        """Raises SlotsDamaged."""
        if self._version == 0:
            if await asyncio.to_thread(self._slots.any):
                raise SlotsDamaged(f'"{self._path}" is missing', hint="restore it from a back-up")
            return None, 0
        return await asyncio.to_thread(self._read), self._version

    def _read(self) -> bytes:
        state, self._base, self._ahead = _read(self._path, self._slots)
        if self._ahead is not None and not self._slots.is_twice(self._base):
            self._slots.write(self._ahead, self._base)  # Who has read it tells of it: no damage may bring back another.
        return state

    async def write(self, state: bytes, version: int) -> int:
        if version != self._version:
            raise StateConflict(f"the state is at version {self._version}, not {version}", hint="read it again")
        await asyncio.to_thread(self._write, state)
        self._version += 1
        return self._version

    def _write(self, state: bytes) -> None:
        if self._base is not None and self._slots.write(state, self._base):
            self._ahead = state
        else:
            self._replace(state)

    def _replace(self, state: bytes) -> None:
        """From here on no record in a slot counts, since it went on from another state."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        if state.startswith(b"{"):
            state = SLOTTED + state[1:]
        base, self._base = crc32(state), None
        self._slots.forget(base)
        self._slots.make()
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
        self._base, self._ahead = base, None

    async def close(self) -> None:
        """What cannot be brought up to date stays in its slot, and is as good there."""
        if self._ahead is not None:
            with suppress(OSError):
                await asyncio.to_thread(self._replace, self._ahead)


def stored_state(path: Path) -> bytes:
    """What :class:`LocalAuthority` has under this path, which no process has open. Raises FileNotFoundError."""
    return _read(path, Slots(_slots_beside(path)))[0]


def go_on_without(path: Path) -> str | None:
    """Have the state be what the file says, where what has followed it is damaged or missing. What is wrong."""
    try:
        stored_state(path)
    except SlotsDamaged as error:
        slots = _slots_beside(path)
        if slots.exists():
            slots.replace(slots.with_suffix(".slots.damaged"))
        LocalAuthority(path)._replace(_unmarked(path.read_bytes()))
        return error.message
    return None


def _read(path: Path, slots: Slots) -> tuple[bytes, int, bytes | None]:
    """The state, the checksum of the file, and the state that a slot has, if one does."""
    whole = path.read_bytes()
    ahead = slots.read(crc32(whole), wanted=whole.startswith(SLOTTED))
    return _unmarked(whole) if ahead is None else ahead, crc32(whole), ahead


def _unmarked(whole: bytes) -> bytes:
    return b"{" + whole.removeprefix(SLOTTED) if whole.startswith(SLOTTED) else whole


def _slots_beside(path: Path) -> Path:
    return path.with_suffix(".slots")
