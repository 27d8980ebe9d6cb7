"""The command line: ``headrace serve`` and ``up``, the parts of a cluster, and commands that speak to a server.

A command's module declares its options and says what it prints; the rest is in the client, the server and
``render.py``. What goes wrong is one line on standard error and exit code 1, never a trace.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from io import TextIOWrapper
from typing import TYPE_CHECKING, Any

from headrace.serving.last_words import is_unheard
from headrace.shadowed import check_packages
from worker.service.system import PRIVATE, end_at_once, stop_signals

if TYPE_CHECKING:
    from headrace.cli.commands import app


__all__ = ["app", "main"]

ENDLESS = ("serve", "up", "api", "worker", "controller")
"""Commands that run until a signal stops them, and then end with 0: from the first moment on."""


LOADED = 300_000
"""New containers between two walks over them while the code is loaded, which stays and is some 200,000: with the usual
700, walks take a tenth of the start, and two of 80 ms with 100,000. A server sets its own afterwards."""


def main() -> None:
    """The ``headrace`` command."""
    os.umask(PRIVATE)
    gc.set_threshold(LOADED)
    if sys.argv[1:2] and sys.argv[1] in ENDLESS:
        for each in stop_signals():
            signal.signal(each, end_at_once)
    # A terminal without Unicode is told of an arrow as "\\u2192", which JSON reads as one, too.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # Nobody has put something else in its place.
            stream.reconfigure(errors="backslashreplace")
    try:
        _run()
    except KeyboardInterrupt:
        sys.exit(130)
    except OSError as error:
        # The reader of a pipe (head, less) has seen enough, or the terminal was closed; Python would complain once more
        # when it flushes at exit.
        if not is_unheard(error):
            raise
        sys.stderr.close()
        sys.exit(1)


def _run() -> None:
    # Loaded here: that takes up to a second or two, and a Ctrl-C in them is one as any other.
    from headrace import errors
    from headrace.errors import HeadraceError
    from headrace.render import console

    try:
        check_packages()
        from headrace.cli.commands import app

        with errors.named():
            app()
    except HeadraceError as error:
        printer = console(stderr=True)
        printer.print("error:", style="bold red", end=" ")
        printer.print(error.message, markup=False, soft_wrap=True)
        if error.hint:
            printer.print(f"hint: {error.hint}", markup=False, soft_wrap=True)
        sys.exit(1)


def __getattr__(name: str) -> Any:
    if name == "app":
        from headrace.cli.commands import app

        return app
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
