"""``python -m controller.migrating.bulk.child DIRECTORY``: runs the stages of one job, which comes over standard input.

Rows between tasks lie in the directory, which goes with the process; states in the job's staging directory. A fold is
done in bounded memory (``worker/archive/folding.py``); what a task needs beside is said in
``migrations/backfill/task.py``.
"""

from __future__ import annotations

import json
import pickle
import shutil
import signal
import struct
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from controller.migrating.bulk.local_runner import progress_line, results_line
from domains.errors import HeadraceError
from domains.language.types import Delta
from domains.plan.graph import Columns, NodeIndex
from migrations.backfill.job import BulkJob, Digest, Flow, JobProgress, StateFile, TableShard, Task, frame
from migrations.backfill.runner import BulkFailed
from migrations.backfill.spark.launching import give_way
from migrations.backfill.task import RowsBlock, StateBlock, run_task
from worker.archive.folding import fold
from worker.archive.place import Place
from worker.service.system import end_with_parent, expect_long_lives

TELL_SECONDS = 0.2
"""Seconds between two lines about progress."""


class JobChild:
    def __init__(self, job: BulkJob, spool: Path) -> None:
        self._job = job
        self._archive, self._staging = Place(job.archive), Place(job.staging)
        self._spool = spool
        self._files: list[StateFile] = []
        self._fed = 0
        """Base rows."""
        self._read = 0.0
        """Base rows, about: what was read of the archive is more where rows were changed."""
        self._stages_done = 0
        self._began = self._told = time.monotonic()

    def run(self) -> list[StateFile]:
        for stage in self._job.stages:
            for task in stage.tasks:
                self._run_task(task)
            self._stages_done += 1
            self._tell()
        return self._files

    def _run_task(self, task: Task) -> None:
        tables = {table.base: self._folded(self._job.table(table.base), table.columns) for table in task.tables}
        inputs = {flow: self._spooled(flow) for flow in task.inputs if self._spool_of(flow).exists()}
        with ExitStack() as opened:
            states: dict[NodeIndex, _StateWriter] = {}
            links: dict[Flow, Any] = {}
            for output in run_task(task, tables, inputs):
                match output:
                    case RowsBlock(flow=flow, data=data):
                        if flow not in links:
                            links[flow] = opened.enter_context(self._spool_of(flow).open("wb"))
                        links[flow].write(frame(data))
                    case StateBlock(node=node, items=items, data=data):
                        if node not in states:
                            file = f"state-{task.domain}-{node}"
                            states[node] = _StateWriter(file, opened.enter_context(self._staging.sink(file)))
                        states[node].write(items, data)
        self._files += [writer.file(task, node) for node, writer in states.items()]

    def _folded(self, table: TableShard, columns: Columns) -> Iterator[Delta]:
        assert table.manifest is not None
        archived = sum(segment.rows for segment in table.manifest.fold_of(table.position))

        def read(rows: int) -> None:
            self._read += table.rows * rows / archived
            self._tell(now=False)

        parts = fold(
            self._archive,
            table.manifest,
            table.position,
            schema=table.schema,
            columns=columns,
            scratch=self._spool,
            read=read,
        )
        for part in parts:
            self._fed += sum([weight for _, weight in part])
            self._tell(now=False)
            yield from part

    def _spool_of(self, flow: Flow) -> Path:
        return self._spool / f"link-{flow.link}-{flow.ingress}"

    def _spooled(self, flow: Flow) -> Iterator[bytes]:
        with self._spool_of(flow).open("rb") as file:
            while head := file.read(4):
                yield file.read(struct.unpack(">I", head)[0])

    def _tell(self, *, now: bool = True) -> None:
        at = time.monotonic()
        if not now and at - self._told < TELL_SECONDS:
            return
        self._told = at
        if self._stages_done == len(self._job.stages):
            rows = total = self._fed  # It was counted a moment before.
        else:
            rows, total = int(self._fed + self._read) // 2, max(self._job.rows, self._fed)
        left = (at - self._began) * (total - rows) / rows if rows else None
        told = JobProgress(rows, total, self._stages_done, len(self._job.stages), seconds_left=left)
        print(progress_line(told), flush=True)


class _StateWriter:
    def __init__(self, file: str, sink: Any) -> None:
        self._file, self._sink = file, sink
        self._digest = Digest()
        self._items = 0

    def write(self, items: int, data: bytes) -> None:
        self._items += items
        self._sink.write(self._digest.add(frame(data)))

    def file(self, task: Task, node: NodeIndex) -> StateFile:
        return StateFile(task.domain, node, self._file, self._items, self._digest.bytes, self._digest.hex())


def main(spool: Path) -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(2))
    try:
        return _run(spool)
    finally:
        shutil.rmtree(spool, ignore_errors=True)


def _run(spool: Path) -> int:
    give_way()
    pipe = sys.stdin.buffer
    job: BulkJob = pickle.loads(pipe.read(struct.unpack(">Q", pipe.read(8))[0]))
    end_with_parent()
    expect_long_lives()
    try:
        files = JobChild(job, spool).run()
    except HeadraceError as error:
        print(_error_line(error), flush=True)
        return 1
    except MemoryError:
        print(_error_line(BulkFailed("the process that computes it has no memory left")), flush=True)
        return 1
    print(results_line(files), flush=True)
    return 0


def _error_line(error: HeadraceError) -> str:
    return json.dumps({"error": [error.code, error.message, error.hint]})


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
