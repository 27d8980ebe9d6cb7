"""SELECTs that no view answers, asked beside everything else: what they show is exactly what was written up to the
positions that they say, of each shard, also where it is read some rows at a time while writes and moves go on."""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import inf
from random import Random
from typing import TYPE_CHECKING, Any

from controller.cluster.serving.remote_cuts import RemoteCuts, RemoteShard
from controller.lookups.binding import Binding
from domains.engine.transactions.staged import ChangedTables
from domains.errors import HeadraceError, StorageFailure, Unavailable
from domains.language.types import Delta, TableSchema
from domains.plan.graph import NodeIndex
from domains.plan.packets import Clock
from domains.plan.sharding import base_shard, physical
from domains.store.storage import TableRows
from migrations.change import BASES
from migrations.flow.evaluation_plan import plan_evaluation
from migrations.flow.plan import State
from migrations.statements.adhoc.shapes_of_selects import verbatim
from migrations.statements.interpret import interpret_one, split
from migrations.statements.statement import SelectStatement
from tests.campaign.planned import NOW
from worker.adhoc.answer import Question, Rows, answered
from worker.adhoc.cut import EvaluationCut
from worker.adhoc.shard_view import ViewedTables
from worker.protocol.cuts import EvaluatePart, ReadCut
from worker.rocks import layout
from worker.rocks.codec import RowCodec
from worker.rocks.indexes import TableIndexes
from worker.rocks.iterating import Entry, FoundEntries, KeyRange
from worker.rocks.stored_table import ViewedTable

if TYPE_CHECKING:
    from tests.cluster_simulation.client import Client
    from tests.cluster_simulation.rebuilds import Losses
    from tests.cluster_simulation.storage import CrashStore

ENTRIES = 3
"""Read at once, so that much happens between two reads."""

SELECTS = {
    "SELECT m.id, n.id FROM marks m LEFT JOIN marks n ON m.id = n.id": "marks",
    "SELECT id, who FROM tags": "tags",
    "SELECT id, id FROM marks ORDER BY id DESC LIMIT 100000": "marks",
    "SELECT q.id, q.id FROM (SELECT MAX(id) AS id FROM marks GROUP BY id) q": "marks",
}
"""What shows each row of a table once, its number in both columns or the first; and the table."""


class DictView:
    """A store's tables as they were, as they would lie in RocksDB. See :class:`worker.adhoc.shard_view.ShardView`."""

    def __init__(self, store: CrashStore, names: Sequence[str]) -> None:
        self._store, self._names = store, names
        self.is_closed = False
        self.tables = tuple(self._table(number, store.table(name).schema) for number, name in enumerate(names, 1))
        self._entries = self.entries()

    def _table(self, number: int, schema: TableSchema) -> ViewedTable:
        table, indexes = self._store.table(schema.name), TableIndexes.declared(number, schema, ())
        return ViewedTable(number, schema, (), indexes.to_json(), table.row_count, self._store.position(schema.name))

    def entries(self) -> list[Entry]:
        return sorted(entry for table in self.tables for entry in self._rows(table))

    def _rows(self, viewed: ViewedTable) -> Iterator[Entry]:
        start, codec = layout.table_prefix(layout.ROWS, viewed.number), RowCodec(viewed.schema, ())
        key_columns = viewed.schema.primary_key
        access = TableIndexes.declared(viewed.number, viewed.schema, ()).access(key_columns) if key_columns else None
        unique = 0
        for row, weight in self._store.table(viewed.schema.name)._rows.items():
            content = codec.encode(row)
            if access is not None:
                yield access.start + access.encode(tuple(row[at] for at in key_columns)), content
                continue
            for _ in range(weight):
                unique += 1
                inline = len(content) <= layout.INLINE_LIMIT
                place = layout.bag_place(content) + unique.to_bytes(layout.UNIQUE_BYTES, "big")
                yield start + place, b"" if inline else content

    def ranges(self, ranges: Sequence[KeyRange], most: int) -> FoundEntries:
        start, end = ranges[0]
        entries = self._entries
        at = bisect_left(entries, (start, b""))
        if start > end:
            below = entries[max(0, at - min(most, ENTRIES) - 1) : at]
            found = [entry for entry in reversed(below) if entry[0] >= end]
        else:
            found = [entry for entry in entries[at : at + min(most, ENTRIES) + 1] if entry[0] < end]
        taken = tuple(found[: min(most, ENTRIES)])
        return FoundEntries((taken,), len(found) > len(taken) and len(taken) < most)

    def misread(self, what: str) -> StorageFailure:
        return StorageFailure(what)

    def close(self) -> None:
        self.is_closed = True


@dataclass(frozen=True, slots=True)
class Fetched:
    """A remote view that was read whole, as one on the same thread."""

    view: DictView | Any
    entries: list[Entry]

    def ranges(self, ranges: Sequence[KeyRange], most: int) -> FoundEntries:
        found = []
        for start, end in ranges:
            inside = [e for e in self.entries if min(start, end) <= e[0] < max(start, end)]
            found.append(tuple(inside if start < end else reversed(inside))[:most])
        return FoundEntries(tuple(found), cut=False)

    def misread(self, what: str) -> StorageFailure:
        return StorageFailure(what)


