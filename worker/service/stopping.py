"""How a process of Headrace stops in order: by which signals, and what it waits for is given up."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Coroutine
from types import FrameType


def stop_signals() -> tuple[signal.Signals, ...]:
    """Ctrl-C, SIGTERM, and a terminal that is closed, unless nohup has that ignored."""
    closed = () if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else (signal.SIGHUP,)
    return (signal.SIGINT, signal.SIGTERM, *closed)


def end_at_once(number: int, frame: FrameType | None) -> None:
    """The handler of a process that has not opened anything yet: to stop in order is to end."""
    del number, frame
    os._exit(0)


def end_with_parent() -> None:
    """Stop this process cleanly, as by SIGTERM, once its standard input has ended: whoever started it holds the other
    end, and has ended or no longer wants it. Returns at once."""
    threading.Thread(target=_end_with_input, name="supervised", daemon=True).start()


def _end_with_input() -> None:
    # Not by sys.stdin: its lock, held here for ever, would abort an interpreter that ends for another reason.
    while os.read(0, 4096):
        continue
    os.kill(os.getpid(), signal.SIGTERM)


async def unless(stop: asyncio.Event, work: Coroutine[None, None, None]) -> bool:
    """Whether the work was done; it is cancelled when ``stop`` is set before. Raises what it raises."""
    working, stopping = asyncio.create_task(work), asyncio.create_task(stop.wait())
    try:
        await asyncio.wait((working, stopping), return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            working.result()
            return True
        return False
    finally:
        for task in (working, stopping):
            task.cancel()
        await asyncio.gather(working, stopping, return_exceptions=True)
