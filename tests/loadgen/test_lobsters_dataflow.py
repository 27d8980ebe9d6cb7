"""The Lobsters program on the whole embedded system, judged by SQLite: loaded, written to, evicted from, restarted."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from lobsters_in_sqlite import open_site, page_queries

from headrace import Connection, embedded
from lobsters import program, words
from lobsters.data import Data

SCALE = 0.005
ROUNDS = 4
WRITES = 25
READS = 4

Row = tuple[Any, ...]
Draw = Callable[[random.Random], Any]

KEYS: dict[str, tuple[str, ...]] = {
    "user_by_id": ("user",),
    "notifications_of_user": ("user",),
    "keystore_value": ("key",),
    "frontpage_ids": (),
    "recent_ids": (),
    "listed_stories": ("stories",),
    "tag_filters_of_user": ("user",),
    "taggings_of_stories": ("stories",),
    "tags_by_id": ("tags",),
    "users_by_id": ("users",),
    "suggested_titles_of_stories": ("stories",),
    "suggested_taggings_of_stories": ("stories",),
    "story_votes_of_user": ("user", "stories"),
    "hidden_of_user": ("user", "stories"),
    "saved_of_user": ("user", "stories"),
    "story_by_short_id": ("story name",),
    "read_ribbon": ("user", "story"),
    "merged_stories": ("merged into",),
    "story_comments": ("story",),
    "comment_votes_on_story": ("user", "story"),
    "newest_comment_ids": (),
    "comments_by_id": ("comments",),
    "stories_by_id": ("stories",),
    "comment_votes_of_user": ("user", "comments"),
    "user_by_name": ("user name",),
    "stats_of_user": ("user",),
    "favourite_tag": ("user",),
    "hats_of_user": ("user",),
    "comment_by_short_id": ("comment name",),
    "replies_to_user": ("user",),
    "tags_by_name": ("tag names",),
    "stories_by_url": ("url",),
}
"""What each page query is asked by; a plural is an IN list."""


class Site:
    """One site in Headrace and in SQLite, and how to draw its keys and writes."""

    def __init__(self, db: Connection, judge: sqlite3.Connection, data: Data, seed: int) -> None:
        self.db, self.judge, self.random = db, judge, random.Random(seed)
        self.queries = page_queries()
        size = data.shape
        self.users, self.stories, self.comments = size.users, size.stories, size.comments
        self.next_vote = data.totals["votes"] + 1
        self.next_comment = size.comments + 1
        self.token = ""

    def draw(self, what: str) -> Any:
        pick = self.random.randint
        if what in ("users", "stories", "comments", "tags"):
            singular = {"users": "user", "stories": "story", "comments": "comment", "tags": "tag"}[what]
            return sorted({self.draw(singular) for _ in range(pick(1, 4))})
        draws: dict[str, Callable[[], Any]] = {
            "user": lambda: pick(1, self.users + 1),
            "story": lambda: pick(1, self.stories + 1),
            "comment": lambda: pick(1, self.comments + 1),
            "tag": lambda: pick(1, 51),
            "key": lambda: f"user:{pick(1, self.users)}:unread_messages",
            "story name": lambda: words.story_short_id(pick(1, self.stories)),
            "comment name": lambda: words.comment_short_id(pick(1, self.comments)),
            "user name": lambda: words.username(pick(1, self.users)),
            "merged into": lambda: pick(0, self.stories // 200) * 200 + 1,
            "tag names": lambda: [words.TAGS[pick(0, 49)][0], "no tag"],
            "url": lambda: self.judge.execute("SELECT url FROM stories WHERE id = ?", (pick(1, 200),)).fetchone()[0],
        }
        return draws[what]()

    def write(self) -> None:
        """One write of a kind that the site's pages make, or that its moderators do, to both."""
        pick = self.random.randint
        user, story, comment = pick(1, self.users), pick(1, self.stories), pick(1, self.comments)
        now = f"2018-04-20 {pick(0, 23):02}:{pick(0, 59):02}:{pick(0, 59):02}"
        self.next_vote += 1
        self.next_comment += 1
        reply_story, parent = self._reply(comment)
        insert_vote = "INSERT INTO votes (id, user_id, story_id, comment_id, vote) VALUES (?, ?, ?, ?, ?)"
        writes: list[tuple[str, Row]] = [
            (insert_vote, (self.next_vote, user, story, None, self.random.choice([1, 1, -1]))),
            (insert_vote, (self.next_vote, user, story, comment, self.random.choice([1, -1, -1]))),
            ("UPDATE votes SET vote = ? WHERE id = ?", (self.random.choice([-1, 0, 1]), pick(1, self.next_vote))),
            ("DELETE FROM votes WHERE user_id = ? AND story_id = ?", (user, story)),
            (
                "INSERT INTO comments (id, created_at, short_id, story_id, user_id, parent_comment_id, comment) "
                "VALUES (?, ?, ?, ?, ?, ?, 'new')",
                (self.next_comment, now, words.comment_short_id(self.next_comment), reply_story, user, parent),
            ),
            ("UPDATE read_ribbons SET updated_at = ? WHERE user_id = ?", (now, user)),
            ("UPDATE read_ribbons SET is_following = 1 - is_following WHERE story_id = ?", (story,)),
            ("UPDATE comments SET is_deleted = 1 WHERE id = ?", (comment,)),
            ("UPDATE stories SET is_expired = 1 - is_expired WHERE id = ?", (story,)),
            ("UPDATE stories SET merged_story_id = ? WHERE id = ?", (self.random.choice([None, 1]), story)),
            ("UPDATE stories SET user_id = ? WHERE id = ?", (user, story)),
            ("UPDATE tags SET hotness_mod = ? WHERE id = ?", (self.random.choice([0.25, -0.5, 0]), pick(1, 50))),
            ("DELETE FROM taggings WHERE story_id = ?", (story,)),
            ("UPDATE users SET username = ? WHERE id = ?", (f"renamed{user}-{self.next_vote}", user)),
        ]
        sql, values = self.random.choice(writes)
        self.judge.execute(sql, values)
        self.token = self.db.execute(sql, values).token

    def _reply(self, comment: int) -> tuple[int, int | None]:
        """(story, parent) for a new comment: a reply to this one, or one to its story."""
        (story,) = self.judge.execute("SELECT story_id FROM comments WHERE id = ?", (comment,)).fetchone()
        return story, comment if self.random.random() < 0.5 else None

    def check(self, view: str) -> None:
        key = [self.draw(what) for what in KEYS[view]]
        sql = self.queries[view]
        flat: list[Any] = []
        for value in key:
            if isinstance(value, list):
                sql = sql.replace("IN (?)", f"IN ({', '.join('?' * len(value))})", 1)
                flat.extend(value)
            else:
                flat.append(value)
        expected = [tuple(row) for row in self.judge.execute(sql, flat)]
        parameters = self._parameters(view)
        found = [
            tuple(row.values())
            for row in self.db.view(view).lookup(dict(zip(parameters, key, strict=True)), token=self.token or None)
        ]
        if "ORDER BY" not in sql:
            expected, found = sorted(expected, key=repr), sorted(found, key=repr)
        assert [_plain(row) for row in found] == [_plain(row) for row in expected], (view, key)

    def evict(self) -> None:
        view = self.random.choice([name for name, what in KEYS.items() if what])
        key = [self.draw(what) for what in KEYS[view]]
        self.db.view(view).evict([key])

    def _parameters(self, view: str) -> list[str]:
        return [each["name"] for each in self.shown[view]["parameters"]]

    @property
    def shown(self) -> dict[str, Any]:
        if not hasattr(self, "_shown"):
            self._shown = {each["name"]: each for each in self.db.views()}
        return self._shown


