"""Something breaks at the n-th message that a leader sends, for every n: nothing is lost, doubled or left half done."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable

import pytest

from domains.errors import HeadraceError
from domains.plan.packets import Insert
from migrations.recipe import RecipeEntry
from tests.kit.memory_workers import MemoryCluster, simulated
from tests.kit.voting_program import VIEWS, Program

Act = Callable[[MemoryCluster], Awaitable[None]]
EVERY = int(os.environ.get("HEADRACE_EVERY", "13"))
"""Of the messages. Neighbours mostly break the same thing; ``HEADRACE_EVERY=1`` takes some ten minutes."""


async def kill_worker(cluster: MemoryCluster) -> None:
    cluster.workers["w2"].die()
    await asyncio.sleep(1.0)
    await cluster.start_worker("w2")


async def kill_another_worker(cluster: MemoryCluster) -> None:
    cluster.workers["w3"].die()


async def hang_worker(cluster: MemoryCluster) -> None:
    worker = cluster.workers["w2"]
    worker.awake.clear()
    await asyncio.sleep(4.0)
    worker.awake.set()


async def break_connections(cluster: MemoryCluster) -> None:
    for worker in cluster.workers.values():
        worker.break_connections()


async def kill_leader(cluster: MemoryCluster) -> None:
    (name,) = [name for name in cluster.controllers if name == cluster.led.settings.name]
    cluster.kill_controller(name)


async def kill_leader_and_worker(cluster: MemoryCluster) -> None:
    await kill_leader(cluster)
    cluster.workers["w2"].die()


async def cut_leader_off(cluster: MemoryCluster) -> None:
    """It goes on and does not know that it is succeeded."""
    authority, _ = cluster.controllers[cluster.led.settings.name]
    authority.cut()
    await asyncio.sleep(4.0)
    authority.mend()


async def stop_zookeeper(cluster: MemoryCluster) -> None:
    cluster.zookeeper.stop()
    await asyncio.sleep(4.0)
    cluster.zookeeper.start()


ACTS: list[Act] = [
    kill_worker,
    hang_worker,
    break_connections,
    kill_leader,
    kill_leader_and_worker,
    cut_leader_off,
    stop_zookeeper,
]


async def ready() -> tuple[MemoryCluster, Program]:
    cluster = MemoryCluster(shards=3, quorum=3)
    for name in ("w1", "w2", "w3"):
        await cluster.start_worker(name)
    await cluster.start_controller("c1")
    await cluster.calm()
    program = Program(cluster)
    await program.start()
    await program.check()
    await cluster.start_controller("c2")
    await asyncio.sleep(3.0)
    return cluster, program


async def changed(cluster: MemoryCluster, sql: str, done: Callable[[], bool]) -> None:
    """Ask for a change until it is there, as somebody does who is told that it failed or may have."""
    for _ in range(10):
        try:
            await cluster.migrate(sql)
        except HeadraceError:
            await asyncio.sleep(1.0)
        await cluster.calm(60.0)
        if done():
            return
    raise AssertionError("it never succeeds")


async def until_tidy(cluster: MemoryCluster) -> None:
    """What broke is whole again, and the present leader has found everything right."""
    await cluster.until(lambda: cluster.broken is not None and cluster.broken.done(), 60.0)
    await asyncio.sleep(6.0)
    await cluster.calm(60.0)


@pytest.mark.parametrize("act", ACTS, ids=lambda act: act.__name__)
def test_a_migration_is_disturbed(act: Act) -> None:
    messages = {"last": 10_000}

    async def scenario(number: int) -> None:
        cluster, program = await ready()
        cluster.at_message(number, act)
        writing = asyncio.create_task(program.vote(60))
        view = "CREATE EXT VIEW voters AS SELECT user_id, COUNT(*) AS n FROM votes GROUP BY user_id"
        await changed(cluster, view, lambda: "voters" in cluster.state.flow.readers)
        alter = "ALTER TABLE stories ADD COLUMN title TEXT; CREATE TABLE tags (id BIGINT PRIMARY KEY)"
        await changed(cluster, alter, lambda: "tags" in cluster.state.catalog.tables)
        await changed(cluster, "DROP VIEW voters", lambda: "voters" not in cluster.state.flow.readers)
        await writing
        if cluster.broken is None:
            messages["last"] = number
            await cluster.close()
            return
        await until_tidy(cluster)
        assert cluster.state.catalog.table("stories").position("title") is not None
        await program.check()
        await cluster.migrate(VIEWS.replace("VIEW ", "VIEW new_"))
        await program.vote(5)
        await program.check()
        await cluster.close()

    sweep(scenario, messages, act)


@pytest.mark.parametrize(
    "act", [kill_another_worker, hang_worker, break_connections, *ACTS[3:]], ids=lambda a: a.__name__
)
def test_a_recovery_is_disturbed(act: Act) -> None:
    messages = {"last": 10_000}

    async def scenario(number: int) -> None:
        cluster, program = await ready()
        cluster.at_message(number, act)
        cluster.workers["w1"].die()
        await program.vote(5)
        await asyncio.sleep(1.0)
        if cluster.broken is None:
            messages["last"] = number
            await cluster.close()
            return
        await until_tidy(cluster)
        await program.check()
        await cluster.start_worker("w1")
        await asyncio.sleep(3.0)
        await cluster.calm()
        await program.vote(5)
        await program.check()
        await cluster.close()

    sweep(scenario, messages, act)


MADE = "CREATE TABLE made (id BIGINT PRIMARY KEY, body TEXT)"
ROWS = tuple((number, f"row {number}") for number in range(40))


def made_rows(cluster: MemoryCluster) -> list[object]:
    """Of the table that is made of a SELECT, in all shards, as far as it is no longer being filled."""
    stores = [store for (data, _), store in cluster.disks.items() if data == "/data"]
    there = [store for store in stores if any(each.name == "made" and not each.filling for each in store.tables())]
    return sorted((row for store in there for row, _ in store.table("made").find((), ())), key=repr)


@pytest.mark.parametrize("act", ACTS, ids=lambda act: act.__name__)
def test_a_table_that_is_being_filled_is_disturbed(act: Act) -> None:
    """It is there with all rows, or not at all, whenever the cluster is calm."""
    messages = {"last": 10_000}

    async def scenario(number: int) -> None:
        cluster, program = await ready()
        cluster.at_message(number, act)
        for _ in range(10):
            try:
                await cluster.led.serving().run(RecipeEntry((MADE,)), MADE, rows=Insert("made", ROWS))
            except HeadraceError:
                await asyncio.sleep(1.0)
            await cluster.calm(60.0)
            is_there = "made" in cluster.state.catalog.tables
            assert made_rows(cluster) == (sorted(ROWS, key=repr) if is_there else [])
            if is_there:
                break
        if cluster.broken is None:
            messages["last"] = number
            await cluster.close()
            return
        await until_tidy(cluster)
        assert made_rows(cluster) == sorted(ROWS, key=repr)
        await program.check()
        await cluster.close()

    sweep(scenario, messages, act, 3)


def sweep(scenario: Callable[[int], Awaitable[None]], messages: dict[str, int], act: Act, every: int = EVERY) -> None:
    number = 1 + ACTS.index(act) % every if act in ACTS else 1
    while number < messages["last"]:
        try:
            simulated(scenario(number))  # type: ignore[arg-type]
        except BaseException as error:
            error.add_note(f"{act.__name__} at message {number}")
            raise
        number += every
