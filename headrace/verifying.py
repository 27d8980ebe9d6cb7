"""``headrace verify``: what readers hold, dumped from a running server, and judged by Spark over the archive.

::

    server ── GET …/held ──► dumps, each with its clock ─┐
           ── POST /v1/archive: up to those clocks ──────┴─► Spark job ──► a verdict for each view

The server goes on taking writes. Each reader is judged at exactly the clock of its dump, so writes that come later do
not matter. One thing does: where a view's rows reach its reader over several links of a cluster, the reader may have
seen a write by one of them and not yet by the other, and no clock says that. So a difference is looked at again, with
a new dump, and only what is different each time is told; a wrong row stays wrong, a write on its way arrives.

Of a snapshot no reader has rows. So the keys that readers hold now are looked up in it, and what is answered takes the
place of what is held, at the snapshot's positions.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from headrace_client import calls
from headrace_client.calls import Call
from headrace_client.connection import Connection
from headrace_client.encoding import to_json

from headrace.errors import BadRequest, Unavailable
from migrations.backfill.spark.launching import SparkJob
from migrations.backfill.spark.settings import SparkSettings

EQUAL, DIFFERENT, NOT_JUDGED = "equal", "different", "not judged"

LOOKS = 3
"""The number of looks at a view that differs. What is on its way over links arrives within milliseconds; a look takes
seconds."""

DUMP_TRIES = 5
"""Tries of a dump that breaks off, because the reader map grew (it doubles each time) or the shard moved."""

LOOKED_UP = 500
"""Keys of one look-up in a snapshot, which is worked out from base tables."""

Tell = Callable[[str, float], None]
"""The present step, and how far it is from 0 to 1."""


@dataclass(slots=True)
class ViewVerdict:
    view: str
    verdict: str
    keys: int
    rows: int
    seconds: float
    reason: str | None = None
    """Why it was not judged."""
    differences: list[dict[str, Any]] = field(default_factory=list)
    """Keyed by key: expected rows that the reader lacks, and rows that it has unexpectedly."""
    looks: int = 1

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


def verify(
    db: Connection,
    views: Sequence[str],
    spark: SparkSettings,
    *,
    archive: str | None = None,
    snapshot: str | None = None,
    tell: Tell = lambda doing, done: None,
) -> list[ViewVerdict]:
    """A verdict for each view, or for all that have a reader.

    With ``snapshot`` these are of the views as that has them. Raises SnapshotGone where it is not kept.

    :raises NotFound: there is no such view. :raises BadRequest: the server has no archive.
    :raises ArchiveError: the archive is damaged. :raises SparkUnavailable: there is no Java.
    """
    names = list(views) or [each["name"] for each in db.views() if each["materialization"] != "none"]
    if not names:
        raise BadRequest("no view has a reader, so there is nothing to verify", hint="read a view first")
    then = None if snapshot is None else db.send(calls.snapshot(snapshot))
    verdicts = _look(db, names, spark, archive, then, tell)
    for _ in range(LOOKS - 1):
        again = [verdict.view for verdict in verdicts if verdict.verdict == DIFFERENT]
        if not again:
            break
        later = {verdict.view: verdict for verdict in _look(db, again, spark, archive, then, tell)}
        verdicts = [_confirmed(each, later[each.view]) if each.view in later else each for each in verdicts]
    return verdicts


def _confirmed(before: ViewVerdict, after: ViewVerdict) -> ViewVerdict:
    """The later look, with those differences only that the earlier one had at the same key."""
    keys = {difference["key"] for difference in before.differences}
    after.differences = [difference for difference in after.differences if difference["key"] in keys]
    after.looks = before.looks + 1
    if after.verdict == DIFFERENT and not after.differences:
        after.verdict = EQUAL
    return after


def _look(
    db: Connection,
    names: Sequence[str],
    spark: SparkSettings,
    archive: str | None,
    then: dict[str, Any] | None,
    tell: Tell,
) -> list[ViewVerdict]:
    with TemporaryDirectory(prefix="headrace-verify-") as folder:
        dumps, left = list[Path](), list[ViewVerdict]()
        for number, name in enumerate(names):
            tell(f"reading what {name} holds", number / len(names) / 4)
            dump = _dumped(db, name, Path(folder) / f"{number}.ndjson")
            if then is not None and _sought(dump):
                left.append(ViewVerdict(name, NOT_JUDGED, 0, 0, 0.0, "its rows are sought by a range, or by no column"))
            else:
                dumps.append(dump if then is None else _looked_up(db, dump, then))
        tell("archiving up to now", 0.25)
        archived = db.send(Call("POST", "/v1/archive", dict))
        what = {"archive": archive or archived["url"], "dumps": [str(path) for path in dumps]}
        with SparkJob("verify", what, spark) as job:
            tell("starting Spark", 0.3)
            while not job.wait(0.5):
                told = job.progress
                if "view" in told:
                    tell(f"judging {told['view']}", 0.4 + 0.6 * told["done"] / max(1, told["of"]))
            answer = job.result()
    return [*(ViewVerdict(**each) for each in answer["views"]), *left]


def _places(head: dict[str, Any]) -> list[int]:
    """Of each parameter of a view, the place of its value in a key that its reader holds; -1: it is in none."""
    places = {column: place for place, column in enumerate(head["key_columns"])}
    return [places.get(each["column"], -1) if each["kind"] in ("=", "in") else -1 for each in head["parameters"]]


def _sought(dump: Path) -> bool:
    """Whether a look-up of the view says more, or less, than a key."""
    with dump.open("rb") as file:
        head = json.loads(file.readline())
    return bool(head["seek_columns"]) or sorted(_places(head)) != list(range(len(head["key_columns"])))


def _looked_up(db: Connection, dump: Path, then: dict[str, Any]) -> Path:
    """A dump with the same keys, and with what a snapshot has at them."""
    lines = dump.read_bytes().splitlines()
    head = json.loads(lines[0])
    places = _places(head)
    held = (each["key"] for each in map(json.loads, lines[1:]) if "key" in each)
    keys = list({json.dumps(key): key for key in held}.values())
    lists = [each["kind"] == "in" for each in head["parameters"]]
    there = dump.with_suffix(".then")
    rows = 0
    with there.open("wb") as file:
        file.write(lines[0] + b"\n")
        file.write(to_json({"shard": 0, "clock": then["positions"]}) + b"\n")
        for start in range(0, len(keys), LOOKED_UP):
            some = keys[start : start + LOOKED_UP]
            given = [[[key[at]] if one else key[at] for at, one in zip(places, lists, strict=True)] for key in some]
            call = calls.lookup_many(head["view"], given)
            found = db.as_of(then["name"]).send(replace(call, read=lambda answer: answer["results"], views=None))
            for key, answered in zip(some, found, strict=True):
                file.write(to_json({"key": key, "rows": answered}) + b"\n")
                rows += len(answered)
        file.write(to_json({"end": {"keys": len(keys), "rows": rows}}) + b"\n")
    return there


def _dumped(db: Connection, view: str, path: Path) -> Path:
    for attempt in range(DUMP_TRIES):
        try:
            with path.open("wb") as file:
                last = b""
                for line in db.view(view).held():
                    last = line
                    file.write(line + b"\n")
            if "end" in json.loads(last):
                return path
            raise Unavailable(f'what view "{view}" holds was broken off')
        except (Unavailable, ValueError) as error:
            if attempt == DUMP_TRIES - 1:
                raise Unavailable(
                    f'what view "{view}" holds could not be read as a whole: {error}', hint="try again when it is quiet"
                ) from error
    raise AssertionError("the last try returns or raises")
