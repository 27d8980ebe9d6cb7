"""The generated site: the same every time, whole, and as unequal as the published figures."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from itertools import islice

import pytest

from lobsters import words
from lobsters.data import Data
from lobsters.margins import SiteShape, heavy_tail
from lobsters.program import TABLES
from lobsters.words import RowDict

SMALL = 0.02


@pytest.fixture(scope="module")
def site() -> dict[str, list[RowDict]]:
    tables: dict[str, list[RowDict]] = defaultdict(list)
    for table, rows in Data(SMALL).batches():
        tables[table].extend(rows)
    return tables


def digest(data: Data) -> str:
    seen = hashlib.sha256()
    for batch in data.batches():
        seen.update(repr(batch).encode())
    return seen.hexdigest()


def test_the_same_seed_gives_the_same_rows() -> None:
    assert digest(Data(0.005, seed=7)) == digest(Data(0.005, seed=7))
    assert digest(Data(0.005, seed=7)) != digest(Data(0.005, seed=8))


@pytest.mark.parametrize("scale", [0.0001, 0.003, SMALL])
def test_totals_are_known_beforehand(scale: float) -> None:
    data = Data(scale)
    promised = dict(data.totals)
    counted = Counter[str]()
    for table, rows in data.batches(size=500):
        assert 1 <= len(rows) <= 500
        counted[table] += len(rows)
    assert {table: counted[table] for table in promised} == promised
    assert set(promised) == set(TABLES)


def test_tables_come_in_the_order_of_their_dependencies() -> None:
    order = list(dict.fromkeys(table for table, _ in Data(SMALL).batches()))
    assert order == [table for table in TABLES if table in order]


def test_at_scale_one_it_is_the_published_site() -> None:
    data = Data(1.0)
    assert data.shape == SiteShape(5_797, 40_650, 121_270, 370_000, 370_000, 20_000)
    assert sum(data.story_votes) == pytest.approx(370_000, rel=0.01)
    assert sum(data.comment_votes) == pytest.approx(370_000, rel=0.01)
    assert sum(data.story_comments) == 121_270
    assert max(data.story_votes) == pytest.approx(290, rel=0.02)
    assert max(data.comment_votes) == pytest.approx(150, rel=0.02)
    assert max(data.story_comments) == pytest.approx(170, rel=0.02)
    assert min(data.story_votes) >= 1
    assert min(data.comment_votes) >= 1


def test_at_scale_one_votes_per_user_are_as_unequal_as_published() -> None:
    voters = Counter(row["user_id"] for table, rows in Data(1.0).batches() if table == "votes" for row in rows)
    assert max(voters.values()) == pytest.approx(15_100, rel=0.05)
    assert sum(count >= 100 for count in voters.values()) < 0.1 * 5_797


def test_above_scale_one_only_the_users_grow() -> None:
    assert SiteShape.at(3) == SiteShape(17_391, 40_650, 121_270, 370_000, 370_000, 20_000)


def test_nothing_is_no_scale() -> None:
    with pytest.raises(ValueError, match="greater than 0"):
        Data(0)


@pytest.mark.parametrize(
    ("count", "total", "largest", "exponent"),
    [(1000, 9000, 290, 1.0), (1000, 3000, 150, 1.0), (300, 30_000, 8_000, 2.0), (10, 40, 1000, 1.0), (5, 5, 1, 1.0)],
)
def test_a_heavy_tail_has_its_sum_and_its_head(count: int, total: int, largest: int, exponent: float) -> None:
    values = heavy_tail(count, total, largest, exponent)
    assert len(values) == count
    assert sum(values) == total
    assert values == sorted(values, reverse=True)
    assert values[0] <= max(largest, total) + 1


def test_every_row_points_to_rows_that_came_before(site: dict[str, list[RowDict]]) -> None:
    ids = {table: {row["id"] for row in rows} for table, rows in site.items() if table != "keystores"}
    for table, rows in site.items():
        for column, target in (
            ("user_id", "users"),
            ("story_id", "stories"),
            ("comment_id", "comments"),
            ("tag_id", "tags"),
            ("parent_comment_id", "comments"),
            ("thread_id", "comments"),
            ("merged_story_id", "stories"),
        ):
            if column in rows[0]:
                assert {row[column] for row in rows} - {None} <= ids[target], f"{table}.{column}"


def test_what_is_unique_is_unique(site: dict[str, list[RowDict]]) -> None:
    for table, columns in {
        "users": ("username",),
        "stories": ("short_id",),
        "comments": ("short_id",),
        "taggings": ("story_id", "tag_id"),
        "votes": ("user_id", "story_id", "comment_id"),
        "tag_filters": ("user_id", "tag_id"),
        "read_ribbons": ("user_id", "story_id"),
        "hidden_stories": ("user_id", "story_id"),
        "saved_stories": ("user_id", "story_id"),
        "keystores": ("key",),
        "messages": ("short_id",),
    }.items():
        seen = Counter(tuple(row[column] for column in columns) for row in site[table])
        assert max(seen.values()) == 1, (table, seen.most_common(1))


def test_each_story_has_its_authors_upvote_first_and_a_tag(site: dict[str, list[RowDict]]) -> None:
    votes: dict[int, list[RowDict]] = defaultdict(list)
    for vote in site["votes"]:
        if vote["comment_id"] is None:
            votes[vote["story_id"]].append(vote)
    tagged = {tagging["story_id"] for tagging in site["taggings"]}
    for story in site["stories"]:
        assert (votes[story["id"]][0]["user_id"], votes[story["id"]][0]["vote"]) == (story["user_id"], 1)
        assert story["id"] in tagged


def test_comments_go_round_robin_and_half_of_them_are_replies(site: dict[str, list[RowDict]]) -> None:
    comments = site["comments"]
    first_round = {comment["story_id"] for comment in comments}
    assert {comment["story_id"] for comment in islice(comments, len(first_round))} == first_round
    by_id = {comment["id"]: comment for comment in comments}
    replies = [comment for comment in comments if comment["parent_comment_id"]]
    assert len(replies) / len(comments) == pytest.approx(0.5, abs=0.03)
    for reply in replies:
        parent = by_id[reply["parent_comment_id"]]
        assert parent["id"] < reply["id"]
        assert parent["created_at"] <= reply["created_at"]
        assert (parent["story_id"], parent["thread_id"]) == (reply["story_id"], reply["thread_id"])


def test_merged_stories_go_to_stories_that_are_not_merged(site: dict[str, list[RowDict]]) -> None:
    by_id = {story["id"]: story for story in site["stories"]}
    merged = [story for story in site["stories"] if story["merged_story_id"]]
    assert merged
    assert all(by_id[story["merged_story_id"]]["merged_story_id"] is None for story in merged)


def test_names_are_known_by_number(site: dict[str, list[RowDict]]) -> None:
    assert all(row["username"] == words.username(row["id"]) for row in site["users"])
    assert all(row["short_id"] == words.story_short_id(row["id"]) for row in site["stories"])
    assert all(row["short_id"] == words.comment_short_id(row["id"]) for row in site["comments"])
