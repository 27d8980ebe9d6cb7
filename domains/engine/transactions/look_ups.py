"""What the open transactions of a domain have looked up, so that a commit finds those whose answers it changes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from domains.language.description import literal
from domains.language.encoding import row_encoder
from domains.language.types import Delta, Row, TableSchema, collations_of
from domains.plan.deltas import key_function
from domains.plan.graph import Columns

MOST_WALKS = 16
"""Ranges of an order that are remembered of a transaction: each write is held against all of them. Who walks more has
read the table whole."""
LOOK_UP_BYTES = 300
"""What one that is remembered takes, about: a key, its place in a dict and in a set."""


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

    def have(self, transaction: str) -> bool:
        return transaction in self._whole or self.count(transaction) > 0

    def met(self, deltas: Sequence[Delta]) -> dict[str, str]:
        """The transactions that have looked up one of these rows, as it was or as it is to be, each with what that
        was."""
        title = self._schema.title
        found = dict.fromkeys(self._whole, f'a row of table "{title}", which it has read whole')
        for columns, known in self._keys.items():
            key_of = key_function(columns, self._collations)
            for row, _ in deltas:
                for each in known.get(key_of(row), ()):
                    found.setdefault(each, self._said(columns, row))
        for order, walked in self._walked.items():
            place_of = self._place_of(order)
            for row, _ in deltas:
                place = place_of(row)
                for one in walked:
                    if one.has(place):
                        names = self._names(order)
                        found.setdefault(
                            one.transaction, f'a row of table "{title}" in a range of ({names}) that it has read'
                        )
        return found

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

    def _said(self, columns: Columns, row: Row) -> str:
        values = ", ".join(f"{self._schema.columns[at].name} = {literal(row[at])}" for at in columns)
        return f'the row of table "{self._schema.title}" with {values}, which it has read'

    def _names(self, columns: Columns) -> str:
        return ", ".join(self._schema.columns[at].name for at in columns)
