"""The open loop: arrivals as promised, waiting that counts, and a result that says when it is not to be believed."""

from __future__ import annotations

import asyncio
import gc
from itertools import islice, pairwise, takewhile
from random import Random

import pytest
from load_targets import OneKind, SwitchedTarget, in_virtual_time

from loadgen.pace.loop import Arrival, LoadPace, OpenLoop, Workload, arrivals
from loadgen.pace.point import Histogram, Latencies, Point, RequestKind, Timeline, Times, settled_after
from loadgen.peers.store import RequestFailed
from loadgen.running import RESOLUTION, highest_sustained, sweep


def test_arrivals_are_exponential_and_of_a_seed() -> None:
    first = list(islice(arrivals(100.0, Random(5)), 20_000))
    assert first == list(islice(arrivals(100.0, Random(5)), 20_000))
    assert first != list(islice(arrivals(100.0, Random(6)), 20_000))
    gaps = [later - sooner for sooner, later in pairwise(first)]
    mean = sum(gaps) / len(gaps)
    assert mean == pytest.approx(0.01, rel=0.05)
    deviation = (sum((gap - mean) ** 2 for gap in gaps) / len(gaps)) ** 0.5
    assert deviation == pytest.approx(mean, rel=0.1), "of exponential gaps both are the same"
    with pytest.raises(ValueError, match="greater than 0"):
        next(arrivals(0, Random(1)))


def test_a_histogram_keeps_three_digits_and_the_exact_mean() -> None:
    histogram = Histogram()
    for milliseconds in range(1, 1001):
        histogram.add(milliseconds / 1000)
    times = histogram.times()
    assert times.count == 1000
    assert times.mean == pytest.approx(500.5)
    assert (times.p50, times.p95, times.p99, times.max) == pytest.approx((500, 950, 990, 1000), rel=0.002)


def test_what_was_not_answered_counts_with_its_age() -> None:
    latencies = Latencies()
    latencies.add("a", 0.010, 0.005)
    latencies.waiting("a", 3.0)
    sojourn, service = latencies.all()
    assert (sojourn.count, service.count) == (2, 1)
    assert sojourn.max == pytest.approx(3000, rel=0.002)


def open_loop(workload: Workload, target: SwitchedTarget, pace: LoadPace) -> OpenLoop:
    return OpenLoop(workload, target, pace, clock=asyncio.get_running_loop().time)


@in_virtual_time
async def test_it_offers_what_it_should(one_kind: OneKind) -> None:
    target = SwitchedTarget()
    point = await open_loop(one_kind, target, LoadPace(rate=400, runtime=1.5, warmup=0.2, seed=3)).run()
    due = list(takewhile(lambda at: at < 1.7, arrivals(400, Random(3))))
    assert point.arrived == sum(at >= 0.2 for at in due)
    assert point.answered == point.arrived
    assert not point.failed
    assert not point.unanswered


@in_virtual_time
async def test_coordinated_omission_shows(one_kind: OneKind) -> None:
    """A target stalls for a second. By service time a few requests were slow; by sojourn time all that came then."""
    target = SwitchedTarget(delay=0.001)
    stalling = asyncio.create_task(target.stall(after=0.8, seconds=1.0))
    in_flight = 4
    point = await open_loop(one_kind, target, LoadPace(rate=100, runtime=3.0, warmup=0.3, in_flight=in_flight)).run()
    await stalling
    assert target.most_under_way <= in_flight
    slow = sum(each.answered for each in point.timeline if each.p50_ms > 100)
    assert slow > 30, "a second of arrivals has waited"
    # One request in three came during the stall and waited half a second on average.
    assert point.all.sojourn.mean > 80
    assert point.all.sojourn.p95 > 500
    # Those that were sent before or after it hide it: only the few under way were slow by service time.
    assert point.all.service.p95 == pytest.approx(1.0, rel=0.002)
    assert not point.sustained


