"""A drill's findings: figures, goals, and whether everything held."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from headrace.drills.catalogue import Drill, Goals
from headrace.drills.stage import DrillStage
from loadgen.drills.analysis import FaultRound, LatencySample, examine, percentile, pooled, timeline
from loadgen.drills.ledger import Record

P99_RATIO = 2.0
"""Of requests that do not need what was lost: during the fault, at most this times before it."""
P99_FLOOR_MS = 20.0
"""On a machine with two cores a p99 of some milliseconds doubles by whatever else runs; below this it is no matter."""


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
