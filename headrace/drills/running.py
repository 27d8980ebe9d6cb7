"""Runs a drill: cluster, load, rounds of the fault, the judgement, and the tidying up."""

from __future__ import annotations

import asyncio
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from headrace.drills.catalogue import Drill
from headrace.drills.cluster import DEPLOYMENT, Cluster
from headrace.drills.loading import DrillFailed, LoadProcess
from headrace.drills.observer import Observer
from headrace.drills.report import Result, result_of
from headrace.drills.stage import Stage
from loadgen.drills import records
from loadgen.drills.analysis import BEFORE, DURING

AFTER = 1.0
"""Seconds of load after the cluster has settled."""
FIRST_SECONDS = BEFORE + 1.0
"""Of load before the first fault; the first second warms up."""
BETWEEN_SECONDS = 2.0
"""Of load before each later one: enough for a p99 of all rounds together."""
JUDGE_SECONDS = 15.0
"""For the last updates to arrive, once nothing is written any more."""
PICTURE_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Plan:
    """What the user asked for."""

    drill: Drill
    rounds: int
    seed: int
    out: Path
    data: Path | None
    """Where the cluster lives; None: in a temporary directory, which is kept if the drill fails."""
    rates: tuple[float, float]
    """Reads and writes a second."""


def run(plan: Plan, tell: Callable[[str], None]) -> Result:
    """Carry a drill out. Raises NotPossible, DrillFailed; KeyboardInterrupt also where SIGTERM ends it."""
    try:
        return asyncio.run(_run(plan, tell))
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None


async def _run(plan: Plan, tell: Callable[[str], None]) -> Result:
    task = asyncio.current_task()
    assert task is not None
    # What was started is stopped, and what was mounted is unmounted, whoever ends the drill.
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    plan.out.mkdir(parents=True, exist_ok=True)
    data = plan.data or Path(tempfile.mkdtemp(prefix="headrace-drill-"))
    try:
        result = await _carried_out(plan, data, tell)
    except BaseException:
        tell(f"the cluster's data and logs are in {data}")
        raise
    if result.held and plan.data is None:
        await asyncio.to_thread(shutil.rmtree, data, ignore_errors=True)
    else:
        tell(f"the cluster's data and logs are in {data}")
    await _draw(plan)
    return result


async def _carried_out(plan: Plan, data: Path, tell: Callable[[str], None]) -> Result:
    drill, name = plan.drill, plan.drill.name
    cluster = Cluster(data, drill.shape)
    file = plan.out / f"{name}.requests.csv"
    file.unlink(missing_ok=True)
    async with AsyncExitStack() as opened:
        means = await opened.enter_async_context(drill.means(cluster))
        opened.push_async_callback(cluster.stop)
        tell(f"{name}, seed {plan.seed}: starting {_words(cluster)}")
        await cluster.start()
        load = await LoadProcess.start(cluster.url, f"{name} {plan.seed}", file, plan.rates)
        opened.push_async_callback(load.end)
        await load.order("prepare")
        observer = await Observer.start(cluster.address_of_zookeeper, DEPLOYMENT)
        opened.push_async_callback(observer.close)
        stage = Stage(cluster, observer, Random(f"{name} {plan.seed}"), data, tell, means=means, load=load)
        await drill.prepare(stage)
        judgements = []
        for number in range(plan.rounds):
            judgement = await _round(drill, stage, load, first=number == 0)
            judgements.append(judgement)
            tell(_progress(number + 1, plan, stage, judgement))
            if not _right(judgement):
                break  # What is wrong stays wrong; the data tell more now than after a hundred rounds more.
        found = await asyncio.to_thread(records.read, file)
    result = result_of(drill, plan.seed, plan.rates, found, stage, judgements)
    result.write(plan.out)
    return result


async def _round(drill: Drill, stage: Stage, load: LoadProcess, *, first: bool) -> dict[str, Any]:
    await load.order("go")
    await asyncio.sleep(FIRST_SECONDS if first else BETWEEN_SECONDS + stage.random.random())
    try:
        await drill.act(stage)
        stage.amend(whole=await stage.until_whole())
        stage.amend(settled=await stage.until_settled())
        await asyncio.sleep(max(AFTER, stage.faults[-1].at + DURING - stage.now))
    except (DrillFailed, TimeoutError) as error:
        stage.broken.append(
            error.message if isinstance(error, DrillFailed) else "a part that was restarted is not back"
        )
    await load.order("pause")
    try:
        return await load.order("judge", within=JUDGE_SECONDS)
    except DrillFailed as error:
        stage.broken.append(error.message)
        return {}


def _right(judgement: dict[str, Any]) -> bool:
    findings = judgement.get("findings")
    return (
        findings is not None
        and not judgement["unseen"]
        and not any(count for kind, count in findings.items() if kind != "examples")
    )


def _progress(number: int, plan: Plan, stage: Stage, judgement: dict[str, Any]) -> str:
    fault = stage.faults[-1] if stage.faults else None
    said = "" if fault is None or fault.whole is None else f", whole again after {fault.whole - fault.at:.2f} s"
    verdict = f"{judgement.get('acknowledged', 0)} acknowledged writes are right"
    if not _right(judgement):
        verdict = str(judgement.get("findings") or "not judged")
    if stage.broken:
        verdict += f"; but {stage.broken[-1]}"
    return f"  round {number} of {plan.rounds}{said}; {verdict}"


def _words(cluster: Cluster) -> str:
    shape = cluster.shape
    return (
        f"{shape.workers} workers, {shape.controllers} controllers, {shape.zookeepers} ZooKeeper, {shape.shards} shards"
    )


async def _draw(plan: Plan) -> None:
    """The picture is another program's, so that a drill does not hang on it."""
    paths = [str(plan.out / f"{plan.drill.name}.{kind}") for kind in ("json", "png")]
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", "loadgen.drills.timeline", *paths)
    async with asyncio.timeout(PICTURE_SECONDS):
        if await process.wait() != 0:
            raise DrillFailed("the timeline could not be drawn", hint=f"its figures are in {paths[0]}")