@in_virtual_time
async def test_what_is_owed_at_the_end_is_not_forgotten(one_kind: OneKind, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loadgen.pace.loop.DRAIN", 0.1)
    target = SwitchedTarget()
    target.going.clear()
    point = await open_loop(one_kind, target, LoadPace(rate=100, runtime=0.6, warmup=0.0, in_flight=2)).run()
    assert point.answered == 0
    assert point.unanswered == point.arrived > 20
    assert point.all.sojourn.count == point.unanswered
    assert point.all.sojourn.max > 500
    assert not point.valid


@in_virtual_time
async def test_a_hopeless_point_is_given_up(one_kind: OneKind) -> None:
    target = SwitchedTarget(delay=0.2)
    pace = LoadPace(rate=200, runtime=60.0, warmup=0.0, in_flight=2, give_up_after=0.5)
    point = await open_loop(one_kind, target, pace).run()
    assert point.cut
    assert not point.sustained


@in_virtual_time
async def test_a_stop_keeps_what_was_measured(one_kind: OneKind) -> None:
    loop = open_loop(one_kind, SwitchedTarget(), LoadPace(rate=200, runtime=60.0, warmup=0.0))
    running = asyncio.create_task(loop.run())
    await asyncio.sleep(0.5)
    loop.stop()
    point = await running
    assert point.cut
    assert point.answered == sum(1 for _ in takewhile(lambda at: at < 0.5, arrivals(200, Random(1))))
    assert 0.5 <= point.seconds < 0.76, "a stop is noticed when the next one arrives, or a quarter of a second later"


@in_virtual_time
async def test_a_driver_that_does_not_like_to_be_cancelled_is_ended(
    one_kind: OneKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("loadgen.pace.loop.CLOSE_WITHIN", 0.05)

    async def stubborn(session: object) -> None:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            await asyncio.sleep(3600)  # as one that reads the rest of an answer that never comes

    class Stubborn(OneKind):
        def draw(self, at: float) -> Arrival:
            return Arrival("page", stubborn)

    pace = LoadPace(rate=200, runtime=60.0, warmup=0.0, in_flight=2, give_up_after=0.2)
    point = await open_loop(Stubborn(), SwitchedTarget(), pace).run()
    assert point.cut
    assert not point.answered


@in_virtual_time
async def test_failures_are_counted_by_their_text(one_kind: OneKind) -> None:
    async def fail(session: object) -> None:
        raise RequestFailed("500 internal_error: oh")

    class Failing(OneKind):
        def draw(self, at: float) -> Arrival:
            return Arrival("page", fail)

    point = await open_loop(Failing(), SwitchedTarget(), LoadPace(rate=100, runtime=0.5, warmup=0.0)).run()
    assert point.failed == point.arrived == point.errors["page: 500 internal_error: oh"]
    assert any("failed" in doubt for doubt in point.doubts)


@in_virtual_time
async def test_a_fault_of_the_workload_ends_the_run(one_kind: OneKind) -> None:
    async def fault(session: object) -> None:
        raise ZeroDivisionError

    class Faulty(OneKind):
        def draw(self, at: float) -> Arrival:
            return Arrival("page", fault)

    with pytest.raises(ZeroDivisionError):
        await open_loop(Faulty(), SwitchedTarget(), LoadPace(rate=100, runtime=5, warmup=0.0)).run()
    gc.collect()  # Of several sessions that failed alike, none complains later that nobody has heard it.


# --- validity --------------------------------------------------------------------------------------------------


def point_of(offered: float = 100.0, mean: float = 5.0, cpu: float = 0.3, late: float = 0.2, failed: int = 0) -> Point:
    times = Times(1000, mean, mean, mean, mean, mean)
    return Point(
        offered,
        arrived=1000,
        answered=1000 - failed,
        in_time=1000 - failed,
        failed=failed,
        seconds=10,
        all=RequestKind(times, times),
        generator_cpu=cpu,
        late=Times(1000, late, late, late, late, late),
    )


def test_a_point_says_why_it_is_not_valid() -> None:
    assert point_of().valid
    assert point_of().sustained
    assert "bottleneck" in point_of(cpu=0.97).doubts[0]
    assert "pace" in point_of(late=30.0).doubts[0]
    assert "failed" in point_of(failed=50).doubts[0]
    assert point_of(mean=51.0).valid
    assert not point_of(mean=51.0).sustained
    assert point_of(cpu=0.97).document()["valid"] is False


@pytest.mark.parametrize("limit", [37.0, 100.0, 731.0, 5000.0])
async def test_a_sweep_finds_the_limit(limit: float) -> None:
    async def measure(rate: float) -> Point:
        return point_of(rate, mean=5.0 if rate <= limit else 400.0)

    points = await sweep(measure, 50.0, lambda: True)
    best = highest_sustained(points)
    assert best is not None
    assert limit * (1 - RESOLUTION) - 1 <= best.offered <= limit
    assert len(points) < 40


async def test_a_sweep_goes_on_after_one_bad_second() -> None:
    measured: list[float] = []

    async def measure(rate: float) -> Point:
        measured.append(rate)
        return point_of(rate, mean=400.0 if rate > 400 or measured.count(rate) == 1 else 5.0)

    best = highest_sustained(await sweep(measure, 50.0, lambda: True))
    assert best is not None
    assert best.offered > 350


async def test_a_sweep_never_calls_a_busy_generator_sustained() -> None:
    async def measure(rate: float) -> Point:
        return point_of(rate, cpu=0.99)

    assert highest_sustained(await sweep(measure, 50.0, lambda: True)) is None


# --- by the second ---------------------------------------------------------------------------------------------


def test_when_a_cold_start_has_settled() -> None:
    timeline = Timeline()
    for second in range(30):
        for _ in range(20):
            timeline.add(second + 0.5, 1.0 / (1 + second) if second < 10 else 0.02)
    seconds = timeline.seconds()
    assert [each.answered for each in seconds] == [20] * 30
    assert settled_after(seconds) == 10
    assert settled_after(seconds[:4]) is None
