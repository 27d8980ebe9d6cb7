"""``headrace bench scale``: its parts, and the paper model of docs/scaling.md against what a dataflow really sends."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import cast

import pytest

from controller.embedded.local import LocalDeployment
from domains.plan.sharding import shard_of
from headrace.errors import BadRequest
from loadgen.bench.scaling import mixed_load
from loadgen.bench.scaling.counts import KINDS, SAID, CountSample, Meter, Spent, Subject
from loadgen.bench.scaling.measuring import BALLOTS, parse_workers
from loadgen.bench.scaling.model import ModelCluster, markdown
from loadgen.bench.scaling.report import (
    PHASES,
    QUICK,
    SHUFFLED,
    cost,
    costs_table,
    document,
    each_write,
    messages_table,
    verdict,
)
from loadgen.drills.cluster import ClusterShape, DrillCluster

TWICE = """
CREATE TABLE stories (id int, author int) SHARD BY (id);
CREATE VIEW ByAuthor AS SELECT s.author AS author, COUNT(*) AS ballots
  FROM ballots b JOIN stories s ON s.id = b.story_id GROUP BY s.author;
CREATE EXT VIEW BallotsOfAuthor AS SELECT author, ballots FROM ByAuthor WHERE author = ?;
"""
"""A view with a second shuffle: ballots meet their stories by story, and are counted by author."""


def test_the_table_in_the_docs_is_the_models() -> None:
    text = (Path(__file__).parents[2] / "docs/scaling.md").read_text("utf-8")
    assert markdown() in text, "docs/scaling.md: put in what python -m loadgen.bench.scaling.model prints"


@pytest.mark.parametrize("shards", [2, 4, 8])
@pytest.mark.parametrize("shuffles", [1, 2])
async def test_a_lone_write_sends_as_many_packets_as_the_model_says(tmp_path: Path, shards: int, shuffles: int) -> None:
    deployment = await LocalDeployment.open(tmp_path, memory_limit=2**28, shards=shards)
    try:
        await deployment.execute(BALLOTS + (TWICE if shuffles == 2 else ""))
        links = {link for domain in deployment.dataflow.domains.values() for link in domain.links.outgoing}
        await deployment.insert("ballots", [{"user": 1, "story_id": 1}])
        counters = deployment.dataflow.hosted.counters
        before, beats = counters.packets, counters.beats
        await deployment.insert("ballots", [{"user": 1, "story_id": 2}])
        model = ModelCluster(shards)
        assert len(links) == shuffles * model.links()
        assert counters.packets - before == model.packets_a_batch(shuffles)
        assert counters.beats > beats
    finally:
        await deployment.close()


def test_requests_of_a_batch_are_the_shards_that_have_a_row() -> None:
    random, shards, rows = Random(1), 100, 50
    drawn = [len({shard_of(random.randrange(10**6), shards) for _ in range(rows)}) for _ in range(400)]
    assert sum(drawn) / len(drawn) == pytest.approx(ModelCluster(shards).requests_a_batch(rows), rel=0.02)


def test_all_clusters_are_asked_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mixed_load, "PREPARED", 500)
    monkeypatch.setattr(mixed_load, "STORIES", 1_000)
    first, second = (mixed_load.requests("mix", "votes", "V", 3) for _ in range(2))
    asked = [next(first) for _ in range(500)]
    assert asked == [next(second) for _ in range(500)]
    assert {kind for kind, _ in asked} == {"read", "single", "batch"}
    assert asked != [next(mixed_load.requests("mix", "votes", "V", 4)) for _ in range(500)]


def test_zookeeper_is_told_apart() -> None:
    cpu = dict(zip(KINDS, (1.0, 2.0, 0.5, 4.0), strict=True))
    sample = CountSample(1_000, 100, 100, 1.0, Spent(cpu, dict.fromkeys(SAID, 50)))
    assert sample.microseconds == 3_500
    assert cost([sample], "zookeeper") == 4_000
    assert each_write([sample, sample], "beats") == 0.5


@pytest.mark.parametrize("text", ["", "1", "4,1", "2,2", "0,1", "1,99", "one,two"])
def test_what_is_no_list_of_workers_is_refused(text: str) -> None:
    with pytest.raises(BadRequest, match="cannot compare the workers"):
        parse_workers(text)


def test_workers_are_a_rising_list() -> None:
    assert parse_workers("1,2,4") == [1, 2, 4]


def test_figures_are_shown_of_every_cluster_and_phase(tmp_path: Path) -> None:
    """The second cluster spends twice as much on the same requests, and both say as much."""
    subjects = []
    for workers in (1, 2):
        cpu = dict(zip(KINDS, (1.0 * workers, 2.0 * workers, 0.5 * workers, 4.0), strict=True))
        sample = CountSample(1_000, 100, 100, 1.0, Spent(cpu, dict.fromkeys(SAID, 50)))
        cluster = DrillCluster(tmp_path, ClusterShape(workers, 4))
        phases = {phase.name: [sample] for phase in (*PHASES, *SHUFFLED)}
        subjects.append(Subject(cluster, cast(Meter, None), Spent(dict.fromkeys(KINDS, 0.01), {}), phases))
    assert "2.00 times as much with 2 workers as with 1 (2.00 with" in verdict(subjects)
    assert verdict(subjects).endswith("not met")
    rows = len(PHASES) + len(SHUFFLED)
    assert costs_table("4 shards", subjects).row_count == 2 * rows
    assert messages_table(subjects).row_count == 2 * 4
    told = json.loads(json.dumps(document({"4 shards": subjects}, QUICK, quick=True)))
    assert told["ratio"] == told["ratio_with_the_same_clients"] == 2.0
    assert not told["met"]
    assert told["series"]["4 shards"][1]["phases"]["singles"]["a_write"]["beats"] == 0.5
