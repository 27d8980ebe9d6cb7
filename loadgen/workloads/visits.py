"""Visits of users to pages: the published mix of pages, drawn as the published popularity says. Seeded.

Stories are drawn by their votes, comments to vote on by theirs, comments to reply to by the story's comments, and users
by how active they are. What a visit makes (a story, a comment) has a number that no other visit of any run has: its
id, and its short id by ``words``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from random import Random
from typing import Any

from lobsters import words
from lobsters.data import Data

MIX: dict[str, int] = {
    "Story": 55_842,
    "Frontpage": 30_105,
    "User": 6_702,
    "Comments": 4_674,
    "Recent": 967,
    "CommentUpvote": 630,
    "CommentDownvote": 54,
    "StoryUpvote": 475,
    "StoryDownvote": 21,
    "Comment": 316,
    "Reply": 71,
    "Login": 87,
    "Submit": 53,
    "Logout": 3,
}
"""Pages in a hundred thousand requests of the real site."""

MAKING = frozenset(("Comment", "Reply", "Submit", "Login"))
"""Pages that create something with a new number: 0.5 % of all."""

FIRST_FREE = 10_000_000
"""Numbers of stories and comments from here on are made by runs; generated data stays far below."""
RUNS_APART = 1_000
"""Numbers that each second of wall-clock time has for the run that begins in it. 2 million seconds fit below 2³¹, so
that two runs within 23 days never meet, unless one makes a thousand things a second: that is 190,000 pages."""
_SECONDS = 2_000_000
_DRAWN_TOGETHER = 512
"""Draws made at once: ten times as fast as singly."""


@dataclass(frozen=True, slots=True)
class Visit:
    """One page request."""

    kind: str
    user: int
    story: int
    """Number of the story that is read, voted on, or commented."""
    comment: int
    """Number of the comment that is voted on or replied to."""
    fresh: int
    """Number for what is made, if anything is."""
    now: str
    """The site's time."""


class Visits:
    """An endless stream of visits to the site that ``data`` describes."""

    def __init__(self, data: Data, seed: int, started: float) -> None:
        """``started``: seconds since 1970, for numbers that are free; it does not change what is drawn."""
        random = Random(seed)
        self._until = data.until
        self._kinds = _drawn(random, list(MIX), MIX.values())
        size = data.shape
        self._users = _drawn(random, range(1, size.users + 1), cumulative=data.voters)
        self._stories = _drawn(random, range(1, size.stories + 1), data.story_votes)
        self._comments = _drawn(random, range(1, size.comments + 1), data.comment_votes)
        self._fresh = FIRST_FREE + int(started) % _SECONDS * RUNS_APART

    def draw(self, at: float) -> Visit:
        """The visit that comes ``at`` seconds after the start."""
        kind = next(self._kinds)
        self._fresh += kind in MAKING
        return Visit(
            kind,
            next(self._users),
            next(self._stories),
            next(self._comments),
            self._fresh,
            words.sql_time(self._until + 1 + int(at)),
        )


def _drawn(
    random: Random,
    values: Sequence[Any],
    weights: Iterable[int] | None = None,
    cumulative: Sequence[int] | None = None,
) -> Iterator[Any]:
    """Values without end, by their weights or by the sums of those."""
    sums = list(accumulate(weights or ())) if cumulative is None else cumulative
    while True:
        yield from random.choices(values, cum_weights=sums, k=_DRAWN_TOGETHER)
