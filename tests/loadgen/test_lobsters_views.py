"""What the natural views mean: SQLite runs them, and plain Python counts the same from the rows."""

from __future__ import annotations

import math
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal

import pytest
from lobsters_in_sqlite import open_site, page_queries

from lobsters.data import Data
from lobsters.words import RowDict

SCALE = 0.01


@pytest.fixture(scope="module")
def rows() -> dict[str, list[RowDict]]:
    tables: dict[str, list[RowDict]] = defaultdict(list)
    for table, batch in Data(SCALE).batches():
        tables[table].extend(batch)
    return tables


@pytest.fixture(scope="module")
def site() -> Iterator[sqlite3.Connection]:
    connection = open_site(Data(SCALE))
    yield connection
    connection.close()


@pytest.fixture(scope="module")
def scores(rows: dict[str, list[RowDict]]) -> tuple[Counter[int], Counter[int]]:
    """The score of each story and of each comment."""
    stories, comments = Counter[int](), Counter[int]()
    for vote in rows["votes"]:
        if vote["comment_id"] is None:
            stories[vote["story_id"]] += vote["vote"]
        else:
            comments[vote["comment_id"]] += vote["vote"]
    return stories, comments


def test_scores(site: sqlite3.Connection, scores: tuple[Counter[int], Counter[int]]) -> None:
    assert dict(site.execute("SELECT id, score FROM story_with_votes")) == dict(scores[0])
    assert dict(site.execute("SELECT id, score FROM comment_with_votes")) == dict(scores[1])


def test_hotness_and_the_frontpage(
    site: sqlite3.Connection, rows: dict[str, list[RowDict]], scores: tuple[Counter[int], Counter[int]]
) -> None:
    story_scores, comment_scores = scores
    authors = {story["id"]: story["user_id"] for story in rows["stories"]}
    modifier = {tag["id"]: Decimal(tag["hotness_mod"]) for tag in rows["tags"]}
    base: dict[int, Decimal] = defaultdict(Decimal)
    for tagging in rows["taggings"]:
        base[tagging["story_id"]] += modifier[tagging["tag_id"]]
    points = Counter[int]()
    for comment in rows["comments"]:
        if comment["user_id"] != authors[comment["story_id"]]:
            points[comment["story_id"]] += comment_scores[comment["id"]]
    total = Counter(story_scores)
    for story in rows["stories"]:
        if story["merged_story_id"]:
            total[story["merged_story_id"]] += story_scores[story["id"]]
    hotness: dict[int, float] = {}
    for story in rows["stories"]:
        score = total[story["id"]]
        order = math.log10(max(abs(score + 1) + points[story["id"]], 1)) * ((score > 0) - (score < 0))
        age = datetime.fromisoformat(story["created_at"]).replace(tzinfo=UTC).timestamp() / (22 * 3600)
        hotness[story["id"]] = -(float(base[story["id"]]) + order + age)
    found = dict(site.execute("SELECT story_id, hotness FROM story_hotness"))
    assert found == pytest.approx(hotness, abs=1e-6)

    listed = [story["id"] for story in rows["stories"] if not story["is_expired"] and not story["merged_story_id"]]
    expected = sorted(listed, key=hotness.__getitem__)[:51]
    assert [story for story, _ in site.execute(page_queries()["frontpage_ids"])] == expected
    # The contest is real: the front page is not simply what is newest.
    assert expected != [story for story, _ in site.execute(page_queries()["recent_ids"])]


def test_stats_and_karma(
    site: sqlite3.Connection, rows: dict[str, list[RowDict]], scores: tuple[Counter[int], Counter[int]]
) -> None:
    karma = Counter[int]()
    for story in rows["stories"]:
        karma[story["user_id"]] += scores[0][story["id"]]
    for comment in rows["comments"]:
        karma[comment["user_id"]] += scores[1][comment["id"]]
    stories = Counter(story["user_id"] for story in rows["stories"])
    comments = Counter(comment["user_id"] for comment in rows["comments"])
    expected = {user["id"]: (stories[user["id"]], comments[user["id"]], karma[user["id"]]) for user in rows["users"]}
    found = site.execute("SELECT user_id, stories_count, comments_count, karma FROM user_stats")
    assert {user: tuple(numbers) for user, *numbers in found} == expected


