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

import json
import time
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from domains.archive.manifest import ArchiveError
from domains.errors import BadRequest, HeadraceError, Unsupported
from domains.language.documents import text_of_value
from domains.language.durations import of_micros, text_of_time
from domains.language.durations import parsed as parsed_time
from domains.language.encoding import encode_key
from domains.language.exact import rounded
from domains.language.json_rows import schema_from_json, type_from_json
from domains.language.types import Kind, Row, SqlType, TableSchema, Value
from migrations.backfill.spark.fold import as_relation, fold, own_clock, shards_at
from migrations.backfill.spark.reporting import Reporter, StageWatch, error_of
from migrations.backfill.spark.rounds import carry_out
from migrations.backfill.spark.segments import ArchiveFiles, check_all
from migrations.catalog import Catalog, ViewDefinition
from migrations.parse.reading import parse_select
from migrations.spark_sql import Judged, judged

# Values in one form, whoever they come from: of a row that Spark has computed, and of one that a reader holds as
# JSON.
#
# Both become the engine's own values first (``domains/language/types.py``), then texts that are equal where the
# values are. A DOUBLE counts to ten digits: sums come out in another order on each side, and differ in the last of
# their sixteen. Two that lie on both sides of a rounding are told apart by their texts and compared again, as
# numbers, by whoever reports them.

TOLERANCE = 1e-9
"""Relative, of two DOUBLEs that count as equal. A sum of a million terms loses four of sixteen digits at worst."""

DOUBLE_MARK = "~"


def of_spark(value: Any, type: SqlType) -> Value:
    """What Spark gives for a value of ``type``, as the engine has it."""
    if value is None:
        return None
    match type.kind:
        case Kind.INTEGER | Kind.NULL:
            return int(value)
        case Kind.DECIMAL:
            return rounded(value if isinstance(value, Decimal) else Decimal(value), type.scale)
        case Kind.DOUBLE:
            return float(value) + 0.0
        case Kind.TEXT | Kind.JSON:
            return str(value)
        case Kind.BLOB:
            return bytes(value)
        case Kind.DATE:
            return str(value.date() if isinstance(value, datetime) else value)
        case Kind.DATETIME:
            return str(value if isinstance(value, datetime) else datetime(value.year, value.month, value.day))
        case Kind.TIME:
            return of_micros(value)


def of_json(value: Any, type: SqlType) -> Value:
    """What a reader's JSON has for a value of ``type``."""
    if value is None:
        return None
    if type.kind is Kind.DECIMAL:
        return rounded(Decimal(value), type.scale)
    if type.kind is Kind.BLOB:
        return b64decode(value)
    if type.kind is Kind.JSON:
        text: str = text_of_value(value)
        return text
    if type.kind is Kind.DOUBLE:
        return float(value) + 0.0
    if type.kind is Kind.TIME:
        return parsed_time(value)
    return int(value) if type.kind in (Kind.INTEGER, Kind.NULL) else str(value)


def text_of_row(values: Row) -> str:
    """A JSON list that is equal for equal rows."""
    return json.dumps([_plain(value) for value in values], ensure_ascii=False, separators=(",", ":"))


def text_of_key(values: Row, limit: int) -> str:
    """The same of a key; a digest where a reader keeps no more of it."""
    encoded = encode_key(values)
    if len(encoded) > limit:
        return digest_text(blake2b(encoded, digest_size=32).hexdigest())
    return text_of_row(values)


def digest_text(digest: str) -> str:
    return f"#{digest}"


def _plain(value: Value) -> Any:
    if isinstance(value, float):
        return f"{DOUBLE_MARK}{value:.9e}"
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, bytes):
        return b64encode(value).decode()
    if isinstance(value, timedelta):
        return text_of_time(value)
    return value


def nearly_equal(one: str, other: str) -> bool:
    """Whether two rows' texts differ only by DOUBLEs that are nearly equal."""
    ours, theirs = json.loads(one), json.loads(other)
    return len(ours) == len(theirs) and all(_near(a, b) for a, b in zip(ours, theirs, strict=True))


def _near(one: Any, other: Any) -> bool:
    if one == other:
        return True
    both = isinstance(one, str) and isinstance(other, str)
    if not both or not one.startswith(DOUBLE_MARK) or not other.startswith(DOUBLE_MARK):
        return False
    try:
        a, b = float(one[1:]), float(other[1:])
    except ValueError:
        return False
    return abs(a - b) <= TOLERANCE * max(abs(a), abs(b)) * 2


def matched(ours: Sequence[str], theirs: Sequence[str]) -> tuple[list[str], list[str]]:
    """The rows of either side that have no nearly equal partner on the other."""
    left = list(theirs)
    alone = []
    for text in ours:
        partner = next((each for each in left if nearly_equal(text, each)), None)
        if partner is None:
            alone.append(text)
        else:
            left.remove(partner)
    return alone, left


# What a view's readers hold, read back from a dump (``controller/lookups/view_dump.py``): what the view is, its rows
# by shard.


@dataclass(frozen=True, slots=True)
class HeldShard:
    number: int
    clock: dict[str, int]
    keys: list[str]
    """The texts of the keys that are filled."""
    rows: list[tuple[str, str]]
    """(key, row) as texts."""


