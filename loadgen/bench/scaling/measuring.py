"""``headrace bench scale``: what a request costs on clusters of 1, 2, 4 … workers.

On one machine more workers bring no more speed once its cores are busy. What can be measured is what has to hold for
more machines to help: that a request costs no more *processor time* when the same work is spread over more workers.
So real clusters (``headrace up``) run side by side and are asked alike, in turn, by one load process, and the processor
time of all server processes is divided by the requests. What slows the machine for a while slows a round of all.

What a write costs depends on how many share a batch and its sync to disk, and so on how many clients a worker has. So
a cluster is asked by as many clients *for each worker*; and, to see what that hides, by the *same clients* however many
workers share them.

Two series: the *same shards* in all clusters, so that only the number of workers changes, and as *many shards as
workers*. Two programs: the votes stand where they are counted (SHARD BY their story), so that a write concerns one
worker; and *ballots*, which stand by user and are counted by story, so that each write is shuffled.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from headrace.errors import BadRequest
from headrace.render import console
from loadgen.bench import measurement
from loadgen.bench.measurement import Tell
from loadgen.bench.program import VIEW, VIEWS, story
from loadgen.bench.scaling.counts import KINDS, CountSample, Meter, Spent, Subject
from loadgen.bench.scaling.mixed_load import STORIES
from loadgen.bench.scaling.report import (
    PHASES,
    QUICK,
    SHARDS,
    SHUFFLED,
    WHOLE,
    Effort,
    LoadPhase,
    costs_table,
    document,
    messages_table,
    verdict,
)
from loadgen.drills.cluster import ClusterShape, DrillCluster

WORKERS_MAX = 8
"""The most workers: with more, two cores are busy with the processes themselves."""

TABLES = """
CREATE TABLE stories (id int, author int, title text, url text, INDEX (id)) SHARD BY (id);
CREATE TABLE votes (user int, story_id int, INDEX (story_id)) SHARD BY (story_id);
"""
BALLOTS = """
CREATE TABLE ballots (user int, story_id int) SHARD BY (user);
CREATE VIEW BallotCount AS SELECT story_id, COUNT(*) AS ballots FROM ballots GROUP BY story_id;
CREATE EXT VIEW BallotsOfStory AS SELECT story_id, ballots FROM BallotCount WHERE story_id = ?;
"""
"""The shuffled program. Its state comes with the first look-ups, and is filled for all stories."""
TOGETHER = 1_000
"""Rows and keys to a request while the clusters are filled."""
FILL_SECONDS = 120.0


class MixedLoadProcess:
    """``mixed_load.py`` in a process of its own."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "loadgen.bench.scaling.mixed_load"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    async def order(self, **order: Any) -> dict[str, Any]:
        return await asyncio.to_thread(self._order, order)

    def _order(self, order: Mapping[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(order).encode() + b"\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, "the load process has ended; what it could not do is above"
        outcome: dict[str, Any] = json.loads(line)
        return outcome

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def run(workers: str, out: Path | None, quick: bool) -> None:
    """Measure, print the tables, write the JSON file if one is named. BadRequest where ``workers`` is no list."""
    counts = parse_workers(workers)
    printer = console(stderr=True)
    effort = QUICK if quick else WHOLE
    series = asyncio.run(_measure(counts, effort, lambda text: printer.print(text, markup=False)))
    tables = [costs_table(name, subjects) for name, subjects in series.items()]
    tables.append(messages_table([each for subjects in series.values() for each in subjects]))
    for each in tables:
        console().print(each)
    console().print(verdict(series[next(iter(series))]))
    if out is not None:
        measurement.write(out, document(series, effort, quick))
        printer.print(f"wrote {out}")


def parse_workers(text: str) -> list[int]:
    """``1,2,4``: rising, at least two of them, so that there is something to compare."""
    try:
        counts = [int(each) for each in text.split(",")]
    except ValueError:
        counts = []
    if len(counts) < 2 or counts != sorted(set(counts)) or not 1 <= counts[0] <= counts[-1] <= WORKERS_MAX:
        raise BadRequest(
            f'cannot compare the workers "{text}"',
            hint=f"name two or more numbers from 1 to {WORKERS_MAX}, rising: --workers 1,2,4",
        )
    return counts


async def _measure(workers: Sequence[int], effort: Effort, tell: Tell) -> dict[str, list[Subject]]:
    fixed = max(SHARDS, workers[-1])
    return {
        f"{fixed} shards": await _series([ClusterShape(each, fixed, controllers=1) for each in workers], effort, tell),
        "shards as workers": await _series([ClusterShape(each, each, controllers=1) for each in workers], effort, tell),
    }


async def _series(shapes: Sequence[ClusterShape], effort: Effort, tell: Tell) -> list[Subject]:
    async with AsyncExitStack() as opened:
        directory = Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="headrace-scale-")))
        load = MixedLoadProcess()
        opened.callback(load.close)
        subjects = []
        for shape in shapes:
            tell(f"starting {shape.workers} workers with {shape.shards} shards …")
            name = f"{shape.workers}-{shape.shards}"
            subjects.append(await opened.enter_async_context(_subject(DrillCluster(directory / name, shape))))
        for each in subjects:
            await _idle(each, effort.idle_seconds)
        await _rounds(subjects, PHASES, load, effort, tell)
        for each in subjects:
            await _add_ballots(each.cluster.url)
        await _rounds(subjects, SHUFFLED, load, effort, tell)
    return subjects


