"""What a write costs does not depend on how many rows its key has: counted in rows that are read, not in seconds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from controller.embedded.local import LocalDeployment
from domains.language.types import Delta, Row
from domains.plan.graph import Columns
from worker.rocks.database import Database
from worker.rocks.table import RocksTable

VOTES = 500
JOINS = {
    "inner": "SELECT s.id, v.user_id FROM stories s JOIN votes v ON v.story_id = s.id WHERE s.id = ?",
    "left": "SELECT s.id, v.user_id FROM stories s LEFT JOIN votes v ON v.story_id = s.id WHERE s.id = ?",
    "count": "SELECT s.id, COUNT(v.user_id) AS n FROM stories s LEFT JOIN votes v ON v.story_id = s.id"
    " WHERE s.id = ? GROUP BY s.id",
}


@pytest.mark.parametrize("join", JOINS)
async def test_a_vote_for_a_popular_story_reads_none_of_its_votes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, join: str
) -> None:
    read = 0
    find_many = RocksTable.find_many

    def counting(table: RocksTable, columns: Columns, keys: Sequence[Row]) -> list[list[Delta]]:
        nonlocal read
        found = find_many(table, columns, keys)
        read += sum(map(len, found))
        return found

    deployment = await LocalDeployment.open(tmp_path)
    try:
        await deployment.execute(
            "CREATE TABLE stories (id INT PRIMARY KEY); CREATE TABLE votes (user_id INT, story_id INT, KEY (story_id));"
            f"INSERT INTO stories VALUES (1), (2); CREATE EXT VIEW v AS {JOINS[join]}"
        )
        await deployment.insert("votes", [{"user_id": user, "story_id": 1} for user in range(VOTES)])
        before: list[Any] = await deployment.pages("v", [[1], [2]])
        monkeypatch.setattr(RocksTable, "find_many", counting)
        for story in (1, 2):
            await deployment.insert("votes", [{"user_id": -1, "story_id": story}])
        assert read <= 4
        monkeypatch.undo()
        assert await deployment.pages("v", [[1], [2]]) != before
        for story in (1, 2):
            await deployment.delete("votes", {"user_id": -1, "story_id": story})
        assert await deployment.pages("v", [[1], [2]]) == before
    finally:
        await deployment.close()


async def test_what_a_transaction_stages_waits_for_no_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced = 0
    sync = Database.sync

    def counting(database: Database) -> None:
        nonlocal synced
        synced += 1
        sync(database)

    deployment = await LocalDeployment.open(tmp_path)
    try:
        await deployment.execute("CREATE TABLE c (id INT PRIMARY KEY, n INT); INSERT INTO c VALUES (1, 0), (2, 0)")
        monkeypatch.setattr(Database, "sync", counting)
        change = (
            "UPDATE c SET n = n + 1 WHERE id = 1; SELECT n FROM c WHERE id = 1; UPDATE c SET n = n + 1 WHERE id = 2"
        )
        for ending, syncs in (("ROLLBACK", 0), ("COMMIT", 1)):
            synced = 0
            await deployment.execute(f"BEGIN; {change}; {ending}")
            assert synced == syncs
        synced = 0
        await deployment.execute("UPDATE c SET n = n + 1 WHERE id = 1; UPDATE c SET n = n + 1 WHERE id = 1")
        assert synced == 2
    finally:
        await deployment.close()
