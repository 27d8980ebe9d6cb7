"""What the processes of a cluster take while ``rebuild.py`` has a shard rebuilt: its parts, and what they start."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

import psutil

from headrace.bench.beside import Beside

SAMPLE_SECONDS = 0.2


@dataclass(slots=True)
class Taken:
    """Bytes resident at most, and seconds of a processor. Processes that end between two looks are as of the last."""

    peaks: dict[str, int] = field(default_factory=dict)
    """By part; one that was started anew is counted with its successor."""
    cpu: dict[str, float] = field(default_factory=dict)
    bulk_peak: int = 0
    """All that parts have started, together: a job's driver, its JVM, that one's Python workers."""
    bulk_largest: dict[str, int] = field(default_factory=dict)
    """By the name of a program, the most that one process of it had."""
    bulk_cpu: float = 0.0


class Processes(Beside):
    """Watched while the block lasts. ``pids`` says which there are by part, as they are started anew."""

    def __init__(self, pids: Callable[[], Mapping[str, int]]) -> None:
        self._pids, self.taken = pids, Taken()

    def _begin(self) -> None:
        self._spent: dict[str, dict[psutil.Process, float]] = {}
        self._bulk: dict[psutil.Process, float] = {}
        self._before: dict[psutil.Process, float] = {}
        self._look()
        for each in (*self._spent.values(), self._bulk):
            self._before |= each

    def _end(self) -> None:
        self._look()
        self.taken.cpu = {part: self._since(spent) for part, spent in sorted(self._spent.items())}
        self.taken.bulk_cpu = self._since(self._bulk)

    def _since(self, spent: Mapping[psutil.Process, float]) -> float:
        return round(sum(seconds - self._before.get(process, 0.0) for process, seconds in spent.items()), 2)

    def _run(self) -> None:
        while not self._over.wait(SAMPLE_SECONDS):
            self._look()

    def _look(self) -> None:
        taken, below = self.taken, 0
        for part, pid in self._pids().items():
            with suppress(psutil.Error):
                process = psutil.Process(pid)
                resident, self._spent.setdefault(part, {})[process] = _of(process)
                taken.peaks[part] = max(taken.peaks.get(part, 0), resident)
                for child in process.children(recursive=True):
                    with suppress(psutil.Error):
                        resident, self._bulk[child] = _of(child)
                        below += resident
                        name = child.name()
                        taken.bulk_largest[name] = max(taken.bulk_largest.get(name, 0), resident)
        taken.bulk_peak = max(taken.bulk_peak, below)


def _of(process: psutil.Process) -> tuple[int, float]:
    with process.oneshot():
        times = process.cpu_times()
        return process.memory_info().rss, float(times.user + times.system)
