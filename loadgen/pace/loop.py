"""The open loop: arrivals when they are due, so many sessions that serve them, and both times of each.

Times are taken from ``perf_counter``: an event loop's own clock may tick by the millisecond. A test hands in another.

One coroutine watches the clock and puts jobs in a queue; each session takes the oldest when it is free. The queue has
no bound: what waits in it is what the target owes. A run that owes more than it can ever answer may be told to give up.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from time import perf_counter, process_time

from loadgen.pace.point import Histogram, Latencies, Point, RequestKind, Timeline
from loadgen.pace.processes import ProcessWatch
from loadgen.peers.store import LoadRunError, Lookup, PeerSession, Program, RequestFailed, Rows, Target


@dataclass(frozen=True, slots=True)
class Arrival:
    """One arrival: a page, or a batch of requests that a client sends together."""

    kind: str
    act: Callable[[PeerSession], Awaitable[None]]
    """Raises RequestFailed."""
    count: int = 1
    """Requests in it."""
    gathered: float = 0.0
    """Seconds over which those were gathered, until the arrival: their mean waiting is half of it."""


class Workload(ABC):
    """A stream of jobs, and the program and rows that they expect in a target. The same seed gives the same stream."""

    name: str
    unit = "requests"
    """The unit of a rate."""
    program: Program

    def begin(self, rate: float) -> float:
        """Jobs a second for ``rate`` units a second; called before each point."""
        return rate

    @abstractmethod
    def draw(self, at: float) -> Arrival:
        """The job that arrives ``at`` seconds after the start."""

    @abstractmethod
    def probe(self) -> Lookup | None:
        """A look-up that has rows if the data is there."""

    @abstractmethod
    def rows(self) -> tuple[Rows, int]:
        """All rows by the batch, and how many there are."""


# When requests arrive: a Poisson process out of a seed.


def arrivals(rate: float, random: Random) -> Iterator[float]:
    """Seconds since the start, ascending, without end: gaps are exponential with a mean of ``1 / rate``.

    :param rate: arrivals a second, more than 0.
    """
    if rate <= 0:
        raise ValueError(f"rate must be greater than 0, not {rate}")
    due = 0.0
    draw = random.expovariate
    while True:
        due += draw(rate)
        yield due


LOOK_EVERY = 1.0
"""Seconds between two looks at the servers' processes: a look takes some milliseconds."""
DRAIN = 5.0
"""Seconds after the last arrival in which what is owed may still be answered."""
CLOSE_WITHIN = 2.0
CANCELS_MAX = 5
ERRORS_KEPT = 20
"""Different texts of errors; the rest are counted together."""


@dataclass(frozen=True, slots=True)
class LoadPace:
    """How to run one point."""

    rate: float
    """Units a second."""
    runtime: float = 10.0
    """Seconds that are measured."""
    warmup: float = 2.0
    """Seconds before those, of the same load."""
    in_flight: int = 64
    seed: int = 1
    give_up_after: float | None = None
    """End the point when the oldest that waits has waited for so many seconds."""


@dataclass(frozen=True, slots=True)
class Glimpse:
    """How a run is going, for whoever watches."""

    elapsed: float
    total: float
    arrived: int
    answered: int
    failed: int
    waiting: int
    recent_p95_ms: float


Watcher = Callable[[Glimpse], None]


