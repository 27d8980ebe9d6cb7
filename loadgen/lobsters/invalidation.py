"""What the application tells its cache when it writes: names of entries to delete. Pure.

This is the part of a cache-aside that is written by hand, once for each query and each write, and where it goes wrong.
Here it is done as well as the pages allow: a write deletes whatever its own page knows to be touched. What it cannot
know without asking stays until it expires: the notifications of followers other than the one who is answered, the names
of a renamed user on other pages, the hotness of a story that another was merged into.
"""

from __future__ import annotations

from collections.abc import Iterator

from loadgen.lobsters import words
from loadgen.peers.store import Change, Delete, Insert, Update, Upsert

STORY_BY_ID = ("listed_stories:", "stories_by_id:", "story_by_id")


def touched(change: Change) -> Iterator[str]:
    """Names of cache entries (``cached.entries_of``)."""
    match change:
        case Insert(table=table, rows=rows):
            for row in rows:
                yield from _row(table, {**row, **change.about})
        case Upsert(table=table, rows=rows):
            for row in rows:
                yield from _row(table, dict(row))
        case Update(table=table, key=key):
            yield from _row(table, {**change.about, **key})
        case Delete(table=table, key=key):
            yield from _row(table, dict(key))


def _row(table: str, row: dict[str, object]) -> Iterator[str]:
    user, story = row.get("user_id"), row.get("story_id")
    match table:
        case "votes":
            yield f"story_votes_of_user:{user}:{story}"
            yield f"comment_votes_of_user:{user}:{row.get('comment_id')}"
            yield f"comment_votes_on_story:{user}:{story}"
        case "stories":
            yield from _story(int(str(row["id"])))
            yield from ("frontpage_ids:", "recent_ids:", f"stories_by_url:{row.get('url')}")
            yield f"favourite_tag:{user}"
        case "comments":
            comment = int(str(row["id"]))
            yield f"comments_by_id::{comment}"
            yield f"comment_by_short_id:{words.comment_short_id(comment)}"
            yield f"story_comments:{story}"
            yield f"comment_points_of_story:{story}"
            yield "newest_comment_ids:"
            yield f"notifications_of_user:{row.get('answered')}"
        case "taggings":
            yield from (f"taggings_of_stories::{story}", f"tag_hotness_of_story:{story}")
        case "read_ribbons":
            yield from (f"read_ribbon:{user}:{story}", f"notifications_of_user:{user}")
        case "users":
            number = int(str(row["id"]))
            yield from (f"user_by_id:{number}", f"stats_of_user:{number}")
            yield f"user_by_name:{words.username(number)}"


def _story(story: int) -> Iterator[str]:
    for start in STORY_BY_ID:
        yield f"{start}:{story}"
    yield f"story_by_short_id:{words.story_short_id(story)}"
