"""Runs the server and, beside it, the telling."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread

from headrace_client.connection import Connection

from headrace import settings as settings_module
from headrace.demo.telling import Printer, Story, Then
from headrace.errors import ConnectionFailed
from headrace.serving.last_words import is_unheard, perhaps_unheard
from headrace.serving.listening import StartFailed, listen
from headrace.serving.server import Running, serve
from headrace.settings import Settings
from lobsters import program
from lobsters.data import Data
from lobsters.program import TABLES

# Brings the Lobsters program and its data into a server, as any application would: one migration, then inserts.

BATCH_ROWS = 1000
"""Rows a request: enough that one sync is shared by many rows, few enough that the bar moves. A broken-off load is
taken up at a boundary of these."""


def make_program(db: Connection, printer: Printer) -> None:
    """Tables, views and page queries, as one migration; what an earlier run has made is left as it is."""
    started = time.perf_counter()
    if not db.tables():
        db.migrate(program.program()).wait()
    elif not db.views():  # it was broken off between the two
        db.migrate(program.natural_views() + program.page_queries()).wait()
    seconds = time.perf_counter() - started
    views = db.views()
    external = sum(view["external"] for view in views)
    printer.fact(
        "program",
        f"{len(db.tables())} base tables, {len(views) - external} views, {external} page queries",
        (f"  in {seconds:.1f} s", "dim"),
    )


def load(db: Connection, data: Data, printer: Printer) -> None:
    """All rows of ``data``, with a progress bar. Views that have readers are kept up to date meanwhile.

    Each batch is stored as a whole or not at all, and always in the same order, so that the number of a table's rows
    says which batches are there already.
    """
    stored = {table: entry["rows"] for table, entry in db.status()["tables"].items()}
    seen = Counter[str]()
    sent = 0
    started = time.perf_counter()
    with printer.progress() as bar:
        task = bar.add_task("data", total=sum(data.totals.values()), note="")
        for table, rows in data.batches(BATCH_ROWS):
            seen[table] += len(rows)
            if seen[table] > stored[table]:
                bar.update(task, note=table)
                db.table(table).insert(rows)
                sent += len(rows)
            bar.advance(task, len(rows))
        seconds = time.perf_counter() - started
        bar.update(task, note=f"in {seconds:.1f} s, {sent / seconds:,.0f} rows/s")


def describe(data: Data, printer: Printer) -> None:
    """How large the site is."""
    size = data.shape
    votes = sum(data.story_votes) + sum(data.comment_votes)
    text = f"{size.users:,} users, {size.stories:,} stories, {size.comments:,} comments, {votes:,} votes"
    printer.fact("", (text, "dim"))


# The demo's data directory: kept from one run to the next, so that the second one starts at once.
#
# A file in it, ``demo.json``, says that the directory is the demo's, how much data it is to hold, and whether the
# load came to its end. Nothing is ever deleted here: a load that was broken off is taken up where it stopped.

USUAL = Path("headrace-data/demo")
NOTE = "demo.json"


@dataclass(frozen=True, slots=True)
class DemoContents:
    """The directory's purpose: the generator's ``scale`` and ``seed``, and whether all of it has been ``loaded``."""

    scale: float
    seed: int
    loaded: bool = False


@contextmanager
def directory(given: Path | None, once: bool) -> Iterator[Path]:
    """The directory to use: the given one, or a temporary one for a run that ends by itself, else the usual one."""
    if given is None and once:
        with TemporaryDirectory(prefix="headrace-demo-") as temporary:
            yield Path(temporary)
    else:
        yield given or USUAL


def contents_of(path: Path, wanted: DemoContents) -> DemoContents:
    """The directory's contents; ``wanted`` if it is empty.

    :raises StartFailed: it holds something else than a demo.
    """
    try:
        if path.is_dir() and any(path.iterdir()):
            return _read(path)
        path.mkdir(parents=True, exist_ok=True)
        note(path, wanted)
    except OSError as error:
        raise StartFailed(f'cannot use the directory "{path}": {error.strerror or error}') from error
    return wanted


def note(path: Path, contents: DemoContents) -> None:
    """Write down what the directory holds."""
    (path / NOTE).write_text(json.dumps(asdict(contents)), encoding="utf-8")


def _read(path: Path) -> DemoContents:
    try:
        return DemoContents(**json.loads((path / NOTE).read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise StartFailed(
            f'the directory "{path}" holds something else than a demo', hint="choose another with --data"
        ) from None
    except (ValueError, TypeError) as error:
        raise StartFailed(f'"{path / NOTE}" cannot be read: {error}', hint="remove the directory") from error


USUAL_SCALE = 0.1
"""The real site's share at scale 1: 4,065 stories and 74,000 votes, loaded in some seconds."""

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
    with directory(data, once) as path:
        settings = settings_module.load(data=path, host=host, port=_port(host, port, once), log_level="warning")
        plain: dict[str, None] = dict.fromkeys(("tls_cert", "tls_key", "tls_client_ca"))  # Of the server beside it.
        settings = settings.model_copy(update=plain)
        contents = contents_of(path, DemoContents(USUAL_SCALE * scale, SEED))
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
    mine = settings_module.load()
    certificate, its_key = mine.tls_client_cert, mine.tls_client_key
    with Connection(url, key=mine.key, tls_ca=mine.tls_ca, tls_cert=certificate, tls_key=its_key) as db:
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

    def __init__(self, settings: Settings, contents: DemoContents, printer: Printer, once: bool) -> None:
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
                note(path, DemoContents(contents.scale, contents.seed, loaded=True))
            describe(data, printer)
            Story(db, url, data, printer).tell(Then.ENDS if self._once else Then.SERVES_ON)