@asynccontextmanager
async def _subject(cluster: DrillCluster) -> AsyncIterator[Subject]:
    async with AsyncExitStack() as opened:
        opened.push_async_callback(cluster.stop)
        await cluster.start()
        await _fill(cluster.url)
        meter = Meter(cluster)
        opened.push_async_callback(meter.close)
        await meter.open()
        yield Subject(cluster, meter)


async def _idle(subject: Subject, seconds: float) -> None:
    before = subject.meter.cpu()
    await asyncio.sleep(seconds)
    after = subject.meter.cpu()
    subject.idle = Spent({kind: (after[kind] - before[kind]) / seconds for kind in KINDS}, {})


async def _rounds(
    subjects: Sequence[Subject], phases: Sequence[LoadPhase], load: MixedLoadProcess, effort: Effort, tell: Tell
) -> None:
    """One round before the first, to warm up; it is not counted."""
    for number in range(effort.rounds + 1):
        tell(f"round {number} of {effort.rounds}: " + ", ".join(phase.name for phase in phases))
        for phase in phases:
            # Whoever is first meets the caches of the phase before: each is in turn.
            turn = number % len(subjects)
            for subject in (*subjects[turn:], *subjects[:turn]):
                sample = await _sample(subject, phase, load, effort, number)
                if number:
                    subject.samples.setdefault(phase.name, []).append(sample)


async def _sample(subject: Subject, phase: LoadPhase, load: MixedLoadProcess, effort: Effort, seed: int) -> CountSample:
    meter = subject.meter
    said, cpu = await meter.said(), meter.cpu()
    outcome = await load.order(
        port=subject.cluster.port,
        mix=phase.mix,
        table=phase.table,
        view=phase.view,
        connections=effort.connections(phase, subject.workers),
        seconds=effort.seconds,
        seed=seed,
    )
    spent = Spent(meter.cpu(), await meter.said()).since(Spent(cpu, said))
    return CountSample(outcome["requests"], outcome["writes"], outcome["rows"], outcome["seconds"], spent)


async def _fill(url: str) -> None:
    """Stories, each with one vote, and all their keys filled."""
    async with httpx.AsyncClient(base_url=url, timeout=FILL_SECONDS) as client:
        await _post(client, "/v1/sql", {"sql": TABLES + VIEWS})
        for first in range(1, STORIES + 1, TOGETHER):
            numbers = range(first, min(first + TOGETHER, STORIES + 1))
            rows = [dict(zip(("id", "author", "title", "url"), story(number), strict=True)) for number in numbers]
            await _post(client, "/v1/tables/stories/rows", {"rows": rows})
            await _post(client, "/v1/tables/votes/rows", {"rows": _votes(numbers)})
            await _post(client, f"/v1/views/{VIEW}/lookup", {"keys": [[number] for number in numbers]})


async def _add_ballots(url: str) -> None:
    async with httpx.AsyncClient(base_url=url, timeout=FILL_SECONDS) as client:
        await _post(client, "/v1/sql", {"sql": BALLOTS})
        for first in range(1, STORIES + 1, TOGETHER):
            numbers = range(first, min(first + TOGETHER, STORIES + 1))
            await _post(client, "/v1/tables/ballots/rows", {"rows": _votes(numbers)})
            await _post(client, "/v1/views/BallotsOfStory/lookup", {"keys": [[number] for number in numbers]})


def _votes(stories: range) -> list[dict[str, int]]:
    return [{"user": number, "story_id": number} for number in stories]


async def _post(client: httpx.AsyncClient, path: str, body: dict[str, Any]) -> None:
    answer = await client.post(path, json=body)
    assert answer.is_success, answer.text
