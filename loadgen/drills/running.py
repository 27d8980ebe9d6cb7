"""Runs a drill: cluster, load, rounds of the fault, the judgement, and the tidying up."""

from __future__ import annotations

import asyncio
import json
import logging
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from difflib import get_close_matches
from pathlib import Path
from random import Random
from secrets import randbelow
from typing import Any

from rich.table import Table

from headrace.errors import BadRequest
from headrace.render import console
from loadgen.drills.analysis import BEFORE, DURING, FaultRound, LatencySample, examine, percentile, pooled, timeline
from loadgen.drills.catalogue import DRILLS, SHORT, Drill, Goals
from loadgen.drills.cluster import DEPLOYMENT, DrillCluster, DrillFailed, DrillLoadProcess
from loadgen.drills.load import ledger
from loadgen.drills.load.ledger import Record
from loadgen.drills.stage import DrillStage, NotPossible, Observer

# The result of a drill: figures, goals, and whether everything held.

P99_RATIO = 2.0
"""Limit for the p99 during the fault over the p99 before it, of requests that do not need what was lost."""
P99_FLOOR_MS = 20.0
"""A p99 below this counts as this: on two cores, a p99 of some milliseconds doubles by other work."""


@dataclass(frozen=True, slots=True)
class GoalVerdict:
    """One goal, with what was seen. A missed goal of time is reported and does not make the drill fail, since time
    depends on the machine."""

    goal: str
    limit: float
    seen: float | None
    met: bool


@dataclass(frozen=True, slots=True)
class DrillResult:
    drill: str
    seed: int
    document: dict[str, Any]
    verdicts: list[GoalVerdict]
    held: bool
    """Nothing is lost, doubled or wrong, and service came back."""

    def write(self, out: Path) -> None:
        (out / f"{self.drill}.json").write_text(json.dumps(self.document, indent=1) + "\n")


def result_of(
    drill: Drill,
    seed: int,
    rates: tuple[float, float],
    found: Sequence[Record],
    stage: DrillStage,
    judgements: Sequence[dict[str, Any]],
) -> DrillResult:
    shards = stage.cluster.shape.shards
    rounds = [examine(found, fault, shards) for fault in stage.faults]
    before, during = pooled(found, stage.faults, shards)
    verdicts = list(_verdicts(drill.goals, rounds, before, during))
    findings = [each.get("findings") for each in judgements]
    counted = {
        kind: sum(each[kind] for each in findings if each is not None)
        for kind in ("missing", "doubled", "returned", "invented", "reverted", "wrong_reads")
    }
    last = judgements[-1] if judgements else {}
    counted["own_writes_not_seen"] = last.get("unseen", 0)
    held = not any(counted.values()) and not stage.broken and None not in findings and bool(findings)
    zero = stage.faults[0].at if stage.faults else 0.0
    document = {
        "drill": drill.name,
        "says": drill.says,
        "seed": seed,
        "held": held,
        "shape": asdict(stage.cluster.shape),
        "rates": {"reads": rates[0], "writes": rates[1]},
        "requests": len(found),
        "acknowledged_writes": last.get("acknowledged", 0),
        "judged": len(judgements),
        "findings": counted,
        "examples": [text for each in findings if each is not None for text in each["examples"]],
        "broken": stage.broken,
        "problems": last.get("problems", {}),
        "notes": stage.notes,
        "goals": [asdict(verdict) for verdict in verdicts],
        "outage_s": _spread([each.outage_s for each in rounds]),
        "detected_s": _spread([each.detected_s for each in rounds if each.detected_s is not None]),
        "untouched_before": asdict(before),
        "untouched_during": asdict(during),
        "rounds": [
            {"at": round(fault.at - zero, 3), **asdict(each)} for fault, each in zip(stage.faults, rounds, strict=True)
        ],
        "timeline": timeline(found, stage.faults, shards),
    }
    return DrillResult(drill.name, seed, document, verdicts, held)


