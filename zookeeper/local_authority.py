"""The Authority of an embedded deployment: its state in a file, and in two slots of another file beside it.

A new state is written over the older of the two slots, and then over the other. The bytes were allocated and synced
when the file was made, so a write changes no file system's tables and waits for the disk alone: 0.13 ms each, where a
new file, its name and its directory take 1.4. A crash meanwhile tears the slot that is being written, which its
checksum shows, and the other one is whole.

A state is acknowledged when both slots have it, and a state that a crash left in one slot is copied to both before
anybody reads it. So a torn slot was never acknowledged, or the other slot has the same state, and later damage never
brings back an older state. If both are damaged, cut or deleted, they are refused.

A record names the file's state that it follows (``base``, its checksum), and counts only while the file has that
state: whoever puts another file in its place means that one.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from pathlib import Path
from struct import Struct
from zlib import crc32

from zookeeper.errors import SlotsDamaged, StateConflict

SLOT = 256 * 2**10
"""Bytes of one slot: six times the recipe of a site with 75 views. A larger state goes into the file."""

_HEADER = Struct("<8sIQIII")
"""Magic, base, number, length of the state, its checksum, and that of all before."""
_MAGIC = b"hrslot1\n"

Record = tuple[int, int, bytes]
"""Base, number and state. The number decides the slot, so that two consecutive records never share one."""

_RESTORE = (
    "restore it and the file beside it from a back-up; to go on with what the file says, without the changes since: "
    "headrace accept-loss"
)

_sync = getattr(os, "fdatasync", os.fsync)
"""The file's length and place stay the same, so syncing its data is enough."""


