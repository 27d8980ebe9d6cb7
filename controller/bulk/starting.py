"""Beginning a job in a thread, so that whoever is cancelled meanwhile leaves nothing that runs on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol, TypeVar


class Run(Protocol):
    def cancel(self) -> None: ...


AnyRun = TypeVar("AnyRun", bound=Run)


async def started(start: Callable[[], AnyRun]) -> AnyRun:
    """What ``start`` answers, or its error. It cannot be broken off: what it has begun is cancelled with its caller."""
    starting = asyncio.ensure_future(asyncio.to_thread(start))
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        await asyncio.wait([starting])
        if starting.exception() is None:
            await asyncio.to_thread(starting.result().cancel)
        raise
