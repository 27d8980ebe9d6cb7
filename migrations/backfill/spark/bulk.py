"""A bulk job on Spark: each stage is one shuffle to its tasks, and each task runs our own domain.

::

    fold of each base shard ─ blocks of rows ─┐   by task, then in the order
                                              ├─ in which it wants them ─► run_task ─┬─► states: files, as they come
    blocks that earlier stages sent ──────────┘        (one partition a task)        └─► blocks for later stages

What goes to a task are *blocks* (``domains/archive/rows.py``): a row with the number of the task, the place of the
input or the table in the task's order, and the block's bytes. Spark sorts them by these two, on disk where there are
many, and the task reads them as one tape from the beginning to the end; so what it holds is what ``task.py`` says, and
no more.

States are written by the tasks, each under a name that no other try of the same task has; the files that count are
those that the job's results name.
"""

from __future__ import annotations

import gc
import pickle
import time
from base64 import b64decode
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict
from itertools import repeat
from typing import Any
from uuid import uuid4

import pyarrow as pa
from pyspark import Accumulator, StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from domains.archive.rows import BLOCK_ITEMS, WEIGHT, decode_block, encode_block
from domains.errors import HeadraceError
from domains.language.types import Delta
from domains.plan.graph import Columns, NodeIndex
from migrations.backfill.job import BulkJob, Digest, Flow, JobStage, StateFile, TableShard, Task, frame
from migrations.backfill.spark.fold import ShardAt, fold, restorer, stored_names
from migrations.backfill.spark.reporting import INTERVAL as LOOK_SECONDS
from migrations.backfill.spark.reporting import (
    FilesRead,
    Marked,
    Reporter,
    StageWatch,
    TaskReporter,
    error_of,
    tally_of,
)
from migrations.backfill.spark.segments import ArchiveFiles, check_all
from migrations.backfill.task import RowsBlock, StateBlock, run_task

TAPE = "task int, place int, data binary"
OUTPUT = "flow int, data binary, node long, domain long, file string, items long, bytes long, digest string"
"""``flow`` is the place of the flow among those of the job; of a state it is NULL."""

_OUTPUT_TYPES = pa.schema(
    [
        ("flow", pa.int32()),
        ("data", pa.binary()),
        ("node", pa.int64()),
        ("domain", pa.int64()),
        ("file", pa.string()),
        ("items", pa.int64()),
        ("bytes", pa.int64()),
        ("digest", pa.string()),
    ]
)
_TAPE_TYPES = pa.schema([("task", pa.int32()), ("place", pa.int32()), ("data", pa.binary())])

BEGIN = -1
"""The place of a row that every task has, so that one that nobody sends anything runs too."""


def run(spark: SparkSession, what: dict[str, Any], reporter: Reporter) -> list[dict[str, Any]]:
    """The files of all states of the job, as :class:`StateFile` has them."""
    job: BulkJob = pickle.loads(b64decode(what["job"]))
    return [asdict(file) for file in Bulk(spark, job, reporter).run()]


