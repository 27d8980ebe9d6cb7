"""Domains on several sites that move, die and come back while everything else goes on: nothing is lost or doubled.

``HEADRACE_SEED`` chooses where to begin; a failure names its seed.
"""

from __future__ import annotations

import os
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest

from domains.language.types import Row
from domains.plan.graph import DomainIndex, NodeIndex, Reader
from domains.plan.packets import Clock, Delete, Failed, Filled, Insert, Outcome, Written
from domains.plan.sharding import physical, shard_of
from tests.kit.hosted_cluster import HostedCluster
from tests.shard_of_key import shard_of_key
from worker.dataflow.batch import Look
from worker.dataflow.hosted_domain import TokenWait
from worker.protocol.messages import NotHere
from worker.reader_map.layout import reader_id

FIRST = int(os.environ.get("HEADRACE_SEED", "0"))
SQL = """
CREATE TABLE stories (id INT PRIMARY KEY, author INT NOT NULL) SHARD BY (id);
CREATE TABLE votes (story INT NOT NULL, user INT NOT NULL) SHARD BY (story);
CREATE VIEW ByAuthor AS SELECT id, author FROM stories WHERE author = ?;
CREATE VIEW VoteCount AS SELECT story, COUNT(*) AS n FROM votes WHERE story = ? GROUP BY story;
CREATE VIEW Karma AS SELECT author, COUNT(*) AS n FROM votes JOIN stories ON story = id WHERE author = ? GROUP BY author
"""
VIEWS = ("byauthor", "votecount", "karma")
STORIES, AUTHORS = 12, 4


@dataclass
class Asked:
    """A request, and what became of it."""

    outcome: Any = None
    look: Look | None = None
    wanted: int = 0

    def __call__(self, outcome: Any) -> None:
        assert self.outcome is None, "answered twice"
        self.outcome = outcome


