"""Histories of simulated shards, one after the other, until so many operations are judged.

A seed draws what a run is: lists or registers, with locks or without, with snapshots beside, how much goes wrong. What
each comes to has to be strictly serializable, and nothing may be left prepared in its shards.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from tests.controller.transactions.over_shards import SHARDS, Chances, Ran, ran
from tests.histories.checker import check
from tests.histories.events import Event

TRANSACTIONS = 400
"""Of one run: some 2,500 operations, in a second or two."""
TOLD_SECONDS = 60.0
LEVEL = "strict-serializable"
CHANCES = (Chances(), Chances(), Chances(0.03, 1.5, 0.2, patience=0.5, doubt=0.2), Chances(0.0, 0.0, 0.0))


def drawn(seed: int) -> Callable[[], Ran]:
    draws = Random(f"long {seed}")
    lists, locks, snapshots = draws.random() < 0.6, draws.random() < 0.4, draws.random() < 0.4
    chances = draws.choice(CHANCES)
    return lambda: ran(
        seed,
        lists=lists,
        transactions=TRANSACTIONS,
        chances=chances,
        snapshots=snapshots and not locks,
        locks=locks,
    )


@dataclass
class Judged:
    """Of all runs together."""

    runs: int = 0
    operations: int = 0
    transactions: int = 0
    over_shards: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    found: list[str] = field(default_factory=list)

    def add(self, events: list[Event], outcomes: Counter[str]) -> None:
        self.runs += 1
        self.outcomes += outcomes
        for event in events:
            if event["type"] != "invoke":
                self.operations += len(event["value"])
                self.transactions += 1
                self.over_shards += len({key % SHARDS for _, key, _ in event["value"]}) > 1

    def __str__(self) -> str:
        of = max(1, self.transactions)
        return (
            f"{self.operations:,} operations of {self.transactions:,} transactions in {self.runs:,} runs: "
            f"{self.over_shards / of:.0%} over shards, {self.outcomes['committed'] / of:.0%} committed, "
            f"{self.outcomes['unknown'] / of:.1%} unknown; {len(self.found)} runs not {LEVEL}"
        )


def judged(operations: int, seed: int, tell: Callable[[str], None]) -> Judged:
    """Runs of this seed and those after it. A run in which something is found is told, and does not end it."""
    logging.getLogger("headrace").setLevel(logging.ERROR)  # What is left in doubt is what these runs are for.
    done, began = Judged(), time.monotonic()
    told = began
    while done.operations < operations:
        here = seed + done.runs
        try:
            events = drawn(here)().events
            report = check(events, LEVEL)
        except AssertionError as error:
            done.runs += 1
            done.found.append(f"seed {here}: {error}")
            tell(done.found[-1])
            continue
        done.add(events, report.outcomes)
        if not report.holds:
            done.found.append(f"seed {here}: {report}")
            tell(done.found[-1])
        if time.monotonic() - told > TOLD_SECONDS:
            told = time.monotonic()
            tell(f"{told - began:,.0f} s: {done}")
    tell(f"{time.monotonic() - began:,.0f} s: {done}")
    return done
