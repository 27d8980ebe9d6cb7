"""The effect of a fault on the requests, from their records. Pure.

A record is *touched* if its request needs a lost shard: pages of one story, and writes to it, need the story's shard,
every other page needs all shards. A drill asks two questions: how long were touched requests without service, and did
untouched ones notice anything at all?
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from loadgen.drills.load.ledger import Record
from loadgen.drills.load.program import BY_STORY, WRITES

SLOW = 0.05
"""Seconds. A longer wait counts as no service: five times what an answer takes on two cores."""
SLOW_RATIO = 3.0
"""The number of times the p99 from which on a wait counts as no service, where the p99 before the fault is above a
third of ``SLOW``."""
QUIET = 1.0
"""Seconds without a bad request after which an outage is over."""
ONSET = 3.0
"""Seconds after a fault within which its outage begins, if it has one: not all faults show at once."""
BEFORE = 5.0
"""Seconds before a fault that count as before."""
DURING = 3.0
"""Seconds after a fault that count as during, at least: after half a second there is no 99th percentile."""

BUCKET = 0.1
BUCKETS_MAX = 1_500
"""Limit of a timeline's buckets: more than a picture has pixels. A longer one has wider buckets."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One round, in seconds of the records' clock."""

    at: float
    lost: frozenset[int]
    """Shards that the fault takes away."""
    detected: float | None = None
    """When the cluster itself said that something is missing."""
    healed: float | None = None
    """When the drill ended the fault, if it does (SIGCONT, a mended link)."""
    whole: float | None = None
    """When the cluster said that everything is there again."""
    settled: float | None = None
    """When the cluster said that its load is even again."""


@dataclass(frozen=True, slots=True)
class LatencySample:
    """Requests of one kind in one stretch of time."""

    requests: int
    errors: int
    p99_ms: float | None
    slowest_ms: float | None


@dataclass(frozen=True, slots=True)
class FaultRound:
    """Seconds are since the fault; None: it did not happen."""

    lost_shards: list[int]
    outage_s: float
    """Until no touched request failed or waited any more."""
    slow_ms: float
    """Milliseconds after which a request counts as having waited."""
    detected_s: float | None
    healed_s: float | None
    whole_s: float | None
    settled_s: float | None
    untouched_before: LatencySample
    untouched_during: LatencySample
    touched_during: LatencySample
    slowest_during_ms: float | None
    """The slowest of all requests, touched or not."""
    later: LatencySample
    """All requests from the end of the outage until the cluster had settled. Domains may be moved then, and each is
    away for a moment while it moves."""


@dataclass(slots=True)
class Series:
    ok: list[int] = field(default_factory=list)
    errors: list[int] = field(default_factory=list)
    slowest_ms: list[float] = field(default_factory=list)


def percentile(values: Collection[float], share: float) -> float | None:
    """The smallest value that so large a share of them does not exceed; None of none."""
    ranked = sorted(values)
    if not ranked:
        return None
    return ranked[max(0, -int(-share * len(ranked) // 1) - 1)]


def touched(record: Record, lost: Collection[int], shards: int) -> bool:
    """Whether the request needed one of the shards."""
    return bool(lost) and (record.kind not in BY_STORY or record.key % shards in lost)


def outage_end(records: Iterable[Record], at: float, slow: float = SLOW) -> float:
    """When the last bad request of the outage that began at ``at`` had its answer; ``at`` if there was none. Bad is
    what failed, or took longer than ``slow`` seconds."""
    end = at
    for record in sorted(record for record in records if record.end > at):
        if not record.good or record.latency > slow:
            if record.due - end > (QUIET if end > at else ONSET):
                break
            end = max(end, record.end)
    return end


def examine(records: Sequence[Record], fault: Fault, shards: int) -> FaultRound:
    """One round: its records may contain those of others."""
    near = [each for each in records if fault.at - BEFORE <= each.due]
    hit, spared = split(near, lambda each: touched(each, fault.lost, shards))
    usual = percentile([each.latency for each in near if each.due < fault.at], 0.99) or 0.0
    slow = max(SLOW, SLOW_RATIO * usual)
    outage = outage_end(hit if fault.lost else near, fault.at, slow)
    until = max(outage, fault.at + DURING)

    def within(chosen: list[Record], low: float, high: float) -> list[Record]:
        return [each for each in chosen if low <= each.due < high]

    def since(moment: float | None) -> float | None:
        return None if moment is None else round(moment - fault.at, 3)

    during = within(near, fault.at, until)
    return FaultRound(
        lost_shards=sorted(fault.lost),
        outage_s=round(outage - fault.at, 3),
        slow_ms=round(1000 * slow, 1),
        detected_s=since(fault.detected),
        healed_s=since(fault.healed),
        whole_s=since(fault.whole),
        settled_s=since(fault.settled),
        untouched_before=sample(within(spared, fault.at - BEFORE, fault.at)),
        untouched_during=sample(within(spared, fault.at, until)),
        touched_during=sample(within(hit, fault.at, until)),
        slowest_during_ms=_ms(max((each.latency for each in during), default=None)),
        later=sample(within(near, until, max(until, fault.settled or until))),
    )


def sample(records: Collection[Record]) -> LatencySample:
    latencies = [each.latency for each in records]
    return LatencySample(
        requests=len(records),
        errors=sum(not each.good for each in records),
        p99_ms=_ms(percentile(latencies, 0.99)),
        slowest_ms=_ms(max(latencies, default=None)),
    )


def pooled(records: Sequence[Record], faults: Sequence[Fault], shards: int) -> tuple[LatencySample, LatencySample]:
    """The untouched requests of all rounds together, before and during: many rounds give a steadier p99."""
    before: list[Record] = []
    during: list[Record] = []
    for fault in faults:
        spared = [each for each in records if not touched(each, fault.lost, shards)]
        before += [each for each in spared if fault.at - BEFORE <= each.due < fault.at]
        during += [each for each in spared if fault.at <= each.due < fault.at + DURING]
    return sample(before), sample(during)


def timeline(records: Sequence[Record], faults: Sequence[Fault], shards: int) -> dict[str, Any]:
    """Answers, errors and the slowest answer in each stretch of time, for a picture; time 0 is the first fault."""
    if not records:
        return {"start": 0.0, "bucket": BUCKET, "series": {}}
    zero = faults[0].at if faults else records[0].due
    low = min(each.due for each in records)
    high = max(each.end for each in records)
    bucket = max(BUCKET, (high - low) / BUCKETS_MAX)
    count = int((high - low) / bucket) + 1
    lost = frozenset[int]().union(*(fault.lost for fault in faults))
    series: dict[str, Series] = {}
    for each in records:
        name = _group(each, lost, shards)
        if name not in series:
            series[name] = Series([0] * count, [0] * count, [0.0] * count)
        line, place = series[name], min(count - 1, int((each.end - low) / bucket))
        if each.good:
            line.ok[place] += 1
        else:
            line.errors[place] += 1
        line.slowest_ms[place] = max(line.slowest_ms[place], round(1000 * each.latency, 1))
    return {
        "start": round(low - zero, 3),
        "bucket": round(bucket, 4),
        "series": {name: asdict(line) for name, line in sorted(series.items())},
    }


def _group(record: Record, lost: Collection[int], shards: int) -> str:
    if record.kind in WRITES:
        return "writes"
    return "reads that need what was lost" if touched(record, lost, shards) else "other reads"


def split(records: Iterable[Record], chosen: Callable[[Record], bool]) -> tuple[list[Record], list[Record]]:
    """The chosen records, and the others."""
    yes: list[Record] = []
    no: list[Record] = []
    for each in records:
        (yes if chosen(each) else no).append(each)
    return yes, no


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(1000 * seconds, 1)
