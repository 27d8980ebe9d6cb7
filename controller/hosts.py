"""The physical domains of a deployment as those who serve from them see them, wherever each is hosted.

Everything that a deployment does for its clients comes down to these few calls, each to one domain: the embedded
deployment has them done by its own dataflow thread (``local_hosts.py``), a cluster's by the worker that hosts the
domain now.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from domains.errors import Unavailable
from domains.language.types import Row, TableSchema
from domains.plan.graph import DomainIndex, Node, NodeIndex
from domains.plan.packets import Clock, Once, Operation, Refused, Written
from domains.plan.sharding import physical
from migrations.change import BASES
from worker.protocol.messages import version_of
from worker.reader_map import BoundLookup, Parts, ReaderClient, ReaderLayout
from worker.reader_map.merging import HeldRow


@dataclass(frozen=True, slots=True)
class ReaderShard:
    """One shard of a view's reader: where it stands, and how its rows lie in the reader map of that domain's host."""

    domain: DomainIndex
    node: NodeIndex
    layout: ReaderLayout
    client: ReaderClient | None
    """None: the map is on another machine, and whoever hosts the domain is asked."""
    bases: frozenset[str]
    """The base shards that its rows come from."""

    def concerns(self, token: Clock) -> Clock:
        """Of a token, what this shard has to reach."""
        return {base: position for base, position in token.items() if base in self.bases}


Asked = tuple[ReaderShard, Sequence[BoundLookup]]
"""A request to a reader."""


@dataclass(frozen=True, slots=True)
class TableTarget:
    """A table as whoever writes to it knows it, worked out once until it is altered."""

    schema: TableSchema
    version: int
    """Of the schema: a write says which one it was made for."""
    shards: int
    """The deployment's factor; the table may have fewer."""
    domains: tuple[DomainIndex, ...]
    """Those of its shards, by their numbers."""

    @classmethod
    def of(cls, schema: TableSchema, shards: int) -> TableTarget:
        domains = tuple(physical(BASES, shard, shards) for shard in range(schema.shards or shards))
        return cls(schema, version_of(schema), shards, domains)


class SchemaChanged(Unavailable):
    """The table was altered after a write to it was made and before it was done. Nothing was done: make it anew."""

    def __init__(self, table: str) -> None:
        super().__init__(f'table "{table}" was altered meanwhile', hint="try again")


class Hosts(Protocol):
    """Calls raise TimeoutError at ``deadline``, which is a time of the event loop's clock."""

    def reader(self, node: Node, domain: DomainIndex, bases: frozenset[str]) -> ReaderShard:
        """A reader as it stands in a domain."""

    def has_reached(self, shard: ReaderShard, token: Clock) -> bool:
        """Whether the reader is known to reflect a token that concerns it. Asks nobody."""

    async def pages(
        self, shard: ReaderShard, lookups: Sequence[BoundLookup], token: Clock, deadline: float
    ) -> list[bytes | None]:
        """Wait for the token, have all keys filled, and answer what they hold then.

        A page is None only where the reader is no longer there: it was dropped or replaced meanwhile.
        """

    async def parts(
        self, shard: ReaderShard, lookups: Sequence[BoundLookup], token: Clock, deadline: float
    ) -> list[Parts | None]:
        """The same, with the rows of each key by themselves: other keys of these look-ups are at other shards."""

    async def pages_together(self, wanted: Sequence[Asked], deadline: float) -> list[list[bytes | None]]:
        """``pages`` of several readers without a token, all at once; those of one host in one message."""

    def held(self, shard: ReaderShard) -> AsyncIterator[Clock | HeldRow]:
        """All that the reader holds: first the clock that it reflects, exactly, then its rows.

        Raises Unavailable where it is broken off (the reader has moved, or its map grew): begin again.
        """

    def touch(self, shard: ReaderShard, keys: tuple[Row, ...]) -> None:
        """Tell of keys that were read: a sample, which may be lost."""

    async def evict(self, shard: ReaderShard, keys: tuple[Row, ...]) -> int:
        """How many of the keys were there."""

    async def write(self, domain: DomainIndex, operation: Operation, table: TableTarget) -> Written:
        """Answered when the write is durable and every reader in its domain reflects it.

        The schema is that of the table when the operation was made; SchemaChanged where it is another by now.
        """

    async def write_once(
        self, domain: DomainIndex, operation: Operation, table: TableTarget, once: Once
    ) -> Written | Refused:
        """The same with a number, so that it may be sent again, and is, where it is not known to be done."""

    async def streams(self, domain: DomainIndex, table: str) -> dict[str, int]:
        """The streams of numbered writes that this shard of the table remembers, with their last numbers."""
