"""One part of a cluster in this process, from its settings to its end. What it does is in the rooms below."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine

from headrace.server import config, log_to_standard_error
from headrace.settings import Settings


def worker(settings: Settings) -> None:
    """Raises HeadraceError."""
    from worker.process import run

    _run(settings, run(settings))


def _run(settings: Settings, part: Coroutine[None, None, None]) -> None:
    log_to_standard_error(settings)
    with asyncio.Runner(loop_factory=config(None, settings).get_loop_factory()) as runner:
        runner.run(part)
