"""The child process of a job: ``python -m migrations.backfill.spark JOB``; ``launching.py`` has what goes to and fro.

SIGTERM, or the end of standard input, ends it: what the main thread waits for is broken off by the signal's exception,
and the session's block stops the JVM. Should that hang, a timer kills the JVM and ends the process all the same.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from threading import Thread, Timer
from types import FrameType
from typing import Any

from pyspark import SparkContext
from pyspark.sql import SparkSession

from domains.errors import HeadraceError
from migrations.backfill.spark import bulk, rebuild, small_jobs, verify
from migrations.backfill.spark.launching import ABOUT, ERROR, RESULT, give_way
from migrations.backfill.spark.reporting import Reporter, error_of, set_output_aside
from migrations.backfill.spark.session import session
from migrations.backfill.spark.settings import SparkSettings

Work = Callable[[SparkSession, dict[str, Any], Reporter], Any]

JOBS: dict[str, Work] = {
    "bulk": bulk.run,
    "count": small_jobs.count_rows,
    "loading": small_jobs.read_files,
    "probe": small_jobs.run,
    "rebuild": rebuild.run,
    "select": small_jobs.select,
    "verify": verify.run,
}

WAITED_FOR = {"rebuild", "select"}
"""Jobs of rows that are lost until they are done, and those that somebody waits for: they give way to nobody."""

PATIENCE = 12
"""Seconds for an orderly end after a signal; a little more than the session's own patience with the JVM."""


class JobStopped(SystemExit):
    """A signal came."""


def main() -> int:
    out = set_output_aside()
    reporter = Reporter(out)
    order = json.loads(sys.stdin.readline() or "null")
    if order is None or len(sys.argv) != 2 or sys.argv[1] not in JOBS:
        sys.stderr.write(f"usage: one of {', '.join(JOBS)}, and what to do as one line of JSON\n")
        return 2
    signal.signal(signal.SIGTERM, _stop)
    Thread(target=_end_with_input, daemon=True).start()
    settings = SparkSettings.from_json(order["settings"])
    if sys.argv[1] not in WAITED_FOR:
        give_way()
    try:
        with session(settings, order["what"].get(ABOUT, 0)) as spark:
            reporter.progress(ui=spark.sparkContext.uiWebUrl, master=spark.sparkContext.master)
            answer = _answer(spark, order["what"], reporter)
    except HeadraceError as error:
        reporter.say(ERROR, [error.code, error.message, error.hint])
        return 1
    except JobStopped:
        _end_group()
        return 128 + signal.SIGTERM
    except Exception as error:
        told = error_of(error)
        reporter.say(ERROR, [told.code, told.message, told.hint])
        return 1
    reporter.say(RESULT, answer)
    return 0


def _answer(spark: SparkSession, what: dict[str, Any], reporter: Reporter) -> Any:
    """What went wrong is asked of the JVM while it is there."""
    try:
        return JOBS[sys.argv[1]](spark, what, reporter)
    except HeadraceError:
        raise
    except Exception as error:
        raise error_of(error) from error


def _stop(_number: int, _frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    timer = Timer(PATIENCE, _end_now)
    timer.daemon = True
    timer.start()
    raise JobStopped(128 + signal.SIGTERM)


def _end_with_input() -> None:
    """The parent keeps our input open for as long as it wants the job."""
    # Not by sys.stdin: its lock, held here for ever, would abort an interpreter that ends because the job is done.
    while os.read(0, 4096):
        continue
    os.kill(os.getpid(), signal.SIGTERM)
    # The main thread may be in code that heeds no signal (a store of objects that does not answer), and nobody is left
    # who would kill it.
    time.sleep(PATIENCE)
    _end_now()


def _end_group() -> None:
    """A JVM that was still starting is not known to anybody yet, and would wait for us for ever."""
    if os.getpgid(0) == os.getpid():  # As we are started: what is in our group is below us.
        os.killpg(0, signal.SIGTERM)  # We ourselves heed it no more.


def _end_now() -> None:
    _end_group()
    process = getattr(SparkContext._gateway, "proc", None)
    if process is not None:
        process.kill()
    os._exit(128 + signal.SIGTERM)


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    # Not by sys.exit: py4j's threads may be waiting for a JVM that has gone.
    os._exit(code)
