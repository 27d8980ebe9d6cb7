"""The pages as answers: each is one row, or one a story, with all that it shows, and the reader's own marks beside.

What a page asks by is drawn as in :mod:`~loadgen.workloads.pages`, and it writes the same. Its look-ups are fewer,
since names, tags and comments stand in the answer to the first (``page_views.sql``)::

    Story      ── the page by short id, the reader ──────► his marks ─► when he read it
    Frontpage  ── 51 ids, the reader ────────────────────► the 51 as shown, his marks
"""

from __future__ import annotations

from typing import Any

from loadgen.peers.store import Lookup, PeerSession, RequestFailed, all_of
from loadgen.workloads.pages import NaturalPages, PageReading, follow, only, voted
from loadgen.workloads.visits import Visit
from lobsters import words


class WholePageReading(PageReading):
    """Begins with who is logged in, and the number beside the name that an application writes."""

    def _begun(self, user: int) -> list[Lookup]:
        return [
            Lookup(self._queries["reader_by_id"], (user,)),
            Lookup(self._queries["keystore_value"], (f"user:{user}:unread_messages",)),
        ]


class WholePages(NaturalPages):
    """All pages, each as one answer and what is the reader's own."""

    STORY, COMMENT = "story_page", "comment_by_name"

    def reading(self, visit: Visit) -> PageReading:
        return WholePageReading(self._queries, visit.user)

    async def _listed(self, session: PeerSession, visit: Visit, ids: str) -> None:
        page = self.reading(visit)
        listed = page.ask(ids)
        stories = all_of(listed, "story_id")
        page.ask("story_in_list", stories)
        page.ask("marks_of_reader", visit.user, stories)
        answers = await session.read(page.lookups)
        if not answers[listed].rows():
            raise RequestFailed("there is no story to list")

    async def comments(self, session: PeerSession, visit: Visit) -> None:
        page = self.reading(visit)
        newest = page.ask("newest_comment_ids")
        shown = page.ask("comment_in_list", all_of(newest, "comment_id"))
        page.ask("marks_of_reader", visit.user, all_of(shown, "story_id"))
        answers = await session.read(page.lookups)
        if not answers[newest].rows():
            raise RequestFailed("there is no comment to list")

    async def story(self, session: PeerSession, visit: Visit) -> None:
        page = self.reading(visit)
        found = page.ask(self.STORY, words.story_short_id(visit.story))
        marks = page.ask("marks_of_reader", visit.user, all_of(found, "id"))
        answers = await session.read(page.lookups)
        number = only(answers[found], "story")["id"]
        known = any(mark["mark"] == "read" for mark in answers[marks].rows())
        await follow(session, visit.user, number, visit.now, known=known)

    async def user(self, session: PeerSession, visit: Visit) -> None:
        page = self.reading(visit)
        found = page.ask("user_page", words.username(visit.user))
        only((await session.read(page.lookups))[found], "user")

    async def vote_on_story(self, session: PeerSession, visit: Visit, vote: int) -> None:
        page = self.reading(visit)
        found = page.ask(self.STORY, words.story_short_id(visit.story))
        marks = page.ask("marks_of_reader", visit.user, all_of(found, "id"))
        answers = await session.read(page.lookups)
        story = only(answers[found], "story")["id"]
        await session.write([voted(votes_among(answers[marks].rows(), None), vote, visit.user, story, None)])

    async def vote_on_comment(self, session: PeerSession, visit: Visit, vote: int) -> None:
        page = self.reading(visit)
        found = page.ask(self.COMMENT, words.comment_short_id(visit.comment))
        marks = page.ask("marks_of_reader", visit.user, all_of(found, "story_id"))
        answers = await session.read(page.lookups)
        row = only(answers[found], "comment")
        cast = votes_among(answers[marks].rows(), row["id"])
        await session.write([voted(cast, vote, visit.user, row["story_id"], row["id"])])

    def _ask_to_post(self, page: PageReading, visit: Visit, head: int, story: str) -> None:
        page.ask(self.COMMENT, words.comment_short_id(visit.fresh))
        page.ask("marks_of_reader", visit.user, all_of(head, story))


def votes_among(marks: list[dict[str, Any]], comment: int | None) -> list[dict[str, Any]]:
    """The vote among a reader's marks on one story: on the story itself, or on that comment."""
    return [mark for mark in marks if mark["mark"] == "vote" and mark["comment_id"] == comment]
