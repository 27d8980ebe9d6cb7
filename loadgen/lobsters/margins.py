"""The tables at the margin of the site: small, or read by one key, and nothing else is generated from them."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from loadgen.lobsters import words
from loadgen.lobsters.shape import Shape
from loadgen.lobsters.words import RowDict, sql_time

_YEAR = 86_400 * 365


class Margins:
    """Filters, marks, hats, keystores, suggestions, invitations, messages and moderations of one site."""

    def __init__(
        self, shape: Shape, random: Random, someone: Iterator[int], texts: list[str], titles: list[str], until: int
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
