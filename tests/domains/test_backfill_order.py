"""In which order tables are fed, and what is looked up meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from domains.engine.lifecycle.backfill import FAN_OUT, FIRST_ROWS, in_order
from domains.store.memory_store import MemoryTable
from tests.domains.graphs import Flow


def test_the_largest_table_comes_first_and_what_has_a_few_rows_before_it() -> None:
    assert in_order({"users": 10, "votes": 940, "stories": 50}) == ["votes", "stories", "users"]
    assert in_order({"stories": 5 * FAN_OUT, "sites": 2, "votes": 9 * FAN_OUT, "tags": 8}) == [
        "tags",
        "sites",
        "votes",
        "stories",
    ]
    assert in_order({"b": 0, "a": 0}) == ["a", "b"]


def test_what_has_not_been_fed_is_not_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    flow = Flow(check=False)
    stories = flow.table("stories", "id", "title", key=(0,))
    votes = flow.table("votes", "user", "story")
    flow.reader("titles", flow.join(stories, votes, (0, 1)))
    flow.insert("stories", (7, 70), (8, 80))
    flow.insert("votes", *((user, 7 + user % 2) for user in range(3 * FIRST_ROWS)))
    looked_up: list[str] = []

    def counted(table: MemoryTable, columns: Any, keys: Sequence[Any]) -> Any:
        looked_up.append(table.schema.name)
        return find_many(table, columns, keys)

    find_many = MemoryTable.find_many
    monkeypatch.setattr(MemoryTable, "find_many", counted)
    flow.start(slice=FIRST_ROWS)
    assert looked_up == ["votes"], "the votes came first, and found that no story had been fed"
    assert len(flow.held("titles")[()]) == 3 * FIRST_ROWS
