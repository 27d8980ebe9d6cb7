"""A Spark job as its parent sees it: a child process that is started, followed and cancelled. Imports no Spark.

What the child is to do goes to its standard input as one line of JSON; the pipe then stays open, and its end cancels
the job: so a job never outlives the process that wanted it, however that ended. The child's lines come back on its
standard output, and the last of them is the result or an error. What the JVM and its workers say goes to standard
error, of which the last lines are kept for the message of a job that dies without a word.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import deque
from contextlib import suppress
from pathlib import Path
from threading import Condition, Thread
from typing import Any

from domains.errors import Cancelled, HeadraceError, Unavailable
from migrations.backfill.runner import how_it_ended
from migrations.backfill.spark.settings import SparkSettings
from zookeeper.errors import ServerFailed
from zookeeper.java import java_at_once

# Processes that compute in bulk beside a server give way to it.

NICENESS = 19
"""They have the time that nobody else wants. Nobody misses their result so far, while each read of the server is waited
for."""

AUTOGROUP = Path("/proc/self/autogroup")


def give_way() -> None:
    """Give way to other sessions: for the first process of a session of its own; all that it starts follows it.

    Linux weighs sessions against each other before it looks at what is in them (autogroups, ``man 7 sched``): to be
    nice within one's own session leaves it all of a session's share. Where that is off, or somebody's control groups
    are in its place, there is nothing to write, and the process's own niceness counts.
    """
    os.nice(NICENESS)
    if os.getsid(0) == os.getpid():
        with suppress(OSError):
            AUTOGROUP.write_text(str(NICENESS), "ascii")


CANCEL_SECONDS = 15
"""Seconds for a child to stop its JVM; its own patience with that is ten."""

KEPT_LINES = 40
"""Lines of the child's standard error that are kept."""

PROGRESS, ROWS, RESULT, ERROR = "progress", "rows", "result", "error"
"""The one key of each line: how far it is, some rows of its result, what came of it, or (code, message, hint)."""

ABOUT = "about_rows"
"""In what a job is to do: over about how many rows, where somebody knows. Java is set up by it."""


class SparkUnavailable(Unavailable):
    """No Spark job can be started here. Nothing else needs one."""

    code = "spark_unavailable"


class SparkFailed(Unavailable):
    """A Spark job ended without its result."""

    code = "spark_failed"


def check_java() -> None:
    """Raises SparkUnavailable where Java is missing or too old, and says what to install."""
    try:
        java_at_once("Spark", "and PySpark as requirements.lock has it; all else works without")
    except ServerFailed as error:
        raise SparkUnavailable(error.message, hint=error.hint) from error


class SparkJob:
    """One job under way. Any thread may call it; only :meth:`wait` and :meth:`cancel` take time.

    :raises SparkUnavailable: there is no Java for it. Then nothing was begun.
    """

    def __init__(self, name: str, what: dict[str, Any], settings: SparkSettings) -> None:
        check_java()
        self.name = name
        self.progress: dict[str, Any] = {}
        """The last that the child told; ``{}`` before that. ``ui`` is where Spark shows more."""
        self.rows: list[tuple[Any, ...]] = []
        """The rows that the child has sent so far."""
        self._result: Any = None
        self._error: HeadraceError | None = None
        self._ended = False
        self._cancelled = False
        self._changed = Condition()
        self._said: deque[str] = deque(maxlen=KEPT_LINES)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "migrations.backfill.spark", name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            # A group of its own: Ctrl-C at the terminal is for the parent, which then cancels as it should.
            start_new_session=True,
            env=_environment(),
        )
        self._overhearing = Thread(target=self._overhear, daemon=True)
        self._following = Thread(target=self._follow, daemon=True)
        self._tell(json.dumps({"settings": settings.to_json(), "what": what}))
        self._overhearing.start()  # First: the other one waits for its end.
        self._following.start()

    def _tell(self, line: str) -> None:
        assert self.process.stdin is not None
        with suppress(OSError):  # It has died already: the waiting caller gets the error.
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()

    def _follow(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._take(line)
        code = self.process.wait()
        self._overhearing.join(CANCEL_SECONDS)  # Its last words.
        with self._changed:
            if self._result is None and self._error is None:
                self._error = self._died(code)
            self._ended = True
            self._changed.notify_all()

    def _take(self, line: str) -> None:
        try:
            message = json.loads(line)
            kind, content = next(iter(message.items()))
        except (ValueError, StopIteration, AttributeError):
            self._said.append(line.rstrip())
            return
        with self._changed:
            if kind == PROGRESS:
                self.progress = content
            elif kind == ROWS:
                self.rows += map(tuple, content)
            elif kind == RESULT:
                self._result = content
            elif kind == ERROR:
                self._error = error_of_code(*content)
            self._changed.notify_all()

    def _overhear(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self._said.append(line.rstrip())

    def _died(self, code: int) -> HeadraceError:
        if self._cancelled:
            return Cancelled(f'the Spark job "{self.name}" was cancelled')
        return SparkFailed(f'the Spark job "{self.name}" {how_it_ended(code, self._said)}')

    # --- for whoever wants it -----------------------------------------------------------------------------------

    @property
    def ended(self) -> bool:
        return self._ended

    def result(self) -> Any:
        """What the job answers, None while it runs; raises what made it fail."""
        with self._changed:
            if not self._ended:
                return None
            if self._error is not None:
                raise self._error
            return self._result

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until the job reports or ends; whether it has ended."""
        with self._changed:
            if not self._ended:
                self._changed.wait(seconds)
            return self._ended

    def cancel(self) -> None:
        """Stop it, with its JVM and its workers; may be called at any time, and twice. Returns when they are gone."""
        self._cancelled = True
        with suppress(OSError):
            self.process.terminate()
            if self.process.stdin is not None:
                self.process.stdin.close()
        try:
            self.process.wait(CANCEL_SECONDS)
        except subprocess.TimeoutExpired:
            _kill_group(self.process.pid)
            self.process.wait()
        _kill_group(self.process.pid)  # Whatever is left of it; usually nobody.
        for listener in (self._overhearing, self._following):
            listener.join(CANCEL_SECONDS)

    def __enter__(self) -> SparkJob:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._ended:
            self.cancel()


def _environment() -> dict[str, str]:
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    home = environment.get("JAVA_HOME")
    if home and not Path(home, "bin", "java").is_file():
        # The Java that was found is that of PATH. Spark's script looks no further than here.
        del environment["JAVA_HOME"]
    return environment


def _kill_group(process: int) -> None:
    """The child led a session of its own, so everything below it is in its group."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process, 9)


def error_of_code(code: str, message: str, hint: str | None) -> HeadraceError:
    """The error that the child raised, of the class that has its code."""
    kinds: list[type[HeadraceError]] = [HeadraceError]
    for kind in kinds:
        if kind.code == code:
            return kind(message, hint=hint)
        kinds.extend(kind.__subclasses__())
    return SparkFailed(message, hint=hint)
