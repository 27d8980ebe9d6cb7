"""What is said to the peers: SQL anew for each dialect, changes as statements, entries of a cache and when they go."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

import orjson
import pytest
from load_targets import Recorder

from loadgen.bench import servers
from loadgen.peers import mysql, postgres
from loadgen.peers.cached import CachedTarget, _narrowed, _split, entries_of, list_column
from loadgen.peers.headrace import changed
from loadgen.peers.opening import NullAnswer, open_target
from loadgen.peers.sql import changed_rows, statements
from loadgen.peers.store import DeleteRow, InsertRow, LoadRunError, Lookup, Query, UpdateRow, Upsert
from loadgen.workloads.counters import HandOptimisedPages, hotness_of
from loadgen.workloads.lobsters import hand_optimised, natural, touched
from loadgen.workloads.visits import FIRST_FREE, MIX, Visit
from lobsters import program
from lobsters.words import comment_short_id, story_short_id

QUERY = Query.parse("votes_of", "SELECT story_id, `vote` FROM votes WHERE user_id = ? AND story_id IN (?)")
VISIT = Visit("Story", user=3, story=5, comment=9, fresh=FIRST_FREE + 1, now="2018-04-20 00:00:01")


def test_queries_in_each_dialect() -> None:
    assert mysql.text_of(QUERY) == "SELECT story_id, `vote` FROM votes WHERE user_id = %s AND story_id IN %s"
    assert postgres.text_of(QUERY) == 'SELECT story_id, "vote" FROM votes WHERE user_id = $1 AND story_id = ANY($2)'


def test_the_schema_for_postgresql() -> None:
    made = postgres.schema_of(program.schema())
    tables = [each for each in made if each.startswith("CREATE TABLE")]
    indexes = [each for each in made if each.startswith("CREATE INDEX")]
    assert len(tables) == len(program.TABLES)
    assert "CREATE INDEX votes_user_id_story_id ON votes (user_id, story_id)" in indexes
    assert len(indexes) == sum(
        " KEY " in line and "UNIQUE" not in line and "PRIMARY" not in line
        for line in program.schema().splitlines()
        if not line.startswith("--")
    )
    assert not [
        each for each in tables if "AUTO_INCREMENT" in each or "`" in each or " KEY " in each.replace("PRIMARY KEY", "")
    ]


def test_changes_as_statements() -> None:
    insert = InsertRow("t", [{"a": 1, "b": 2}, {"a": 3, "b": 4}])
    assert list(changed_rows(insert, "`", "%s")) == [
        ("INSERT INTO `t` (`a`, `b`) VALUES (%s, %s), (%s, %s)", [1, 2, 3, 4])
    ]
    update = UpdateRow("t", {"id": 7}, {"a": 1}, {"b": 2})
    assert list(changed_rows(update, '"', "?")) == [('UPDATE "t" SET "a" = ?, "b" = "b" + ? WHERE "id" = ?', [1, 2, 7])]
    assert list(changed_rows(DeleteRow("t", {"id": 7}), "`", "%s")) == [("DELETE FROM `t` WHERE `id` = %s", [7])]


def test_each_variant_has_its_indexes() -> None:
    natural, optimised = (list(statements(program.database_indexes(each))) for each in ("natural", "hand-optimised"))
    assert any("votes_of_story" in each for each in natural)
    assert any("hottest" in each for each in optimised)
    assert not set(natural) & {each for each in optimised if "hott" in each}


# --- hand-optimised pages ----------------------------------------------------------------------------------------

WRITES = {"StoryUpvote": 3, "CommentUpvote": 4, "Comment": 4, "Reply": 4, "Submit": 4, "Story": 1, "Login": 1}
"""Changes of a page: the published table, less one each for Comment and Submit (the site counts in keystores, too)."""


@pytest.mark.parametrize("kind", MIX)
async def test_hand_optimised_pages_ask_only_what_there_is(kind: str, recorder: Recorder) -> None:
    class FirstVote(Recorder):
        async def read(self, lookups: Sequence[Lookup]) -> Any:
            answers = await super().read(lookups)
            empty = type(answers[0])([])
            votes = ("story_votes_of_user", "comment_votes_of_user")
            return [
                empty if each.query.name in votes else _dated(answer)
                for each, answer in zip(lookups, answers, strict=True)
            ]

    def _dated(answer: Any) -> Any:
        return type(answer)([type(row)(row, created_at="2018-04-20 00:00:00") for row in answer.rows()])

    session = FirstVote()
    await HandOptimisedPages(hand_optimised().queries).by_kind[kind](session, VISIT)
    assert len(session.changes) == WRITES.get(kind, len(session.changes))
    assert set(session.asked()) <= set(hand_optimised().queries)


def test_hotness_falls_with_points_and_with_time() -> None:
    base = hotness_of(0, 1, 0, "2018-04-20 00:00:00")
    assert hotness_of(0, 10, 0, "2018-04-20 00:00:00") < base
    assert hotness_of(0, 1, 0, "2018-04-20 01:00:00") < base
    assert hotness_of(0, -10, 0, "2018-04-20 00:00:00") > base
    assert hotness_of(0.25, 1, 0, "2018-04-20 00:00:00") == pytest.approx(base - 0.25)


# --- a cache --------------------------------------------------------------------------------------------------------


def test_entries_of_a_look_up() -> None:
    assert list_column(QUERY) == "story_id"
    assert entries_of(Lookup(QUERY, (7, [1, 2]))) == ["votes_of:7:1", "votes_of:7:2"]
    assert entries_of(Lookup(Query.parse("all", "SELECT 1"), ())) == ["all:"]
    assert _narrowed(Lookup(QUERY, (7, [1, 2, 3])), ["votes_of:7:2"]).values == (7, [2])
    rows = [{"story_id": 2, "vote": 1}]
    parts = _split(Lookup(QUERY, (7, [1, 2])), ["votes_of:7:1", "votes_of:7:2"], rows)
    assert {name: orjson.loads(value) for name, value in parts.items()} == {"votes_of:7:1": [], "votes_of:7:2": rows}


def test_a_write_says_which_entries_it_makes_wrong() -> None:
    vote = InsertRow("votes", [{"user_id": 3, "story_id": 5, "comment_id": None, "vote": 1}])
    assert "story_votes_of_user:3:5" in set(touched(vote))
    story = set(touched(UpdateRow("stories", {"id": 5}, {"hotness": 1.0}, {"upvotes": 1})))
    queries = hand_optimised().queries
    for name, values in (
        ("listed_stories", ([5],)),
        ("stories_by_id", ([5],)),
        ("story_by_id", (5,)),
        ("story_by_short_id", (story_short_id(5),)),
        ("frontpage_ids", ()),
    ):
        assert set(entries_of(Lookup(queries[name], values))) <= story, name
    comment = set(touched(UpdateRow("comments", {"id": 9}, add={"upvotes": 1}, about={"story_id": 5})))
    for name, values in (
        ("comments_by_id", ([9],)),
        ("comment_by_short_id", (comment_short_id(9),)),
        ("story_comments", (5,)),
        ("comment_points_of_story", (5,)),
    ):
        assert set(entries_of(Lookup(queries[name], values))) <= comment, name


@pytest.mark.skipif(servers.missing("redis") is not None, reason=servers.missing("redis") or "")
async def test_what_nobody_told_the_cache_is_counted_as_stale(tmp_path: Any) -> None:
    """The null target behind changes its mind; the cache says what it was told first."""
    with servers.redis(tmp_path) as (host, port):
        target = CachedTarget(urlsplit(f"redis://{host}:{port}"), port, open_target("null:"))
        target.program = hand_optimised()
        target.random.random = lambda: 0.0  # type: ignore[method-assign]
        session = await target.session()
        lookup = Lookup(target.program.queries["story_comments"], (5,))
        (first,) = await session.read([lookup])
        (second,) = await session.read([lookup])
        assert first.rows() == second.rows() != []
        assert (target.misses, target.hits, target.checked, target.stale) == (1, 1, 1, 0)

        class Changed:
            async def read(self, lookups: Sequence[Lookup]) -> Any:
                return [NullAnswer([{"id": 99}])] * len(lookups)

            async def write(self, changes: Any) -> int:
                return 1

            async def close(self) -> None: ...

        session._behind = Changed()
        (stale,) = await session.read([lookup])
        assert stale.rows() == first.rows()
        assert target.notes()["stale_reads"] == 1
        await session.write([UpdateRow("comments", {"id": 9}, add={"upvotes": 1}, about={"story_id": 5})])
        (fresh,) = await session.read([lookup])
        assert fresh.rows() == [{"id": 99}]
        await session.close()


async def test_a_cache_needs_to_be_told() -> None:
    target = open_target("redis://127.0.0.1:1?behind=null:")
    with pytest.raises(LoadRunError, match="does not say what its writes touch") as told:
        await target.check(natural(), None)
    assert "hand-optimised" in (told.value.hint or "")


async def test_databases_that_are_not_there() -> None:
    for url in ("mysql://root@127.0.0.1:1/x", "postgresql://root@127.0.0.1:1/x", "redis://127.0.0.1:1"):
        with pytest.raises(LoadRunError, match="cannot reach"):
            await open_target(url).describe()


def test_an_upsert_in_each_dialect() -> None:
    upsert = Upsert("t", [{"a": 1, "b": 2}, {"a": 3, "b": 4}], key=("a",), set=("b",))
    assert list(changed_rows(upsert, "`", "%s")) == [
        (
            "INSERT INTO `t` (`a`, `b`) VALUES (%s, %s), (%s, %s) ON DUPLICATE KEY UPDATE `b` = VALUES(`b`)",
            [1, 2, 3, 4],
        )
    ]
    ((text, _),) = changed_rows(upsert, '"', "?")
    assert text.endswith('ON CONFLICT ("a") DO UPDATE SET "b" = excluded."b"')
    assert changed(upsert) == (
        "POST",
        "/v1/tables/t/rows",
        {"rows": upsert.rows, "on_duplicate": "update", "update": ("b",)},
    )
