"""Where the deployment's state is kept, and who may replace it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from enum import Enum
from pathlib import Path
from struct import Struct
from typing import Protocol
from zlib import crc32

from zookeeper.errors import AuthorityUnavailable, SlotsDamaged, StateConflict
from zookeeper.registration import ControllerDescriptor, WorkerDescriptor

# Two slots in a file, a new state written over the older of the two, and then over the other.
#
# The bytes were allocated and synced when the file was made, so a write changes no file system's tables and waits for
# the disk alone: 0.13 ms each where a new file, its name and its directory take 1.4, and a quarter of it on a busy
# disk. A crash meanwhile tears the slot that is written, which its checksum tells, and the other one is whole.
#
# The state is told when it is in both slots, and what a crash has left in one goes into both before it is read. So a
# slot that is torn was told of to nobody, or the other one has the same state: what is damaged later never brings an
# older state back. Both damaged, cut or deleted, they are refused.
#
# A record counts while the file is as it was that it goes on from (``base``, its checksum): whoever puts another file
# in its place means that one.

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


# The Authority of a cluster: state by compare-and-set, who is there, and who leads.
#
# Every method and callback runs on one event loop. What changes is only announced: whoever hears of it reads again,
# so an announcement too many does no harm, and several changes may be announced as one.

STATE_BYTES_MAX = 1_000_000
"""ZooKeeper refuses packets of more than 1,048,575 bytes (jute.maxbuffer) unless all its servers are told otherwise."""

SESSION_TIMEOUT = 1.5
"""Seconds without a sign of life after which what a process registered is gone. Shorter, and a pause of a busy machine
looks like a death; longer, and a dead leader is missed for longer."""


class StateChange(Enum):
    STATE = "state"
    WORKERS = "workers"
    LEADER = "leader"
    """The leader, or the candidates."""
    CONNECTION = "connection"
    """``connected`` is another, or the session was lost and begun anew."""


Listener = Callable[[StateChange], None]


class Election(Protocol):
    """One candidacy. When it is lost it is over: ``candidate`` gives another."""

    @property
    def lost(self) -> asyncio.Event:
        """Set as soon as it is known that the session is gone, or that another leads. Being cut off from ZooKeeper is
        not yet that: while all of it is away nobody else can lead, and the epoch fences off whoever does not know."""

    async def elected(self) -> None:
        """Returns when this candidate leads. Waits through lost connections and sessions."""

    async def resign(self) -> None:
        """Give the lead or the candidacy up; ``lost`` is set."""


class ClusterAuthority(Protocol):
    """One process's session. Methods raise AuthorityUnavailable where ZooKeeper does not answer in time."""

    @property
    def deployment(self) -> str: ...

    @property
    def deployment_id(self) -> str:
        """The deployment's id, unlike any other of its name (``worker/belonging.py``); known after ``start``."""

    @property
    def connected(self) -> bool: ...

    @property
    def lost_at(self) -> float:
        """The loop's time at which this process's session was lost last; long ago if it never was."""

    @property
    def superseded(self) -> asyncio.Event:
        """Set when a newer process registered under this worker's name: this one has no business any more."""

    async def start(self, *, create: bool = False) -> None:
        """Connect. ``create`` makes the deployment if there is none; else that raises WrongDeployment.

        Raises AuthorityUnavailable, NotZooKeeper, AccessRefused.
        """

    async def close(self) -> None:
        """End the session: what was registered is gone at once."""

    async def read(self) -> tuple[bytes | None, int]:
        """The state and its version, as new as any that was written before the call; (None, 0) before the first."""

    async def write(self, state: bytes, version: int) -> int:
        """Replace the state that was read at ``version``; answers the new version. Raises StateConflict, StateTooLarge,
        and AuthorityUnavailable, with ``maybe_done`` where it cannot be known whether it was written."""

    async def register_worker(self, descriptor: WorkerDescriptor) -> None:
        """Register under ``descriptor.name``, and again by itself whenever the session was lost. Once more: replace.

        An earlier process of the same host and data directory is replaced at once; raises NameTaken where another one
        is alive.
        """

    async def workers(self) -> Mapping[str, WorkerDescriptor]:
        """By name, sorted."""

    def candidate(self, descriptor: ControllerDescriptor) -> Election:
        """Stand for leader from now on."""

    async def leader(self) -> ControllerDescriptor | None: ...

    async def candidates(self) -> Mapping[str, ControllerDescriptor]:
        """All that stand or lead, by name, sorted."""

    def on_change(self, listener: Listener) -> None:
        """Call the listener at each change from now on, on the event loop."""


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
    """The state of a :class:`LocalAuthority` under this path, which no process has open. Raises FileNotFoundError."""
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
