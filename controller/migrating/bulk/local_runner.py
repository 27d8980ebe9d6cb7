"""The runner without Spark: all stages in one child process, task after task, on one core.

The child has the job from a pipe, which stays open: when it ends, with this process or by a cancel, the child goes. It
tells how far it is in lines of JSON, and at the end which files there are.
"""

from __future__ import annotations

import json
import pickle
import shutil
import struct
import subprocess
import sys
from collections import deque
from collections.abc import Sequence
from dataclasses import asdict, fields
from tempfile import mkdtemp
from threading import Lock, Thread
from typing import Any

from domains import errors
from domains.archive.manifest import ArchiveError
from domains.errors import HeadraceError, Unavailable
from domains.language.types import TableSchema
from migrations.backfill.job import BulkJob, JobProgress, StateFile
from migrations.backfill.runner import BulkFailed, how_it_ended

CANCEL_SECONDS = 5.0
"""Seconds for the child to remove its temporary files."""
KEPT_LINES = 20
"""Lines of the child's standard error that are kept, for the message of one that dies without a word."""


class LocalRunner:
    """See :class:`migrations.backfill.runner.BulkRunner`."""

    name = "local"

    def check(self, tables: Sequence[TableSchema]) -> None:
        """It needs nothing that is not there."""

    def start(self, job: BulkJob) -> LocalRun:
        return LocalRun(job)


class LocalRun:
    """See :class:`migrations.backfill.runner.BulkRun`."""

    def __init__(self, job: BulkJob) -> None:
        self._lock = Lock()
        self._progress = JobProgress(total=job.rows, stages=len(job.stages))
        self._results: tuple[StateFile, ...] | None = None
        self._error: HeadraceError | None = None
        self._said: deque[str] = deque(maxlen=KEPT_LINES)
        self.spool = mkdtemp(prefix="headrace-bulk-")
        """For the child, who removes it at its end; one that is killed cannot."""
        self.process = self._begun()
        self._threads = [
            Thread(target=each, daemon=True) for each in (lambda: self._tell(job), self._overhear, self._listen)
        ]
        for thread in self._threads:
            thread.start()

    def _begun(self) -> subprocess.Popen[bytes]:
        try:
            return subprocess.Popen(
                [sys.executable, "-m", "controller.migrating.bulk.child", self.spool],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,  # Ctrl-C at the terminal is for the parent, which then cancels as it should.
            )
        except OSError as error:
            shutil.rmtree(self.spool, ignore_errors=True)
            raise Unavailable(f"no process can be begun to compute it: {error.strerror}", hint="try again") from error

    def _tell(self, job: BulkJob) -> None:
        assert self.process.stdin is not None
        data = pickle.dumps(job)
        try:
            self.process.stdin.write(struct.pack(">Q", len(data)) + data)
            self.process.stdin.flush()
        except (OSError, ValueError):
            return  # It is gone already, which the listener tells, or nobody wants it any more.

    def _overhear(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self._said.append(line.decode(errors="replace").rstrip())

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            try:
                self._take(json.loads(line))
            except ValueError:  # It was killed in the middle of it, most likely.
                self._said.append(line.decode(errors="replace").rstrip())
        code = self.process.wait()
        self._threads[1].join(1.0)
        with self._lock:
            if self._results is None and self._error is None:
                self._error = BulkFailed(
                    f"the process that computes it {how_it_ended(code, self._said)}",
                    hint="nothing was changed; see its log, try again",
                )

    def _take(self, message: dict[str, Any]) -> None:
        with self._lock:
            match message:
                case {"progress": told}:
                    self._progress = JobProgress(**told)
                case {"results": files}:
                    self._results = tuple(StateFile(**file) for file in files)
                case {"error": [code, text, hint]}:
                    self._error = error_of(code, text, hint)

    # --- for the controller -------------------------------------------------------------------------------------

    def progress(self) -> JobProgress:
        with self._lock:
            return self._progress

    def results(self) -> tuple[StateFile, ...] | None:
        with self._lock:
            if self._error is not None:
                raise self._error
            return self._results

    def cancel(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(CANCEL_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.spool, ignore_errors=True)
        if self.process.stdin is not None:
            try:
                self.process.stdin.close()
            except OSError:
                return  # What was left in it has nobody to read it.


def error_of(code: str, message: str, hint: str | None) -> HeadraceError:
    """The child's error again, where it is one that has no more than a message and a hint."""
    plain: list[type[HeadraceError]] = [errors.StorageFailure, errors.LimitExceeded, errors.Unavailable, BulkFailed]
    for kind in (*plain, *_below(ArchiveError)):
        if kind.code == code:
            return kind(message, hint=hint)
    return BulkFailed(message, hint=hint)


def _below(kind: type[HeadraceError]) -> list[type[HeadraceError]]:
    return [kind, *(each for below in kind.__subclasses__() for each in _below(below))]


def progress_line(progress: JobProgress) -> str:
    return json.dumps({"progress": asdict(progress)})


def results_line(files: list[StateFile]) -> str:
    return json.dumps(
        {"results": [{field.name: getattr(file, field.name) for field in fields(file)} for file in files]}
    )
