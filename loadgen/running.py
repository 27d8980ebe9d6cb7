"""One load run from its options to its result: check the target, fill it if asked, run one rate or sweep, write down.

::

    Options ─► target (peers/opening.py) ─► check ─► can the generator make that rate? ─► points ─► Result ─► JSON
                     │ prime, if asked                (against the null target)            │
                     └─────────────────────────────────────────────────────────── Ctrl-C ──┘  what there is, is kept
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from time import process_time
from typing import Any, Protocol

import orjson

from loadgen.pace.loop import Glimpse, LoadPace, OpenLoop, Workload
from loadgen.pace.point import Point
from loadgen.pace.processes import machine
from loadgen.peers.opening import NullSession, open_target
from loadgen.peers.store import LoadRunError, RequestFailed, Target
from loadgen.workloads import graph
from loadgen.workloads.crud import CrudWorkload
from loadgen.workloads.lobsters import VARIANTS, LobstersWorkload, RibbonsWorkload
from loadgen.workloads.vote import DISTRIBUTIONS, VoteWorkload

# The highest rate that a target sustains: double until it does not keep up, then halve the gap.
#
# Each point is a run of its own with the mean sojourn time as the judge (``point.SUSTAINED_MS``). Points are measured
# on the same target one after the other, so what one has cached the next one has too; the warm-up is for the same.

RESOLUTION = 0.1
"""Stop when the gap between a sustained rate and the next that was not is this part of the former."""
FASTER = 2.0
TRIES = 2
"""Times that a rate may fail before it counts as not sustained: on a machine with other work one slow second is not the
target's."""
POINTS_MAX = 40

Measure = Callable[[float], Awaitable[Point]]


async def sweep(measure: Measure, start: float, goes_on: Callable[[], bool]) -> list[Point]:
    """All points, in the order of measuring. Ends early when ``goes_on`` says no, or a generator was the bottleneck."""
    points: list[Point] = []
    below, above = 0.0, 0.0
    rate = start
    while goes_on() and len(points) < POINTS_MAX:
        point = await _best_of(measure, rate, points, goes_on)
        if point.sustained:
            below = rate
        else:
            above = rate
        if below and above:
            if above - below <= RESOLUTION * below:
                break
            rate = (below + above) / 2
        elif below:
            rate = below * FASTER
        else:
            rate = above / FASTER
            if rate < start / 1000:
                break
    return points


async def _best_of(measure: Measure, rate: float, points: list[Point], goes_on: Callable[[], bool]) -> Point:
    for _ in range(TRIES):
        point = await measure(rate)
        points.append(point)
        if point.sustained or not goes_on():
            break
    return point


def highest_sustained(points: list[Point]) -> Point | None:
    """The fastest of the points that were sustained."""
    return max((each for each in points if each.sustained), key=lambda each: each.offered, default=None)


# Which workloads there are, and what a run asks of one beside its jobs.

NAMES = ("lobsters", "ribbons", "vote", "crud", "graph")


def open_workload(asked: RunOptions) -> Workload:
    """Raises LoadRunError for a name or a variant that is not known."""
    match asked.workload:
        case "lobsters":
            _known("variant", asked.variant, VARIANTS)
            return LobstersWorkload(
                variant=asked.variant, data_scale=asked.data_scale, data_seed=asked.data_seed, seed=asked.seed
            )
        case "ribbons":
            return RibbonsWorkload(
                data_scale=asked.data_scale, data_seed=asked.data_seed, seed=asked.seed, batch=asked.batch
            )
        case "vote":
            _known("distribution", asked.distribution, DISTRIBUTIONS)
            return VoteWorkload(
                data_scale=asked.data_scale, seed=asked.seed, distribution=asked.distribution, batch=asked.batch
            )
        case "crud":
            return CrudWorkload(data_scale=asked.data_scale, seed=asked.seed)
        case "graph":
            _known("variant", asked.variant, graph.VARIANTS)
            _known("distribution", asked.distribution, graph.DISTRIBUTIONS)
            return graph.GraphWorkload(
                variant=asked.variant,
                data_scale=asked.data_scale,
                data_seed=asked.data_seed,
                seed=asked.seed,
                distribution=asked.distribution,
            )
    raise LoadRunError(f'there is no workload "{asked.workload}"', hint=f"known are {', '.join(NAMES)}")


def _known(what: str, given: str, known: tuple[str, ...]) -> None:
    if given not in known:
        raise LoadRunError(f'there is no {what} "{given}"', hint=f"known are {', '.join(known)}")


CALIBRATION_S = 0.25
"""Processor time spent on learning what the generator can do."""
SWEEP_PATIENCE = 3.0
"""Seconds that the oldest may wait before a point of a sweep is given up: sixty times what is sustained."""


