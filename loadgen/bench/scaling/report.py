"""The figures of ``headrace bench scale`` as tables and as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from rich.table import Table

from loadgen.bench import measurement
from loadgen.bench.program import VIEW
from loadgen.bench.scaling.counts import KINDS, CountSample, Subject

# What ``headrace bench scale`` asks of its clusters, and for how long.

GOAL = 1.15
"""Processor time of a request with the most workers, over that with the fewest, with the same shards."""
SHARDS = 4
"""Shards of the first series: one for each of four workers."""


@dataclass(frozen=True, slots=True)
class LoadPhase:
    """The load's requests: see ``mixed_load.MIXES``."""

    name: str
    mix: str
    table: str = "votes"
    view: str = VIEW
    same_clients: bool = False


PHASES = (
    LoadPhase("mix", "mix"),
    LoadPhase("mix, same clients", "mix", same_clients=True),
    LoadPhase("reads", "reads"),
    LoadPhase("singles", "singles"),
    LoadPhase("batches", "batches"),
)
SHUFFLED = (
    LoadPhase("shuffled singles", "singles", "ballots", "BallotsOfStory"),
    LoadPhase("shuffled batches", "batches", "ballots", "BallotsOfStory"),
)


@dataclass(frozen=True, slots=True)
class Effort:
    """How long everything is measured."""

    rounds: int
    seconds: float
    """A phase's, in each round, on each cluster."""
    clients: int = 32
    """Clients for each worker, each with one request under way."""
    idle_seconds: float = 5.0

    def connections(self, phase: LoadPhase, workers: int) -> int:
        return SAME_CLIENTS if phase.same_clients else self.clients * workers


SAME_CLIENTS = 64
WHOLE = Effort(rounds=5, seconds=2.0)
QUICK = Effort(rounds=2, seconds=0.7, clients=8, idle_seconds=1.0)


def compared(subject: Subject, base: Subject, phase: str) -> float:
    """Processor time of a request against that of another cluster: the median of the rounds' ratios."""
    pairs = zip(subject.samples[phase], base.samples[phase], strict=True)
    return median(ours.microseconds / theirs.microseconds for ours, theirs in pairs)


def cost(samples: Sequence[CountSample], *kinds: str) -> float:
    """µs of processor time a request, of these kinds of parts: the median of the rounds."""
    return median(1e6 * sum(each.spent.cpu[kind] for kind in kinds) / each.requests for each in samples)


def each_write(samples: Sequence[CountSample], name: str) -> float:
    """How many of what is counted come to one write, over all rounds."""
    return sum(each.spent.said[name] for each in samples) / max(1, sum(each.writes for each in samples))


def costs_table(name: str, subjects: Sequence[Subject]) -> Table:
    columns = ("requests", "workers", "a second", "µs", "api", "workers'", "controller", "+ ZooKeeper", "ratio")
    rows = []
    for phase in (*PHASES, *SHUFFLED):
        for each in subjects:
            samples = each.samples[phase.name]
            row = (
                phase.name,
                str(each.workers),
                f"{median(one.requests / one.seconds for one in samples):,.0f}",
                f"{cost(samples, 'api', 'worker', 'controller'):.0f}",
                f"{cost(samples, 'api'):.0f}",
                f"{cost(samples, 'worker'):.0f}",
                f"{cost(samples, 'controller'):.1f}",
                f"{cost(samples, *KINDS):.0f}",
                f"{compared(each, subjects[0], phase.name):.2f}",
            )
            rows.append(row)
    return measurement.table(f"µs of processor time a request, {name}", columns, rows, group=len(subjects))


MESSAGES = {
    "packets": "packets",
    "beats": "of these beats",
    "sent": "to other workers",
    "frames": "frames",
    "acks": "acks",
    "sent_bytes": "bytes",
    "asked": "api messages",
    "asked_bytes": "api bytes",
    "batches": "batches",
    "syncs": "syncs",
}


def messages_table(subjects: Sequence[Subject]) -> Table:
    rows = []
    for phase in (*PHASES[3:], *SHUFFLED):
        for each in subjects:
            samples = each.samples[phase.name]
            figures = [f"{each_write(samples, name):,.2f}" for name in MESSAGES]
            rows.append((phase.name, str(each.shards), str(each.workers), *figures))
    columns = ("requests", "shards", "workers", *MESSAGES.values())
    return measurement.table("messages and bytes a write", columns, rows, group=len(subjects))


def verdict(subjects: Sequence[Subject]) -> str:
    ratio, same = (compared(subjects[-1], subjects[0], phase.name) for phase in PHASES[:2])
    met = "met" if ratio <= GOAL else "not met"
    return (
        f"the mix costs {ratio:.2f} times as much with {subjects[-1].workers} workers as with {subjects[0].workers} "
        f"({same:.2f} with the same clients); the goal is {GOAL:g} at most: {met}"
    )


def document(series: Mapping[str, Sequence[Subject]], effort: Effort, quick: bool) -> dict[str, Any]:
    first = series[next(iter(series))]
    ratio, same = (compared(first[-1], first[0], phase.name) for phase in PHASES[:2])
    return {
        **measurement.document([], quick),
        "rounds": effort.rounds,
        "seconds": effort.seconds,
        "clients_for_each_worker": effort.clients,
        "same_clients": SAME_CLIENTS,
        "ratio": round(ratio, 3),
        "ratio_with_the_same_clients": round(same, 3),
        "goal": GOAL,
        "met": ratio <= GOAL,
        "series": {name: [_shown(each, subjects[0]) for each in subjects] for name, subjects in series.items()},
    }


def _shown(subject: Subject, base: Subject) -> dict[str, Any]:
    assert subject.idle is not None
    return {
        "workers": subject.workers,
        "shards": subject.shards,
        "idle_cpu": {kind: round(share, 4) for kind, share in subject.idle.cpu.items()},
        "phases": {
            phase: {
                "requests_per_second": round(median(each.requests / each.seconds for each in samples), 1),
                "requests": sum(each.requests for each in samples),
                "writes": sum(each.writes for each in samples),
                "rows": sum(each.rows for each in samples),
                "cpu_us": round(cost(samples, "api", "worker", "controller"), 2),
                "cpu_us_with_zookeeper": round(cost(samples, *KINDS), 2),
                "cpu_us_by_part": {kind: round(cost(samples, kind), 2) for kind in KINDS},
                "cpu_us_of_rounds": [round(each.microseconds, 1) for each in samples],
                "ratio": round(compared(subject, base, phase), 3),
                "a_write": {name: round(each_write(samples, name), 3) for name in samples[0].spent.said},
            }
            for phase, samples in subject.samples.items()
        },
    }