class OpenLoop:
    """One point. ``stop`` may be called at any time, by a signal: what was measured so far is the result."""

    def __init__(
        self,
        workload: Workload,
        target: Target,
        pace: LoadPace,
        watcher: Watcher | None = None,
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        self._workload, self._target, self._pace = workload, target, pace
        self._watcher, self._clock = watcher, clock
        self._waiting: deque[tuple[float, Arrival]] = deque()
        self._idle: deque[asyncio.Future[None]] = deque()
        self._latencies, self._timeline, self._late = Latencies(), Timeline(), Histogram()
        self._errors: Counter[str] = Counter()
        self._point = Point(offered=pace.rate)
        self._under_way: dict[int, tuple[float, Arrival]] = {}
        self._recent: deque[float] = deque(maxlen=500)
        self._stopped = asyncio.Event()
        self._began = self._measured_from = 0.0
        self._arrived = self._answered = self._failed = 0
        self._cpu_before: float | None = None
        self._ended = False

    def stop(self) -> None:
        """End early."""
        self._point.cut = True
        self._stopped.set()

    async def run(self) -> Point:
        """Raises LoadRunError when the target cannot be reached at the start."""
        pace, point = self._pace, self._point
        watch = await asyncio.to_thread(ProcessWatch, self._target.servers)
        sessions = await self._sessions()
        jobs_a_second = self._workload.begin(pace.rate)
        loop = asyncio.get_running_loop()
        self._began = self._clock()
        self._measured_from = self._began + pace.warmup
        workers = [asyncio.create_task(self._serve(each)) for each in sessions]
        looking = asyncio.create_task(self._look(watch))
        cpu_mark = loop.call_later(pace.warmup, self._mark_cpu)
        try:
            await self._arrive(jobs_a_second, [*workers, looking])
            ended = self._clock()
            self._ended = True
            await self._drain(workers)
        finally:
            cpu_mark.cancel()
            await _end((*workers, looking))
            for session in sessions:
                await _close(session)
        point.seconds = max(0.0, ended - self._measured_from)
        if self._cpu_before is not None:
            point.generator_cpu = (process_time() - self._cpu_before) / (self._clock() - self._measured_from)
            await asyncio.to_thread(watch.look)
        point.servers, point.unseen = watch.uses, watch.missing
        return self._result()

    async def _sessions(self) -> list[PeerSession]:
        made: list[PeerSession] = []
        try:
            while len(made) < self._pace.in_flight:
                made.append(await self._target.session())
        except LoadRunError:
            for session in made:
                await session.close()
            raise
        return made

    async def _arrive(self, jobs_a_second: float, tasks: Sequence[asyncio.Task[None]]) -> None:
        pace = self._pace
        end = pace.warmup + pace.runtime
        draw = self._workload.draw
        next_glimpse = 0.0
        for due in arrivals(jobs_a_second, Random(pace.seed)):
            if due >= end:
                await self._pause(self._began + end - self._clock())
                return
            while (wait := self._began + due - self._clock()) > 0:
                await self._pause(wait)
                if self._stopped.is_set():
                    return
            now = self._clock()
            if self._stopped.is_set():
                return
            at = self._began + due
            self._admit(at, draw(due))
            if at >= self._measured_from:
                self._late.add(now - at)
            if now - self._began >= next_glimpse:
                next_glimpse = now - self._began + 0.25
                self._glimpse(now)
                _raise_from(tasks)
                if self._is_hopeless(now):
                    self.stop()
            if not self._arrived % 16:
                await asyncio.sleep(0)  # Behind, it would otherwise never let anybody else run.

    async def _pause(self, seconds: float) -> None:
        if seconds > 0:
            # In pieces, so that a stop is noticed; waiting for an event with a time-out costs five times as much.
            await asyncio.sleep(min(seconds, 0.25))

    def _admit(self, at: float, job: Arrival) -> None:
        self._arrived += 1
        if at >= self._measured_from:
            self._point.arrived += job.count
        self._waiting.append((at, job))
        while self._idle:
            idle = self._idle.popleft()
            if not idle.done():
                idle.set_result(None)
                break

    async def _serve(self, session: PeerSession) -> None:
        loop = asyncio.get_running_loop()
        number = id(session)
        while True:
            while not self._waiting:
                idle = loop.create_future()
                self._idle.append(idle)
                await idle
            at, job = self._waiting.popleft()
            begun = self._clock()
            self._under_way[number] = (at, job)
            try:
                await job.act(session)
            except RequestFailed as error:
                self._note_failure(at, job, str(error))
            else:
                self._note(at, begun, self._clock(), job)
            finally:
                del self._under_way[number]

    def _note(self, at: float, begun: float, done: float, job: Arrival) -> None:
        self._answered += 1
        sojourn = done - at + job.gathered / 2
        self._recent.append(sojourn)
        self._timeline.add(at - self._began, sojourn)
        if at >= self._measured_from:
            self._point.answered += job.count
            if not self._ended:
                self._point.in_time += job.count
            self._latencies.add(job.kind, sojourn, done - begun, job.count)

    def _note_failure(self, at: float, job: Arrival, text: str) -> None:
        self._failed += 1
        self._timeline.failed(at - self._began)
        if at >= self._measured_from:
            self._point.failed += job.count
        told = f"{job.kind}: {text}"
        self._errors[told if told in self._errors or len(self._errors) < ERRORS_KEPT else "others"] += 1

    async def _drain(self, workers: Sequence[asyncio.Task[None]]) -> None:
        until = self._clock() + (0.0 if self._point.cut else DRAIN)
        while (self._waiting or self._under_way) and self._clock() < until and not self._stopped.is_set():
            _raise_from(workers)
            await asyncio.sleep(0.01)
        self._stopped.set()
        now = self._clock()
        for at, job in (*self._waiting, *self._under_way.values()):
            if at >= self._measured_from:
                self._point.unanswered += job.count
                self._latencies.waiting(job.kind, now - at, job.count)

    async def _look(self, watch: ProcessWatch) -> None:
        await asyncio.sleep(max(0.0, self._measured_from - self._clock()))
        await asyncio.to_thread(watch.start)
        while True:
            await asyncio.to_thread(watch.look)
            await asyncio.sleep(LOOK_EVERY)

    def _mark_cpu(self) -> None:
        self._cpu_before = process_time()

    def _is_hopeless(self, now: float) -> bool:
        patience = self._pace.give_up_after
        return patience is not None and bool(self._waiting) and now - self._waiting[0][0] > patience

    def _glimpse(self, now: float) -> None:
        if self._watcher is None:
            return
        recent = sorted(self._recent)
        p95 = recent[int((len(recent) - 1) * 0.95)] * 1000 if recent else 0.0
        elapsed, total = now - self._began, self._pace.warmup + self._pace.runtime
        waiting = len(self._waiting) + len(self._under_way)
        self._watcher(Glimpse(elapsed, total, self._arrived, self._answered, self._failed, waiting, p95))

    def _result(self) -> Point:
        point = self._point
        point.all = RequestKind(*self._latencies.all())
        point.kinds = {kind: RequestKind(*times) for kind, times in self._latencies.by_kind().items()}
        point.errors = dict(self._errors.most_common())
        point.late = self._late.times()
        point.timeline = self._timeline.seconds()
        return point


async def _end(tasks: Sequence[asyncio.Task[None]]) -> None:
    """Cancel until they are done: a driver that is cancelled may wait for the rest of an answer instead.

    What a task failed with is taken here: it was raised already, or another's was, and it is of no use any more.
    """
    for _ in range(CANCELS_MAX):
        pending = [task for task in tasks if not task.done()]
        if not pending:
            break
        for task in pending:
            task.cancel()
        await asyncio.wait(pending, timeout=CLOSE_WITHIN)
    for task in tasks:
        if task.done() and not task.cancelled():
            task.exception()


async def _close(session: PeerSession) -> None:
    try:
        async with asyncio.timeout(CLOSE_WITHIN):
            await session.close()
    except TimeoutError:
        return  # The connection is of no use any more, and ends with the process.


def _raise_from(tasks: Sequence[asyncio.Task[None]]) -> None:
    """Raise the error of a failed task at once, instead of at the end of the run."""
    for task in tasks:
        if task.done() and not task.cancelled() and (error := task.exception()) is not None:
            raise error
