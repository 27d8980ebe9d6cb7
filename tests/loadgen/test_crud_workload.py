"""The crud workload, beside what it is asked of in other tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from loadgen.peers.store import Change, UpdateRow
from loadgen.workloads import crud
from loadgen.workloads.crud import CrudWorkload


class Heard:
    """A session that takes writes."""

    def __init__(self) -> None:
        self.titles: list[Any] = []

    async def write(self, changes: Sequence[Change]) -> int:
        self.titles += [change.set["title"] for change in changes if isinstance(change, UpdateRow)]
        return len(changes)


async def titles(moment: float, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    monkeypatch.setattr(crud.time, "time", lambda: moment)
    run, heard = CrudWorkload(seed=1), Heard()
    for _ in range(20):
        await run._act("Change", 0.0)(heard)  # type: ignore[arg-type]
    return heard.titles


async def test_a_second_run_of_the_same_seed_changes_items_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row that is changed to what it is counts as none, and was taken to be missing."""
    first, second = await titles(1e9, monkeypatch), await titles(1e9 + 60, monkeypatch)
    assert len(set(first) | set(second)) == 40