def _plain(row: Row) -> Row:
    """DECIMAL comes as text and DOUBLE with all its digits."""
    return tuple(round(float(v), 6) if isinstance(v, float) or _is_decimal(v) else v for v in row)


def _is_decimal(value: Any) -> bool:
    return isinstance(value, str) and value.lstrip("-").replace(".", "", 1).isdigit() and "." in value


@pytest.fixture
def judge() -> Iterator[sqlite3.Connection]:
    connection = open_site(Data(SCALE))
    yield connection
    connection.close()


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({}, id="one domain"),
        pytest.param({"domains": 4}, id="four domains"),
        pytest.param({"memory_limit": "5MB"}, id="little memory"),
    ],
)
@pytest.mark.parametrize("seed", [1])
def test_every_page_query_agrees(
    tmp_path: Path, judge: sqlite3.Connection, settings: dict[str, Any], seed: int
) -> None:
    data = Data(SCALE)
    with embedded(tmp_path, raw=True, **settings) as db:
        db.migrate(program.program()).wait()
        for table, rows in data.batches():
            db.table(table).insert(rows)
        site = Site(db, judge, data, seed)
        for _ in range(ROUNDS):
            for view in KEYS:
                for _ in range(READS):
                    site.check(view)
            for _ in range(WRITES):
                site.write()
                site.check(site.random.choice(list(KEYS)))
                site.evict()
    with embedded(tmp_path, raw=True, **settings) as db:
        site.db, site.token = db, ""
        for view in KEYS:
            site.check(view)


def test_each_page_query_is_judged() -> None:
    assert set(KEYS) == set(page_queries())
