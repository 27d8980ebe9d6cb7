"""Which signals stop a process of Headrace in order: what has come is done and answered, and the data is closed."""

from __future__ import annotations

import os
import signal
from types import FrameType


def stop_signals() -> tuple[signal.Signals, ...]:
    """Ctrl-C, SIGTERM, and a terminal that is closed, unless nohup has that ignored."""
    closed = () if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else (signal.SIGHUP,)
    return (signal.SIGINT, signal.SIGTERM, *closed)


def end_at_once(number: int, frame: FrameType | None) -> None:
    """The handler of a process that has not opened anything yet: to stop in order is to end."""
    del number, frame
    os._exit(0)