class HeldView:
    """One dump. ``shards`` reads the rows; what the view is, is there at once.

    :raises BadRequest: the dump was broken off.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with path.open(encoding="utf-8") as file:
            self.head: dict[str, Any] = json.loads(file.readline())
        head = self.head
        self.name: str = head["view"]
        self.types = [type_from_json(column["type"]) for column in head["columns"]]
        self.visible = self.types[: head["visible"]]
        self.names = [column["name"] for column in head["columns"][: head["visible"]]]
        self.key: list[int] = list(head["key_columns"])
        self.seek: list[int] = list(head["seek_columns"])
        self.tables: list[TableSchema] = [schema_from_json(each) for each in head["tables"]]

    def judged(self, tables: dict[str, str]) -> Judged:
        """The view's query for Spark. Raises Unsupported."""
        if self.head.get("late"):
            raise Unsupported("a part of the query is applied when the view is read; its reader has other rows")
        if self.head.get("policies"):
            raise Unsupported("it reads tables with policies, which are not applied in Spark")
        schemas = {schema.name.lower(): schema for schema in self.tables}
        views = {each["name"].lower(): _definition(each) for each in self.head["views"]}
        return judged(Catalog(schemas, views), tables, parse_select(self.head["query"]))

    def places(self, columns: Sequence[int]) -> list[int]:
        """The parameter of the judged query by which each of the reader's columns is compared."""
        parameters = [each for each in self.head["parameters"] if each["column"] is not None]
        return [next(i for i, each in enumerate(parameters) if each["column"] == column) for column in columns]

    def clocks(self) -> Iterator[dict[str, int]]:
        """The clock of each shard."""
        with self.path.open(encoding="utf-8") as file:
            for line in file:
                if line.startswith('{"shard"'):
                    yield json.loads(line)["clock"]

    def shards(self) -> Iterator[HeldShard]:
        shard: HeldShard | None = None
        ended = False
        for line in self._lines():
            if "clock" in line:
                if shard is not None:
                    yield shard
                shard = HeldShard(line["shard"], line["clock"], [], [])
            elif "end" in line:
                ended = True
            elif shard is not None:
                self._take(line, shard)
        if not ended:
            raise BadRequest(f'what view "{self.name}" holds was broken off', hint="verify again")
        if shard is not None:
            yield shard

    def _lines(self) -> Iterator[dict[str, Any]]:
        with self.path.open(encoding="utf-8") as file:
            file.readline()
            for line in file:
                yield json.loads(line)

    def _take(self, line: dict[str, Any], shard: HeldShard) -> None:
        if "digest" in line:
            key = digest_text(line["digest"])
        else:
            values = tuple(of_json(v, self.types[at]) for v, at in zip(line["key"], self.key, strict=True))
            key = text_of_key(values, self.head["key_limit"])
        if not shard.keys or shard.keys[-1] != key:
            shard.keys.append(key)
        seeks = line.get("seek") or [()] * len(line["rows"])
        for seek, row in zip(seeks, line["rows"], strict=True):
            further = [of_json(v, self.types[at]) for v, at in zip(seek, self.seek, strict=True)]
            shown = [of_json(v, t) for v, t in zip(row.values(), self.visible, strict=True)]
            shard.rows.append((key, text_of_row((*further, *shown))))


def _definition(document: dict[str, Any]) -> ViewDefinition:
    text = document["query"]
    return ViewDefinition(document["name"], text, False, False, parse_select(text), tuple(document["names"]))


MOST_DIFFERENCES = 1_000
"""Rows of a view that are collected and told. A view that is wrong all over is not told better by more."""

EQUAL, DIFFERENT, NOT_JUDGED = "equal", "different", "not judged"

_PAIRS = "key string, row string"


def run(spark: SparkSession, what: dict[str, Any], reporter: Reporter) -> dict[str, Any]:
    """``{"archive": URL, "dumps": [path, …]}`` → ``{"views": [verdict, …]}``, one for each dump, in their order."""
    court, views = Court(spark, ArchiveFiles(what["archive"])), [HeldView(Path(path)) for path in what["dumps"]]
    verdicts = []
    with StageWatch(spark, reporter):
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
        at = [
            shard
            for schema, *own in wanted
            for shard in shards_at(self._files, schema.name, dict(own), schema.generation)
        ]
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
            for recursion in query.rounds:
                carry_out(self._spark, recursion)
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
            name, shards = (
                f"fold_{len(self._folds)}",
                shards_at(self._files, schema.name, dict(known[1:]), schema.generation),
            )
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
    return schema, *own_clock(schema.name, clock, schema.generation)


def _picked(values: Sequence[Any], places: Sequence[int], types: Sequence[SqlType]) -> tuple[Any, ...]:
    return tuple(_as_held(of_spark(values[place], type), type) for place, type in zip(places, types, strict=True))


def _as_held(value: Value, type: SqlType) -> Value:
    """A document as a reader's JSON tells it, in which null is NULL and a number has no further zeros."""
    return of_json(json.loads(value), type) if type.kind is Kind.JSON and isinstance(value, str) else value


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
