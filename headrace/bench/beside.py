"""What a bench does in a thread of its own beside what it measures."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from threading import Event, Thread
from typing import Self


class Beside(ABC):
    """It runs while the block lasts."""

    def __enter__(self) -> Self:
        self._over = Event()
        self._begin()
        self._thread = Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._end()

    @abstractmethod
    def _begin(self) -> None:
        """Before the thread runs."""

    @abstractmethod
    def _run(self) -> None:
        """In the thread, until ``_over`` is set."""

    @abstractmethod
    def _end(self) -> None:
        """Once the thread has ended."""


def p99_ms(seconds: Iterable[float]) -> float:
    """The 99th percentile, in milliseconds; 0 of nothing."""
    ordered = sorted(seconds)
    return ordered[int(len(ordered) * 0.99)] * 1000 if ordered else 0.0
