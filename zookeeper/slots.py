"""Two slots in a file, a new state written over the older of the two, and then over the other.

The bytes were allocated and synced when the file was made, so a write changes no file system's tables and waits for the
disk alone: 0.13 ms each where a new file, its name and its directory take 1.4, and a quarter of it on a busy disk. A
crash meanwhile tears the slot that is written, which its checksum tells, and the other one is whole.

The state is told when it is in both slots, and what a crash has left in one goes into both before it is read. So a slot
that is torn was told of to nobody, or the other one has the same state: what is damaged later never brings an older
state back. Both damaged, cut or deleted, they are refused.

A record counts while the file is as it was that it goes on from (``base``, its checksum): whoever puts another file in
its place means that one.
"""

from __future__ import annotations

import os
from pathlib import Path
from struct import Struct
from zlib import crc32

from zookeeper.errors import SlotsDamaged

SLOT = 256 * 2**10
"""Bytes of one. The recipe of a site with 75 views is a sixth of it; what is larger is left to the file."""

_HEADER = Struct("<8sIQIII")
"""Magic, base, number, length of the state, its checksum, and that of all before."""
_MAGIC = b"hrslot1\n"

Record = tuple[int, int, bytes]
"""Base, number and state; the number decides the slot, so that neighbours never share one."""

_RESTORE = (
    "restore it and the file beside it from a back-up; to go on with what the file says, without the changes since: "
    "headrace accept-loss"
)

_sync = getattr(os, "fdatasync", os.fsync)
"""The file's length and place stay, so its data are all that has to be synced."""


class Slots:
    """Writes that follow one state of the file beside. Not for two writers at a time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._number = 0
        """Of the newest record that was written whole: its slot is not written over."""

    def make(self) -> None:
        """Have the file there, synced, with all its bytes allocated."""
        if self._path.exists() and self._path.stat().st_size == 2 * SLOT:
            return
        beside = self._path.with_suffix(".slots.new")  # Never under its name in part: that would be damage.
        with beside.open("wb") as file:
            file.write(bytes(2 * SLOT))
            file.flush()
            os.fsync(file.fileno())
        beside.replace(self._path)
        directory = os.open(self._path.parent, os.O_RDONLY)
        try:
            os.fsync(directory)  # Before the file beside it says that it is there.
        finally:
            os.close(directory)
        self._number = 0

    def forget(self, base: int) -> None:
        """Records that go on from the state that the file is about to have: they would count, if it was there before.

        The older goes first: where the file has that state already, the newer is the present one until the end.
        """
        stale = sorted(number for record_base, number, _ in self._records() if record_base == base)
        for number in stale:
            self._overwrite(number, bytes(_HEADER.size))

    def write(self, state: bytes, base: int) -> bool:
        """False, and nothing is written, where there is no room. Raises OSError: then it is there or not."""
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
        """The newest state that goes on from this one. Raises SlotsDamaged, also where the file is ``wanted`` and
        missing."""
        if wanted and not self._path.exists():
            raise SlotsDamaged(f'"{self._path}" is missing', hint=_RESTORE)
        records = self._records()
        self._number = max((number for _, number, _ in records), default=0)  # Those of another base have taken theirs.
        newest = max((each for each in records if each[0] == base), key=lambda each: each[1], default=None)
        return newest[2] if newest is not None else None

    def _records(self) -> list[Record]:
        """Those that are whole. Raises SlotsDamaged where there is none, and no crash leaves it so."""
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
    """The contents of a slot; None where it was never written, or not wholly."""
    if len(slot) < _HEADER.size:
        return None
    magic, base, number, length, checksum, of_head = _HEADER.unpack_from(slot)
    if magic != _MAGIC or crc32(slot[: _HEADER.size - 4]) != of_head:
        return None
    state = slot[_HEADER.size : _HEADER.size + length]
    return (base, number, state) if len(state) == length and crc32(state) == checksum else None
