"""``headrace verify``: what readers hold, dumped from a running server, and judged by Spark over the archive.

::

    server ── GET …/held ──► dumps, each with its clock ─┐
           ── POST /v1/archive: up to those clocks ──────┴─► Spark job ──► a verdict for each view

The server goes on taking writes. Each reader is judged at exactly the clock of its dump, so writes that come later do
not matter. One thing does: where a view's rows reach its reader over several links of a cluster, the reader may have
seen a write by one of them and not yet by the other, and no clock says that. So a difference is looked at again, with
a new dump, and only what is different each time is told; a wrong row stays wrong, a write on its way arrives.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from headrace_client.calls import Call
from headrace_client.connection import Connection

from headrace.errors import BadRequest, Unavailable
from migrations.backfill.spark.launching import SparkJob
from migrations.backfill.spark.settings import SparkSettings

EQUAL, DIFFERENT, NOT_JUDGED = "equal", "different", "not judged"

LOOKS = 3
"""The number of looks at a view that differs. What is on its way over links arrives within milliseconds; a look takes
seconds."""

DUMP_TRIES = 5
"""Tries of a dump that breaks off, because the reader map grew (it doubles each time) or the shard moved."""

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
    tell: Tell = lambda doing, done: None,
) -> list[ViewVerdict]:
    """A verdict for each view, or for all that have a reader.

    :raises NotFound: there is no such view. :raises BadRequest: the server has no archive.
    :raises ArchiveError: the archive is damaged. :raises SparkUnavailable: there is no Java.
    """
    names = list(views) or [each["name"] for each in db.views() if each["materialization"] != "none"]
    if not names:
        raise BadRequest("no view has a reader, so there is nothing to verify", hint="read a view first")
    verdicts = _look(db, names, spark, archive, tell)
    for _ in range(LOOKS - 1):
        again = [verdict.view for verdict in verdicts if verdict.verdict == DIFFERENT]
        if not again:
            break
        later = {verdict.view: verdict for verdict in _look(db, again, spark, archive, tell)}
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
    db: Connection, names: Sequence[str], spark: SparkSettings, archive: str | None, tell: Tell
) -> list[ViewVerdict]:
    with TemporaryDirectory(prefix="headrace-verify-") as folder:
        dumps = []
        for number, name in enumerate(names):
            tell(f"reading what {name} holds", number / len(names) / 4)
            dumps.append(_dumped(db, name, Path(folder) / f"{number}.ndjson"))
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
    return [ViewVerdict(**each) for each in answer["views"]]


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
