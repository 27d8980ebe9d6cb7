"""One line for each request of a load: when it was due, how long it took, and what came of it."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple


class Record(NamedTuple):
    """Times are seconds of the machine's monotonic clock, the same for all of its processes."""

    due: float
    """When it was to be sent; it may have gone out later."""
    latency: float
    """From then until its answer, or until it was given up."""
    kind: str
    """A view's name, or the kind of a write (``program.BY_STORY``)."""
    key: int
    """Story or user; -1 where there is none."""
    outcome: str
    """``ok``, ``refused``, ``unknown`` (a write), ``error`` (a read), ``wrong``."""

    @property
    def end(self) -> float:
        return self.due + self.latency

    @property
    def good(self) -> bool:
        return self.outcome == "ok"


def write(path: Path, records: Iterable[Record]) -> None:
    """Add them to the file, which is made if it is not there."""
    with path.open("a", newline="") as file:
        writer = csv.writer(file)
        for due, latency, kind, key, outcome in records:
            writer.writerow((f"{due:.6f}", f"{latency:.6f}", kind, key, outcome))


def read(path: Path) -> list[Record]:
    with path.open(newline="") as file:
        rows = csv.reader(file)
        return [
            Record(float(due), float(latency), kind, int(key), outcome) for due, latency, kind, key, outcome in rows
        ]