@dataclass(frozen=True, slots=True)
class RunOptions:
    workload: str
    target: str
    variant: str = "natural"
    rate: float = 50.0
    runtime: float = 30.0
    warmup: float = 5.0
    in_flight: int = 64
    seed: int = 1
    data_scale: float = 1.0
    data_seed: int = 1
    distribution: str = "zipf"
    batch: int = 1000
    prime: bool = False
    sweep: bool = False


@dataclass(slots=True)
class RunResult:
    options: RunOptions
    unit: str = "pages"
    target: dict[str, str] = field(default_factory=dict)
    machine: dict[str, str] = field(default_factory=dict)
    date: str = ""
    generator_limit: float = 0.0
    """Units a second that the generator makes when nothing has to be waited for."""
    points: list[Point] = field(default_factory=list)
    cut: bool = False

    @property
    def sustained(self) -> Point | None:
        return highest_sustained(self.points)

    def document(self) -> dict[str, Any]:
        best = self.sustained
        return {
            "options": asdict(self.options),
            "unit": self.unit,
            "target": self.target,
            "machine": self.machine,
            "date": self.date,
            "generator_limit": round(self.generator_limit, 1),
            "cut": self.cut,
            "sustained": None if best is None else best.offered,
            "points": [each.document() for each in self.points],
        }

    def write(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(orjson.dumps(self.document(), option=orjson.OPT_INDENT_2))


class RunTeller(Protocol):
    """Shows how it goes."""

    def loading(self, what: str, done: int, total: int) -> None: ...

    def begins(self, rate: float) -> None: ...

    def glimpse(self, glimpse: Glimpse) -> None: ...

    def ended(self, point: Point) -> None: ...


class LoadRun:
    """One run; ``result`` has what was measured so far, at any time."""

    def __init__(self, options: RunOptions, teller: RunTeller) -> None:
        self.result = RunResult(options, machine=machine(), date=datetime.now(UTC).isoformat(timespec="seconds"))
        self._options, self._teller = options, teller
        self._loop: OpenLoop | None = None

    async def execute(self) -> RunResult:
        """Raises LoadRunError. Ctrl-C (or SIGTERM) ends the point under way, and with it the run."""
        options = self._options
        workload = open_workload(options)
        target = open_target(options.target)
        self.result.unit = workload.unit
        try:
            self.result.target = await target.describe()
            if options.prime:
                rows, total = workload.rows()
                await target.prime(workload.program, rows, total, self._teller.loading)
            await target.check(workload.program, workload.probe())
            self.result.generator_limit = limit = await capacity(workload)
            if options.rate > limit and not options.sweep:
                raise LoadRunError(
                    f"this generator makes at most {limit:,.0f} {workload.unit} a second here, not {options.rate:,.0f}",
                    hint="ask for less, or run several generators with seeds of their own",
                )
            _on_interrupt(self.interrupt)
            await self._measure(workload, target)
        except RequestFailed as error:  # While checking or loading; during a point it would be counted.
            raise LoadRunError(f"the target failed: {error}", hint="is it of this version, and does it run?") from error
        finally:
            await target.close()
        return self.result

    def interrupt(self) -> None:
        """End early, and keep what there is."""
        self.result.cut = True
        if self._loop is not None:
            self._loop.stop()

    async def _measure(self, workload: Workload, target: Target) -> None:
        options, points = self._options, self.result.points

        async def measure(rate: float) -> Point:
            self._teller.begins(rate)
            pace = LoadPace(
                rate,
                options.runtime,
                options.warmup,
                options.in_flight,
                options.seed + len(points),
                SWEEP_PATIENCE if options.sweep else None,
            )
            self._loop = OpenLoop(workload, target, pace, self._teller.glimpse)
            point = await self._loop.run()
            point.notes.update(target.notes())
            points.append(point)
            self._teller.ended(point)
            return point

        if options.sweep:
            await sweep(measure, options.rate, lambda: not self.result.cut)
        else:
            await measure(options.rate)


async def capacity(workload: Workload) -> float:
    """Units a second of processor time that the generator makes when the target costs nothing."""
    session = NullSession()
    jobs_a_second = workload.begin(1.0)
    units = 0
    began = process_time()
    while (used := process_time() - began) < CALIBRATION_S:
        for _ in range(20):
            job = workload.draw(0.0)
            units += job.count
            try:
                await job.act(session)
            except RequestFailed as error:
                raise AssertionError(f"the null target does not know {job.kind}: {error}") from error
    assert jobs_a_second > 0
    return units / used


def _on_interrupt(act: Any) -> None:
    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, act)
    except (NotImplementedError, RuntimeError, ValueError):
        return  # Not on the main thread, or a system without signals: Ctrl-C then ends the run at once.
