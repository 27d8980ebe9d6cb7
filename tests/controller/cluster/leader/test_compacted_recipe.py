"""The recipe of a cluster stays as small as what is there, has room for every DROP, and loses the SELECTs that earlier
builds kept in it: workers, later leaders and whoever comes back with an old disk have the same nodes under the same
numbers all along."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable
from dataclasses import replace

import pytest

from controller.cluster.state import ClusterState
from domains.errors import LimitExceeded
from domains.plan.graph import DomainIndex
from migrations.compacting import WORTH
from migrations.flow.plan import one_domain
from migrations.recipe import Recipe, RecipeEntry
from migrations.statements.adhoc.shapes_of_selects import ad_hoc_name
from tests.kit.memory_workers import MemoryCluster, simulated
from tests.played_recipe import play

VOTES = "CREATE TABLE votes (id INT PRIMARY KEY, story INT, who INT)"
COUNT = "CREATE EXT VIEW tally AS SELECT story, COUNT(*) AS n FROM votes WHERE story = ? GROUP BY story"
TOP = "CREATE EXT VIEW top AS SELECT COUNT(*) AS n FROM votes WHERE who > 1"


async def opened(*, shards: int = 2) -> MemoryCluster:
    cluster = MemoryCluster(shards=shards)
    for name in ("a", "b"):
        await cluster.start_worker(name, f"/{name}")
    await cluster.start_controller("one")
    await cluster.calm()
    return cluster


async def taken_over(cluster: MemoryCluster, name: str) -> None:
    before = cluster.led
    await cluster.start_controller(name)
    cluster.kill_controller(before.settings.name)
    await cluster.until(lambda: cluster.leader not in (None, before) and cluster.led.migrator is not None)
    await cluster.calm()


async def settled(cluster: MemoryCluster) -> None:
    await cluster.until(lambda: not cluster.led.serving().busy)


def numbers(cluster: MemoryCluster) -> dict[str, int]:
    return dict(cluster.state.flow.readers)


def test_ten_thousand_changes_leave_it_as_small_as_before() -> None:
    """A fiftieth of them, while its size is looked at: it does not grow with them."""

    async def scenario() -> None:
        cluster = await opened()
        for sql in (VOTES, COUNT, TOP):
            await cluster.migrate(sql)
        for id in range(20):
            await cluster.write(f"INSERT INTO votes VALUES ({id}, {id % 3}, {id})")
        kept, sizes, reached = numbers(cluster), set[int](), 0
        for turn in range(25):
            await cluster.migrate("CREATE TABLE extra (id INT PRIMARY KEY)")
            await cluster.migrate(
                f"CREATE EXT VIEW v AS SELECT story, MAX(who) AS m FROM votes WHERE id > {turn} GROUP BY story"
            )
            await cluster.migrate(
                f"CREATE OR REPLACE EXT VIEW v AS SELECT who FROM votes WHERE story = ? AND id > {turn}"
            )
            assert len(await cluster.read("v", 1)) == sum(i % 3 == 1 and i > turn for i in range(20))
            for sql in ("DROP VIEW v", "DROP TABLE extra"):
                await cluster.migrate(sql)
            await settled(cluster)
            sizes.add(len(cluster.decided.recipe.entries))
            assert cluster.state.flow.next_index > reached, "no number is given again"
            reached = cluster.state.flow.next_index
            if turn == 12:  # What the next leader plays is what workers have.
                await taken_over(cluster, "two")
        assert max(sizes) < 5 + 2 * WORTH
        assert cluster.decided.recipe.changes > 3 + 25 * 5
        assert numbers(cluster) == kept
        await cluster.migrate("CREATE TABLE extra (id INT PRIMARY KEY)")
        assert cluster.state.catalog.table("extra").generation == 25, "positions of the former ones are not its"
        assert await cluster.read("tally", 1) == [(1, 7)]
        assert await cluster.read("top") == [(18,)]
        await cluster.check()
        await cluster.close()

    simulated(scenario())


def test_a_worker_that_was_away_meanwhile_drops_what_is_gone() -> None:
    async def scenario() -> None:
        cluster = await opened()
        for sql in (
            VOTES,
            COUNT,
            "CREATE TABLE gone (id INT PRIMARY KEY)",
            "CREATE EXT VIEW old AS SELECT id FROM gone WHERE id = ?",
        ):
            await cluster.migrate(sql)
        await cluster.write("INSERT INTO gone VALUES (1), (2), (3)")
        await cluster.write("INSERT INTO votes VALUES (1, 1, 1), (2, 1, 2), (3, 2, 1)")
        await cluster.migrate("DROP VIEW old")
        away = cluster.workers["b"]
        away.die()
        await cluster.until(lambda: not cluster.led.calm)
        await cluster.start_worker("b", "/b")
        await cluster.calm()
        for sql in ["DROP TABLE gone", *["CREATE TABLE u (x INT)", "DROP TABLE u"] * (WORTH + 1)]:
            await cluster.migrate(sql)
        await settled(cluster)
        names = [name for entry in cluster.decided.recipe.entries for name, _ in entry.dropped]
        assert "gone" in names
        store = cluster.disks["/b", cluster_shard(cluster, "b")]
        assert [schema.name for schema in store.tables()] == ["votes"]
        await taken_over(cluster, "two")
        assert await cluster.read("tally", 1) == [(1, 2)]
        await cluster.check()
        await cluster.close()

    def cluster_shard(cluster: MemoryCluster, worker: str) -> DomainIndex:
        return next(domain for domain, given in cluster.decided.placement.items() if given.worker == worker)

    simulated(scenario())


def test_a_full_state_takes_every_drop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("controller.cluster.state.RECIPE_ROOM", 2_500)

    async def scenario() -> None:
        cluster = await opened(shards=1)
        await cluster.migrate(VOTES)
        made: list[str] = []

        async def fill() -> None:
            while True:
                await cluster.migrate(_long_view(len(made)))
                made.append(f"long{len(made)}")

        with pytest.raises(LimitExceeded, match=r"packed [\d,]+ bytes, and 2,500 is the limit") as refused:
            await fill()
        assert refused.value.hint is not None
        assert re.search(r'drop .* "CREATE EXT VIEW long\d+ .*…" \(\d+ bytes\)', refused.value.hint)
        assert len(made) > 4
        with pytest.raises(LimitExceeded):
            await cluster.migrate(_long_view(99))
        for name in made:
            await cluster.migrate(f"DROP VIEW {name}")
        await cluster.migrate(_long_view(99))
        await settled(cluster)
        assert len(cluster.decided.encode()) < 1_500
        await cluster.check()
        await cluster.close()

    simulated(scenario())


def _long_view(number: int) -> str:
    noise = zlib.crc32(f"{number}".encode())
    texts = ", ".join(f"'{zlib.crc32(f'{noise} {each}'.encode()):x}'" for each in range(40))
    return f"CREATE EXT VIEW long{number} AS SELECT id FROM votes WHERE id = ? AND CAST(who AS CHAR) NOT IN ({texts})"


def _as_version_0_1(entries: Iterable[RecipeEntry]) -> Recipe:
    """As it is read from what that wrote."""
    recipe = Recipe.from_json(Recipe(tuple(entries)).to_json())
    assert b'"format": 2' in recipe.to_json()
    return recipe


def test_a_state_with_500_selects_serves_the_same_and_loses_them() -> None:
    selects = [f"SELECT id FROM votes WHERE who > {number}" for number in range(500)]
    entries = [RecipeEntry((sql,), ad_hoc=sql.startswith("SELECT")) for sql in (VOTES, *selects, COUNT, TOP)]
    recipe = _as_version_0_1(entries)
    before = play(recipe, one_domain)

    async def scenario() -> None:
        cluster = await opened(shards=1)
        await cluster.migrate(VOTES)
        cluster.kill_controller("one")
        authority = cluster.zookeeper.authority()
        await authority.start()
        data, version = await authority.read()
        assert data is not None
        state = ClusterState.decode(data, authority.deployment)
        await authority.write(replace(state, recipe=recipe).encode(), version)
        await cluster.start_controller("two")
        await cluster.until(lambda: cluster.led.settings.name == "two", 600)
        await cluster.calm(600)
        await cluster.until(lambda: not cluster.led.serving().busy, 600)
        kept = cluster.decided.recipe.entries
        assert len(kept) <= 6, [entry.statements for entry in kept]
        assert sum(entry.ad_hoc for entry in kept) == 2, [(entry.statements, entry.forget) for entry in kept]
        assert cluster.state.catalog.views.keys() == {"tally", "top"}
        # The first made the node of the table, the second a filter that "top" has.
        there = cluster.host(DomainIndex(0)).hosted.hosts[DomainIndex(0)].domain.vertices
        assert there.keys() == cluster.state.flow.nodes.keys() <= before.flow.nodes.keys()
        assert numbers(cluster) == {name: before.flow.readers[name] for name in ("tally", "top")}
        await cluster.write("INSERT INTO votes VALUES (1, 1, 1), (2, 1, 2), (3, 2, 1)")
        assert await cluster.read("tally", 1) == [(1, 2)]
        assert await cluster.read("top") == [(1,)]
        await cluster.check()
        await cluster.close()
        await authority.close()

    simulated(scenario())


def test_a_later_leader_drops_selects_that_workers_have() -> None:
    async def scenario() -> None:
        cluster = await opened()
        for sql in (VOTES, COUNT):
            await cluster.migrate(sql)
        await cluster.write("INSERT INTO votes VALUES (1, 1, 1), (2, 1, 2), (3, 2, 1)")
        for number in range(20):
            sql = f"SELECT MAX(id) FROM votes WHERE who > {number} GROUP BY story"
            await cluster.led.serving().run(RecipeEntry((sql,), ad_hoc=True), sql)
        name = ad_hoc_name("SELECT MAX(id) FROM votes WHERE who > 1 GROUP BY story")
        assert name in cluster.state.catalog.views
        kept = numbers(cluster)["tally"]
        await taken_over(cluster, "two")
        await settled(cluster)
        assert numbers(cluster) == {"tally": kept}
        assert not any(entry.ad_hoc or entry.forget for entry in cluster.decided.recipe.entries)
        assert await cluster.read("tally", 1) == [(1, 2)]
        await cluster.check()
        await cluster.close()

    simulated(scenario())