@dataclass
class Life:
    """What happens by chance, on a cluster of its own."""

    seed: int
    rng: Random = field(init=False)
    cluster: HostedCluster = field(init=False)
    asked: list[Asked] = field(default_factory=list)
    votes: dict[int, int] = field(default_factory=dict)
    """Acknowledged, by story."""

    def __post_init__(self) -> None:
        self.rng = Random(self.seed)
        limit = self.rng.choice([2**40, 2**40, 20_000, 1])
        self.cluster = HostedCluster(
            self.rng.randrange(1, 4),
            self.rng.randrange(1, 4),
            self.rng.randrange(1, 4),
            SQL,
            self.rng,
            memory_limit=limit,
        )

        self.cluster.start()

    def step(self) -> None:
        rng, cluster = self.rng, self.cluster
        chance = rng.random()
        if chance < 0.35:
            ready = [number for number, site in enumerate(cluster.sites) if site.batches]
            if ready:
                cluster.flush(rng.choice(ready))
        elif chance < 0.6:
            cluster.deliver()
        elif chance < 0.68:
            cluster.go_on()
        elif chance < 0.82:
            self.write()
        elif chance < 0.95:
            self.read()
        elif chance < 0.97:
            self.evict()
        elif chance < 0.985:
            cluster.move(rng.choice(cluster.domains), rng.randrange(len(cluster.sites)))
        elif len(cluster.sites) > 1 or rng.random() < 0.5:
            cluster.crash(rng.randrange(len(cluster.sites)))

    # --- what users do --------------------------------------------------------------------------------------------

    def write(self) -> None:
        rng, shards = self.rng, self.cluster.shards
        story = rng.randrange(STORIES)
        if rng.random() < 0.6:
            operation: Any = Insert("votes", ((story, rng.randrange(100)),))
        elif rng.random() < 0.7:
            operation = Insert("stories", ((story, rng.randrange(AUTHORS)),), on_conflict="replace")
        else:
            operation = Delete("stories", None, access=(((0,), ((story,),)),), limit=1)
        index = physical(DomainIndex(0), shard_of(story, shards), shards)

        def written(outcome: Outcome) -> None:
            if isinstance(outcome, Written) and operation.table == "votes":
                self.votes[story] = self.votes.get(story, 0) + 1
                self.await_token(story, outcome.clock)

        with suppress(NotHere):
            self.act(index, lambda hosted, batch: hosted.write(index, operation, written, batch))

    def read(self) -> None:
        view = self.rng.choice(VIEWS)
        keys = tuple({(self.rng.randrange(STORIES if view == "votecount" else AUTHORS),): None for _ in range(2)})
        index, node = self.place(view, keys[0])
        keys = tuple(key for key in keys if self.place(view, key)[0] == index)
        site = self.cluster.sites[self.cluster.site_of(index)]
        number = reader_id(node, index % self.cluster.shards)
        look = Look(lambda: [site.shown.get(number, {}).get(key) for key in keys])
        asked = Asked(look=look)
        try:
            self.act(index, lambda hosted, batch: hosted.read(index, node, keys, look, asked, batch))
        except NotHere:
            return
        self.asked.append(asked)

    def await_token(self, story: int, clock: Clock) -> None:
        """Once its reader has reached the write, it shows as many votes as were acknowledged before."""
        index, node = self.place("votecount", (story,))
        count = self.votes[story]
        site = self.cluster.sites[self.cluster.site_of(index)]
        number = reader_id(node, index % self.cluster.shards)

        def reached(outcome: Outcome) -> None:
            if isinstance(outcome, Failed):
                assert isinstance(outcome.error, NotHere)
                return
            rows = site.shown.get(number, {}).get((story,))
            if rows is not None:
                assert sum(row[1] for row in rows) >= count, "the reader does not show what it has reached"

        with suppress(NotHere):
            self.act(index, lambda hosted, _: hosted.reached(index, TokenWait(node, clock, reached, lambda: False)))

    def evict(self) -> None:
        index = self.rng.choice(self.cluster.domains)
        host = self.cluster.sites[self.cluster.site_of(index)].hosted
        domain = host.hosts[index].domain
        filled = [
            (vertex.index, key)
            for vertex in domain.vertices.values()
            for each in vertex.indexes.values()
            if each.partial
            for key in each.keys()  # noqa: SIM118
        ]
        if filled and host.hosts[index].linked:
            node, key = self.rng.choice(filled)
            asked = Asked()
            self.act(index, lambda hosted, batch: hosted.evict(index, node, (key,), asked, batch))
            self.asked.append(asked)

    def place(self, view: str, key: Row) -> tuple[DomainIndex, NodeIndex]:
        flow = self.cluster.state.flow
        node = flow.readers[view]
        shard = shard_of_key(flow, node, key)
        return physical(flow.node(node).domain, shard, self.cluster.shards), node

    def act(self, index: DomainIndex, do: Any) -> None:
        self.cluster.act(self.cluster.site_of(index), do)

    # --- the end --------------------------------------------------------------------------------------------------

    def end(self) -> None:
        self.cluster.settle()
        self.cluster.check()
        for asked in self.asked:
            if isinstance(asked.outcome, Filled):
                assert asked.look is not None
                assert asked.look.error is None, asked.look.error
                assert None not in asked.look.found, "a read that was answered has its keys"
        stored = dict.fromkeys(range(STORIES), 0)
        for store in self.cluster.stores:
            for row, weight in store.table("votes").find((), ()):
                stored[int(row[0])] += weight  # type: ignore[arg-type]
        assert all(stored[story] >= count for story, count in self.votes.items()), "an acknowledged vote is lost"
        assert not any(len(site.hosted.waits) for site in self.cluster.sites), "a token is waited for and never reached"
        assert not any(len(site.hosted.requests) for site in self.cluster.sites), "a request was never answered"


