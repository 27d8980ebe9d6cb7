"""The interface of a deployment to its physical domains, wherever each is hosted.

All that a deployment does for its clients comes down to these few calls, each to one domain: in the embedded deployment
its own dataflow thread does them (``local_hosts.py``), in a cluster the worker that hosts the domain.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from domains.errors import Locked, Unavailable
from domains.language.types import Row, TableSchema
from domains.plan.estimates import Statistics
from domains.plan.graph import DomainIndex, Node, NodeIndex
from domains.plan.packets import Clock, InTransaction, Once, Operation, Refused, TransactionAct, Written
from domains.plan.sharding import physical
from migrations.change import BASES
from worker.adhoc.answer import Question, Rows
from worker.adhoc.cut import Asking
from worker.adhoc.pool import Budget
from worker.dataflow.batch import Ended
from worker.protocol.messages import KeptSnapshots, KnownTransaction, together, version_of
from worker.reader_map import BoundLookup, Parts, ReaderClient, ReaderLayout
from worker.reader_map.merging import HeldRow


@dataclass(frozen=True, slots=True)
class ReaderShard:
    """One shard of a view's reader: its domain, and the layout of its rows in the reader map of the domain's host."""

    domain: DomainIndex
    node: NodeIndex
    layout: ReaderLayout
    client: ReaderClient | None
    """None: the map is on another machine, and the domain's host is asked."""
    bases: frozenset[str]
    """The base shards that its rows are computed from."""

    def concerns(self, token: Clock) -> Clock:
        """The part of a token that this shard must reach."""
        return {base: position for base, position in token.items() if base in self.bases}


LOCK_SECONDS = 5.0
"""Seconds that a write waits for what a transaction holds that is being committed in several shards."""
FIRST_WAIT, LONGEST_WAIT = 0.002, 0.05
"""Seconds between two attempts."""


class LockWait:
    """The patience of one write, from when it was refused first. Nothing of it is made for one that is not refused."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._until = self._loop.time() + LOCK_SECONDS
        self._pause = FIRST_WAIT

    async def again(self, error: Locked) -> None:
        """Return when it is to be tried again; raise the error after :data:`LOCK_SECONDS`."""
        if self._loop.time() + self._pause >= self._until:
            raise error
        await asyncio.sleep(self._pause)
        self._pause = min(2 * self._pause, LONGEST_WAIT)


Asked = tuple[ReaderShard, Sequence[BoundLookup]]
"""A request to a reader."""


@dataclass(frozen=True, slots=True)
class TableTarget:
    """What each write to a table needs; computed once, and again when the table is altered."""

    schema: TableSchema
    version: int
    """The schema's version; a write names the one that it was made for."""
    shards: int
    """The number of shards of the deployment; the table may have fewer."""
    domains: tuple[DomainIndex, ...]
    """The domains of its shards, by number."""
    also: tuple[TableSchema, ...] = ()
    """The further tables of the same write, whose versions are in ``version`` too."""
    policies: bool = False
    """Whether any table has policies, so that a write may have to go with guards."""

    @classmethod
    def of(cls, schema: TableSchema, shards: int, *, policies: bool = False) -> TableTarget:
        domains = tuple(physical(BASES, shard, shards) for shard in range(schema.shards or shards))
        return cls(schema, version_of(schema), shards, domains, policies=policies)

    def beside(self, others: Sequence[TableTarget]) -> TableTarget:
        """What a write to this table and to others needs."""
        version = together([self.version, *(each.version for each in others)])
        return replace(self, version=version, also=tuple(each.schema for each in others))

    @property
    def schemas(self) -> tuple[TableSchema, ...]:
        return (self.schema, *self.also)


class SchemaChanged(Unavailable):
    """The table was altered after the write was made for its schema. Nothing was written: make the write anew."""

    def __init__(self, table: str) -> None:
        super().__init__(f'table "{table}" was altered meanwhile', hint="try again")


class PartWatcher(Protocol):
    """Who watches a look-up of one shard of a reader. It is called on the event loop."""

    def show(self, seen: Parts | Ended | None) -> None:
        """Its rows, key by key, as they are now; None while a key is a hole; or that it is over."""

    def settle(self) -> None:
        """All that was to be shown of the same moment has been."""


class ShardWatch(Protocol):
    def clock(self) -> Clock:
        """What the rows that were shown last reflect, exactly."""

    def end(self) -> None: ...


