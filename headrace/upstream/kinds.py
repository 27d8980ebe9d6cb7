"""What a follower needs of a database, whichever it is: a source by SQL, and the stream of its changes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from queue import Empty, Full, Queue
from threading import Event, Thread
from typing import Any, Protocol, Self

from headrace.errors import HeadraceError
from headrace.upstream.address import UpstreamAddress
from headrace.upstream.batch import Altered, Definition, Emptied, FollowedTable, UpstreamTransaction
from headrace.upstream.columns import Chunk, Stopped, UpstreamTable


class UpstreamSource(Protocol):
    """A connection to the upstream, by SQL; close it. It is made anew where it was lost."""

    def close(self) -> None: ...

    def check(self) -> None:
        """:raises Stopped: the server is set so that rows would be lost."""

    def position(self) -> Any:
        """Where it is now."""

    def refuse_behind(self, ours: Any) -> None:
        """:raises Stopped: the server has not had all that we have seen, or is another."""

    def tables(self, wanted: Collection[str] = ()) -> list[UpstreamTable]:
        """Those that are named, else all. :raises BadRequest: one that is named is not there."""

    def begin(self, slot: str, tables: Collection[str]) -> Any:
        """Have it tell changes of these tables from now on; the position from which it tells all of them."""

    def watch(self, slot: str, tables: Collection[str]) -> int | None:
        """Bytes of its log that it keeps for us. :raises Stopped: it does not tell changes of all of these any more."""

    def drop(self, slot: str) -> None:
        """Have it keep and tell nothing for us any more."""

    def chunk(self, table: UpstreamTable, after: Sequence[Any] | None, limit: int, ours: Any) -> Chunk:
        """The next rows by key, of a position that is not before ``ours``."""

    def meaning(self, told: Definition, table: FollowedTable) -> Emptied | Altered:
        """What is to be done here. :raises Stopped: it cannot be."""


WAITING = 1_000
"""Transactions that have been read and wait: some seconds' work."""
LOOK_SECONDS = 0.25
"""How often a reader that is not taken from looks whether it is to end."""
ENDING_SECONDS = 60.0


class UpstreamStream(ABC):
    """The transactions behind a position, read by a thread of its own from when it is entered; ``with``."""

    def __init__(self, name: str) -> None:
        self._queue: Queue[UpstreamTransaction | HeadraceError] = Queue(WAITING)
        self._ended = Event()
        self._thread = Thread(target=self._read, name=name, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(ENDING_SECONDS)

    def next(self, seconds: float) -> UpstreamTransaction | None:
        """None: nothing came. It raises what has ended the stream, if something has."""
        try:
            found = self._queue.get(timeout=seconds) if seconds else self._queue.get_nowait()
        except Empty:
            return None
        if isinstance(found, HeadraceError):
            self._queue.put(found)
            raise found
        return found

    def _read(self) -> None:
        try:
            self._transactions()
        except HeadraceError as error:
            self._put(error)
        except Exception as error:  # Whatever the decoder meets: a transaction that has it is not passed over.
            told = self._undecoded(f"{type(error).__name__}: {error}")
            self._put(Stopped(told, hint="see docs/upstream.md; nothing of that transaction was done"))

    def _put(self, found: UpstreamTransaction | HeadraceError) -> bool:
        """False: nobody wants it any more."""
        while not self._ended.is_set():
            try:
                self._queue.put(found, timeout=LOOK_SECONDS)
            except Full:
                if not isinstance(found, HeadraceError):
                    self._beat()
                continue
            return True
        return False

    @abstractmethod
    def confirm(self, position: Any) -> None:
        """All up to there is durable here."""

    @abstractmethod
    def _transactions(self) -> None:
        """Put them, one after another, until nobody wants them any more."""

    @abstractmethod
    def _undecoded(self, error: str) -> str:
        """What is said where something cannot be decoded."""

    @abstractmethod
    def _beat(self) -> None:
        """While what was read waits."""


class UpstreamKind(Protocol):
    """A kind of database."""

    def parse(self, position: str) -> Any: ...

    def open(self, address: UpstreamAddress) -> UpstreamSource: ...

    def stream(
        self, address: UpstreamAddress, slot: str, begin: Any, tables: Mapping[str, FollowedTable]
    ) -> UpstreamStream: ...
