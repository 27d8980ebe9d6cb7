"""The load against a real server: it finds nothing where nothing is wrong, and what is done behind its back."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import httpx
import pytest

from loadgen.drills.cluster import DrillFailed, DrillLoadProcess
from loadgen.drills.load import ledger
from loadgen.drills.load.load import HttpTarget
from loadgen.drills.load.program import read
from loadgen.peers.store import Lost, NotSent

SEED = "4711"


async def running(server: str, file: Path, least: int) -> DrillLoadProcess:
    """A load that has been sending and is paused, after so many requests at least."""
    load = await DrillLoadProcess.start(server, SEED, file, (200.0, 100.0))
    await load.order("prepare")
    async with asyncio.timeout(60):
        while not file.exists() or len(ledger.read(file)) < least:
            await load.order("go")
            await asyncio.sleep(0.2)
            await load.order("pause")
    return load


async def judged(load: DrillLoadProcess, within: float = 60.0) -> Counter[str]:
    """What is wrong, by kind."""
    answer = await load.order("judge", within=within)
    assert answer["acknowledged"] > 0
    assert answer["unseen"] == 0
    return +Counter({kind: count for kind, count in answer["findings"].items() if kind != "examples"})


async def entry(server: str) -> tuple[int, dict[str, int]]:
    """Some story's newest entry."""
    async with httpx.AsyncClient(base_url=server, timeout=60) as client:
        for story in range(20):
            rows = (await client.get("/v1/views/EntriesOf", params={"story_id": story})).json()["rows"]
            if rows:
                return story, rows[0]
    raise AssertionError("the load has written nothing")


async def test_all_is_right_and_stays_so(server: str, tmp_path: Path) -> None:
    file = tmp_path / "requests.csv"
    load = await running(server, file, 400)
    assert await judged(load) == Counter()
    await load.order("go")
    await asyncio.sleep(0.2)
    await load.order("pause")
    assert await judged(load) == Counter()
    await load.end()
    found = ledger.read(file)
    assert {each.outcome for each in found} == {"ok"}
    kinds = {"StoryTotals", "Newest", "UserTotals", "Totals", "Top", "insert", "revise", "delete", "own"}
    assert {each.kind for each in found} == kinds


async def test_a_lost_and_a_doubled_write_are_found(server: str, tmp_path: Path) -> None:
    load = await running(server, tmp_path / "requests.csv", 100)
    story, row = await entry(server)
    async with httpx.AsyncClient(base_url=server, timeout=60) as client:
        again = {"story_id": story, **row}
        assert (await client.post("/v1/tables/entries/rows", json={"rows": [again]})).is_success
        assert await judged(load, within=0.0) == Counter(doubled=1)
        key = {"story_id": story, "id": row["id"]}
        deleted = await client.request("DELETE", "/v1/tables/entries/rows", json={"key": key})
        assert deleted.json()["rows_affected"] == 2
        assert await judged(load, within=0.0) == Counter(missing=1)
    await load.end()


async def test_a_server_that_is_gone_is_an_error_and_no_fault_of_the_load(tmp_path: Path) -> None:
    load = await DrillLoadProcess.start("http://127.0.0.1:1", SEED, tmp_path / "requests.csv", (200.0, 100.0))
    with pytest.raises(DrillFailed, match='could not "prepare": cannot reach'):
        await load.order("prepare")
    outcomes: dict[bool, str] = {}
    async with asyncio.timeout(60):
        while len(outcomes) < 2:  # Of a write, and of a read.
            await load.order("go")
            await asyncio.sleep(0.2)
            await load.order("pause")
            found = ledger.read(load.records)
            outcomes = {each.kind in ("insert", "revise", "delete"): each.outcome for each in found}
    assert outcomes == {True: "refused", False: "error"}
    await load.end()


async def test_what_is_cut_off_may_have_been_done() -> None:
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.transport.abort()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    with pytest.raises(Lost):
        await HttpTarget("127.0.0.1", port).ask(read("Top", None), 60.0)
    server.close()
    await server.wait_closed()
    with pytest.raises(NotSent):
        await HttpTarget("127.0.0.1", port).ask(read("Top", None), 60.0)