FULL = """
CREATE TABLE stories (id INT PRIMARY KEY, author INT NOT NULL) SHARD BY (id);
CREATE TABLE votes (story INT NOT NULL, user INT NOT NULL) SHARD BY (story);
CREATE EXT VIEW Total AS SELECT COUNT(*) AS n FROM votes;
CREATE EXT VIEW Best AS SELECT story, COUNT(*) AS n FROM votes GROUP BY story ORDER BY n DESC, story LIMIT 3;
CREATE EXT VIEW Pairs AS SELECT s.author, COUNT(*) AS n FROM votes v JOIN stories s ON v.story = s.id GROUP BY s.author
"""


def build(seed: int) -> None:
    """Full views are built site by site, over rows that are there and rows that come, and hold all of them."""
    rng = Random(seed)
    cluster = HostedCluster(rng.randrange(1, 4), rng.randrange(1, 4), rng.randrange(1, 4), FULL, rng)
    votes: list[Row] = []
    authors = {story: story % AUTHORS for story in range(STORIES)}

    def write(table: str, row: Row) -> None:
        index = physical(DomainIndex(0), shard_of(row[0], cluster.shards), cluster.shards)
        with suppress(NotHere):
            insert = Insert(table, (row,))
            cluster.act(cluster.site_of(index), lambda hosted, batch: hosted.write(index, insert, Asked(), batch))
            votes.extend([row] if table == "votes" else [])

    def between() -> None:
        for _ in range(rng.randrange(4)):
            write("votes", (rng.randrange(STORIES), 1))
        for _ in range(rng.randrange(6)):
            ready = [number for number, site in enumerate(cluster.sites) if site.batches]
            if ready and rng.random() < 0.5:
                cluster.flush(rng.choice(ready))
            else:
                cluster.deliver()

    for story, author in authors.items():
        store = cluster.stores[shard_of(story, cluster.shards)]
        store.table("stories").stage([((story, author), 1)])
        store.commit([("stories", store.position("stories") + 1, [((story, author), 1)])])
    cluster.start_slowly(between)
    between()
    cluster.settle()
    cluster.check()
    counts = Counter(int(row[0]) for row in votes)  # type: ignore[arg-type]
    best = sorted(counts.items(), key=lambda count: (-count[1], count[0]))[:3]
    pairs = Counter(authors[int(row[0])] for row in votes)  # type: ignore[arg-type]
    assert shown(cluster, "total") == [(len(votes),)]
    assert sorted(shown(cluster, "best"), key=lambda row: (-row[1], row[0])) == best
    assert dict(shown(cluster, "pairs")) == dict(pairs)


def shown(cluster: HostedCluster, view: str) -> list[Any]:
    """The visible columns of a full view, which stands in one shard."""
    flow = cluster.state.flow
    node = flow.readers[view]
    (index,) = flow.places(node)
    reader = flow.node(node).operator
    assert isinstance(reader, Reader)
    return [row[: reader.visible] for row, weight in cluster.rows(index, node, ()) or () for _ in range(weight)]


@pytest.mark.parametrize("batch", range(3))
def test_full_views_are_built_while_sites_come(batch: int) -> None:
    for seed in range(FIRST + 20 * batch, FIRST + 20 * (batch + 1)):
        try:
            build(seed)
        except Exception as error:
            error.add_note(f"reproduce with build({seed})")
            raise


def live(seed: int, steps: int) -> Life:
    life = Life(seed)
    for _ in range(steps):
        life.step()
    life.end()
    return life


@pytest.mark.parametrize("batch", range(6))
def test_domains_move_die_and_come_back(batch: int) -> None:
    for seed in range(FIRST + 12 * batch, FIRST + 12 * (batch + 1)):
        try:
            live(seed, 400)
        except Exception as error:
            error.add_note(f"reproduce with live({seed}, 400)")
            raise


@pytest.mark.long
def test_domains_move_die_and_come_back_for_long() -> None:
    for seed in range(FIRST, FIRST + 3000):
        try:
            live(seed, 1000)
        except Exception as error:
            error.add_note(f"reproduce with live({seed}, 1000)")
            raise
