"""The task that keeps recipes and cuts is watched by nobody, so nothing may end it."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from controller.cluster.leader.candidate import Candidate
from headrace.cluster import controller_process
from headrace.cluster.controller_process import keep_recipes
from headrace.settings import Settings


async def test_it_goes_on_whatever_happens(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    kept: list[str] = []
    done = asyncio.Event()

    async def keep(leader: object, retention: float | None, *, urgent: bool) -> None:
        assert not urgent, "nobody waits"
        assert retention is None, "the workers' is not known"
        kept.append("")
        if len(kept) == 1:
            raise ZeroDivisionError("division by zero")
        done.set()

    monkeypatch.setattr(controller_process, "archive_led", keep)
    leader: Any = SimpleNamespace(ledger=SimpleNamespace(state=SimpleNamespace(recipe=SimpleNamespace())))
    settings = SimpleNamespace(archive="somewhere", archive_interval=0.001, model_fields_set={"archive"})
    task = asyncio.create_task(keep_recipes(cast(Candidate, SimpleNamespace(leader=leader)), cast(Settings, settings)))
    try:
        async with asyncio.timeout(60):
            await done.wait()
    finally:
        task.cancel()
    assert "nobody foresaw" in caplog.text
