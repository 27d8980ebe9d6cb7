"""Several reads that one asker waits for: their answers come together, or the first thing that went wrong.

A page of a site misses a dozen views at once after a start. As one input they are one batch: what they fill is one
transaction of the reader map, and the asker is woken once, where each by itself takes two thread switches and 0.3 ms.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from domains.language.types import Row
from domains.plan.commands import Progress
from domains.plan.graph import DomainIndex, NodeIndex
from domains.plan.packets import Failed, Outcome
from worker.dataflow.batch import Answerer, Look


@dataclass(frozen=True, slots=True)
class WantedKeys:
    """A reader's keys that are to be filled, and what to read once they are."""

    domain: DomainIndex
    reader: NodeIndex
    keys: tuple[Row, ...]
    look: Callable[[], Any]


class JointRead:
    """Answers ``future`` with what the reads have found, in their order, when the last of them is answered."""

    def __init__(self, wanted: Sequence[WantedKeys], future: Future[list[Any]]) -> None:
        self.looks = [Look(each.look) for each in wanted]
        self._left = len(self.looks)
        self._future = future

    def answerer(self, look: Look) -> Answerer:
        def answer(outcome: Outcome | Progress) -> None:
            self._left -= 1
            if self._future.done():
                return
            if isinstance(outcome, Failed):
                self._future.set_exception(outcome.error)
            elif look.error is not None:
                self._future.set_exception(look.error)
            elif not self._left:
                self._future.set_result([each.found for each in self.looks])

        return answer
