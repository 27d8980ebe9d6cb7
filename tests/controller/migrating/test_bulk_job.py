"""A job that is begun as its caller ends: it does not run on."""

from __future__ import annotations

import asyncio
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest

from controller.migrating.bulk import building
from controller.migrating.bulk.building import started
from controller.migrating.execution import Migration
from domains.errors import Unavailable

PATIENCE = 30.0
"""Seconds; on a quiet machine it takes none."""


class Job:
    """Begins when it is told to, in the thread of whoever begins it."""

    def __init__(self, error: Exception | None = None) -> None:
        self.is_beginning, self.may_begin, self.has_begun = Event(), Event(), Event()
        self.error = error
        self.running = 0

    def start(self, _: object = None) -> Job:
        self.is_beginning.set()
        assert self.may_begin.wait(PATIENCE)
        try:
            if self.error is not None:
                raise self.error
            self.running += 1
        finally:
            self.has_begun.set()
        return self

    def cancel(self) -> None:
        self.running -= 1


async def ended(task: asyncio.Task[Any], job: Job) -> None:
    assert await asyncio.to_thread(job.is_beginning.wait, PATIENCE)
    task.cancel()
    await asyncio.sleep(0)
    job.may_begin.set()
    async with asyncio.timeout(PATIENCE):
        with pytest.raises(asyncio.CancelledError):
            await task
    assert await asyncio.to_thread(job.has_begun.wait, PATIENCE)
    assert not job.running, "it runs on"


async def test_it_is_cancelled_with_its_caller() -> None:
    job = Job()
    await ended(asyncio.ensure_future(started(job.start)), job)


async def test_that_it_failed_is_of_no_concern_to_who_is_cancelled() -> None:
    job = Job(Unavailable("no job can be begun here"))
    await ended(asyncio.ensure_future(started(job.start)), job)


async def test_its_error_is_its_callers() -> None:
    job = Job(Unavailable("no job can be begun here"))
    job.may_begin.set()
    with pytest.raises(Unavailable, match="can be begun"):
        await started(job.start)


async def test_a_build_in_bulk_leaves_none(monkeypatch: pytest.MonkeyPatch) -> None:
    async def described(*_: object) -> None:
        """Nobody asks what is to be done."""

    monkeypatch.setattr(building._Build, "_job", described)
    job = Job()
    source: Any = SimpleNamespace(url="archive")
    runner: Any = SimpleNamespace(name="simulated", start=job.start)
    change: Any = SimpleNamespace(state=SimpleNamespace(flow=None), views=None)
    none: Any = None
    build = building._Build(none, source, "staging", runner, change, none, Migration("1-1", "CREATE VIEW v", "running"))
    await ended(asyncio.ensure_future(build._computed({})), job)
