"""What the open transactions of a domain have looked up, so that a commit finds those whose answers it changes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple, Protocol

from domains.language.description import literal
from domains.language.encoding import row_encoder
from domains.language.types import Delta, Row, TableSchema, collations_of
from domains.plan.deltas import Entry, key_function
from domains.plan.graph import Columns

MOST_WALKS = 16
"""Ranges of an order that are remembered of a transaction: each write is held against all of them. Who walks more has
read the table whole."""
LOOK_UP_BYTES = 300
"""What one that is remembered takes, about: a key, its place in a dict and in a set."""


LookUp = tuple[Columns, Row | None]
"""By a key; without one, of a range of the columns' order; without columns, of a table whole."""
WHOLE: LookUp = ((), None)


class Touched(NamedTuple):
    """A look-up that finds a row, or found it."""

    look_up: LookUp
    row: Row | None = None


class ChangedRows(Protocol):
    """The rows that a transaction has changed; ``StagedTable`` is that."""

    deltas: Entry

    def own(self, columns: Columns) -> Mapping[Row, Entry]:
        """The same by their keys."""


@dataclass(slots=True)
class Walked:
    """A walk of an interval, so far as it has come."""

    transaction: str
    start: bytes
    end: bytes | None

    def has(self, place: bytes) -> bool:
        return self.start <= place and (self.end is None or place < self.end)


class TableLookUps:
    """The look-ups of one table."""

    def __init__(self, schema: TableSchema) -> None:
        self._schema = schema
        self._collations = collations_of(schema.columns)
        self._whole: set[str] = set()
        self._keys: dict[Columns, dict[Row, set[str]]] = {}
        self._walked: dict[Columns, list[Walked]] = {}
        self._of: dict[str, set[tuple[Columns, Row]]] = {}
        """The keys of each transaction."""

    def all(self, transaction: str) -> None:
        self._whole.add(transaction)

    def keys(self, columns: Columns, keys: Iterable[Row], transaction: str) -> None:
        if transaction in self._whole:
            return
        known, own = self._keys.setdefault(columns, {}), self._of.setdefault(transaction, set())
        for key in keys:
            known.setdefault(key, set()).add(transaction)
            own.add((columns, key))

    def walk(self, order: Columns, place: bytes, transaction: str) -> Walked:
        """A walk that begins here; who walks says how far it has come."""
        walked = Walked(transaction, place, place)
        known = self._walked.setdefault(order, [])
        if sum(each.transaction == transaction for each in known) >= MOST_WALKS:
            known[:] = [each for each in known if each.transaction != transaction]
            self._whole.add(transaction)
        if transaction not in self._whole:
            known.append(walked)
        return walked

    def count(self, transaction: str) -> int:
        walked = sum(each.transaction == transaction for some in self._walked.values() for each in some)
        return len(self._of.get(transaction, ())) + walked

    def of(self, transaction: str) -> set[LookUp]:
        """Those by keys, and of the table whole."""
        found: set[LookUp] = set(self._of.get(transaction, ()))
        return found | {WHOLE} if transaction in self._whole else found

    def told(self, transaction: str, most: int) -> Iterator[str]:
        """What it has looked up, for people; of the keys so many at most."""
        title, names = self._schema.title, [column.name for column in self._schema.columns]
        if transaction in self._whole:
            yield f"{title}: all rows"
            return
        own = self._of.get(transaction, set())
        for columns, key in islice(own, most):
            values = ", ".join(map(literal, key))
            yield f"{title}: ({', '.join(names[at] for at in columns)}) = ({values})"
        if len(own) > most:
            yield f"{title}: {len(own) - most} more keys"
        for order, walked in self._walked.items():
            if any(each.transaction == transaction for each in walked):
                yield f"{title}: a range of ({', '.join(names[at] for at in order)})"

    def have(self, transaction: str) -> bool:
        return transaction in self._whole or self.count(transaction) > 0

    def met(self, deltas: Sequence[Delta]) -> dict[str, str]:
        """The transactions that have looked up one of these rows, as it was or as it is to be, each with what that
        was."""
        return {id: self.said(touched) for id, touched in self.touched(deltas).items()}

    def touched(self, deltas: Sequence[Delta]) -> dict[str, Touched]:
        """The same, each with its look-up."""
        found = dict.fromkeys(self._whole, Touched(WHOLE))
        for columns, known in self._keys.items():
            key_of = key_function(columns, self._collations)
            for row, _ in deltas:
                key = key_of(row)
                for each in known.get(key, ()):
                    found.setdefault(each, Touched((columns, key), row))
        for order, walked in self._walked.items():
            place_of = self._place_of(order)
            for row, _ in deltas:
                place = place_of(row)
                for one in walked:
                    if one.has(place):
                        found.setdefault(one.transaction, Touched((order, None)))
        return found

    # --- as locks -------------------------------------------------------------------------------------------------

    def meets(self, transaction: str, changed: ChangedRows) -> Touched | None:
        """The first of its look-ups that finds one of the rows which another has changed."""
        if not changed.deltas:
            return None
        if transaction in self._whole:
            return Touched(WHOLE)
        for columns, key in self._of.get(transaction, ()):
            for row in changed.own(columns).get(key, ()):
                return Touched((columns, key), row)
        for order, walked in self._walked.items():
            own = [each for each in walked if each.transaction == transaction]
            place_of = self._place_of(order)
            if own and any(each.has(place) for place in map(place_of, changed.deltas) for each in own):
                return Touched((order, None))
        return None

    def finds(self, transaction: str, columns: Columns, key: Row, changed: Sequence[Delta]) -> bool:
        """Whether it has looked up this key, or has changed a row that has it."""
        if (columns, key) in self._of.get(transaction, ()):
            return True
        key_of = key_function(columns, self._collations)
        return any(key_of(row) == key for row, _ in changed)

    def take(self, other: TableLookUps, transaction: str) -> None:
        """Have the look-ups that another has of a transaction."""
        if transaction in other._whole:
            self.all(transaction)
        for columns, key in other._of.get(transaction, ()):
            self.keys(columns, (key,), transaction)
        for order, walked in other._walked.items():
            for each in walked:
                again = self.walk(order, each.start, transaction)
                again.start, again.end = each.start, each.end

    def forget(self, transaction: str) -> None:
        self._whole.discard(transaction)
        for columns, key in self._of.pop(transaction, ()):
            known = self._keys[columns]
            known[key].discard(transaction)
            if not known[key]:
                del known[key]
        for order in list(self._walked):
            self._walked[order] = [each for each in self._walked[order] if each.transaction != transaction]

    def _place_of(self, order: Columns) -> Callable[[Row], bytes]:
        return row_encoder(order, [self._schema.columns[at].type for at in order])

    def said(self, touched: Touched) -> str:
        (columns, key), row = touched
        if not columns:
            return f'a row of table "{self._schema.title}", which it has read whole'
        names = [self._schema.columns[at].name for at in columns]
        if key is None:
            return f'a row of table "{self._schema.title}" in a range of ({", ".join(names)}) that it has read'
        values = key if row is None else [row[at] for at in columns]
        told = ", ".join(f"{name} = {literal(value)}" for name, value in zip(names, values, strict=True))
        return f'the row of table "{self._schema.title}" with {told}, which it has read'
