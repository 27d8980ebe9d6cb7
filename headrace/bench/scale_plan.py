"""What ``headrace bench scale`` asks of its clusters, and for how long."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.bench.program import VIEW

GOAL = 1.15
"""Processor time of a request with the most workers, over that with the fewest, with the same shards."""
SHARDS = 4
"""Of the first series: each of four workers has one."""


@dataclass(frozen=True, slots=True)
class Phase:
    """What the load asks for: see ``mixed_load.MIXES``."""

    name: str
    mix: str
    table: str = "votes"
    view: str = VIEW
    same_clients: bool = False


PHASES = (
    Phase("mix", "mix"),
    Phase("mix, same clients", "mix", same_clients=True),
    Phase("reads", "reads"),
    Phase("singles", "singles"),
    Phase("batches", "batches"),
)
SHUFFLED = (
    Phase("shuffled singles", "singles", "ballots", "BallotsOfStory"),
    Phase("shuffled batches", "batches", "ballots", "BallotsOfStory"),
)


@dataclass(frozen=True, slots=True)
class Effort:
    """How long everything is measured."""

    rounds: int
    seconds: float
    """A phase's, in each round, on each cluster."""
    clients: int = 32
    """For each worker; each has one request under way."""
    idle_seconds: float = 5.0

    def connections(self, phase: Phase, workers: int) -> int:
        return SAME_CLIENTS if phase.same_clients else self.clients * workers


SAME_CLIENTS = 64
WHOLE = Effort(rounds=5, seconds=2.0)
QUICK = Effort(rounds=2, seconds=0.7, clients=8, idle_seconds=1.0)
