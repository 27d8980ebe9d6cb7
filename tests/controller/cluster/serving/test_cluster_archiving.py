"""A cut of a cluster: one recipe, and of all its tables what was there under it, or none."""

from __future__ import annotations

import pytest

from controller.cluster.serving import archiving
from controller.cluster.serving.archiving import Decided, cut_cluster
from controller.cluster.state import Assignment, ClusterState
from domains.archive.manifest import ArchiveError, ArchiveFenced
from domains.errors import NotServed
from domains.plan.graph import DomainIndex
from migrations.change import change_of
from migrations.flow.plan import State, one_domain
from migrations.recipe import Recipe, RecipeEntry
from worker.archive.options import ArchivePass
from worker.protocol.operations import ArchivePositions


class Cluster:
    """Two workers with a shard each, that have what is decided; ``between`` happens after the first has cut."""

    def __init__(self) -> None:
        self.recipe, self.state = Recipe(), State(shards=2)
        self.rows: dict[str, int] = {}
        self.between: list[list[str]] = []
        self.kept: list[tuple[ArchivePass, ClusterState]] = []
        self.fenced = 0
        self.asked = 0

    def change(self, *statements: str) -> None:
        for sql in statements:
            entry = RecipeEntry((sql,))
            self.recipe = self.recipe.with_entry(entry)
            self.state = change_of(self.state, entry, one_domain).state

    async def look(self) -> Decided:
        placement = {DomainIndex(n): Assignment(f"w{n}", 1) for n in range(2)}
        return Decided(ClusterState("main", 2, 1, 7, placement, self.recipe), self.state)

    async def ask(self, worker: str, message: object) -> ArchivePositions:
        self.asked += 1
        if worker == "w1" and self.between:
            self.change(*self.between.pop())
        mine = {base: number for base, number in (await self.look()).schemas().items() if base.endswith(worker[1])}
        return ArchivePositions("archive", dict.fromkeys(mine, 5), dict.fromkeys(mine, "id"), mine)

    async def keep(self, url: str, taken: ArchivePass, decided: ClusterState) -> ArchivePass:
        if self.fenced:
            self.fenced -= 1
            raise ArchiveFenced("a later recipe has been archived")
        self.kept.append((taken, decided))
        return taken


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    monkeypatch.setattr(archiving, "AGAIN_SECONDS", 0.0)
    made = Cluster()
    made.change("CREATE TABLE accounts (id INT PRIMARY KEY)")
    return made


SWAP = ["CREATE TABLE accounts_new (id INT PRIMARY KEY)", "DROP TABLE accounts"]
ANEW = ["DROP TABLE accounts", "CREATE TABLE accounts (id INT PRIMARY KEY)"]


@pytest.mark.parametrize(
    "between",
    [
        SWAP,
        SWAP[:1],
        ["DROP TABLE accounts"],
        ["ALTER TABLE accounts ADD COLUMN n INT"],
        ["DROP TABLE accounts", "CREATE TABLE accounts (id INT PRIMARY KEY)"],
    ],
    ids=["swapped", "created", "dropped", "altered", "created anew"],
)
async def test_tables_that_change_between_two_workers_are_cut_again(cluster: Cluster, between: list[str]) -> None:
    cluster.between = [between]
    archived = await cut_cluster(cluster.look, cluster.ask, cluster.keep)
    assert cluster.asked == 4
    ((taken, decided),) = cluster.kept
    assert decided.recipe == cluster.recipe
    assert archived.recipe == cluster.recipe.to_json().decode()
    assert taken.schemas == (await cluster.look()).schemas()


async def test_a_view_that_comes_meanwhile_is_not_in_the_recipe_of_the_cut(cluster: Cluster) -> None:
    before = cluster.recipe
    cluster.between = [["CREATE VIEW V AS SELECT id FROM accounts"]]
    archived = await cut_cluster(cluster.look, cluster.ask, cluster.keep)
    assert archived.recipe == before.to_json().decode()


async def test_a_later_recipe_in_the_archive_has_it_try_again(cluster: Cluster) -> None:
    cluster.fenced = 2
    await cut_cluster(cluster.look, cluster.ask, cluster.keep)
    assert len(cluster.kept) == 1


async def test_tables_that_change_all_the_time_end_in_a_refusal_that_says_so(cluster: Cluster) -> None:
    cluster.between = [[f"CREATE TABLE t{number} (id INT PRIMARY KEY)"] for number in range(archiving.TRIES)]
    with pytest.raises(NotServed, match=r"altered|nobody"):
        await cut_cluster(cluster.look, cluster.ask, cluster.keep)
    assert cluster.kept == []


async def test_what_is_wrong_with_the_archive_is_told_at_once(cluster: Cluster) -> None:
    async def damaged(worker: str, message: object) -> ArchivePositions:
        cluster.asked += 1
        raise ArchiveError(f"the manifest of {worker} is damaged")

    with pytest.raises(ArchiveError, match="is damaged"):
        await cut_cluster(cluster.look, damaged, cluster.keep)
    assert cluster.asked == 2
