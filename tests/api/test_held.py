"""``GET /v1/views/{view}/held``: everything that a reader holds, with the exact clock, embedded and sharded."""

from __future__ import annotations

import base64
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from headrace_client import tokens

import headrace
from domains.language.encoding import decode_key, encode_key
from domains.language.types import BIGINT, BLOB, DOUBLE, TEXT, Kind, SqlType
from headrace.errors import BadRequest, NotFound
from tests.kit.cluster_deployment import open_cluster
from worker.service.holds import HOLDS_MAX

PRICE = SqlType(Kind.DECIMAL, "DECIMAL(20,3)", length=20, scale=3)

PROGRAM = """
CREATE TABLE votes (user INT, story INT, weight DECIMAL(6,2), PRIMARY KEY (user, story)) SHARD BY (user);
CREATE VIEW counted AS SELECT story, COUNT(*) AS n, SUM(weight) AS w FROM votes GROUP BY story;
CREATE EXT VIEW of_story AS SELECT n, w FROM counted WHERE story = ?;
CREATE EXT VIEW total AS SELECT COUNT(*) AS n FROM votes WHERE story = ?;
CREATE EXT VIEW heavier AS SELECT user, story FROM votes WHERE weight > ? ORDER BY user DESC;
CREATE EXT VIEW everything AS SELECT * FROM votes ORDER BY user;
"""


def lines_of(db: Any, view: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in db.view(view).held()]


def entries(lines: list[dict[str, Any]]) -> dict[tuple[Any, ...], list[Any]]:
    found: dict[tuple[Any, ...], list[Any]] = {}
    for line in lines:
        if "key" in line:
            found.setdefault(tuple(line["key"]), []).extend(line["rows"])
    return found


@pytest.mark.parametrize("shards", [1, 3])
def test_what_readers_hold(tmp_path: Path, shards: int) -> None:
    with headrace.embedded(tmp_path, shards=shards) as db:
        db.migrate(PROGRAM).wait()
        rows = [{"user": user, "story": user % 5, "weight": f"{user}.50"} for user in range(1, 11)]
        token = db.table("votes").insert(rows).token
        for story in (1, 2, 99):
            db.view("of_story").lookup(story=story)
            db.view("total").lookup(story=story)
        db.view("everything").lookup()
        head, *rest = lines_of(db, "of_story")
        assert head["view"] == "of_story"
        assert [each["name"] for each in head["views"]] == ["counted"]
        assert [each["name"] for each in head["tables"]] == ["votes"]
        assert entries(rest) == {(1,): [{"n": 2, "w": "8.00"}], (2,): [{"n": 2, "w": "10.00"}], (99,): []}
        assert rest[-1] == {"end": {"keys": 3, "rows": 2}}
        clocks = [line["clock"] for line in rest if "clock" in line]
        assert len(clocks) == shards
        for clock in clocks:
            assert clock
            assert clock.items() <= tokens.decode(token).items()
        # A count of nothing is a row, though the reader holds none.
        assert entries(lines_of(db, "total")[1:])[99,] == [{"n": 0}]
        full = lines_of(db, "everything")
        assert sorted(each["user"] for each in entries(full)[()]) == list(range(1, 11))


def test_seek_values_are_told(tmp_path: Path) -> None:
    with headrace.embedded(tmp_path) as db:
        db.migrate(PROGRAM).wait()
        db.table("votes").insert([{"user": i, "story": i, "weight": f"{i}.25"} for i in (1, 2)])
        lines = [line for line in lines_of(db, "heavier") if "seek" in line]
        seeks = [
            (tuple(seek), row["user"]) for line in lines for seek, row in zip(line["seek"], line["rows"], strict=True)
        ]
        assert sorted(seeks) == [(("1.25",), 1), (("2.25",), 2)]


def test_many_rows_of_one_key(tmp_path: Path) -> None:
    with headrace.embedded(tmp_path) as db:
        db.migrate("CREATE TABLE t (a INT, b BLOB); CREATE EXT VIEW v AS SELECT a, b FROM t WHERE a = ?").wait()
        db.table("t").insert([{"a": 1, "b": base64.b64encode(bytes([i % 7])).decode()} for i in range(2500)])
        db.view("v").lookup(a=1)
        lines = lines_of(db, "v")
        assert max(len(line.get("rows", ())) for line in lines) < 1000, "a line stays small"
        assert len(entries(lines)[1,]) == 2500
        assert lines[-1] == {"end": {"keys": 1, "rows": 2500}}


def test_no_view_and_no_reader(tmp_path: Path) -> None:
    with headrace.embedded(tmp_path) as db:
        db.migrate(PROGRAM).wait()
        with pytest.raises(NotFound):
            lines_of(db, "of_storys")
        with pytest.raises(BadRequest, match="has no reader"):
            lines_of(db, "counted")


@pytest.mark.parametrize("maps", [True, False])
async def test_in_a_cluster_each_worker_is_asked_for_its_shards(tmp_path: Path, maps: bool) -> None:
    cluster = await open_cluster(tmp_path, maps=maps)
    try:
        await cluster.execute(PROGRAM)
        rows = [{"user": user, "story": user % 700, "weight": "1.50"} for user in range(2100)]
        written = await cluster.insert("votes", rows)
        await cluster.pages("of_story", [[story] for story in range(0, 900, 3)], token=written.clock)
        await cluster.pages("everything", [[]], token=written.clock)
        found = [json.loads(line) async for line in cluster.held("of_story")]
        assert [line["shard"] for line in found if "clock" in line] == [0, 1, 2]
        for line in found:
            assert line.get("clock", {}).items() <= written.clock.items()
        stories = entries(found[1:])
        assert stories.keys() == {(story,) for story in range(0, 900, 3)}
        assert all(rows == ([{"n": 3, "w": "4.50"}] if story < 700 else []) for (story,), rows in stories.items())
        everything = [json.loads(line) async for line in cluster.held("everything")]
        assert len(everything) > 5, "more than a worker gives at once"
        assert everything[-1] == {"end": {"keys": 1, "rows": 2100}}
    finally:
        await cluster.close()


async def test_a_walk_that_nobody_goes_on_with_is_let_go(tmp_path: Path) -> None:
    cluster = await open_cluster(tmp_path, maps=False)
    try:
        await cluster.execute(PROGRAM)
        for _ in range(2 * HOLDS_MAX):
            await cluster.pages("of_story", [[1]])
            lines = cluster.held("of_story")
            await anext(lines)
            await anext(lines)
            await (
                lines.aclose()
            )  # As when whoever reads has gone. A hold that stayed would count until its time is over.
    finally:
        await cluster.close()


def test_keys_come_out_of_their_bytes() -> None:
    types = (BIGINT, PRICE, DOUBLE, TEXT, BLOB, BIGINT)
    rows = [
        (7, Decimal("1.500"), -0.25, "a\0é", b"\0\xff", None),
        (-(2**70), Decimal("-1234567.125"), 1e300, "", b"", 2**64),
        (0, Decimal("0.000"), 0.0, "\U0001f600", b"\0", -(2**63)),
        (None, Decimal("100.000"), None, None, None, 2**63 - 1),
    ]
    for row in rows:
        assert decode_key(encode_key(row) + b"tail", types) == row