def _verdicts(
    goals: Goals, rounds: Sequence[FaultRound], before: LatencySample, during: LatencySample
) -> list[GoalVerdict]:
    verdicts = []

    def at_most(goal: str, limit: float | None, values: Sequence[float | None]) -> None:
        if limit is not None:
            known = [value for value in values if value is not None]
            seen = max(known, default=None)
            met = seen is not None and seen <= limit and len(known) == len(values)
            verdicts.append(GoalVerdict(goal, limit, seen, met))

    at_most("s until full service", goals.outage_s, [each.outage_s for each in rounds])
    at_most("s until it was noticed", goals.detected_s, [each.detected_s for each in rounds])
    at_most("ms for the slowest request", goals.slowest_ms, [each.slowest_during_ms for each in rounds])
    if goals.untouched and during.requests:
        at_most("errors of requests that do not need what was lost", 0, [during.errors])
        limit = max(P99_FLOOR_MS, P99_RATIO * (before.p99_ms or 0.0))
        at_most("ms p99 of requests that do not need what was lost", round(limit, 1), [during.p99_ms])
    return verdicts


def _spread(values: Sequence[float]) -> dict[str, float | None]:
    return {
        "median": percentile(values, 0.5),
        "p90": percentile(values, 0.9),
        "max": max(values, default=None),
    }


AFTER = 1.0
"""Seconds of load after the cluster has settled."""
FIRST_SECONDS = BEFORE + 1.0
"""Seconds of load before the first fault; the first second warms up."""
BETWEEN_SECONDS = 2.0
"""Seconds of load before each later fault: enough for a p99 of all rounds together."""
JUDGE_SECONDS = 15.0
"""Time for the last updates to arrive, once writes have stopped."""
PICTURE_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class DrillPlan:
    """The user's options."""

    drill: Drill
    rounds: int
    seed: int
    out: Path
    data: Path | None
    """The cluster's directory; None: a temporary one, which is kept if the drill fails."""
    rates: tuple[float, float]
    """Reads and writes a second."""


def run(plan: DrillPlan, tell: Callable[[str], None]) -> DrillResult:
    """Carry a drill out. Raises NotPossible, DrillFailed; KeyboardInterrupt also where SIGTERM ends it."""
    try:
        return asyncio.run(_run(plan, tell))
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None


async def _run(plan: DrillPlan, tell: Callable[[str], None]) -> DrillResult:
    task = asyncio.current_task()
    assert task is not None
    # Started processes are stopped, and mounts are unmounted, however the drill ends.
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


async def _carried_out(plan: DrillPlan, data: Path, tell: Callable[[str], None]) -> DrillResult:
    drill, name = plan.drill, plan.drill.name
    cluster = DrillCluster(data, drill.shape)
    file = plan.out / f"{name}.requests.csv"
    file.unlink(missing_ok=True)
    async with AsyncExitStack() as opened:
        means = await opened.enter_async_context(drill.means(cluster))
        opened.push_async_callback(cluster.stop)
        tell(f"{name}, seed {plan.seed}: starting {_words(cluster)}")
        await cluster.start()
        load = await DrillLoadProcess.start(cluster.url, f"{name} {plan.seed}", file, plan.rates)
        opened.push_async_callback(load.end)
        await load.order("prepare")
        observer = await Observer.start(cluster.address_of_zookeeper, DEPLOYMENT, cluster.secret)
        opened.push_async_callback(observer.close)
        stage = DrillStage(cluster, observer, Random(f"{name} {plan.seed}"), data, tell, means=means, load=load)
        if drill.prepare is not None:
            await drill.prepare(stage)
        judgements = []
        for number in range(plan.rounds):
            judgement = await _round(drill, stage, load, first=number == 0)
            judgements.append(judgement)
            tell(_progress(number + 1, plan, stage, judgement))
            if not _right(judgement):
                break  # What is wrong stays wrong; the data tell more now than after a hundred rounds more.
        found = await asyncio.to_thread(ledger.read, file)
    result = result_of(drill, plan.seed, plan.rates, found, stage, judgements)
    result.write(plan.out)
    return result


async def _round(drill: Drill, stage: DrillStage, load: DrillLoadProcess, *, first: bool) -> dict[str, Any]:
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


