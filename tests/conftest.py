"""What holds for all tests, however they were started."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Generator, Iterator, Sequence
from typing import Any

import pytest

from tests.kit.secrets import secret_in


def pytest_configure() -> None:
    """Under nohup, processes of Headrace go on when a terminal is closed: those that tests start are not to inherit it.

    A handler that does nothing ignores the signal here, and is no handler in whoever is started.
    """
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, lambda *_: None)
    # Processes that give way to a server (bulk builds, evaluations, Spark) would give way to all other tests too, and
    # take longer than any deadline. No process can be nicer than this.
    os.nice(19)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Modules that are loaded and tests that are collected leave few cycles; the search took an eighth of the time.
    They all stay: no later search, of which each took 0.6 s then, looks at them again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_unconfigure() -> None:
    """What a test has served in this process has set everything apart for good (``worker/service/system.py``). It
    goes after all: nanobind, by which DuckDB is bound, reports what is left at the end of a process as leaked."""
    gc.unfreeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """What a test has said or logged holds no secret: neither a key nor a password that tests give to accounts.

    Of what has failed the source is parsed. What the collector closes meanwhile, such as a coroutine, has Python 3.11
    count its depth wrongly ("AST constructor recursion depth mismatch"), and that ended all of the tests."""
    collects = gc.isenabled()
    gc.disable()
    try:
        report = yield
    finally:
        if collects:
            gc.enable()
    for name, text in report.sections:
        if (found := secret_in(text)) is not None and report.passed:
            report.outcome = "failed"
            report.longrepr = f"a secret is in what was said ({name}): …{found}…"
    return report


LONGEST = (
    "tests/migrations/spark/test_verify_command.py",
    "tests/migrations/spark/test_launching.py",
    "tests/browser/",
    "tests/cluster/test_real_cluster.py",
    "tests/cluster/test_rebuild_by_spark.py",
    "tests/cluster/test_supervisor.py",
    "tests/headrace/test_load_spark.py",
    "tests/campaign/test_campaign.py::test_campaign[first]",
    "tests/campaign/test_campaign.py::test_campaign[second]",
    "tests/drills/test_backup_drill.py",
    "tests/migrations/spark/test_bulk.py",
    "tests/cluster/test_bad_days.py",
    "tests/cluster/test_cluster_secret.py",
    "tests/comparisons/",
    "tests/attack/",
    "tests/loadgen/test_tpch.py",
    "tests/headrace/test_readme.py",
    "tests/campaign/test_campaign_machinery.py",
    "tests/drills/test_short_set.py",
)
"""The longest first, as ``--durations`` says. A process that begins one of them last lets the others wait for it. The
tests of a folder stay together where they share a browser, or a MariaDB."""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the longest tests: ``--dist worksteal`` gives each process one stretch of the list, and takes the end
    of a stretch away from who has much left, so the longest are dealt to the beginnings of the stretches."""
    items[:] = longest_first(items, int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")))


def longest_first(items: Sequence[pytest.Item], processes: int) -> list[pytest.Item]:
    """The items in an order of which each process's equal stretch begins with its share of the longest."""
    groups: list[list[pytest.Item]] = [[] for _ in LONGEST]
    others: list[pytest.Item] = []
    for item in items:
        group = next((n for n, name in enumerate(LONGEST) if item.nodeid.startswith(name)), None)
        (others if group is None else groups[group]).append(item)
    dealt: list[pytest.Item] = []
    for process in range(processes):
        dealt += [item for group in groups[process::processes] for item in group]
        size = (len(items) * (process + 1)) // processes - len(dealt)
        dealt += others[: max(size, 0)]
        del others[: max(size, 0)]
    return dealt + others


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """One session for all tests of a process, small and without pages of its own: a JVM takes seconds to start."""
    from migrations.backfill.spark.session import session
    from tests.migrations.spark.conftest import SMALL

    with session(SMALL) as opened:
        yield opened
