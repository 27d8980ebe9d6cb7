"""The writing side: one process has it, and every step of its domains is one transaction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import TypeVar

from domains.errors import StorageFailure
from domains.plan.packets import Publish
from worker.reader_map import environment
from worker.reader_map.application import ENTRY_OVERHEAD, Application
from worker.reader_map.environment import CannotGrow, Transaction
from worker.reader_map.layout import ReaderLayout, pack_version
from worker.reader_map.reader import ReaderClient

Result = TypeVar("Result")

PAGES_LATER = 2
DELETED_AT_ONCE = 16
"""Entries, where there is hardly a page left to delete with."""
_TURN = b"\xff" * 3 + b"\xfd"
"""A key that is no reader's, see ``layout.py``: what is written to let a transaction pass."""

Publication = tuple[ReaderLayout, Publish]
"""The changes of a step, and the reader of this map that they are for."""


class ReaderMap:
    """A new, empty reader map in directory ``path``. One thread publishes.

    The map grows when it is full. A reader that died keeps old pages in use until it is noticed, which is tried every
    :data:`REAP_EVERY` steps; one that stalls does so while its read lasts, and a read is a single answer.
    """

    REAP_EVERY = 4096
    """Steps between two looks for dead readers. A look is a system call for each reading process; a dead reader
    meanwhile costs only file size."""

    def __init__(self, path: str | Path, *, initial_size: int = environment.INITIAL_SIZE) -> None:
        self.path = Path(path)
        self._size = initial_size
        self._environment = environment.create(self.path, initial_size)
        self._bytes: dict[int, int] = {}
        self._steps = 0

    def publish(self, publications: Sequence[Publication]) -> dict[int, int]:
        """One step's publishes in one transaction: of each, evictions, then fills, then deltas.

        Deltas for a key that is a hole are ignored. Returns the net bytes by reader id.
        CannotGrow when the disk is full; nothing of the step is then visible.
        """
        self._steps += 1
        if self._steps % self.REAP_EVERY == 0:
            self._environment.reader_check()
        net = self._attempt(lambda transaction: _apply(transaction, publications))
        for reader_id, change in net.items():
            self._bytes[reader_id] = self._bytes.get(reader_id, 0) + change
        return net

    def shed(self, publications: Sequence[Publication]) -> list[Publish]:
        """What a ``publish`` that raised CannotGrow would have changed, as far as there is room for it: all keys of
        partial readers that are in it are holes now. Answers these, as evictions.

        :raises CannotGrow: what full readers come to has no room either.
        """
        environment.use_spare(self._environment, self._size)
        holes, whole = list[Publication](), list[Publication]()
        for layout, publish in publications:
            if not layout.reader.key:
                whole.append((layout, publish))
                continue
            changed = [*publish.evicted, *(key for key, _ in publish.filled), *(key for key, _ in publish.deltas)]
            keys = list(dict.fromkeys(changed))
            holes.append((layout, Publish(publish.reader, evicted=keys, domain=publish.domain)))
        self._make_holes(holes)
        if whole:
            self._retried(whole)
        return [publish for _, publish in holes]

    def _make_holes(self, holes: Sequence[Publication]) -> None:
        """In as many transactions as it takes: each needs a page for every one that it changes, until it has ended."""
        try:
            self.publish(holes)
        except CannotGrow:
            if len(holes) > 1:
                parts = holes[: len(holes) // 2], holes[len(holes) // 2 :]
            else:
                ((layout, hole),) = holes
                keys, middle = hole.evicted, len(hole.evicted) // 2
                if not middle:
                    raise
                parts = (
                    [(layout, replace(hole, evicted=keys[:middle]))],
                    [(layout, replace(hole, evicted=keys[middle:]))],
                )
            for part in parts:
                self._make_holes(part)

    def _retried(self, publications: Sequence[Publication]) -> None:
        """LMDB uses pages again once the transaction after the one that freed them has ended."""
        for _ in range(PAGES_LATER):
            self._attempt(lambda transaction: transaction.put(_TURN, pack_version(transaction.id())))
        self.publish(publications)

    def clear(self, layouts: Sequence[ReaderLayout]) -> None:
        """All keys of these readers are holes now."""
        for layout in layouts:
            self.drop(layout)

    def room(self) -> tuple[int, int]:
        """Bytes of the map, and of these what entries do not take."""
        return environment.room(self._environment)

    def grow(self) -> None:
        """Before it must. Raises CannotGrow."""
        environment.grow(self._environment, 2 * self._size)
        self._size *= 2

    def drop(self, layout: ReaderLayout) -> None:
        """Forget a reader with all its keys (its view was dropped)."""
        try:
            self._attempt(lambda transaction: _delete(transaction, layout))
        except CannotGrow:
            # A key's marker comes first, and nobody finds its entries without it: it is never there in part.
            while self._attempt(lambda transaction: _delete(transaction, layout, DELETED_AT_ONCE)):
                pass
        self._bytes.pop(layout.reader_id, None)

    def reveal(self, layout: ReaderLayout) -> None:
        """Let a concealed reader be found, with what was published to it so far."""
        self._attempt(lambda transaction: _reveal(transaction, layout))
        layout.concealed = False

    def _attempt(self, write: Callable[[Transaction], Result]) -> Result:
        """One write transaction; from the start again in a larger map where it does not fit."""
        while True:
            try:
                with self._environment.begin(write=True) as transaction:
                    return write(transaction)
            except environment.MapFull:
                self.grow()
            except environment.Error as error:
                raise StorageFailure(f"cannot write the reader map in {self.path}: {error}") from error

    def bytes_of(self, reader_id: int) -> int:
        """Keys, values and an overhead of :data:`ENTRY_OVERHEAD` for each entry of this reader."""
        return self._bytes.get(reader_id, 0)

    def file_bytes(self) -> int:
        """The bytes of the file that were ever used; it never shrinks, but free pages are used again."""
        return environment.used_bytes(self._environment)

    def client(self) -> ReaderClient:
        """A reading side within this process (LMDB lets a process open an environment only once)."""
        return ReaderClient.sharing(self._environment)

    def close(self) -> None:
        """Reads from now on fail as Unavailable."""
        self._environment.close()


def _apply(transaction: Transaction, publications: Sequence[Publication]) -> dict[int, int]:
    net: dict[int, int] = {}
    version = pack_version(transaction.id())
    for layout, publish in _merged(publications):
        application = Application(transaction, layout, version)
        application.apply(publish)
        if layout.reader_id not in net:
            transaction.put(layout.version_key, version)
        net[layout.reader_id] = net.get(layout.reader_id, 0) + application.net_bytes
    return net


def _merged(publications: Sequence[Publication]) -> list[Publication]:
    """Deltas of one reader that no eviction or fill of it parts are one publish: a key that many writes changed is
    then written once, and all of them become visible together anyway."""
    merged: list[Publication] = []
    latest: dict[int, Publish] = {}
    for layout, publish in publications:
        earlier = latest.get(layout.reader_id)
        if earlier is not None and not publish.evicted and not publish.filled:
            earlier.deltas.extend(publish.deltas)
            continue
        own = Publish(publish.reader, publish.evicted, publish.filled, list(publish.deltas), publish.domain)
        latest[layout.reader_id] = own
        merged.append((layout, own))
    return merged


def _reveal(transaction: Transaction, layout: ReaderLayout) -> None:
    marker = transaction.get(layout.veil)
    if marker is not None:
        transaction.put(layout.version_key, pack_version(transaction.id()))
        transaction.delete(layout.veil)
        transaction.put(layout.marker(()), marker)


def _delete(transaction: Transaction, layout: ReaderLayout, most: float = inf) -> bool:
    """So many entries of a reader; whether any is left."""
    transaction.delete(layout.veil)
    transaction.delete(layout.version_key)
    cursor = transaction.cursor()
    found = cursor.set_range(layout.prefix)
    while found and cursor.key().startswith(layout.prefix):
        if most <= 0:
            return True
        found = cursor.delete() and bool(cursor.key())
        most -= 1
    return False


__all__ = ["ENTRY_OVERHEAD", "Publication", "ReaderMap"]
