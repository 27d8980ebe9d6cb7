"""The command line: ``headrace serve`` and ``up``, the parts of a cluster, and commands that speak to a server.

A command's module declares its options and says what it prints; the rest is in the client, the server and
``render.py``. What goes wrong is one line on standard error and exit code 1, never a trace.
"""

from __future__ import annotations

import signal
import sys
from importlib.util import find_spec
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.errors import Unavailable
from headrace.serving.last_words import is_unheard
from worker.service.stopping import end_at_once, stop_signals

if TYPE_CHECKING:
    from headrace.cli.commands import app


# Whether the server's packages are the ones that Python finds.
#
# They have plain names (``api``, ``worker``, …), and an application's package of the same name that comes first on
# ``sys.path`` would be loaded in their place, and fail somewhere in the middle. The error comes before anything is
# loaded.

PACKAGES = ("api", "controller", "domains", "migrations", "worker", "zookeeper")
HERE = Path(__file__).resolve().parents[2]


def check_packages() -> None:
    """Raises Unavailable, naming the package that is in the way."""
    for name in PACKAGES:
        found = _place_of(name)
        if found is not None and found.parent != HERE:
            raise Unavailable(
                f'the package "{name}" in {found.parent} is in the way of the server\'s own of that name',
                hint='run the server as a process of its own ("headrace serve") and speak to it with headrace_client, '
                "or rename the package",
            )


def _place_of(name: str) -> Path | None:
    """The directory, or the file, that an import would load or has loaded; None where it is not installed at all."""
    try:
        spec = find_spec(name)
    except ValueError:  # It was loaded by something that says nothing of where from.
        return None
    if spec is None:
        return None
    folders = list(spec.submodule_search_locations or ())
    place = folders[0] if folders else spec.origin
    return None if place is None else Path(place).resolve()


__all__ = ["app", "main"]

ENDLESS = ("serve", "up", "api", "worker", "controller")
"""Commands that run until a signal stops them, and then end with 0: from the first moment on."""


def main() -> None:
    """The ``headrace`` command."""
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
