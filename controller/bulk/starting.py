"""Beginning a job outside so that whoever is cancelled meanwhile leaves nothing that runs on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol, TypeVar


class _Run(Protocol):
    def cancel(self) -> None: ...


Run = TypeVar("Run", bound=_Run)


async def started(start: Callable[[], Run]) -> Run:
    """What ``start`` answers, which is called in a thread."""
    starting = asyncio.ensure_future(asyncio.to_thread(start))
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        run = await starting
        await asyncio.to_thread(run.cancel)
        raise