def _progress(number: int, plan: DrillPlan, stage: DrillStage, judgement: dict[str, Any]) -> str:
    fault = stage.faults[-1] if stage.faults else None
    said = "" if fault is None or fault.whole is None else f", whole again after {fault.whole - fault.at:.2f} s"
    verdict = f"{judgement.get('acknowledged', 0)} acknowledged writes are right"
    if not _right(judgement):
        verdict = str(judgement.get("findings") or "not judged")
    if stage.broken:
        verdict += f"; but {stage.broken[-1]}"
    return f"  round {number} of {plan.rounds}{said}; {verdict}"


def _words(cluster: DrillCluster) -> str:
    shape = cluster.shape
    return (
        f"{shape.workers} workers, {shape.controllers} controllers, {shape.zookeepers} ZooKeeper, {shape.shards} shards"
    )


async def _draw(plan: DrillPlan) -> None:
    """The picture is another program's, so that a drill does not hang on it."""
    paths = [str(plan.out / f"{plan.drill.name}.{kind}") for kind in ("json", "png")]
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", "loadgen.drills.timeline", *paths)
    async with asyncio.timeout(PICTURE_SECONDS):
        if await process.wait() != 0:
            raise DrillFailed("the timeline could not be drawn", hint=f"its figures are in {paths[0]}")


# The drills on a terminal: the list, the run, and what came out.

ALL = "all"
SEEDS = 1_000_000


def list_drills() -> None:
    table = Table(box=None, pad_edge=False)
    for heading in ("drill", "what is done"):
        table.add_column(heading)
    for drill in DRILLS.values():
        table.add_row(drill.name, drill.says + (" (short set)" if drill.name in SHORT else ""))
    console().print(table)


def chosen(name: str, *, short: bool) -> list[Drill]:
    """The drill of this name, or several for "all". Raises BadRequest."""
    if name == ALL:
        return [DRILLS[each] for each in (SHORT if short else DRILLS)]
    if short:
        raise BadRequest("--short chooses among all drills", hint="headrace drill all --short")
    if name not in DRILLS:
        near = get_close_matches(name, DRILLS, 1)
        hint = f'did you mean "{near[0]}"?' if near else "headrace drill --list"
        raise BadRequest(f'there is no drill "{name}"', hint=hint)
    return [DRILLS[name]]


def run_drills(
    drills: Sequence[Drill],
    *,
    rounds: int,
    seed: int | None,
    out: Path,
    data: Path | None,
    rates: tuple[float, float],
) -> bool:
    """Whether everything held. One that is not possible here is skipped among several, and an error alone."""
    printer = console()
    # The drill looks on through a session of its own; that ZooKeeper goes away is what it is about.
    logging.getLogger("headrace.zookeeper").setLevel(logging.ERROR)
    held = True
    for drill in drills:
        chance = randbelow(SEEDS) if seed is None else seed
        at = data if data is None or len(drills) == 1 else data / drill.name
        try:
            result = run(
                DrillPlan(drill, rounds, chance, out, at, rates), lambda line: printer.print(line, markup=False)
            )
        except NotPossible as error:
            if len(drills) == 1:
                raise
            printer.print(f"{drill.name}: {error}", markup=False)
            continue
        except DrillFailed as error:
            if len(drills) == 1:
                raise
            printer.print(f"{drill.name}: {error}", markup=False, style="bold red")
            held = False
            continue
        show(result, out)
        held = held and result.held
    return held


def show(result: DrillResult, out: Path) -> None:
    document, printer = result.document, console()
    style = "bold green" if result.held else "bold red"
    printer.print(f"{result.drill}:", "held" if result.held else "DID NOT HOLD", style=style)
    wrong = {kind: count for kind, count in document["findings"].items() if count}
    printer.print(
        f"  {document['acknowledged_writes']:,} acknowledged writes, {document['requests']:,} requests; "
        + (f"wrong: {wrong}" if wrong else "nothing missing, doubled or wrong"),
        markup=False,
    )
    for text in (*document["broken"], *document["examples"]):
        printer.print(f"  {text}", markup=False)
    for verdict in result.verdicts:
        seen = "none seen" if verdict.seen is None else f"{verdict.seen:g}"
        met = "" if verdict.met else "  ← missed"
        printer.print(f"  {seen} {verdict.goal} (at most {verdict.limit:g}){met}", markup=False)
    printer.print(f"  {out / result.drill}.json, {out / result.drill}.png", markup=False)
