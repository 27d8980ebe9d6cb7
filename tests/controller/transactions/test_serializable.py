"""Interleaved transactions come to what they come to one after the other; and each mistake in what is remembered of
their reads shows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from domains.engine.transactions.look_ups import TableLookUps
from domains.engine.transactions.staged import StagedTable
from domains.engine.transactions.transactions import Transactions
from domains.language.types import Delta, Row
from domains.plan.graph import Columns
from domains.plan.packets import InTransaction
from tests.controller.transactions.interleaved import check

STEPS = 250


@pytest.mark.parametrize("seed", range(6))
async def test_what_is_committed_is_serializable(seed: int, tmp_path: Path) -> None:
    done = await check(seed, tmp_path, STEPS)
    assert len(done.committed) > 20, "too few to show anything"
    assert done.conflicts > 5


def _forget_empty(self: StagedTable, columns: Columns, keys: Sequence[Row]) -> list[list[Delta]]:
    found = self.stored.find_many(columns, keys) if columns else [self.stored.find((), ()) for _ in keys]
    if columns:
        met = [key for key, rows in zip(keys, found, strict=True) if rows]
        self._looked_up.keys(columns, met, self._transaction)
    else:
        self._looked_up.all(self._transaction)
    own = self.own(columns)
    return [self._with(rows, own.get(key)) for rows, key in zip(found, keys, strict=True)]


_met = TableLookUps.met
_changed = Transactions.changed
_walk = TableLookUps.walk


def _only_new(self: TableLookUps, deltas: Sequence[Delta]) -> dict[str, str]:
    return _met(self, [delta for delta in deltas if delta[1] > 0])


def _only_old(self: TableLookUps, deltas: Sequence[Delta]) -> dict[str, str]:
    return _met(self, [delta for delta in deltas if delta[1] < 0])


def _plain_writes_only(self: Transactions, tables: Any, within: Any) -> None:
    if not isinstance(within, InTransaction):
        _changed(self, tables, within)


def _no_walks(self: TableLookUps, order: Columns, place: bytes, transaction: str) -> Any:
    walked = _walk(self, order, place, transaction)
    self._walked[order].clear()
    return walked


def _nothing_whole(self: TableLookUps, transaction: str) -> None:
    """Nothing."""


def _no_own(self: StagedTable, rows: list[Delta], own: Any) -> list[Delta]:
    return rows


def _no_keys(self: TableLookUps, columns: Columns, keys: Iterable[Row], transaction: str) -> None:
    """Nothing."""


MISTAKES: list[tuple[type, str, Any]] = [
    (StagedTable, "find_many", _forget_empty),
    (TableLookUps, "met", _only_new),
    (TableLookUps, "met", _only_old),
    (TableLookUps, "walk", _no_walks),
    (TableLookUps, "all", _nothing_whole),
    (TableLookUps, "keys", _no_keys),
    (Transactions, "changed", _plain_writes_only),
    (StagedTable, "_with", _no_own),
]
SEEDS = 12


@pytest.mark.parametrize(("where", "name", "instead"), MISTAKES, ids=lambda each: getattr(each, "__name__", str(each)))
async def test_a_mistake_shows(
    where: type, name: str, instead: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(where, name, instead)
    for seed in range(SEEDS):
        try:
            await check(seed, tmp_path / str(seed), STEPS)
        except Exception:  # An assertion of the judge, or of the store: a row that is not there is taken away.
            return
    pytest.fail(f"{instead.__name__} was not found in {SEEDS} runs")
