"""Generated rows of the whole site, streamed: the same seed and scale give the same rows, byte for byte.

::

    for table, rows in Data(scale=0.05, seed=1).batches():     # about 1,000 rows at a time, in dependency order
        db.table(table).insert(rows)

``Data.totals`` knows beforehand how many rows each table gets. What is kept in memory is a few whole numbers a story
and a comment (about 4 MB at scale 1), never the rows. The pace is measured in ``docs/lobsters.md``.

* Every story has its author's upvote, one to three tags and a number of further votes and of comments from a heavy
  tail; the stories with the most votes tend to have the most comments.
* Comments go round-robin over the stories until each has its number; half of all are replies to an earlier one.
* Who writes and who votes is drawn by the users' activity, which is the most unequal of all.
* The author, the commenters and two more readers of each story follow it (``read_ribbons``); one in seven has not
  read the latest comments, and so has notifications.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import accumulate, islice
from random import Random

from lobsters import margins, words
from lobsters.margins import Margins, SiteShape, heavy_tail
from lobsters.words import RowDict, sql_time

UNTIL = datetime(2018, 4, 20, tzinfo=UTC)
"""The default present: the month of the published figures."""

_STORY_PACE = 75 * 60
"""Seconds from one story to the next: 40,650 of them between July 2012 and the present. A small site is a young site,
so that its front page is a contest between votes and age, as on the real one."""
_COMMENT_PACE = 1200
"""Seconds from one comment of a story to the next, with jitter below that: a parent is always older than a reply."""


class Data:
    """One site at ``scale`` (see :meth:`Shape.at`) from ``seed``, with its youngest rows at ``until``."""

    def __init__(self, scale: float = 1.0, seed: int = 1, until: datetime = UNTIL) -> None:
        self.shape = size = SiteShape.at(scale)
        self.until = int(until.timestamp())
        self._random = random = Random(seed)
        self._since = self.until - _STORY_PACE * size.stories
        self._texts = words.texts(random)
        self._titles = words.titles()
        random.shuffle(self._titles)

        activity = heavy_tail(
            size.users, size.story_votes + size.comment_votes, size.head_of_activity, margins.VOTERS_EXPONENT
        )
        random.shuffle(activity)
        self._activity = list(accumulate(max(1, votes) for votes in activity))
        self._someone = self._draw_users()

        crowd = max(2, size.users // 2)  # more voters on one story than this would make drawing distinct ones slow
        by_votes = random.sample(range(size.stories), size.stories)
        # The same order, loosened: what many vote for, many discuss.
        by_comments = [
            by_votes[rank]
            for rank in sorted(range(size.stories), key=lambda rank: (rank + 1) * random.lognormvariate(0, 0.7))
        ]
        extra = size.story_votes - size.stories
        votes = heavy_tail(size.stories, extra, margins.LARGEST_STORY_VOTES - 1, margins.VOTES_EXPONENT)
        self.story_votes = _placed(by_votes, [1 + min(count, crowd) for count in votes])
        comments = heavy_tail(size.stories, size.comments, margins.LARGEST_STORY_COMMENTS, margins.VOTES_EXPONENT)
        self.story_comments = _placed(by_comments, comments)
        extra = size.comment_votes - size.comments
        votes = heavy_tail(size.comments, extra, margins.LARGEST_COMMENT_VOTES - 1, margins.VOTES_EXPONENT)
        random.shuffle(votes)
        self.comment_votes = array("I", [1 + min(count, crowd) for count in votes])

        # By number - 1. Filled while stories and comments are generated, read by what comes after them.
        self._story_time = array("I", bytes(4 * size.stories))
        self._story_author = array("I", bytes(4 * size.stories))
        self._comment_author = array("I", bytes(4 * size.comments))
        self._comment_story = array("I", bytes(4 * size.comments))
        self._comment_before = array("I", bytes(4 * size.comments))
        self._comment_thread = array("I", bytes(4 * size.comments))
        self._last_comment = array("I", bytes(4 * size.stories))
        self._margins = Margins(size, random, self._someone, self._texts, self._titles, self.until)
        self.totals = self._count()

    @property
    def voters(self) -> list[int]:
        """How active users 1 to n are, summed up: weights to draw a visitor by."""
        return self._activity

    def batches(self, size: int = 1000) -> Iterator[tuple[str, list[RowDict]]]:
        """All rows as (table, rows), at most ``size`` rows at a time. Can be run through once."""
        for table, rows in (
            ("users", self._users()),
            ("tags", self._tags()),
            ("stories", self._stories()),
            ("taggings", self._taggings()),
            ("comments", self._comments()),
            ("votes", self._votes()),
            ("read_ribbons", self._read_ribbons()),
            *self._margins.tables(),
        ):
            while batch := list(islice(rows, size)):
                yield table, batch

    def _count(self) -> dict[str, int]:
        size = self.shape
        return {
            "users": size.users,
            "tags": len(words.TAGS),
            "stories": size.stories,
            "taggings": sum(_tags_of(story) for story in range(1, size.stories + 1)),
            "comments": size.comments,
            "votes": sum(self.story_votes) + sum(self.comment_votes),
            "read_ribbons": sum(min(count + 3, size.users) for count in self.story_comments),
            **self._margins.totals,
        }

    # --- users, tags, stories ---------------------------------------------------------------------------------------

    def _draw_users(self) -> Iterator[int]:
        """User numbers without end, the active ones more often. Drawn by the thousand: 4 times as fast as singly."""
        everyone = range(1, self.shape.users + 1)
        while True:
            yield from self._random.choices(everyone, cum_weights=self._activity, k=4096)

    def _users(self) -> Iterator[RowDict]:
        for user in range(1, self.shape.users + 1):
            name = words.username(user)
            yield {
                "id": user,
                "username": name,
                "email": f"{name}@example.com",
                "password_digest": f"$2a$10${name}",
                "created_at": sql_time(self._since - 3600 * (self.shape.users + 1 - user)),  # before the first story
                "is_admin": 1 if user == 1 else 0,
                "is_moderator": 1 if user <= 5 else 0,
                "session_token": f"session-{user}",
                "about": self._texts[user % words.TEXTS],
                "invited_by_user_id": user // 3 or None,
            }

    def _tags(self) -> Iterator[RowDict]:
        for number, (tag, description, hotness, is_media) in enumerate(words.TAGS, 1):
            yield {
                "id": number,
                "tag": tag,
                "description": description,
                "privileged": 1 if tag == "announce" else 0,
                "is_media": is_media,
                "hotness_mod": hotness,
            }

    def _stories(self) -> Iterator[RowDict]:
        random = self._random.random
        for story in range(1, self.shape.stories + 1):
            created = int(self._since + _STORY_PACE * (story - random()))
            author = next(self._someone)
            self._story_time[story - 1] = created
            self._story_author[story - 1] = author
            is_text = random() < 0.1
            text = self._texts[story % words.TEXTS] if is_text else ""
            short_id = words.story_short_id(story)
            yield {
                "id": story,
                "created_at": sql_time(created),
                "user_id": author,
                "url": "" if is_text else f"https://{author % 997}.example.com/{short_id}",
                "title": self._titles[story % len(self._titles)],
                "description": text,
                "short_id": short_id,
                "is_expired": 1 if random() < 0.01 else 0,
                "is_moderated": 1 if random() < 0.01 else 0,
                "markeddown_description": f"<p>{text}</p>" if text else "",
                # One in two hundred was merged, into a slightly older story that was not (a multiple of 200 plus 1).
                "merged_story_id": story - story % 200 + 1 if story % 200 == 7 else None,
                "user_is_author": 1 if random() < 0.2 else 0,
            }

    def _taggings(self) -> Iterator[RowDict]:
        number = 0
        tags = range(1, len(words.TAGS) + 1)
        # A tag's popularity falls with its number, so that one in five stories is about programming.
        weights = list(accumulate(1 / (tag + 3) for tag in tags))
        for story in range(1, self.shape.stories + 1):
            wanted = _tags_of(story)
            chosen: dict[int, None] = {}
            while len(chosen) < wanted:
                chosen.update(dict.fromkeys(self._random.choices(tags, cum_weights=weights, k=wanted - len(chosen))))
            for tag in chosen:
                number += 1
                yield {"id": number, "story_id": story, "tag_id": tag}

    # --- comments, votes --------------------------------------------------------------------------------------------

    def _comments(self) -> Iterator[RowDict]:
        random = self._random.random
        first_comments = sum(1 for count in self.story_comments if count)
        replies = min(1.0, self.shape.comments / 2 / max(1, self.shape.comments - first_comments))
        comment = 0
        round_number = 0
        discussed = [story for story, count in enumerate(self.story_comments) if count]
        while discussed:
            for index in discussed:
                before = self._last_comment[index]
                parent = self._ancestor(before) if before and random() < replies else None
                author = next(self._someone)
                self._comment_author[comment] = author
                self._comment_story[comment] = index + 1
                self._comment_before[comment] = before
                comment += 1
                thread = self._comment_thread[parent - 1] if parent else comment
                self._comment_thread[comment - 1] = thread
                self._last_comment[index] = comment
                created = self._story_time[index] + int(_COMMENT_PACE * (round_number + random()))
                created_text = sql_time(min(created, self.until))
                text = self._texts[comment * 31 % words.TEXTS]
                yield {
                    "id": comment,
                    "created_at": created_text,
                    "updated_at": created_text,
                    "short_id": words.comment_short_id(comment),
                    "story_id": index + 1,
                    "user_id": author,
                    "parent_comment_id": parent,
                    "thread_id": thread,
                    "comment": text,
                    "markeddown_comment": f"<p>{text}</p>",
                    "is_deleted": 1 if comment % 97 == 0 else 0,
                    "is_moderated": 1 if comment % 307 == 0 else 0,
                }
            round_number += 1
            discussed = [index for index in discussed if self.story_comments[index] > round_number]

    def _ancestor(self, comment: int) -> int:
        """A comment of the same story, the latest or up to three before it."""
        for _ in range(int(self._random.random() * 4)):
            comment = self._comment_before[comment - 1] or comment
        return comment

    def _votes(self) -> Iterator[RowDict]:
        """Votes on stories, then on comments. The first of each is its author's own."""
        random = self._random.random
        number = 0
        for index, count in enumerate(self.story_votes):
            author = self._story_author[index]
            for voter in self._distinct_users((author,), count):
                number += 1
                down = voter != author and random() < 0.04
                yield {
                    "id": number,
                    "user_id": voter,
                    "story_id": index + 1,
                    "comment_id": None,
                    "vote": -1 if down else 1,
                    "reason": "OQTS"[voter % 4] if down else None,
                }
        for index, count in enumerate(self.comment_votes):
            author = self._comment_author[index]
            story = self._comment_story[index]
            for voter in self._distinct_users((author,), count):
                number += 1
                down = voter != author and random() < 0.08
                yield {
                    "id": number,
                    "user_id": voter,
                    "story_id": story,
                    "comment_id": index + 1,
                    "vote": -1 if down else 1,
                    "reason": "OITS"[voter % 4] if down else None,
                }

    def _distinct_users(self, first: tuple[int, ...], count: int) -> dict[int, None]:
        """``first`` and further users drawn by activity, ``count`` in all, in the order of drawing."""
        chosen = dict.fromkeys(first)
        if len(chosen) >= count:
            return dict.fromkeys(first[:count])
        chosen.update(dict.fromkeys(islice(self._someone, count - len(chosen))))
        for _ in range(4 * count):
            if len(chosen) >= count:
                return chosen
            chosen[next(self._someone)] = None
        # A small site whose active users are all in already: the rest of the crowd, evenly.
        others = [user for user in range(1, self.shape.users + 1) if user not in chosen]
        chosen.update(dict.fromkeys(self._random.sample(others, count - len(chosen))))
        return chosen

    # --- what readers leave behind ----------------------------------------------------------------------------------

    def _read_ribbons(self) -> Iterator[RowDict]:
        random = self._random.random
        number = 0
        for index, comments in enumerate(self.story_comments):
            created = self._story_time[index]
            created_text = sql_time(created)
            discussion = _COMMENT_PACE * (comments + 1)
            for user in self._distinct_users(self._writers(index), min(comments + 3, self.shape.users)):
                number += 1
                read = created + int(discussion * random()) if random() < 0.15 else created + discussion
                yield {
                    "id": number,
                    "is_following": 0 if random() < 0.05 else 1,
                    "created_at": created_text,
                    "updated_at": sql_time(min(read, self.until)),
                    "user_id": user,
                    "story_id": index + 1,
                }

    def _writers(self, index: int) -> tuple[int, ...]:
        """The author of a story and the authors of its comments, each once."""
        writers = {self._story_author[index]: None}
        comment = self._last_comment[index]
        while comment:
            writers[self._comment_author[comment - 1]] = None
            comment = self._comment_before[comment - 1]
        return tuple(writers)


def _tags_of(story: int) -> int:
    """How many tags a story has: six of ten have one, three two, one three."""
    return (1, 1, 1, 1, 1, 1, 2, 2, 2, 3)[story * 7 % 10]


def _placed(order: list[int], values: list[int]) -> array[int]:
    """``values[rank]`` at position ``order[rank]``."""
    placed = array("I", bytes(4 * len(order)))
    for position, value in zip(order, values, strict=True):
        placed[position] = value
    return placed
