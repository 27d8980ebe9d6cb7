"""Bulk backfill: full state that was computed elsewhere as of a position, loaded, and then led up to the present.

::

    AddNodes ──────► LoadState … ──────► StartReplay … ─────────► Follow … ───────────► Activate
    position P0,     the states as of    the log after P, read    the log from P on,     │
    log is kept      P ≥ P0              for look-ups             slice by slice         │
    └── nothing reaches the building vertices ──┘└ nor now ┘└ only what is replayed ┘└ updates go on at once ┘

*P* stands for one position for each base shard of the domain. What holds at each moment, between any two steps:

* **Before the load is complete** nothing reaches a building vertex, and no building egress sends: no update is passed
  on to them, and no other domain's building egress sends before its own replay, which begins when *all* domains are
  loaded.
* **From then on** every building vertex holds what its operators give over (the base tables as of the *replayed
  position*, what the links have delivered). That is so at P, because that is how the states were computed: over the
  folds at P, and what the links would deliver of those. Each later step moves one of the two, and passes on what it
  moved: a slice of the log moves the replayed positions of its tables, a packet moves a link. So tables of one domain
  may be replayed in any interleaving, and links deliver when they do.
* **A look-up** of a building vertex into a base table sees it as of the replayed position: the stored rows, *minus*
  what the log has after that position (:class:`Later`). A slice is one step, so all tables that it moves have moved
  when its operators look up.
* **Caught up** is found out within the step that replays the last entry: the next write finds it so and passes on
  its own deltas. None falls between, none is taken twice.
* **State that ran before** and that building vertices stand on is to them like a link that has delivered nothing: the
  states were computed as if it were empty. It is fed whole when the replay *begins*, and its changes go on from then.
* **Clocks** are the links', and say how far the running vertices are; building ones are behind them, as in every
  backfill. ``Activate`` comes when what was sent until the end of the replay has arrived, and from the end of the
  replay on every packet carries the deltas of the positions that its clock tells. So a reader that is revealed
  reflects its clock.

The log is needed from the replayed position on (``needs``); whoever trims it asks.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from domains.engine.forward import ForwardPass
from domains.engine.lifecycle.life import Life, LifeCycle, StateBuild, feed_whole
from domains.language.collating.collation import Collations
from domains.language.types import Delta, Row, collations_of
from domains.operators.aggregate import GroupIndex
from domains.operators.edges import BaseOperator, ReaderOperator
from domains.operators.operator import Vertex
from domains.operators.over import OverIndex
from domains.operators.recursion.entries import FixedPointIndex
from domains.operators.state import Index, RowIndex
from domains.operators.topk import TopIndex
from domains.operators.whole_groups import WholeGroups
from domains.plan.deltas import Entry, add_row, consolidate, key_function
from domains.plan.graph import Columns
from domains.plan.traits import traits_of
from domains.store.storage import Store

# The state of a full vertex as plain items, and back: what a bulk backfill computes elsewhere and loads here.
#
# ================== ============================================================== ====================== index an
# item its rows ================== ==============================================================
# ====================== rows ``(row, weight)`` the row groups of γ ``(key, rows, row, states)``, see
# :meth:`Grouping.export` the group's row ranked rows of τ ``(row, …, row, whole)``: one group's held rows in their
# order the first of them a reader ``(row, weight)`` the row ==================
# ============================================================== ======================
#
# A vertex is exported by the index that has all of it: that of its groups, partitions or ranked rows where there is
# one, else any of its row indexes. What its other indexes hold follows from it. Loading what was exported gives the
# same state, to the last value that is kept, and in slices: each item is whole, and they may come in any order.


_KEEPING = (GroupIndex, WholeGroups, TopIndex, OverIndex, FixedPointIndex)
"""Indexes that keep more than rows."""


def exported(vertex: Vertex) -> Iterator[Any]:
    """The items of a full vertex that is not a reader (whose rows are in the reader map)."""
    index = _leading(vertex)
    if isinstance(index, _KEEPING):
        return index.exported()
    return rows_of_state(vertex)


def rows_of_state(vertex: Vertex) -> Iterator[Delta]:
    """All rows of a vertex with full state."""
    index = _leading(vertex)
    return (delta for key in index.keys() for delta in index.get(key) or ())  # noqa: SIM118


def load(vertex: Vertex, items: Sequence[Any]) -> list[Delta]:
    """Add items to the state of a full vertex, whose other items are others; answers their rows.

    A reader's are to be published by the caller.
    """
    rows: Iterable[Delta]
    if isinstance(vertex.operator, ReaderOperator):
        return vertex.operator.settle(list(items))
    index = _leading(vertex)
    rows = index.load(items) if isinstance(index, _KEEPING) else items
    for other in vertex.indexes.values():
        if isinstance(other, RowIndex):
            other.apply(rows)
    return list(rows)


def _leading(vertex: Vertex) -> Index:
    indexes = list(vertex.indexes.values())
    assert indexes, f"{vertex} has no state"
    assert not any(index.partial for index in indexes), f"{vertex} has partial state"
    return next((index for index in indexes if not isinstance(index, RowIndex)), indexes[0])


ENTRIES_READ = 256
"""Log entries taken at once. Mostly an entry is a row or a few; one of thousands of rows makes its slice longer."""


GAIN = 2
"""A slice takes at least so many times the rows that were written since the one before: whoever writes much makes
slices longer, and never keeps a replay from its end."""


class Later:
    """What the log has after the replayed position of one table, net, by the columns that look-ups ask by.

    It has some 400 bytes for each row that was written since P, and for each of the ways it is looked up by; it
    shrinks as the replay goes on. A way that was not foreseen is made when it is first asked for.
    """

    def __init__(self, ways: Collection[Columns], collations: Collations) -> None:
        self._collations = collations
        self._keys: dict[Columns, Callable[[Row], Row]] = {}
        self._by: dict[Columns, dict[Row, Entry]] = {}
        for columns in ways or [()]:
            self._keys[columns], self._by[columns] = key_function(columns, collations), {}

    def add(self, deltas: Iterable[Delta], sign: int = 1) -> None:
        """These stand in the log now; with ``sign`` −1, they are replayed."""
        for columns, by_key in self._by.items():
            key_of = self._keys[columns]
            for row, weight in deltas:
                key = key_of(row)
                entry = by_key.get(key)
                if entry is None:
                    entry = by_key[key] = {}
                add_row(entry, row, sign * weight)
                if not entry:
                    del by_key[key]

    def before(self, columns: Columns, key: Row, rows: list[Delta]) -> list[Delta]:
        """The rows at a key as they were at the replayed position, from those that are stored now."""
        later = self._way(columns).get(key)
        if not later:
            return rows
        entry: Entry = {}
        for row, weight in rows:
            add_row(entry, row, weight)
        for row, weight in later.items():
            add_row(entry, row, -weight)
        assert all(weight > 0 for weight in entry.values()), f"the log does not fit the rows at {key}"
        return list(entry.items())

    def _way(self, columns: Columns) -> dict[Row, Entry]:
        if columns not in self._by:
            known = [delta for entry in next(iter(self._by.values())).values() for delta in entry.items()]
            made = Later([columns], self._collations)
            made.add(known)
            self._keys |= made._keys
            self._by |= made._by
        return self._by[columns]

    def __len__(self) -> int:
        return len(next(iter(self._by.values())))


class Replay(StateBuild):
    """One migration's bulk backfill in one domain. To what is loaded, ``full`` is empty before the begin."""

    def __init__(self, store: Store, bases: Iterable[Vertex], life: LifeCycle, full: Sequence[Vertex] = ()) -> None:
        life.to(Life.LOADING)
        super().__init__(store, bases, life, full)
        self.positions = {table: store.position(table) for table in self._bases}
        """The replayed position of each table; before ``start``, that at which the log began to be kept."""
        self._read: dict[str, int] = {}
        """Of each table that is looked up, how far ``Later`` has the log."""
        self._later: dict[str, Later] = {}
        self._turn = 0
        self._written = 0
        """Rows that came since the last slice."""

    def begin(self, building: Iterable[Vertex], new_pass: Callable[[], ForwardPass]) -> None:
        """Rows that came before all domains have read their logs would change states that are not there."""
        if self.begun:
            return
        self._life.to(Life.REPLAYING)
        feed_whole(self.full, new_pass)

    def needs(self, table: str) -> int | None:
        return None if self._life.state is Life.FOLLOWING else self.positions.get(table)

    # --- reading the log for look-ups ---------------------------------------------------------------------------

    def start(self, positions: Mapping[str, int], limit: int) -> int:
        """Read on in the logs after these positions, by table, at most some ``limit`` rows; how many it were.

        The first call says that all states are loaded.
        """
        if self._life.state is Life.LOADING:
            self._begin_reading(positions)
        assert self._life.state is Life.READING, "the log has been read"
        rows, limit = 0, self._enough(limit)
        for table, later in self._later.items():
            while rows < limit and (entries := self._store.log(table, self._read[table], ENTRIES_READ)):
                for sequence, deltas in entries:
                    later.add(deltas)
                    rows += len(deltas)
                    self._read[table] = sequence
        if rows < limit:
            self._life.to(Life.READY)
        return rows

    def _begin_reading(self, positions: Mapping[str, int]) -> None:
        self._life.to(Life.READING)
        for table, kept in self.positions.items():
            position = positions[table]
            assert kept <= position <= self._store.position(table), f'"{table}" is to be replayed from {position}'
            self.positions[table] = position
            ways = ways_looked_up(self._bases[table])
            if ways is not None:
                unique = self._store.table(table).schema.primary_key
                collations = collations_of(self._store.table(table).schema.columns)
                self._later[table] = Later([*dict.fromkeys([*ways, *([unique] if unique else [])])], collations)
                self._read[table] = position

    def unseen(self, table: str) -> bool:
        return False  # The states were made of all tables.

    def seen(self, table: str, columns: Columns, key: Row, rows: list[Delta]) -> list[Delta]:
        if self._life.state is Life.FOLLOWING:
            return rows
        assert self._life.state is Life.REPLAYING, f'"{table}" is looked up before its log was read'
        return self._later[table].before(columns, key, rows)

    # --- replaying ----------------------------------------------------------------------------------------------

    def slice(self, limit: int) -> list[tuple[Vertex, list[Delta]]]:
        """Move the replayed positions by some ``limit`` rows, the tables by turns; what to feed to which base vertices.

        All tables have moved when this returns, so what it answers is to be fed in one pass.
        """
        assert self._life.state is Life.REPLAYING, "followed before the log was read"
        fed: list[tuple[Vertex, list[Delta]]] = []
        tables = list(self._bases)
        rows, limit = 0, self._enough(limit)
        for at in range(len(tables)):
            table = tables[(self._turn + at) % len(tables)]
            taken = self._replayed(table, limit - rows)
            rows += len(taken)
            fed.extend(self._to_bases(table, consolidate(taken)))
        self._turn += 1
        self.rows += rows
        if all(self.positions[table] == self._store.position(table) for table in tables):
            assert not any(map(len, self._later.values())), "caught up, and something of the log is left"
            self._later.clear()
            self._life.to(Life.FOLLOWING)
        return fed

    def _enough(self, limit: int) -> int:
        written, self._written = self._written, 0
        return max(limit, GAIN * written)

    def _replayed(self, table: str, limit: int) -> list[Delta]:
        taken: list[Delta] = []
        later = self._later.get(table)
        while len(taken) < limit:
            entries = self._store.log(table, self.positions[table], min(limit, ENTRIES_READ))
            for sequence, deltas in entries:
                self.positions[table] = sequence
                taken.extend(deltas)
                if later is not None:
                    later.add(deltas, -1)
                if len(taken) >= limit:
                    break
            if not entries:
                break
        return taken

    def passed(self, table: str, deltas: Sequence[Delta]) -> list[tuple[Vertex, list[Delta]]]:
        if table not in self._bases or not deltas:
            return []
        state = self._life.state
        if state is Life.FOLLOWING:
            self.positions[table] = self._store.position(table)
            return self._to_bases(table, list(deltas))
        if state is not Life.LOADING:
            self._written += len(deltas)
        if state in (Life.READY, Life.REPLAYING) and table in self._later:
            self._later[table].add(deltas)
        return []


def ways_looked_up(bases: Iterable[Vertex]) -> list[Columns] | None:
    """The columns, in stored positions, by which building vertices look a table up; None where none of them does.

    Joins and TopKs look up. Their look-ups go through what has no state. An index that the plan gave to the base is
    what they use, or others do; the primary key has none.
    """
    ways: dict[Columns, None] = {}
    looked_up = False
    for base in bases:
        assert isinstance(base.operator, BaseOperator)
        reached = list(base.children)
        while reached:
            vertex = reached.pop()
            if not vertex.building and not vertex.feeds_building:
                continue
            looked_up = looked_up or traits_of(vertex.node.operator).looks_up
            if not vertex.indexes:
                reached.extend(vertex.children)
        for columns in base.node.indexes:
            if columns:
                ways[tuple(base.operator.columns[column] for column in columns)] = None
    return list(ways) if looked_up else None
