"""Writes of votes: the engine's step against a loop written by hand for this one program.

*The step* is what the hand-written loop does too: ``Domain.handle`` over RocksDB, from a batch of rows to the changed
answers, not synced. The goal is held against it, like for like. *The process* is more than that and is measured
beside it: an inbox between two threads, a sync of the WAL before anyone hears of a write, and the answers as JSON in
the reader map, readable by other processes.
"""

from __future__ import annotations

import asyncio
import marshal
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from random import Random
from struct import Struct

from controller.embedded.local import LocalDeployment
from domains.plan.graph import DomainIndex
from domains.plan.packets import Insert, Outcome, RequestId, Write
from loadgen.bench.measurement import Measurement, Rate, rate, ratio, thousands, typical
from loadgen.bench.program import TABLES, VIEW, VIEWS, Story, load, story, zipf
from worker.rocks.database import Database

# The same program as a careful programmer writes it for this one purpose: plain dicts, no graph, no holes.
#
# It does what the program needs and no more: the rows, index entries, log entry and position of each batch in one
# RocksDB write, of the same bytes as the engine's; the counts; and the answers brought up to date. It knows that
# votes are never taken back, that every story is there, and which answers a vote changes. The engine finds all that
# out.

Vote = tuple[int, int]

_ROWS, _INDEX, _LOG, _COUNTERS = b"r\0\0\0\1\0", b"i\0\0\0\1\0\1\x60", b"l\0\0\0\1", b"m\2\0\0\0\1"
_NUMBER = Struct(">Q").pack
_MARSHAL_VERSION = 2


class VotesByHand:
    """``answers`` is the view: story → its row with the count."""

    def __init__(self, path: Path, stories: list[Story]) -> None:
        self._database = Database(path, create=True)
        self._counts: dict[int, int] = {}
        self._stories = {each[0]: each for each in stories}
        self.answers: dict[int, tuple[int, int, str, str, int]] = {}
        self._rows = 0
        self._position = 0

    def write(self, votes: list[Vote]) -> None:
        """One batch: durable state, counts, answers."""
        number = self._rows
        changes: dict[bytes, bytes | None] = {}
        counts = self._counts
        touched: set[int] = set()
        for vote in votes:
            number += 1
            story = vote[1]
            row = marshal.dumps(vote, _MARSHAL_VERSION) + _NUMBER(number)
            changes[_ROWS + row] = b""
            changes[_INDEX + _NUMBER(story) + row] = b""
            counts[story] = counts.get(story, 0) + 1
            touched.add(story)
        self._rows = number
        self._position += 1
        changes[_LOG + _NUMBER(self._position)] = marshal.dumps(votes, _MARSHAL_VERSION)
        changes[_COUNTERS] = marshal.dumps((number, 0, number, self._position), _MARSHAL_VERSION)
        self._database.write(changes)
        stories, answers = self._stories, self.answers
        for story in touched:
            answers[story] = (*stories[story], counts[story])

    def sync(self) -> None:
        self._database.sync()

    def close(self) -> None:
        self._database.close()


BATCH = 256
USERS = 1_000_000
GOAL = 0.4
UNDER_WAY = 64
"""Batches in flight: as many as clients who do not wait for each other."""


def measure(directory: Path, quick: bool) -> Measurement:
    return asyncio.run(_measure(directory, quick))


class Sides:
    """Both sides with the same stories, each with one vote, and all stories' keys warm in the reader."""

    def __init__(self, deployment: LocalDeployment, hand: VotesByHand, stories: int, batches: int) -> None:
        self.hand = hand
        self.batches = batches
        self._dataflow = deployment.dataflow
        self._domain = deployment.dataflow.domains[DomainIndex(0)]
        self._take, self._users = zipf(stories, Random(1)), Random(2)

    @classmethod
    async def make(cls, deployment: LocalDeployment, directory: Path, stories: int, batches: int) -> Sides:
        await deployment.execute(TABLES + VIEWS)
        everything = [story(number) for number in range(1, stories + 1)]
        first = [(0, number) for number in range(1, stories + 1)]
        await load(deployment, "stories", everything)
        await load(deployment, "votes", first)
        await deployment.pages(VIEW, [[number] for number in range(1, stories + 1)])
        hand = VotesByHand(directory, everything)
        hand.write(first)
        return cls(deployment, hand, stories, batches)

    def _votes(self) -> list[Vote]:
        return [(self._users.randrange(USERS), number) for number in self._take(BATCH)]

    def process(self, inserts: list[Insert]) -> None:
        under_way: deque[Future[Outcome]] = deque()
        for insert in inserts:
            if len(under_way) == UNDER_WAY:
                under_way.popleft().result()
            under_way.append(self._dataflow.write(DomainIndex(0), insert))
        for future in under_way:
            future.result()

    def step(self, inserts: list[Insert]) -> None:
        for insert in inserts:
            self._domain.handle(Write(RequestId(0), insert))

    def by_hand(self, votes: list[list[Vote]]) -> None:
        for batch in votes:
            self.hand.write(batch)
        self.hand.sync()

    def rounds(self, ours: Callable[[list[Insert]], None], count: int) -> tuple[list[Rate], list[Rate]]:
        """Turn and turn about with the same votes; one round before the first to warm up."""
        rates: list[tuple[Rate, Rate]] = []
        units = self.batches * BATCH
        for _ in range(count + 1):
            votes = [self._votes() for _ in range(self.batches)]
            inserts = [Insert("votes", tuple(batch)) for batch in votes]
            rates.append((rate(units, partial(ours, inserts)), rate(units, partial(self.by_hand, votes))))
        return [a for a, _ in rates[1:]], [b for _, b in rates[1:]]


async def _measure(directory: Path, quick: bool) -> Measurement:
    stories, rounds, batches = (2_000, 3, 40) if quick else (10_000, 9, 150)
    deployment = await LocalDeployment.open(directory / "ours", memory_limit=2**32)
    sides = await Sides.make(deployment, directory / "theirs", stories, batches)
    whole, theirs = sides.rounds(sides.process, rounds)
    _compare(await deployment.pages(VIEW, [[1]]), sides.hand)
    steps, beside = sides.rounds(sides.step, rounds)  # last, since what these steps publish goes nowhere
    sides.hand.close()
    await deployment.close()
    of_process, of_process_cpu = ratio(whole, theirs)
    of_step, of_step_cpu = ratio(steps, beside)
    return Measurement(
        "writes",
        f"vote writes, batches of {BATCH}, RocksDB included",
        "a hand-written loop with plain dicts and the same RocksDB writes",
        thousands(typical(steps)),
        thousands(typical(beside)),
        of_step,
        GOAL,
        details={
            "stories": stories,
            "rounds": rounds,
            "batches_a_round": batches,
            "ratio_by_processor_time": round(of_step_cpu, 3),
            "process_per_second": round(typical(whole)),
            "process_ratio": round(of_process, 3),
            "process_ratio_by_processor_time": round(of_process_cpu, 3),
        },
    )


def _compare(page: list[bytes], hand: VotesByHand) -> None:
    """Both sides have had the same votes, so they must say the same."""
    count = hand.answers[1][4]
    assert page[0].endswith(b":%d}" % count), f"{page[0]!r} is not {count} votes"
