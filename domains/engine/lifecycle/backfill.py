"""Backfilling full state while updates flow, in slices between steps.

The vertices being built see a base that grows: the rows at or before a cursor, in storage order. A slice moves the
cursor and feeds the rows that it passed as insertions; an update goes to the building vertices only where its row has
been passed, and their look-ups see only such rows. So at every moment they hold exactly what their operators give
over what has been fed, and at the end that is everything.

The largest table comes first. A joined row comes about when the last of its base rows is fed, so that most rows are
fed where there is nothing yet to join them with, and a row of the last table brings all of its rows at once: a group
of theirs is made once, where otherwise each slice would change most groups and all that stands on them. Only what
would bring very many at once, a table of a few rows, goes before everything.

State that was full before is fed whole when the backfill *begins*: with the first slice, or with the first rows that
another domain feeds, whichever comes first. From then on look-ups may see it; a row that came before would meet it
twice, once as state and once as what is fed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from domains.engine.forward import ForwardPass
from domains.language.types import Delta, Row
from domains.operators.aggregate import GroupIndex
from domains.operators.edges import BaseOperator
from domains.operators.operator import Vertex
from domains.plan.graph import Columns
from domains.plan.traits import traits_of
from domains.store.storage import Store

FIRST_ROWS = 20
"""Of a table, since nobody knows what its rows bring along. By the time that these take, whoever gives the limits can
choose the next (``worker/dataflow/pacing.py``)."""
FAN_OUT = 1_000
"""Rows of the largest table to one of another, on average: joining so many is some milliseconds."""


class Backfill:
    """The cursors of one migration's backfill in one domain."""

    def __init__(self, store: Store, bases: Iterable[Vertex], full: Sequence[Vertex] = ()) -> None:
        self._store = store
        self.full = full
        """Vertices whose state was full before; all of it is fed when the backfill begins."""
        self.begun = False
        self._bases: dict[str, list[Vertex]] = {}
        for vertex in bases:
            assert isinstance(vertex.operator, BaseOperator)
            self._bases.setdefault(vertex.operator.table, []).append(vertex)
        self._waiting = in_order({table: store.table(table).row_count for table in self._bases})
        self._cursor: bytes | None = None
        self._done: set[str] = set()
        self.rows = 0
        """Base rows fed so far."""

    def begin(self, building: Iterable[Vertex], new_pass: Callable[[], ForwardPass]) -> None:
        """What was full before is fed whole; what is there over no input is born. Only the first call does anything."""
        if self.begun:
            return
        self.begun = True
        feed_whole(self.full, new_pass)
        for vertex in building:
            index = scalar_state(vertex)
            if index is not None:
                birth = new_pass()
                birth.inject(vertex, index.bear())
                birth.run()

    @property
    def finished(self) -> bool:
        return self.begun and not self._waiting

    def visible(self, table: str, row: Row) -> bool:
        """Whether a stored row has been fed. Tables that feed nothing here are not looked up here either."""
        if table in self._done:
            return True
        if self.unseen(table):
            return False
        return self._store.table(table).before(row, self._cursor)

    def unseen(self, table: str) -> bool:
        """Whether no row of the table has been fed."""
        return table not in self._done and (table not in self._waiting[:1] or self._cursor is None)

    def seen(self, table: str, columns: Columns, key: Row, rows: list[Delta]) -> list[Delta]:
        """The part of stored rows, found by ``columns`` at ``key``, that building vertices see."""
        del columns, key
        return rows if table in self._done else [delta for delta in rows if self.visible(table, delta[0])]

    def slice(self, limit: int) -> list[tuple[Vertex, list[Delta]]]:
        """Move the cursor by at most ``limit`` rows; what to feed to which base vertices."""
        if not self._waiting:
            return []
        table = self._waiting[0]
        if self._cursor is None:
            limit = min(limit, FIRST_ROWS)
        rows, self._cursor = self._store.table(table).scan(self._cursor, limit)
        self.rows += len(rows)
        if self._cursor is None:
            self._done.add(self._waiting.pop(0))
        return self._to_bases(table, rows)

    def passed(self, table: str, deltas: Sequence[Delta]) -> list[tuple[Vertex, list[Delta]]]:
        """Of an update to ``table``, what the building vertices may see of it."""
        if table not in self._bases:
            return []
        return self._to_bases(table, [delta for delta in deltas if self.visible(table, delta[0])])

    def _to_bases(self, table: str, rows: list[Delta]) -> list[tuple[Vertex, list[Delta]]]:
        if not rows:
            return []
        return [
            (vertex, vertex.operator.cut(rows))
            for vertex in self._bases[table]
            if isinstance(vertex.operator, BaseOperator)
        ]


def in_order(rows: Mapping[str, int]) -> list[str]:
    """Tables in the order in which they are fed, by how many rows they have."""
    bound = max(rows.values(), default=0) // FAN_OUT
    return sorted(rows, key=lambda table: (rows[table] >= bound, -rows[table], table))


def feed_whole(full: Sequence[Vertex], new_pass: Callable[[], ForwardPass]) -> None:
    """Pass on all rows of vertices with full state, in one pass."""
    act = new_pass()
    for vertex in full:
        index = next(iter(vertex.indexes.values()))
        act.inject_output(vertex, [delta for key in index.keys() for delta in index.get(key) or ()])  # noqa: SIM118
    act.run()


def scalar_state(vertex: Vertex) -> GroupIndex | None:
    """The state of an aggregate without GROUP BY, whose one row is there over no input too.

    While it is built it is concealed until it is born, so that whoever it joins with meets it once, as a delta or as
    state.
    """
    if not traits_of(vertex.node.operator).row_over_nothing:
        return None
    index = vertex.indexes[()]
    assert isinstance(index, GroupIndex)
    return index
