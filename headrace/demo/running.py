"""Runs the server and, beside it, the telling."""

from __future__ import annotations

from pathlib import Path
from threading import Thread

from headrace_client.connection import Connection

from headrace import settings as settings_module
from headrace.demo import directory as directories
from headrace.demo.directory import Contents
from headrace.demo.loading import describe, load, make_program
from headrace.demo.printing import Printer
from headrace.demo.telling import Story, Then
from headrace.errors import ConnectionFailed
from headrace.last_words import is_unheard, perhaps_unheard
from headrace.listening import StartFailed, listen
from headrace.server import Running, serve
from headrace.settings import Settings
from loadgen.lobsters.data import Data
from loadgen.lobsters.program import TABLES

USUAL_SCALE = 0.1
"""Of the real site, where the user asks for 1: 4,065 stories and 74,000 votes, loaded in some seconds."""

SEED = 1


def run(
    *,
    once: bool = False,
    scale: float = 1.0,
    host: str = "127.0.0.1",
    port: int = 8080,
    data: Path | None = None,
    printer: Printer | None = None,
) -> None:
    """Start the server, fill it, tell the story, and serve on until Ctrl-C; with ``once`` end after the story.

    ``scale`` is a multiple of the usual amount of data. ``data`` is the directory; without it ``headrace-data/demo``,
    which is kept and found again, or with ``once`` a temporary one.

    :raises StartFailed: the port is taken (with ``once`` a free one is found), or the directory is not a demo's.
    """
    printer = printer or Printer()
    with directories.directory(data, once) as path:
        settings = settings_module.load(data=path, host=host, port=_port(host, port, once), log_level="warning")
        contents = directories.contents_of(path, Contents(USUAL_SCALE * scale, SEED))
        telling = _Telling(settings, contents, printer, once)
        serve(settings, telling.begin)
        telling.end()


def run_against(url: str, *, scale: float = 1.0, printer: Printer | None = None) -> None:
    """Fill a server that runs already, of whatever kind, and tell the story on it.

    What an earlier run of the same ``scale`` has brought in is left as it is.

    :raises StartFailed: it has tables, and they are not the demo's.
    """
    printer = printer or Printer()
    data = Data(USUAL_SCALE * scale, SEED)
    with Connection(url) as db:
        there = {table["name"] for table in db.tables()}
        status = db.status()
        workers = len(status.get("workers", ()))
        printer.title("Headrace", "Lobsters, a news site: SQL in, answers kept fresh.")
        printer.fact("server", (url, "bold"), (f"  {workers} workers" if workers else "  one process", "dim"))
        if there and not there >= set(TABLES):
            raise StartFailed(
                f'the server at {url} holds something else than a demo: table "{min(there)}"', hint="use an empty one"
            )
        make_program(db, printer)
        load(db, data, printer)
        describe(data, printer)
        Story(db, url, data, printer).tell(Then.WAS_THERE)


def _port(host: str, port: int, once: bool) -> int:
    """The port, or 0 (a free one) where it is taken and nobody is going to come back to it."""
    if not once:
        return port
    try:
        listen(host, port).close()
    except StartFailed:
        return 0
    return port


class _Telling:
    """The thread that tells. Its error, if it meets one, stops the server and is raised by ``end``."""

    def __init__(self, settings: Settings, contents: Contents, printer: Printer, once: bool) -> None:
        self._settings = settings
        self._contents = contents
        self._printer = printer
        self._once = once
        self._error: Exception | None = None
        self._thread: Thread | None = None

    def begin(self, running: Running) -> None:
        self._thread = Thread(target=self._run, args=(running,), name="headrace-demo", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """After the server has stopped."""
        assert self._thread is not None
        self._thread.join()
        if not self._once and (isinstance(self._error, ConnectionFailed) or is_unheard(self._error)):
            # Nothing but a stop takes the server away from under its own process; a terminal that was closed is one.
            self._say("before the end; the next run goes on from here")
        elif self._error is not None:
            raise self._error
        elif not self._once:
            self._say("the data stays in ", (str(self._settings.data), "bold"))

    def _say(self, *parts: str | tuple[str, str]) -> None:
        with perhaps_unheard():
            self._printer.blank()
            self._printer.fact("stopped", *parts)

    def _run(self, running: Running) -> None:
        try:
            self._tell(running.url)
        except Exception as error:  # whatever it is, it is raised by end()
            self._error = error
        if self._once or self._error is not None:
            running.stop()

    def _tell(self, url: str) -> None:
        printer, contents, path = self._printer, self._contents, self._settings.data
        printer.title("Headrace", "Lobsters, a news site, on one process: SQL in, answers kept fresh.")
        printer.fact("server", (url, "bold"), ("  API at /docs", "dim"))
        data = Data(contents.scale, contents.seed)
        with Connection(url) as db:
            if contents.loaded:
                printer.fact("data", f"found in {path}, loading is skipped", ("  (remove it to begin anew)", "dim"))
            else:
                make_program(db, printer)
                load(db, data, printer)
                directories.note(path, Contents(contents.scale, contents.seed, loaded=True))
            describe(data, printer)
            Story(db, url, data, printer).tell(Then.ENDS if self._once else Then.SERVES_ON)