def test_notifications(
    site: sqlite3.Connection, rows: dict[str, list[RowDict]], scores: tuple[Counter[int], Counter[int]]
) -> None:
    good = {
        comment["id"]: comment
        for comment in rows["comments"]
        if not comment["is_deleted"] and not comment["is_moderated"] and scores[1][comment["id"]] >= 0
    }
    authors = {story["id"]: story["user_id"] for story in rows["stories"] if not story["is_expired"]}
    replies: dict[tuple[int, int], list[RowDict]] = defaultdict(list)
    for comment in good.values():
        parent = comment["parent_comment_id"]
        if parent is None and comment["story_id"] in authors:
            replies[comment["story_id"], authors[comment["story_id"]]].append(comment)
        elif parent in good:
            replies[comment["story_id"], good[parent]["user_id"]].append(comment)
    expected = Counter[int]()
    for ribbon in rows["read_ribbons"]:
        user = ribbon["user_id"]
        for reply in replies[ribbon["story_id"], user]:
            if ribbon["is_following"] and reply["user_id"] != user and reply["created_at"] > ribbon["updated_at"]:
                expected[user] += 1
    assert expected
    assert dict(site.execute("SELECT user_id, notifications FROM notifications")) == dict(expected)


def test_every_page_query_answers_something(site: sqlite3.Connection, rows: dict[str, list[RowDict]]) -> None:
    """Asked with the keys of a row that should come back. The order of the values is that of the parameters."""
    keys: dict[str, tuple[object, ...]] = {
        "user_by_id": (3,),
        "keystore_value": ("user:3:unread_messages",),
        "tag_filters_of_user": (5,),
        "read_ribbon": tuple(rows["read_ribbons"][0][name] for name in ("user_id", "story_id")),
        "hidden_of_user": tuple(rows["hidden_stories"][0][name] for name in ("user_id", "story_id")),
        "saved_of_user": tuple(rows["saved_stories"][0][name] for name in ("user_id", "story_id")),
        "story_votes_of_user": (rows["stories"][0]["user_id"], rows["stories"][0]["id"]),
        "comment_votes_of_user": (rows["comments"][0]["user_id"], rows["comments"][0]["id"]),
        "comment_votes_on_story": (rows["comments"][0]["user_id"], rows["comments"][0]["story_id"]),
        "story_comments": (rows["comments"][0]["story_id"],),
        "story_by_short_id": (rows["stories"][4]["short_id"],),
        "comment_by_short_id": (rows["comments"][4]["short_id"],),
        "stories_by_url": (rows["stories"][4]["url"],),
        "user_by_name": (rows["users"][2]["username"],),
        "tags_by_name": ("python",),
        "merged_stories": (1,),
        "hats_of_user": (rows["hats"][0]["user_id"],) if rows["hats"] else (80,),
        "suggested_titles_of_stories": (80,),
        "suggested_taggings_of_stories": (50,),
        "notifications_of_user": site.execute("SELECT user_id FROM notifications").fetchone(),
        "replies_to_user": site.execute("SELECT user_id FROM notifications").fetchone(),
        "stats_of_user": (rows["stories"][0]["user_id"],),
        "favourite_tag": (rows["stories"][0]["user_id"],),
    }
    without_rows = {"hats_of_user"} if not rows["hats"] else set()
    for name, sql in page_queries().items():
        wanted = keys.get(name, (1,) if "?" in sql else ())
        answer = site.execute(sql, wanted).fetchall()
        assert answer or name in without_rows, name
