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
from domains.engine.lifecycle.life import Life, LifeCycle, StateBuild, feed_whole
from domains.language.types import Delta, Row
from domains.operators.aggregate import GroupIndex
from domains.operators.operator import Vertex
from domains.plan.graph import Columns
from domains.plan.traits import traits_of
from domains.store.storage import Store

FIRST_ROWS = 20
"""Rows of the first slice of a table, since nobody knows how much follows from a row. By the time that these take,
whoever gives the limits can choose the next (``worker/dataflow/pacing.py``)."""
FAN_OUT = 1_000
"""Rows of the largest table to one of another, on average: joining so many is some milliseconds."""


class Backfill(StateBuild):
    """The cursors of one migration's backfill in one domain."""

    def __init__(self, store: Store, bases: Iterable[Vertex], life: LifeCycle, full: Sequence[Vertex] = ()) -> None:
        life.to(Life.BUILDING)
        super().__init__(store, bases, life, full)
        self._waiting = in_order({table: store.table(table).row_count for table in self._bases})
        self._cursor: bytes | None = None
        self._done: set[str] = set()

    def begin(self, building: Iterable[Vertex], new_pass: Callable[[], ForwardPass]) -> None:
        """What was full before is fed whole; what is there over no input is born."""
        if self.begun:
            return
        self._life.to(Life.FEEDING)
        if not self._waiting:
            self._life.to(Life.FOLLOWING)
        feed_whole(self.full, new_pass)
        for vertex in building:
            index = scalar_state(vertex)
            if index is not None:
                birth = new_pass()
                birth.inject(vertex, index.bear())
                birth.run()

    def needs(self, table: str) -> int | None:
        return None

    def visible(self, table: str, row: Row) -> bool:
        """Whether a stored row has been fed. Tables that feed nothing here are not looked up here either."""
        if table in self._done:
            return True
        if self.unseen(table):
            return False
        return self._store.table(table).before(row, self._cursor)

    def unseen(self, table: str) -> bool:
        return table not in self._done and (table not in self._waiting[:1] or self._cursor is None)

    def seen(self, table: str, columns: Columns, key: Row, rows: list[Delta]) -> list[Delta]:
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
            if not self._waiting:
                self._life.to(Life.FOLLOWING)
        return self._to_bases(table, rows)

    def passed(self, table: str, deltas: Sequence[Delta]) -> list[tuple[Vertex, list[Delta]]]:
        if table not in self._bases:
            return []
        return self._to_bases(table, [delta for delta in deltas if self.visible(table, delta[0])])


def in_order(rows: Mapping[str, int]) -> list[str]:
    """Tables in the order in which they are fed, by how many rows they have."""
    bound = max(rows.values(), default=0) // FAN_OUT
    return sorted(rows, key=lambda table: (rows[table] >= bound, -rows[table], table))


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
