"""The writing side: one process has it, and every step of its domains is one transaction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from domains.errors import StorageFailure
from domains.packets import Publish
from worker.reader_map import environment
from worker.reader_map.application import ENTRY_OVERHEAD, Application
from worker.reader_map.environment import Transaction
from worker.reader_map.layout import ReaderLayout, pack_version
from worker.reader_map.reader import ReaderClient

Result = TypeVar("Result")

Publication = tuple[ReaderLayout, Publish]
"""What a step publishes, and to which reader of this map."""


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
        self._environment = environment.create(self.path, initial_size)
        self._bytes: dict[int, int] = {}
        self._steps = 0

    def publish(self, publications: Sequence[Publication]) -> dict[int, int]:
        """One step's publishes in one transaction: of each, evictions, then fills, then deltas.

        Deltas for a key that is a hole are ignored. Returns the net bytes by reader id.
        StorageFailure when the disk is full; nothing of the step is then visible.
        """
        self._steps += 1
        if self._steps % self.REAP_EVERY == 0:
            self._environment.reader_check()
        net = self._attempt(lambda transaction: _apply(transaction, publications))
        for reader_id, change in net.items():
            self._bytes[reader_id] = self._bytes.get(reader_id, 0) + change
        return net

    def drop(self, layout: ReaderLayout) -> None:
        """Forget a reader with all its keys (its view was dropped)."""
        self._attempt(lambda transaction: _delete_all(transaction, layout))
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
                environment.grow(self._environment)
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


def _delete_all(transaction: Transaction, layout: ReaderLayout) -> None:
    transaction.delete(layout.veil)
    transaction.delete(layout.version_key)
    cursor = transaction.cursor()
    found = cursor.set_range(layout.prefix)
    while found and cursor.key().startswith(layout.prefix):
        found = cursor.delete() and bool(cursor.key())


__all__ = ["ENTRY_OVERHEAD", "Publication", "ReaderMap"]
