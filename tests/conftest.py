"""What holds for all tests, however they were started."""

from __future__ import annotations

import gc
import signal
from collections.abc import Iterator
from typing import Any

import pytest


def pytest_configure() -> None:
    """Under nohup, processes of Headrace go on when a terminal is closed: those that tests start are not to inherit it.

    A handler that does nothing ignores the signal here, and is no handler in whoever is started.
    """
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, lambda *_: None)


def pytest_unconfigure() -> None:
    """What a test has served in this process has set everything apart for good (``worker/service/system.py``). It
    goes after all: nanobind, by which DuckDB is bound, reports what is left at the end of a process as leaked."""
    gc.unfreeze()


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """One session for all tests of a process, small and without pages of its own: a JVM takes seconds to start."""
    from migrations.backfill.spark.session import session
    from tests.migrations.spark.conftest import SMALL

    with session(SMALL) as opened:
        yield opened
