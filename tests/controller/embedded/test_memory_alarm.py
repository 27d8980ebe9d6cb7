"""A memory limit below what full state needs is said: eviction keeps the limit in silence, and cannot keep this one."""

from __future__ import annotations

from pathlib import Path

import pytest

from controller.embedded.local import LocalDeployment
from domains.engine.vertices import Vertices
from worker.service import system
from worker.service.status import memory_of


async def test_full_state_over_the_limit_is_an_alarm(tmp_path: Path) -> None:
    opened = await LocalDeployment.open(tmp_path)
    try:
        await opened.execute("CREATE TABLE stories (id INT PRIMARY KEY, author INT)")
        await opened.execute("CREATE EXT VIEW ById AS SELECT author FROM stories WHERE id = ?")
        await opened.insert("stories", [{"id": number, "author": number % 7} for number in range(100)])
        await opened.pages("ById", [[number] for number in range(100)])
        memory = (await opened.status())["memory"]
        assert memory["full"] == 0 < memory["accounted"], "a partial view can be evicted whole"
        await opened.execute("CREATE EXT VIEW ByAuthor AS SELECT author, COUNT(*) AS n FROM stories GROUP BY author")
        before = (await opened.status())["memory"]
        assert 0 < before["full"] < before["accounted"]
        assert "alarm" not in before
        opened.dataflow.memory_limit = before["full"]
        await opened.insert("stories", [{"id": 100, "author": 0}])
        assert "alarm" not in (await opened.status())["memory"], "what is full fits"
        opened.dataflow.memory_limit = before["full"] - 1
        after = (await opened.status())["memory"]
        told = f"full state takes {after['full']:,} bytes, memory_limit is {before['full'] - 1:,}, and eviction cannot"
        assert after["alarm"].startswith(told)
        assert "add workers" not in after["alarm"], "there are none"
    finally:
        await opened.close()


def test_a_worker_may_be_helped_by_others() -> None:
    assert "add workers" in memory_of(9, 5, 4, workers=True)["alarm"]
    assert "alarm" not in memory_of(9, 4, 4, workers=True)


@pytest.mark.parametrize("domains", [1, 3])
async def test_a_status_sums_each_domain_once(domains: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = await LocalDeployment.open(tmp_path, domains=domains)
    try:
        summed: list[Vertices] = []
        whole = Vertices.accounted_bytes
        monkeypatch.setattr(Vertices, "accounted_bytes", lambda own: summed.append(own) or whole(own))
        status = await opened.status()
        assert len(summed) == domains
        assert status["memory"]["accounted"] == sum(each["bytes"] for each in status["domains"])
    finally:
        await opened.close()


async def test_state_gives_way_to_whatever_else_the_process_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = await LocalDeployment.open(tmp_path, memory_limit=1_000_000)
    try:
        await opened.execute("CREATE TABLE stories (id INT PRIMARY KEY, author INT)")
        await opened.execute("CREATE EXT VIEW ById AS SELECT author FROM stories WHERE id = ?")
        await opened.insert("stories", [{"id": number, "author": number % 7} for number in range(2_000)])
        await opened.pages("ById", [[number] for number in range(2_000)])
        full = (await opened.status())["memory"]["accounted"]
        explained = system.explained_bytes(opened.dataflow.memory_limit)
        monkeypatch.setattr(system, "private_bytes", lambda: explained)
        opened.count_outside(0)
        await opened.insert("stories", [{"id": 2_000, "author": 0}])
        assert (await opened.status())["memory"]["accounted"] >= full, "nothing is beyond the limit"
        monkeypatch.setattr(system, "private_bytes", lambda: explained + 10_000_000)
        opened.count_outside(0)
        await opened.insert("stories", [{"id": 2_001, "author": 0}])
        assert (await opened.status())["memory"]["accounted"] <= opened.dataflow.memory_limit // 4 < full
    finally:
        await opened.close()