class Slots:
    """The states that follow one state of the file beside them. One writer at a time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._number = 0
        """The number of the newest whole record, whose slot is not written over."""

    def make(self) -> None:
        """Create the file, synced, with all its bytes allocated, unless it is there."""
        if self._path.exists() and self._path.stat().st_size == 2 * SLOT:
            return
        _replace_file(self._path, ".slots.new", bytes(2 * SLOT))
        self._number = 0

    def forget(self, base: int) -> None:
        """Erase the records that follow the state that the file is about to have: else they would count again.

        The older one goes first: if the file has that state already, the newer one is the present state until then.
        """
        stale = sorted(number for record_base, number, _ in self._records() if record_base == base)
        for number in stale:
            self._overwrite(number, bytes(_HEADER.size))

    def write(self, state: bytes, base: int) -> bool:
        """Write a state to both slots; False, and nothing is written, if it does not fit.

        After an OSError it may be there or not.
        """
        if len(state) > SLOT - _HEADER.size or not self._path.exists():
            return False
        for _ in range(2):
            self._overwrite(self._number + 1, _record(base, self._number + 1, state))
            self._number += 1
        return True

    def _overwrite(self, number: int, data: bytes) -> None:
        descriptor = os.open(self._path, os.O_WRONLY)
        try:
            written = os.pwrite(descriptor, data, number % 2 * SLOT)
            assert written == len(data), "the bytes are allocated"
            _sync(descriptor)
        finally:
            os.close(descriptor)

    def any(self) -> bool:
        """Whether a state was ever written. Raises SlotsDamaged."""
        return bool(self._records())

    def is_twice(self, base: int) -> bool:
        """Whether both slots have the newest state."""
        states = [state for record_base, _, state in self._records() if record_base == base]
        return len(states) == 2 and states[0] == states[1]

    def read(self, base: int, *, wanted: bool = False) -> bytes | None:
        """The newest state that follows this one. Raises SlotsDamaged, also if the file is ``wanted`` and missing."""
        if wanted and not self._path.exists():
            raise SlotsDamaged(f'"{self._path}" is missing', hint=_RESTORE)
        records = self._records()
        self._number = max((number for _, number, _ in records), default=0)  # Records of other bases count too.
        return max(((number, state) for each, number, state in records if each == base), default=(0, None))[1]

    def _records(self) -> list[Record]:
        """The whole records. Raises SlotsDamaged if no crash can have left the slots as they are."""
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            return []
        if len(data) != 2 * SLOT:
            raise SlotsDamaged(f'"{self._path}" is damaged: it has another length', hint=_RESTORE)
        slots = [data[:SLOT], data[SLOT:]]
        records = [each for each in map(_parsed, slots) if each is not None]
        if not records and all(slot[: _HEADER.size] != bytes(_HEADER.size) for slot in slots):
            raise SlotsDamaged(f'"{self._path}" is damaged: neither of its slots is whole', hint=_RESTORE)
        return records


def _record(base: int, number: int, state: bytes) -> bytes:
    head = _HEADER.pack(_MAGIC, base, number, len(state), crc32(state), 0)[:-4]
    return head + crc32(head).to_bytes(4, "little") + state


def _parsed(slot: bytes) -> Record | None:
    """The record in a slot; None if it was never written, or not wholly."""
    magic, base, number, length, checksum, of_head = _HEADER.unpack_from(slot)
    if magic != _MAGIC or crc32(slot[: _HEADER.size - 4]) != of_head:
        return None
    state = slot[_HEADER.size : _HEADER.size + length]
    return (base, number, state) if len(state) == length and crc32(state) == checksum else None


SLOTTED = b'{"slots": true, '
"""The file of a JSON state begins with this if it has slots beside it; without them, the states that followed are lost.
A file that begins otherwise is of an earlier version, or of a back-up, and needs no slots."""


class LocalAuthority:
    """One small state, replaced by compare-and-set: what replaces a state names the version that was read.

    The first state, and one that is too large for a slot, replaces the file; a crash leaves the old state or the new
    one in either case. Closing brings the file up to date, for people who look at it.

    One process uses a data directory at a time (RocksDB's lock enforces that), so versions are counted in memory. Files
    are read and written in a thread, so that requests go on during a sync.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._slots = Slots(_slots_beside(path))
        self._version = 1 if path.exists() else 0
        self._base: int | None = None
        """The checksum of the file; None while it is not certain, and then no slot is used."""
        self._ahead: bytes | None = None
        """The state if it is in a slot."""

    async def read(self) -> tuple[bytes | None, int]:
        """The state and its version; (None, 0) before the first write. Raises SlotsDamaged."""
        if self._version == 0:
            if await asyncio.to_thread(self._slots.any):
                raise SlotsDamaged(f'"{self._path}" is missing', hint="restore it from a back-up")
            return None, 0
        return await asyncio.to_thread(self._read), self._version

    def _read(self) -> bytes:
        state, self._base, self._ahead = _read(self._path, self._slots)
        if self._ahead is not None and not self._slots.is_twice(self._base):
            self._slots.write(self._ahead, self._base)  # The reader acts on it, so it must survive damage to one slot.
        return state

    async def write(self, state: bytes, version: int) -> int:
        """Replace the state that was read at ``version``; answers the new version. Raises StateConflict, OSError."""
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
        """Replace the file. From then on no record in a slot counts, since each follows another state."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        if state.startswith(b"{"):
            state = SLOTTED + state[1:]
        base, self._base = crc32(state), None
        self._slots.forget(base)
        self._slots.make()
        _replace_file(self._path, ".new", state)
        self._base, self._ahead = base, None

    async def close(self) -> None:
        """Bring the file up to date. If that fails, the state is as safe in its slots."""
        if self._ahead is not None:
            with suppress(OSError):
                await asyncio.to_thread(self._replace, self._ahead)


def stored_state(path: Path) -> bytes:
    """The state of the :class:`LocalAuthority` of this path, which no process has open. Raises FileNotFoundError."""
    return _read(path, Slots(_slots_beside(path)))[0]


def go_on_without(path: Path) -> str | None:
    """Go on with the file's state if the states after it are damaged or missing. Answers what was wrong."""
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
    """The state, the checksum of the file, and the state in a slot, if there is one."""
    whole = path.read_bytes()
    ahead = slots.read(crc32(whole), wanted=whole.startswith(SLOTTED))
    return _unmarked(whole) if ahead is None else ahead, crc32(whole), ahead


def _unmarked(whole: bytes) -> bytes:
    return b"{" + whole.removeprefix(SLOTTED) if whole.startswith(SLOTTED) else whole


def _slots_beside(path: Path) -> Path:
    return path.with_suffix(".slots")


def _replace_file(path: Path, suffix: str, data: bytes) -> None:
    """Durably, name included. The file never has its name in part: that would look like damage."""
    beside = path.with_suffix(suffix)
    with beside.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
