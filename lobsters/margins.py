"""The tables at the margin of the site: small, or read by one key, and nothing else is generated from them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import accumulate
from math import log
from random import Random

from lobsters import words
from lobsters.words import RowDict, sql_time

# How many rows of everything, and how unequally they are spread: the published figures of Lobsters as numbers.
#
# At scale 1 the site has 5,797 users, 40,650 stories, 121,270 comments and about 370,000 votes on each of stories and
# comments. The most voted story has 290 votes, the most voted comment 150, the busiest voter cast 15,100 votes and
# the longest discussion has 170 comments, while most have a handful. A Lomax curve with the published total and the
# published largest value has that form: see :func:`heavy_tail`.

LARGEST_STORY_VOTES = 290
LARGEST_COMMENT_VOTES = 150
LARGEST_STORY_COMMENTS = 170

VOTES_EXPONENT = 1.0
"""The exponent of votes per story and comment, and of comments per story: a few large, the median at a third of the
mean."""
VOTERS_EXPONENT = 2.0
"""Votes per user, steeper: nine users of ten stay under a hundred votes, a few dozen cast half of all."""


@dataclass(frozen=True, slots=True)
class SiteShape:
    """Row counts. ``story_votes`` and ``comment_votes`` include the author's own vote on each."""

    users: int
    stories: int
    comments: int
    story_votes: int
    comment_votes: int
    head_of_activity: int
    """The number of draws for the busiest user. Drawn twice for one story, one votes once: 20,000 make 15,100 votes."""

    @classmethod
    def at(cls, scale: float) -> SiteShape:
        """The site at ``scale``: above 1 only the users grow (so do the published runs), below 1 all shrinks."""
        if scale <= 0:
            raise ValueError(f"scale must be greater than 0, not {scale}")
        part = min(scale, 1.0)
        return cls(
            users=max(20, round(5_797 * scale)),
            stories=max(60, round(40_650 * part)),
            comments=max(180, round(121_270 * part)),
            story_votes=max(540, round(370_000 * part)),
            comment_votes=max(540, round(370_000 * part)),
            # Less than in proportion to the users, more than in proportion to the votes: in between, nobody is alone.
            head_of_activity=round(20_000 * part**0.75),
        )


