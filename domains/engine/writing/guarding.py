"""Row policies in the step that writes: there the old rows are known, and nothing comes between the look and the write.

::

                                     row that is there                     row that is to be
    UPDATE, DELETE                   not shown, or USING not true:
                                     as good as not there                  WITH CHECK, of UPDATE
    INSERT                                                                 WITH CHECK, of INSERT
      IGNORE                         its key is taken: left out            WITH CHECK, of all rows that are given
      REPLACE                        shown, and USING of DELETE            WITH CHECK, of all rows that are given
      ON DUPLICATE KEY UPDATE        shown, and USING of UPDATE            WITH CHECK, of all rows that are given,
                                                                           and of UPDATE where one is changed
      RETURNING                                                            shown
    CASCADE, SET NULL of a child     shown, and USING of DELETE or UPDATE  WITH CHECK, of UPDATE

But for the first line, all that the operation does in this shard is refused where a condition is not true. A key that
is taken says by itself that a row has it, so a refusal instead of a change tells no more. No value of a row is told.

Whoever asks is known to the api process alone, so the conditions come with the operation, claims and all
(:class:`~domains.plan.packets.RowGuard`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

from domains.errors import Forbidden
from domains.language.compile import compile_predicate
from domains.language.expressions import Call, Constant, Expression
from domains.language.types import BOOL, Row
from domains.plan.packets import Delete, Operation, RowGuard, Update

_NEVER = Constant(0, BOOL)


@lru_cache(1_000)
def _predicate(condition: Expression) -> Callable[[Row], bool]:
    """Compiled once for a user's writes, which takes 100 µs."""
    return compile_predicate(condition)


class Guarding:
    """The conditions on one table's rows, for one operation."""

    def __init__(self, guard: RowGuard, title: str) -> None:
        self._guard = guard
        self._title = title

    def narrowed(self, operation: Operation) -> Operation:
        """UPDATE and DELETE of those rows alone that may be changed. The policies come before the WHERE, which could
        fail at a row that is not shown and say so."""
        if not isinstance(operation, (Update, Delete)):
            return operation
        where = self._guard.updated if isinstance(operation, Update) else self._guard.deleted
        if operation.where is not None:
            where = Call("case", (where, operation.where, _NEVER), BOOL)
        return replace(operation, where=Call("case", (self._guard.shows, where, _NEVER), BOOL))

    def let(self, found: Sequence[tuple[Row, int, Row]], *, deletes: bool) -> list[tuple[Row, int, Row]]:
        """Those of the rows that a SELECT has chosen which may be changed."""
        shown = _predicate(self._guard.shows)
        may = _predicate(self._guard.deleted if deletes else self._guard.updated)
        return [each for each in found if shown(each[0]) and may(each[0])]

    def check_given(self, rows: Iterable[Row]) -> None:
        """Rows that INSERT, in any form, is to insert, whatever becomes of them.

        :raises Forbidden: one of them may not be. So do the others."""
        self._check(self._guard.inserted, rows, "would be one that no policy lets be written")

    def check_changed(self, rows: Iterable[Row]) -> None:
        """Rows as they have become."""
        self._check(self._guard.becomes, rows, "would be one that no policy lets be written")

    def check_replaced(self, row: Row) -> None:
        """A row that REPLACE removes."""
        self._check(self._guard.shows, (row,), "stands in the way that no policy lets be replaced")
        self._check(self._guard.deleted, (row,), "stands in the way that no policy lets be replaced")

    def check_met(self, row: Row) -> None:
        """A row that ON DUPLICATE KEY UPDATE changes. Look first: what is set may read it, and fail."""
        self._check(self._guard.shows, (row,), "stands in the way that no policy lets be changed")
        self._check(self._guard.updated, (row,), "stands in the way that no policy lets be changed")

    def check_told(self, rows: Iterable[Row]) -> None:
        """Rows that RETURNING shows."""
        self._check(self._guard.shows, rows, "would be told by RETURNING, and no policy shows it")

    def check_followed(self, key: str, became: Mapping[Row, Row | None]) -> None:
        """Rows that a foreign key removes or changes with what they name: looked at before constraints, whose errors
        have values."""
        what = f'names a row that goes or changes by foreign key "{key}", and no policy lets it be changed'
        self._check(self._guard.shows, became, what)
        self._check(self._guard.deleted, (row for row, new in became.items() if new is None), what)
        self._check(self._guard.updated, (row for row, new in became.items() if new is not None), what)
        self._check(self._guard.becomes, (new for new in became.values() if new is not None), what)

    def _check(self, condition: Expression, rows: Iterable[Row], what: str) -> None:
        holds = _predicate(condition)
        for row in rows:
            if not holds(row):
                raise Forbidden(
                    f'a row of table "{self._title}" {what}',
                    hint="SHOW POLICIES lists them: USING is for rows that are there, WITH CHECK (where there is none, "
                    "USING) for rows that are to be",
                )