class Bulk:
    def __init__(self, spark: SparkSession, job: BulkJob, reporter: Reporter) -> None:
        self._spark = spark
        self._job = job
        self._reporter = reporter
        self._files = ArchiveFiles(job.archive)
        self._flows = [flow for stage in job.stages for task in stage.tasks for flow in task.outputs]
        self._sent: list[DataFrame] = []
        self._rows: Accumulator[int] = spark.sparkContext.accumulator(0)
        """Fed by tasks that are done."""
        self._tally, self._reading = tally_of(spark), FilesRead(spark)
        self._archived = sum(self._archived_rows(stage) for stage in job.stages)
        self._stages_done = 0
        self._begun: float | None = None
        """Since when rows have been read."""

    def run(self) -> list[StateFile]:
        files: list[StateFile] = []
        try:
            with StageWatch(self._spark, self._reporter, self._progress):
                self._check()
                for stage in self._job.stages:
                    files += self._run_stage(stage)
                    self._stages_done += 1
        except HeadraceError:
            raise
        except Exception as error:
            raise error_of(error) from error
        finally:
            self._tally.close()
        return files

    def _check(self) -> None:
        """All segments at once. Raises ArchiveError."""
        check_all(self._spark, self._files, [each for table in self._job.tables for each in _at(table).segments])

    def _archived_rows(self, stage: JobStage) -> int:
        bases = {base for base, _ in self._readers(stage)}
        return sum(segment.rows for base in bases for segment in _at(self._job.table(base)).segments)

    def _progress(self) -> dict[str, Any]:
        """A row that is read is half of one; of those that are fed, all had been read."""
        fed = max(int(self._rows.value), self._tally.rows())
        total = max(self._job.rows, fed)
        share = min(1.0, self._reading.rows() / self._archived) if self._archived else 0.0
        rows = (max(fed, int(total * share)) + fed) // 2
        left = None
        if rows:
            self._begun = self._begun or time.monotonic() - LOOK_SECONDS
            left = round((time.monotonic() - self._begun) * (total - rows) / rows, 1)
        return {"rows": rows, "total": total, "stages_done": self._stages_done, "seconds_left": left}

    def _run_stage(self, stage: JobStage) -> list[StateFile]:
        tape = self._tape(stage)
        tasks, flows, staging = stage.tasks, self._flows, ArchiveFiles(self._job.staging)
        address, counted = self._tally.address, self._rows

        def perform(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            reading = _Tape(batches)
            while (number := reading.task) is not None:
                gc.disable()  # It would walk over growing states again and again, half of a task's time, for no cycle.
                teller = TaskReporter(address, stage.number, number)

                def fed(rows: int, teller: TaskReporter = teller) -> None:
                    counted.add(rows)
                    teller.fed(rows)

                try:
                    yield from _outputs(tasks[number], number, reading, flows, staging, fed)
                except HeadraceError as error:
                    raise Marked(error) from error
                finally:
                    teller.close()
                    gc.enable()

        ordered = tape.repartitionById(len(tasks), F.col("task")).sortWithinPartitions("task", "place")
        output = ordered.mapInArrow(perform, OUTPUT).persist(StorageLevel.DISK_ONLY)
        states = output.where("flow IS NULL").select("domain", "node", "file", "items", "bytes", "digest").collect()
        self._sent.append(output.where("flow IS NOT NULL").select("flow", "data"))
        return [StateFile(**row.asDict()) for row in states]

    # --- what the tasks read ----------------------------------------------------------------------------------------

    def _tape(self, stage: JobStage) -> DataFrame:
        """Everything that the stage's tasks read: (task, place, block)."""
        starts = self._spark.range(0, len(stage.tasks), 1, 1)
        tape = starts.selectExpr("CAST(id AS int) AS task", f"{BEGIN} AS place", "X'' AS data")
        for (base, columns), readers in self._readers(stage).items():
            tape = tape.unionAll(self._blocks(self._job.table(base), columns, readers))
        wanted = [
            (self._flows.index(flow), number, place)
            for number, task in enumerate(stage.tasks)
            for place, flow in enumerate(task.inputs)
            if flow in self._flows
        ]
        if wanted and self._sent:
            rows = ", ".join(map(str, wanted))
            ways = self._spark.sql(f"SELECT * FROM VALUES {rows} AS ways (flow, task, place)")
            for sent in self._sent:
                tape = tape.unionAll(sent.join(F.broadcast(ways), "flow").select("task", "place", "data"))
        return tape

    @staticmethod
    def _readers(stage: JobStage) -> dict[tuple[str, Columns], list[tuple[int, int]]]:
        """The tasks that read a base shard by some columns, and at which place: behind their inputs."""
        readers: dict[tuple[str, Columns], list[tuple[int, int]]] = {}
        for number, task in enumerate(stage.tasks):
            for place, table in enumerate(task.tables, len(task.inputs)):
                readers.setdefault((table.base, table.columns), []).append((number, place))
        return readers

    def _blocks(self, table: TableShard, columns: Columns, readers: list[tuple[int, int]]) -> DataFrame:
        """The rows of a base shard, in blocks, once for each task that reads it."""
        folded = fold(self._spark, self._files, [_at(table)], table.schema, columns=columns, checked=True)
        restore = {place: restorer(table.schema.columns[place].type) for place in columns}
        width = len(table.schema.columns)

        def pack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                rows = _deltas(batch, restore, width)
                blocks = [encode_block(rows[at : at + BLOCK_ITEMS]) for at in range(0, len(rows), BLOCK_ITEMS)]
                for task, place in readers:
                    yield pa.RecordBatch.from_arrays(
                        [
                            pa.array([task] * len(blocks), pa.int32()),
                            pa.array([place] * len(blocks), pa.int32()),
                            pa.array(blocks, pa.binary()),
                        ],
                        schema=_TAPE_TYPES,
                    )

        return folded.select(WEIGHT, *stored_names(columns)).mapInArrow(pack, TAPE)


def _at(table: TableShard) -> ShardAt:
    assert table.manifest is not None, "a job on Spark reads an archive"
    return ShardAt(table.manifest, table.position)


def _deltas(batch: pa.RecordBatch, restore: Mapping[int, Any], width: int) -> list[Delta]:
    """Rows of ``width`` with the columns that ``restore`` names, by their place; the others are None."""
    weights, *columns = (column.to_pylist() for column in batch.columns)
    rows: list[Iterable[Any]] = [repeat(None, len(weights)) for _ in range(width)]
    for (place, convert), column in zip(restore.items(), columns, strict=True):
        rows[place] = column if convert is None else [None if value is None else convert(value) for value in column]
    return list(zip(zip(*rows, strict=True), weights, strict=True))


# --- in a task ----------------------------------------------------------------------------------------------------


class _Tape:
    """Blocks by (task, place), in this order, read once."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._rows = ((row["task"], row["place"], row["data"]) for batch in batches for row in _some(batch))
        self._next: tuple[int, int, bytes] | None = next(self._rows, None)

    @property
    def task(self) -> int | None:
        """Whose block is next; None at the end."""
        return None if self._next is None else self._next[0]

    def blocks(self, task: int, place: int) -> Iterator[bytes]:
        """The blocks of one place, which is not before the one that was read last; the others before it are passed."""
        while self._next is not None and self._next[:2] <= (task, place):
            here, data = self._next[:2], self._next[2]
            self._next = next(self._rows, None)
            if here == (task, place):
                yield data

    def finish(self, task: int) -> None:
        while self._next is not None and self._next[0] <= task:
            self._next = next(self._rows, None)


def _some(batch: pa.RecordBatch) -> Iterator[dict[str, Any]]:
    """A few rows at a time: a batch of blocks as Python objects all at once would be as large again."""
    for at in range(0, batch.num_rows, 16):
        yield from batch.slice(at, 16).to_pylist()


def _outputs(
    task: Task, number: int, tape: _Tape, flows: list[Flow], staging: ArchiveFiles, fed: Callable[[int], None]
) -> Iterator[pa.RecordBatch]:
    inputs: Mapping[Flow, Iterator[bytes]] = {
        flow: tape.blocks(number, place) for place, flow in enumerate(task.inputs)
    }
    tables = {
        table.base: _rows(tape.blocks(number, place), fed) for place, table in enumerate(task.tables, len(task.inputs))
    }
    states: dict[NodeIndex, _StateWriter] = {}
    try:
        for output in run_task(task, tables, inputs):
            if isinstance(output, RowsBlock):
                yield _batch({"flow": flows.index(output.flow), "data": output.data})
            else:
                _written(states, staging, task, output)
    finally:
        for writer in states.values():
            writer.close()
    tape.finish(number)
    for node, writer in states.items():
        yield _batch(asdict(writer.file(task, node)))


def _rows(blocks: Iterator[bytes], fed: Callable[[int], None]) -> Iterator[Delta]:
    for block in blocks:
        rows = decode_block(block)
        yield from rows
        fed(sum([weight for _, weight in rows]))


def _batch(values: dict[str, Any]) -> pa.RecordBatch:
    arrays = [pa.array([values.get(field.name)], field.type) for field in _OUTPUT_TYPES]
    return pa.RecordBatch.from_arrays(arrays, schema=_OUTPUT_TYPES)


def _written(states: dict[NodeIndex, _StateWriter], staging: ArchiveFiles, task: Task, output: StateBlock) -> None:
    writer = states.get(output.node)
    if writer is None:
        writer = states[output.node] = _StateWriter(staging, f"state-{task.domain}-{output.node}-{uuid4().hex[:8]}")
    writer.write(output.items, output.data)


class _StateWriter:
    def __init__(self, staging: ArchiveFiles, file: str) -> None:
        filesystem, root = staging.open()
        filesystem.create_dir(root, recursive=True)
        self._file, self._sink = file, filesystem.open_output_stream(f"{root}/{file}")
        self._digest = Digest()
        self._items = 0

    def write(self, items: int, data: bytes) -> None:
        self._items += items
        self._sink.write(self._digest.add(frame(data)))

    def close(self) -> None:
        self._sink.close()

    def file(self, task: Task, node: NodeIndex) -> StateFile:
        return StateFile(task.domain, node, self._file, self._items, self._digest.bytes, self._digest.hex())