def heavy_tail(count: int, total: int, largest: int, exponent: float) -> list[int]:
    """``count`` whole numbers in descending order, of sum ``total`` and with about ``largest`` at the head.

    The curve is ``largest · (1 + rank / knee) ** -exponent``; the knee is what gives it the sum (found by bisection,
    on the integral over the ranks). Rounding carries its error along, so that the sum is met.
    """
    largest = max(largest, total // count + 1)
    knee = _bisect(lambda k: largest * k * _spread(count / k, exponent), total, count)
    curve = [largest * (1 + (rank + 0.5) / knee) ** -exponent for rank in range(count)]
    correction = total / sum(curve)
    ends = [round(end * correction) for end in accumulate(curve)]
    return sorted((end - start for start, end in zip([0, *ends], ends, strict=False)), reverse=True)


def _spread(reach: float, exponent: float) -> float:
    """The integral of ``(1 + x) ** -exponent`` from 0 to ``reach``."""
    if exponent == 1.0:
        return log(1 + reach)
    rest: float = (1 + reach) ** (1 - exponent)
    return (1 - rest) / (exponent - 1)


def _bisect(rising: Callable[[float], float], target: float, count: int) -> float:
    low, high = 1e-6, 1000.0 * count
    for _ in range(60):  # halves to the last bit of a float
        middle = (low + high) / 2
        if rising(middle) < target:
            low = middle
        else:
            high = middle
    return high


_YEAR = 86_400 * 365


class Margins:
    """Filters, marks, hats, keystores, suggestions, invitations, messages and moderations of one site."""

    def __init__(
        self, shape: SiteShape, random: Random, someone: Iterator[int], texts: list[str], titles: list[str], until: int
    ) -> None:
        """``someone`` draws users by their activity; ``until`` is the present in seconds since 1970."""
        self._users, self._stories = shape.users, shape.stories
        self._random, self._someone = random, someone
        self._texts, self._titles = texts, titles
        self._until = until
        self.totals = {
            "tag_filters": shape.users // 5 * 2,
            "hidden_stories": shape.stories // 4,
            "saved_stories": shape.stories // 2,
            "hats": shape.users // 80,
            "keystores": shape.users,
            "suggested_taggings": shape.stories // 50,
            "suggested_titles": shape.stories // 80,
            "invitations": shape.users // 4,
            "invitation_requests": shape.users // 20,
            "hat_requests": shape.users // 200,
            "messages": shape.users // 2,
            "moderations": shape.stories // 100,
        }

    def tables(self) -> Iterator[tuple[str, Iterator[RowDict]]]:
        """Each table and its rows. The rows of a table are drawn as they are taken, so take them in this order."""
        yield "tag_filters", self._tag_filters()
        yield "hidden_stories", self._marks("hidden_stories")
        yield "saved_stories", self._saved_stories()
        yield "hats", self._hats()
        yield "keystores", self._keystores()
        yield "suggested_taggings", self._suggested_taggings()
        yield "suggested_titles", self._suggested_titles()
        yield "invitations", self._invitations()
        yield "invitation_requests", self._invitation_requests()
        yield "hat_requests", self._hat_requests()
        yield "messages", self._messages()
        yield "moderations", self._moderations()

    def _numbers(self, table: str) -> range:
        return range(1, self.totals[table] + 1)

    def _text(self, number: int) -> str:
        return self._texts[number % words.TEXTS]

    def _stamps(self) -> RowDict:
        """A time in the last year, as both created_at and updated_at."""
        when = sql_time(self._until - int(_YEAR * self._random.random()))
        return {"created_at": when, "updated_at": when}

    def _tag_filters(self) -> Iterator[RowDict]:
        """Every fifth user filters two tags."""
        for number in self._numbers("tag_filters"):
            user = 5 * ((number + 1) // 2)
            tag = 1 + (user * 7 + number % 2 * 11) % len(words.TAGS)
            yield {"id": number, **self._stamps(), "user_id": user, "tag_id": tag}

    def _marks(self, table: str) -> Iterator[RowDict]:
        """Each mark by another pair of a user and a story."""
        for number in self._numbers(table):
            yield {"id": number, "user_id": next(self._someone), "story_id": number * 2 % self._stories + 1}

    def _saved_stories(self) -> Iterator[RowDict]:
        for row in self._marks("saved_stories"):
            yield {**row, **self._stamps()}

    def _hats(self) -> Iterator[RowDict]:
        for number in self._numbers("hats"):
            yield {
                "id": number,
                **self._stamps(),
                "user_id": number * 80,
                "granted_by_user_id": 1,
                "hat": f"Maintainer of project {number}",
                "link": f"https://project{number}.example.org",
            }

    def _keystores(self) -> Iterator[RowDict]:
        for user in self._numbers("keystores"):
            yield {"key": f"user:{user}:unread_messages", "value": user * 7 % 4}

    def _suggested_taggings(self) -> Iterator[RowDict]:
        for number in self._numbers("suggested_taggings"):
            tag = 1 + number % len(words.TAGS)
            yield {"id": number, "story_id": number * 50, "tag_id": tag, "user_id": next(self._someone)}

    def _suggested_titles(self) -> Iterator[RowDict]:
        for number in self._numbers("suggested_titles"):
            title = self._titles[(number * 80 + 1) % len(self._titles)]
            yield {"id": number, "story_id": number * 80, "user_id": next(self._someone), "title": title}

    def _invitations(self) -> Iterator[RowDict]:
        for number in self._numbers("invitations"):
            yield {
                "id": number,
                "user_id": next(self._someone),
                "email": f"guest{number}@example.com",
                "code": f"invitation-{number}",
                **self._stamps(),
                "memo": "",
            }

    def _invitation_requests(self) -> Iterator[RowDict]:
        for number in self._numbers("invitation_requests"):
            yield {
                "id": number,
                "code": f"request-{number}",
                "is_verified": number % 2,
                "email": f"hopeful{number}@example.com",
                "name": f"Hopeful {number}",
                "memo": self._text(number),
                "ip_address": f"192.0.2.{number % 254 + 1}",
                **self._stamps(),
            }

    def _hat_requests(self) -> Iterator[RowDict]:
        for number in self._numbers("hat_requests"):
            yield {
                "id": number,
                **self._stamps(),
                "user_id": number * 200 - 1,
                "hat": f"Author of book {number}",
                "link": f"https://book{number}.example.org",
                "comment": self._text(number),
            }

    def _messages(self) -> Iterator[RowDict]:
        for number in self._numbers("messages"):
            yield {
                "id": number,
                "created_at": self._stamps()["created_at"],
                "author_user_id": next(self._someone),
                "recipient_user_id": next(self._someone),
                "has_been_read": number % 3 % 2,
                "subject": "Your comment",
                "body": self._text(number),
                "short_id": f"m{number}",
            }

    def _moderations(self) -> Iterator[RowDict]:
        for number in self._numbers("moderations"):
            yield {
                "id": number,
                **self._stamps(),
                "moderator_user_id": 1 + number % 5,
                "story_id": number * 100,
                "action": "changed the title",
                "reason": "more precise",
            }
