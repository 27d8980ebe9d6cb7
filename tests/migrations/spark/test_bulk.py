"""A bulk job on Spark comes to what it comes to in one process: random graphs, sharded, over several stages."""

from __future__ import annotations

import io
import os
from pathlib import Path
from random import Random

import pytest
from pyspark.sql import SparkSession

from domains.archive.manifest import SegmentMissing
from migrations.backfill.job import BulkJob, TableShard, read_frames
from migrations.backfill.spark.bulk import Bulk
from migrations.backfill.spark.reporting import Reporter
from migrations.backfill.stages import stages_of
from tests.domains.graphs import Flow
from tests.migrations.backfill.comparing import States, computed
from tests.migrations.backfill.in_process import run_locally
from tests.migrations.backfill.test_stages import folded, full_keyless, row_counts
from tests.migrations.spark.written_archive import WrittenShard
from tests.simulation.random_graphs import RandomGraph, RandomRun

FIRST = int(os.environ.get("HEADRACE_SEED", "0"))
GRAPHS = 3
"""Each is a job of one to four stages with a task a shard; a stage takes Spark half a second."""

POSITION = 5


def archived(flow: Flow, root: Path) -> tuple[TableShard, ...]:
    """The tables as they are, as an archive: rows in a snapshot, rows in the log after it, and some that go again."""
    found = []
    for base, rows in row_counts(flow).items():
        name, _, number = base.partition("@")
        schema = flow.tables[name]
        written = WrittenShard(root, schema, int(number or 0), flow.running.shards)
        deltas = folded(flow, base)
        written.snapshot(1, [*deltas[::2], *[(row, weight) for row, weight in deltas[1::4]]])
        written.log(2, 3, [(3, row, -weight) for row, weight in deltas[1::4]])
        written.log(4, POSITION, [(4, row, weight) for row, weight in deltas[1::2]])
        found.append(TableShard(base, schema, POSITION, written.manifest, rows))
    return tuple(found)


def job_of(seed: int, root: Path) -> tuple[Flow, BulkJob]:
    rng = Random(seed)
    graph = RandomGraph(rng)
    graph.grow(rng.randrange(2, 10))
    full_keyless(graph, rng.randrange(1, 4))
    flow, life = graph.flow, RandomRun(graph, rng)
    for _ in range(rng.randrange(10, 25)):
        life.write()
    plan = flow.plan()
    flow.simulation.migrate(plan)
    flow.settle(rng)
    stages = tuple(stages_of(flow.running, plan, flow.tables, row_counts(flow)))
    return flow, BulkJob(f"job{seed}", str(root), str(root / "_bulk" / f"job{seed}"), archived(flow, root), stages)


def states_of(flow: Flow, job: BulkJob, bulk: Bulk) -> States:
    states: dict[object, list[bytes]] = {}
    for file in bulk.run():
        data = (Path(job.staging) / file.file).read_bytes()
        assert len(data) == file.bytes
        states[file.domain, file.node] = list(read_frames(io.BytesIO(data), file.file, file.digest))
    return computed(flow.simulation, states)  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(FIRST, FIRST + GRAPHS))
def test_spark_comes_to_what_one_process_comes_to(spark: SparkSession, seed: int, tmp_path: Path) -> None:
    flow, job = job_of(seed, tmp_path)
    said = io.StringIO()
    bulk = Bulk(spark, job, Reporter(said))
    expected = computed(flow.simulation, run_locally(job.stages, lambda base: folded(flow, base)))
    assert expected, f"seed {seed} has no full state"
    assert states_of(flow, job, bulk) == expected, f"seed {seed}"
    assert bulk._progress()["stages_done"] == len(job.stages)
    assert bulk._progress()["rows"] == job.rows


def test_a_missing_segment_is_named_and_nothing_comes_of_it(spark: SparkSession, tmp_path: Path) -> None:
    _, job = job_of(FIRST, tmp_path)
    manifest = job.tables[0].manifest
    assert manifest is not None
    (tmp_path / manifest.segments[1].file).unlink()
    with pytest.raises(SegmentMissing, match=manifest.segments[1].file):
        Bulk(spark, job, Reporter(io.StringIO())).run()


def test_what_is_read_counts_half_until_it_is_fed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fold of many rows takes minutes, in which a bar stood still."""
    _, job = job_of(FIRST, tmp_path)
    bulk = Bulk(spark, job, Reporter(io.StringIO()))
    assert bulk._progress()["rows"] == 0
    monkeypatch.setattr(bulk._reading, "rows", lambda: bulk._archived // 2)
    assert bulk._progress()["rows"] == pytest.approx(job.rows / 4, abs=1)
    monkeypatch.undo()
    bulk.run()
    assert bulk._reading.rows() >= bulk._archived, "Spark tells of all that it has read"
    assert bulk._progress()["rows"] == job.rows