class Hosts(Protocol):
    """Methods raise TimeoutError at ``deadline``, a time of the event loop's clock."""

    def reader(self, node: Node, domain: DomainIndex, bases: frozenset[str]) -> ReaderShard:
        """The shard of a reader in a domain."""

    def has_reached(self, shard: ReaderShard, token: Clock) -> bool:
        """Whether the reader is known to reflect the token, without asking another process."""

    async def pages(
        self, shard: ReaderShard, lookups: Sequence[BoundLookup], token: Clock, deadline: float
    ) -> list[bytes | None]:
        """Wait for the token, fill all keys, and answer their pages. A page is None only if the reader was dropped or
        replaced meanwhile."""

    async def parts(
        self, shard: ReaderShard, lookups: Sequence[BoundLookup], token: Clock, deadline: float
    ) -> list[Parts | None]:
        """The same, with the rows of each key apart, to be merged with those of keys in other shards."""

    async def pages_together(self, wanted: Sequence[Asked], deadline: float) -> list[list[bytes | None]]:
        """``pages`` of several readers at once, without a token."""

    def held(self, shard: ReaderShard) -> AsyncIterator[Clock | HeldRow]:
        """The exact clock that the reader reflects, and then all its rows.

        Raises Unavailable if it is broken off (the reader has moved, or its map grew): begin again.
        """

    def watch(self, shard: ReaderShard, lookup: BoundLookup, watcher: PartWatcher) -> ShardWatch:
        """Show the watcher the rows of a look-up, whose keys all are this shard's, now and whenever they change."""

    def catch_up(self) -> None:
        """Have the clocks of all that is watched be those of now: without new rows they are not told."""

    def touch(self, shard: ReaderShard, keys: tuple[Row, ...]) -> None:
        """Report keys that were read: a sample, which may be lost."""

    async def evict(self, shard: ReaderShard, keys: tuple[Row, ...]) -> int:
        """Evict keys; answers how many of them were filled."""

    async def evaluate(
        self, bases: Sequence[DomainIndex], question: Question, budget: Budget, within: Asking = ()
    ) -> tuple[Rows, Clock]:
        """The answer to a SELECT that no view answers, over one cut of the base shards, and the positions of that. In a
        transaction: as it sees them, and what is read is remembered; the positions are of shards where that is so.

        Of a snapshot: as it has them, or SnapshotGone.

        Raises SchemaChanged where a table is another by now, LimitExceeded where it exceeds its budget.
        """

    async def statistics(self, bases: Sequence[DomainIndex], tables: Sequence[TableSchema]) -> Statistics:
        """What is known of these tables, over all base shards: their sizes at least."""

    async def close(self) -> None:
        """Stop all evaluations."""

    on_locked: Callable[[], None]
    """Is called where a write waits for what a transaction holds that is being committed in several shards."""

    async def write(self, domain: DomainIndex, operation: Operation, table: TableTarget) -> Written:
        """Returns when the write is durable and every reader in its domain reflects it. Raises SchemaChanged if the
        table's schema is no longer the one that the operation was made for."""

    async def write_once(
        self, domain: DomainIndex, operation: Operation, table: TableTarget, once: Once
    ) -> Written | Refused:
        """The same with a number, so that it may be sent twice: it is sent again if its outcome is unknown."""

    async def transact(self, act: TransactionAct, within: InTransaction, table: TableTarget | None) -> Written:
        """Do what a transaction wants of ``within.domain``; ``table`` goes with an operation. Raises SchemaChanged as
        ``write``, OutcomeUnknown."""

    async def take_snapshot(self, within: Sequence[InTransaction]) -> bool:
        """Have the plain reads of a transaction that takes locks be of one moment from now on, in all of these shards.
        False: others have committed all the while, and none was found."""

    async def known_transactions(self, domain: DomainIndex) -> tuple[KnownTransaction, ...]:
        """The transactions over several shards that this one has a part in, and that are not over."""

    async def snapshots(self, domain: DomainIndex, of: str = "") -> KeptSnapshots:
        """Those that this shard keeps, and the tables of one. Raises SnapshotGone."""

    async def streams(self, domain: DomainIndex, table: str) -> dict[str, int]:
        """The streams of numbered writes that this shard of the table remembers, with their last numbers."""
