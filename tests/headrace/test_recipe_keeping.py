"""The task that keeps recipes is watched by nobody, so nothing may end it."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from controller.cluster.candidate import Candidate
from headrace.cluster.recipe_keeping import keep_recipes
from headrace.settings import Settings
from worker.archive import recipes


async def test_it_goes_on_whatever_happens(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    kept: list[str] = []
    done = asyncio.Event()
    loop = asyncio.get_running_loop()

    def keep(url: str, shards: int, text: str, *, retention: float | None) -> set[str]:
        assert retention is None, "the workers' is not known"
        kept.append(text)
        if len(kept) == 1:
            raise ZeroDivisionError("division by zero")
        loop.call_soon_threadsafe(done.set)
        return set()

    monkeypatch.setattr(recipes, "keep_recipe", keep)
    recipe = SimpleNamespace(to_json=lambda: b"{}")
    serving = SimpleNamespace(state=SimpleNamespace(catalog=SimpleNamespace(tables={})))
    leader: Any = SimpleNamespace(
        ledger=SimpleNamespace(state=SimpleNamespace(recipe=recipe, shards=1)), serving=lambda: serving
    )
    settings = SimpleNamespace(archive="somewhere", archive_interval=0.001, model_fields_set={"archive"})
    task = asyncio.create_task(keep_recipes(cast(Candidate, SimpleNamespace(leader=leader)), cast(Settings, settings)))
    try:
        async with asyncio.timeout(60):
            await done.wait()
    finally:
        task.cancel()
    assert "nobody foresaw" in caplog.text