@dataclass(frozen=True, slots=True)
class Shown:
    sql: str
    table: str
    ids: tuple[int, ...]
    clock: Clock
    made_again: dict[int, int]
    """How often each shard had been, when it was asked."""

    def holds_up_to(self, shard: int, losses: Losses) -> float:
        """The position up to which those of the shard still stand for the rows that they stood for then."""
        later = losses.archived.get(shard, [])[self.made_again.get(shard, 0) :]
        return min((archived.get(self.table, 0) for archived in later), default=inf)


@dataclass
class AdHocSelects:
    """Asks them as a client, and judges in the end."""

    seed: int
    seconds: float
    pace: float
    shown: list[Shown] = field(default_factory=list)
    refused: int = 0

    def __post_init__(self) -> None:
        self.random = Random(f"ad hoc {self.seed}")

    async def ask_on(self, client: Client) -> None:
        loop = asyncio.get_running_loop()
        cuts = RemoteCuts(client.directory, client.connections, client.asking)
        end = loop.time() + self.seconds
        while loop.time() < end:
            await asyncio.sleep(self.random.random() * self.pace * 3)
            sql = self.random.choice(list(SELECTS))
            made_again = {shard: len(each) for shard, each in client.cluster.losses.archived.items()}
            try:
                question = _question(client.directory.state, sql)
                shards = client.cluster.shards
                bases = [physical(BASES, shard, shards) for shard in range(shards)]
                async with asyncio.timeout(4.0):
                    rows, clock = await cuts.answer(bases, question, partial(evaluated, self.random), 2.0)
            except (HeadraceError, TimeoutError):
                self.refused += 1
                continue
            assert all(row[0] == row[1] for row in rows if SELECTS[sql] == "marks"), f"{sql} shows {rows}"
            self.shown.append(Shown(sql, SELECTS[sql], tuple(int(row[0]) for row in rows), clock, made_again))

    def judge(
        self, state: State, order: dict[str, dict[int, dict[int, int]]], unsure: set[int], losses: Losses
    ) -> None:
        """``order``: table → shard → id → position. Of ``unsure`` and lost rows nothing is known."""
        for one in self.shown:
            schema = state.catalog.tables[one.table]
            ids = set(one.ids)
            doubled = {id for id in ids if one.ids.count(id) > 1} - unsure
            assert not doubled, f"{one.sql} shows {sorted(doubled)} more than once"
            for shard, places in order.get(one.table, {}).items():
                at = one.clock[base_shard(one.table, schema.generation, shard, state.shards)]
                last = one.holds_up_to(shard, losses)
                sure = (
                    {id for id, place in places.items() if place <= last} - unsure - losses.rows.get(one.table, set())
                )
                due = {id for id in sure if places[id] <= at}
                assert ids & sure == due, (
                    f"{one.sql} at {at} of shard {shard} shows {sorted((ids & sure) - due)} beside what was there, and "
                    f"lacks {sorted(due - ids)}"
                )


async def evaluated(random: Random, question: Question, cut: EvaluationCut) -> Rows:
    """As an evaluator does, but that all is read before it is used, since nobody may wait on this thread."""
    try:
        elsewhere: dict[NodeIndex, list[Delta]] = {}
        if random.random() < 0.5:
            for node, part in cut.parts.items():
                elsewhere[node] = [delta for view in cut.views for delta in await _part(random, view, part)]
        shards = [(Fetched(view, await _fetched(random, view)), view.tables) for view in cut.views]
    finally:
        cut.close()
    slices = {node: lambda rows=rows: iter([rows]) for node, rows in elsewhere.items()}
    tables: TableRows = ViewedTables(shards)
    if cut.changes:
        tables = ChangedTables(tables, cut.changes)
    found = answered(question, tables, elsewhere=slices)  # type: ignore[arg-type]
    return [row for part in found for row in part]


async def _part(random: Random, view: Any, part: Question) -> Sequence[Delta]:
    assert isinstance(view, RemoteShard)
    if not any(table.schema in part.plan.tables for table in view.tables):
        return ()
    await asyncio.sleep(random.random() * 0.02)
    found = await view.of.asked(EvaluatePart(view.of.taken.number, view.place, part))
    if found.stream:
        raise Unavailable("these are many rows, which a process would go through")
    deltas: Sequence[Delta] = found.deltas
    return deltas


async def _fetched(random: Random, view: Any) -> list[Entry]:
    assert isinstance(view, RemoteShard)
    entries: list[Entry] = []
    start, cut = b"", True
    while cut:
        await asyncio.sleep(random.random() * 0.02)
        found = await view.of.asked(ReadCut(view.of.taken.number, view.place, ((start, b"\xff"),), 1_000))
        (part,), cut = found.found, found.cut
        entries += part
        start = entries[-1][0] + b"\x00" if entries else start
    return entries


def _question(state: State, sql: str) -> Question:
    (parsed,) = split(sql)
    statement = interpret_one(parsed, state.catalog, (), NOW)
    assert isinstance(statement, SelectStatement)
    definition = verbatim(statement.query, state.catalog, ()).definition()
    planned, plan = plan_evaluation(state, definition)
    return Question(plan, Binding.of(planned, lambda: NOW).from_arguments(()))
