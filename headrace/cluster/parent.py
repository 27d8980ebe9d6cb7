"""A part ends with whoever started it: the supervisor holds the other end of its standard input."""

from __future__ import annotations

import os
import signal
import threading


def end_with_parent() -> None:
    """Stop this process cleanly, as by SIGTERM, once its standard input has ended. Returns at once."""
    threading.Thread(target=_end_with_input, name="supervised", daemon=True).start()


def _end_with_input() -> None:
    # Not by sys.stdin: its lock, held here for ever, would abort an interpreter that ends for another reason.
    while os.read(0, 4096):
        continue
    os.kill(os.getpid(), signal.SIGTERM)
