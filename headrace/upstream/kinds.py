"""What a follower needs of a database, whichever it is: a source by SQL, and the stream of its changes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

from headrace.upstream.address import UpstreamAddress
from headrace.upstream.batch import Altered, Definition, Emptied, FollowedTable, UpstreamTransaction
from headrace.upstream.columns import Chunk, UpstreamTable


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


class UpstreamStream(Protocol):
    """The transactions behind a position, read by a thread of its own from when it is entered; ``with``."""

    def __enter__(self) -> UpstreamStream: ...

    def __exit__(self, *_: object) -> None: ...

    def next(self, seconds: float) -> UpstreamTransaction | None:
        """None: nothing came. It raises what has ended the stream, if something has."""

    def confirm(self, position: Any) -> None:
        """All up to there is durable here."""


class UpstreamKind(Protocol):
    """A kind of database."""

    def parse(self, position: str) -> Any: ...

    def open(self, address: UpstreamAddress) -> UpstreamSource: ...

    def stream(
        self, address: UpstreamAddress, slot: str, begin: Any, tables: Mapping[str, FollowedTable]
    ) -> UpstreamStream: ...
