"""The judge: what views' SQL comes to by Spark, over the archive at the clocks of what readers hold, held against that.

::

    archive ─ fold at the shard's clock ─► tables ─ the view's SQL ─► (key, row)  +1 ┐  where the key is filled
                                                                                     ├─ Σ by (key, row) ≠ 0: different
    dump of the reader's shard ────────────────────────────────────► (key, row)  −1 ┘

Each shard of a reader has a clock of its own, so each is judged at its own. A key that is filled and has no rows must
have none; a key that is not filled says nothing. What the judge cannot write in Spark's SQL, or Spark cannot compute,
is *not judged*, with the reason, and never passed as equal.

A shard takes Spark one job: tasks drop the rows whose keys are not filled, and what is left is summed in the driver,
which has the dump's rows in memory already.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from domains.archive import ArchiveError
from domains.errors import BadRequest, HeadraceError
from domains.types import SqlType, TableSchema
from migrations.backfill.spark.canonical import matched, of_spark, text_of_key, text_of_row
from migrations.backfill.spark.fold import as_relation, fold, own_clock, shards_at
from migrations.backfill.spark.held import HeldShard, HeldView
from migrations.backfill.spark.reporting import Reporter, Watch
from migrations.backfill.spark.segments import ArchiveFiles, check_all
from migrations.backfill.spark.trouble import error_of
from migrations.spark_sql import Judged

MOST_DIFFERENCES = 1_000
"""Rows of a view that are collected and told. A view that is wrong all over is not told better by more."""

EQUAL, DIFFERENT, NOT_JUDGED = "equal", "different", "not judged"

_PAIRS = "key string, row string"


def run(spark: SparkSession, what: dict[str, Any], reporter: Reporter) -> dict[str, Any]:
    """``{"archive": URL, "dumps": [path, …]}`` → ``{"views": [verdict, …]}``, one for each dump, in their order."""
    court, views = Court(spark, ArchiveFiles(what["archive"])), [HeldView(Path(path)) for path in what["dumps"]]
    verdicts = []
    with Watch(spark, reporter):
        court.check(views)
        for number, view in enumerate(views):
            reporter.progress(view=view.name, done=number, of=len(views))
            verdicts.append(court.judge(view))
    return {"views": verdicts}


class Court:
    """Judges views, one after another. Tables at the same clock are folded once."""

    def __init__(self, spark: SparkSession, files: ArchiveFiles) -> None:
        self._spark = spark
        self._files = files
        self._folds: dict[tuple[Any, ...], str] = {}
        self._checked: set[tuple[Any, ...]] = set()
        self._uses: Counter[tuple[Any, ...]] = Counter()
        """How many shards of views read a table at a clock: more than one, and its fold is kept."""

    def check(self, views: Sequence[HeldView]) -> None:
        """Check all segments that these views will need, at once. Raises ArchiveError."""
        self._uses.update(_known(schema, clock) for view in views for clock in view.clocks() for schema in view.tables)
        wanted = set(self._uses)
        at = [shard for schema, *own in wanted for shard in shards_at(self._files, schema.name, dict(own))]
        check_all(self._spark, self._files, [segment for shard in at for segment in shard.segments])
        self._checked |= wanted

    def judge(self, view: HeldView) -> dict[str, Any]:
        """The verdict, JSON-ready. Raises ArchiveError: without the archive nothing can be judged."""
        started = time.monotonic()
        verdict: dict[str, Any] = {"view": view.name, "verdict": EQUAL, "keys": 0, "rows": 0, "differences": []}
        try:
            for shard in view.shards():
                verdict["keys"] += len(set(shard.keys))
                verdict["rows"] += len(shard.rows)
                verdict["differences"] += self._differences(view, shard)
        except (ArchiveError, BadRequest):
            raise
        except HeadraceError as error:
            verdict |= {"verdict": NOT_JUDGED, "reason": error.message, "differences": []}
        if verdict["differences"]:
            verdict["verdict"] = DIFFERENT
        return verdict | {"seconds": round(time.monotonic() - started, 3)}

    def _differences(self, view: HeldView, shard: HeldShard) -> list[dict[str, Any]]:
        if not shard.keys:
            return []
        tables = {schema.name.lower(): self._table(schema, shard.clock) for schema in view.tables}
        query = view.judged(tables)
        try:
            return self._compared(view, query, shard)
        except HeadraceError:
            raise
        except Exception as error:
            raise error_of(error) from error

    # --- what should be there ---------------------------------------------------------------------------------------

    def _table(self, schema: TableSchema, clock: dict[str, int]) -> str:
        """The name of the temporary view that is the table at that clock."""
        known = _known(schema, clock)
        if known not in self._folds:
            name, shards = f"fold_{len(self._folds)}", shards_at(self._files, schema.name, dict(known[1:]))
            rows = fold(self._spark, self._files, shards, schema, checked=known in self._checked)
            relation = as_relation(rows, schema)
            (relation.persist() if self._uses[known] > 1 else relation).createOrReplaceTempView(name)
            self._folds[known] = name
        return self._folds[known]

    def _expected(self, view: HeldView, query: Judged, filled: frozenset[str]) -> Iterator[tuple[str, str]]:
        """(key, row) of all that the query comes to at the keys that are filled."""
        computed = self._spark.sql(query.text)
        keys, seeks = view.places(view.key), view.places(view.seek)
        count, limit = len(view.visible), view.head["key_limit"]
        key_types = [view.types[at] for at in view.key]
        row_types = [*(view.types[at] for at in view.seek), *view.visible]
        row_places = [*(count + place for place in seeks), *range(count)]
        key_places = [count + place for place in keys]

        def render(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                columns = [column.to_pylist() for column in batch.columns]
                keyed = [
                    (text_of_key(_picked(row, key_places, key_types), limit), row)
                    for row in (zip(*columns, strict=True) if columns else ())
                ]
                wanted = [
                    (key, text_of_row(_picked(row, row_places, row_types))) for key, row in keyed if key in filled
                ]
                texts = [pa.array([pair[place] for pair in wanted], pa.string()) for place in range(2)]
                yield pa.RecordBatch.from_arrays(texts, names=["key", "row"])

        found = computed.mapInArrow(render, _PAIRS).toArrow()
        return zip(found.column("key").to_pylist(), found.column("row").to_pylist(), strict=True)

    # --- what is there ----------------------------------------------------------------------------------------------

    def _compared(self, view: HeldView, query: Judged, shard: HeldShard) -> list[dict[str, Any]]:
        filled = frozenset(shard.keys)
        weights, seen = Counter[tuple[str, str]](), set[str]()
        for key, row in self._expected(view, query, filled):
            seen.add(key)
            weights[key, row] += 1
        absent = filled - seen
        # Keys without rows, of a query that has one all the same: a count of nothing.
        for row in self._rows_of_nothing(view, query) if absent else ():
            weights.update((key, row) for key in absent)
        weights.subtract(shard.rows)
        different = sorted((key, row, weight) for (key, row), weight in weights.items() if weight)
        return _told(different[:MOST_DIFFERENCES])

    def _rows_of_nothing(self, view: HeldView, query: Judged) -> list[str]:
        if not view.key or not query.counts_nothing:
            return []
        rows = self._spark.sql(query.nothing).collect()
        return [text_of_row(_picked(tuple(row), range(len(view.visible)), view.visible)) for row in rows]


def _known(schema: TableSchema, clock: dict[str, int]) -> tuple[Any, ...]:
    """A table at a clock: its schema, and (base shard, position) for each of its shards."""
    return schema, *own_clock(schema.name, clock)


def _picked(values: Sequence[Any], places: Sequence[int], types: Sequence[SqlType]) -> tuple[Any, ...]:
    return tuple(of_spark(values[place], type) for place, type in zip(places, types, strict=True))


def _told(found: Sequence[tuple[str, str, int]]) -> list[dict[str, Any]]:
    """The differences by key: the rows that were expected and are not held, and those that are held and were not."""
    by_key: dict[str, tuple[list[str], list[str]]] = {}
    for key, row, weight in found:
        missing, surplus = by_key.setdefault(key, ([], []))
        (missing if weight > 0 else surplus).extend([row] * abs(weight))
    told = []
    for key, (missing, surplus) in by_key.items():
        expected, held = matched(missing, surplus)
        if expected or held:
            told.append({"key": key, "expected": expected, "held": held})
    return told
