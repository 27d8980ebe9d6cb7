"""The judge: what views' SQL comes to by Spark, over the archive at the clocks of what readers hold, held against that.

::

    archive ─ fold at the shard's clock ─► tables ─ the view's SQL ─► (key, row)  +1 ┐
                                                                                     ├─ Σ by (key, row) ≠ 0: different
    dump of the reader's shard ────────────────────────────────────► (key, row)  −1 ┘   where the key is filled

Each shard of a reader has a clock of its own, so each is judged at its own. A key that is filled and has no rows must
have none; a key that is not filled says nothing. What the judge cannot write in Spark's SQL, or Spark cannot compute,
is *not judged*, with the reason, and never passed as equal.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

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

    def check(self, views: Sequence[HeldView]) -> None:
        """Check all segments that these views will need, at once. Raises ArchiveError."""
        wanted = {_known(schema, clock) for view in views for clock in view.clocks() for schema in view.tables}
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
            expected = self._expected(view, query)
            return self._compared(view, query, shard, expected)
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
            as_relation(rows, schema).persist().createOrReplaceTempView(name)
            self._folds[known] = name
        return self._folds[known]

    def _expected(self, view: HeldView, query: Judged) -> DataFrame:
        """(key, row) of all that the query comes to."""
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
                found = list(zip(*columns, strict=True)) if columns else []
                yield pa.RecordBatch.from_arrays(
                    [
                        pa.array([text_of_key(_picked(r, key_places, key_types), limit) for r in found], pa.string()),
                        pa.array([text_of_row(_picked(r, row_places, row_types)) for r in found], pa.string()),
                    ],
                    names=["key", "row"],
                )

        return computed.mapInArrow(render, _PAIRS)

    # --- what is there ----------------------------------------------------------------------------------------------

    def _compared(self, view: HeldView, query: Judged, shard: HeldShard, expected: DataFrame) -> list[dict[str, Any]]:
        held = self._frame([key for key, _ in shard.rows], [row for _, row in shard.rows])
        filled = self._frame(list(dict.fromkeys(shard.keys)), None)
        held.createOrReplaceTempView("held_rows")
        filled.createOrReplaceTempView("held_keys")
        expected.createOrReplaceTempView("all_expected")
        wanted = "SELECT key, row FROM all_expected WHERE key IN (SELECT key FROM held_keys)"
        nothing = self._rows_of_nothing(view, query)
        if nothing:
            # Keys without rows, of a query that has one all the same: a count of nothing.
            self._frame([""] * len(nothing), nothing).createOrReplaceTempView("of_nothing")
            absent = "SELECT key FROM held_keys WHERE key NOT IN (SELECT key FROM all_expected)"
            wanted += f" UNION ALL SELECT k.key, n.row FROM ({absent}) AS k CROSS JOIN of_nothing AS n"
        found = self._spark.sql(
            f"SELECT key, row, sum(weight) AS weight FROM (SELECT key, row, 1 AS weight FROM ({wanted}) "
            "UNION ALL SELECT key, row, -1 AS weight FROM held_rows) GROUP BY key, row HAVING sum(weight) <> 0 "
            f"ORDER BY key, row LIMIT {MOST_DIFFERENCES}"
        ).collect()
        return _told([(each["key"], each["row"], each["weight"]) for each in found])

    def _rows_of_nothing(self, view: HeldView, query: Judged) -> list[str]:
        if not view.key or not query.counts_nothing:
            return []
        rows = self._spark.sql(query.nothing).collect()
        return [text_of_row(_picked(tuple(row), range(len(view.visible)), view.visible)) for row in rows]

    def _frame(self, keys: Sequence[str], rows: Sequence[str] | None) -> DataFrame:
        columns = {"key": pa.array(keys, pa.string())}
        if rows is not None:
            columns["row"] = pa.array(rows, pa.string())
        return self._spark.createDataFrame(pa.table(columns))


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
