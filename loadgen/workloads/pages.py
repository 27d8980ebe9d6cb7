"""The pages of the site with natural queries: aggregates are computed by the system, the application only asks.

Each page is a coroutine over a :class:`~loadgen.peers.store.PeerSession`: one read, whose look-ups refer to one
another's answers, then what it writes. Which queries a page has is listed at the top of ``page_queries.sql``.

::

    Story      ── story by short id, user, notices ─► its votes, comments, ribbon, … ─► names, tags ─► ribbon
    Frontpage  ── 51 ids, user, notices, filters ───► the stories, their marks, …    ─► names, tags
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from loadgen.peers.store import (
    Answer,
    Conflict,
    InsertRow,
    Lookup,
    PeerSession,
    Query,
    RequestFailed,
    UpdateRow,
    all_of,
    first,
)
from loadgen.workloads.visits import Visit
from lobsters import words

Page = Callable[[PeerSession, Visit], Awaitable[None]]


class PageReading:
    """The look-ups of one page. Each is asked by values, or by references to those asked before."""

    def __init__(self, queries: Mapping[str, Query], user: int) -> None:
        self._queries = queries
        self.lookups = self._begun(user)

    def _begun(self, user: int) -> list[Lookup]:
        """What every page asks: who is logged in, and the two numbers beside the name."""
        return [
            Lookup(self._queries["user_by_id"], (user,)),
            Lookup(self._queries["notifications_of_user"], (user,)),
            Lookup(self._queries["keystore_value"], (f"user:{user}:unread_messages",)),
        ]

    def ask(self, name: str, *values: Any) -> int:
        """The place of its answer, for references too."""
        self.lookups.append(Lookup(self._queries[name], values))
        return len(self.lookups) - 1


class NaturalPages:
    """All pages, by :data:`~loadgen.workloads.visits.MIX`' names for them."""

    STORY, COMMENT = "story_by_short_id", "comment_by_short_id"
    """Queries for what a visit names."""

    def __init__(self, queries: Mapping[str, Query]) -> None:
        self._queries = queries
        self.by_kind: dict[str, Page] = {
            "Story": self.story,
            "Frontpage": self.frontpage,
            "User": self.user,
            "Comments": self.comments,
            "Recent": self.recent,
            "CommentUpvote": self.comment_upvote,
            "CommentDownvote": self.comment_downvote,
            "StoryUpvote": self.story_upvote,
            "StoryDownvote": self.story_downvote,
            "Comment": self.comment,
            "Reply": self.reply,
            "Login": self.login,
            "Submit": self.submit,
            "Logout": self.logout,
        }

    def reading(self, visit: Visit) -> PageReading:
        return PageReading(self._queries, visit.user)

    # --- lists ---------------------------------------------------------------------------------------------------

    async def frontpage(self, session: PeerSession, visit: Visit) -> None:
        await self._listed(session, visit, "frontpage_ids")

    async def recent(self, session: PeerSession, visit: Visit) -> None:
        await self._listed(session, visit, "recent_ids")

    async def _listed(self, session: PeerSession, visit: Visit, ids: str) -> None:
        page, user = self.reading(visit), visit.user
        listed = page.ask(ids)
        page.ask("tag_filters_of_user", user)
        stories = all_of(listed, "story_id")
        shown = page.ask("listed_stories", stories)
        taggings = page.ask("taggings_of_stories", stories)
        page.ask("suggested_titles_of_stories", stories)
        page.ask("suggested_taggings_of_stories", stories)
        page.ask("story_votes_of_user", user, stories)
        page.ask("hidden_of_user", user, stories)
        page.ask("saved_of_user", user, stories)
        page.ask("users_by_id", all_of(shown, "user_id"))
        page.ask("tags_by_id", all_of(taggings, "tag_id"))
        answers = await session.read(page.lookups)
        if not answers[listed].rows():
            raise RequestFailed("there is no story to list")

    async def comments(self, session: PeerSession, visit: Visit) -> None:
        page, user = self.reading(visit), visit.user
        newest = page.ask("newest_comment_ids")
        comments = all_of(newest, "comment_id")
        shown = page.ask("comments_by_id", comments)
        page.ask("comment_votes_of_user", user, comments)
        stories = all_of(shown, "story_id")
        told = page.ask("stories_by_id", stories)
        page.ask("hidden_of_user", user, stories)
        page.ask("users_by_id", all_of(shown, "user_id"))
        page.ask("users_by_id", all_of(told, "user_id"))
        answers = await session.read(page.lookups)
        if not answers[newest].rows():
            raise RequestFailed("there is no comment to list")

    # --- one thing -----------------------------------------------------------------------------------------------

    async def story(self, session: PeerSession, visit: Visit) -> None:
        page, user = self.reading(visit), visit.user
        found = page.ask(self.STORY, words.story_short_id(visit.story))
        story, alone = first(found, "id"), all_of(found, "id")
        ribbon = page.ask("read_ribbon", user, story)
        comments = page.ask("story_comments", story)
        taggings = page.ask("taggings_of_stories", alone)
        page.ask("users_by_id", all_of(found, "user_id"))
        page.ask("merged_stories", story)
        page.ask("comment_votes_on_story", user, story)
        page.ask("story_votes_of_user", user, alone)
        page.ask("hidden_of_user", user, alone)
        page.ask("saved_of_user", user, alone)
        page.ask("users_by_id", all_of(comments, "user_id"))
        page.ask("tags_by_id", all_of(taggings, "tag_id"))
        answers = await session.read(page.lookups)
        number = only(answers[found], "story")["id"]
        await follow(session, user, number, visit.now, known=bool(answers[ribbon].rows()))

    async def user(self, session: PeerSession, visit: Visit) -> None:
        # Whose page it is: the author of the story that the visit would read, so that it is seldom one's own.
        page = self.reading(visit)
        found = page.ask("user_by_name", words.username(visit.user))
        user = first(found, "id")
        page.ask("stats_of_user", user)
        favourite = page.ask("favourite_tag", user)
        page.ask("hats_of_user", user)
        page.ask("tags_by_id", all_of(favourite, "tag_id"))
        only((await session.read(page.lookups))[found], "user")

    # --- what writes ---------------------------------------------------------------------------------------------

    async def story_upvote(self, session: PeerSession, visit: Visit) -> None:
        await self.vote_on_story(session, visit, 1)

    async def story_downvote(self, session: PeerSession, visit: Visit) -> None:
        await self.vote_on_story(session, visit, -1)

    async def vote_on_story(self, session: PeerSession, visit: Visit, vote: int) -> None:
        page = self.reading(visit)
        found = page.ask(self.STORY, words.story_short_id(visit.story))
        cast = page.ask("story_votes_of_user", visit.user, all_of(found, "id"))
        answers = await session.read(page.lookups)
        story = only(answers[found], "story")["id"]
        await session.write([voted(answers[cast].rows(), vote, visit.user, story, None)])

    async def comment_upvote(self, session: PeerSession, visit: Visit) -> None:
        await self.vote_on_comment(session, visit, 1)

    async def comment_downvote(self, session: PeerSession, visit: Visit) -> None:
        await self.vote_on_comment(session, visit, -1)

    async def vote_on_comment(self, session: PeerSession, visit: Visit, vote: int) -> None:
        page = self.reading(visit)
        found = page.ask(self.COMMENT, words.comment_short_id(visit.comment))
        cast = page.ask("comment_votes_of_user", visit.user, all_of(found, "id"))
        answers = await session.read(page.lookups)
        row = only(answers[found], "comment")
        await session.write([voted(answers[cast].rows(), vote, visit.user, row["story_id"], row["id"])])

    async def comment(self, session: PeerSession, visit: Visit) -> None:
        page = self.reading(visit)
        head = page.ask(self.STORY, words.story_short_id(visit.story))
        self._ask_to_post(page, visit, head, "id")
        answers = await session.read(page.lookups)
        story = only(answers[head], "story")
        await self._post(session, visit, answers, story["id"], story["user_id"], None)

    async def reply(self, session: PeerSession, visit: Visit) -> None:
        page = self.reading(visit)
        head = page.ask(self.COMMENT, words.comment_short_id(visit.comment))
        self._ask_to_post(page, visit, head, "story_id")
        answers = await session.read(page.lookups)
        parent = only(answers[head], "comment")
        await self._post(session, visit, answers, parent["story_id"], parent["user_id"], parent)

    def _ask_to_post(self, page: PageReading, visit: Visit, head: int, story: str) -> None:
        """Whether the name is free, as the site asks before it uses one; who is answered; what was read last. ``story``
        is the column of the answer at ``head`` that has the story."""
        page.ask(self.COMMENT, words.comment_short_id(visit.fresh))
        page.ask("users_by_id", all_of(head, "user_id"))
        page.ask("comment_votes_of_user", visit.user, [visit.fresh])
        page.ask("read_ribbon", visit.user, first(head, story))

    async def _post(
        self,
        session: PeerSession,
        visit: Visit,
        answers: Sequence[Answer],
        story: int,
        head: int,
        parent: Mapping[str, Any] | None,
    ) -> None:
        """Write a comment of the story, which answers the user ``head``; ``answers`` are the page's."""
        await session.write([new_comment(visit, story, parent), voted([], 1, visit.user, story, visit.fresh)])

    async def submit(self, session: PeerSession, visit: Visit) -> None:
        page, story = self.reading(visit), new_story(visit)
        tags = self._ask_to_submit(page, visit, story)
        answers = await session.read(page.lookups)
        await session.write(
            [
                InsertRow("stories", [story]),
                InsertRow("taggings", [{"story_id": visit.fresh, "tag_id": only(answers[tags], "tag")["id"]}]),
                voted([], 1, visit.user, visit.fresh, None),
            ]
        )

    def _ask_to_submit(self, page: PageReading, visit: Visit, story: Mapping[str, Any]) -> int:
        """The place of its tag; and whether its URL and its name are free."""
        tags = page.ask("tags_by_name", [words.TAGS[visit.fresh % len(words.TAGS)][0]])
        page.ask("stories_by_url", story["url"])
        page.ask(self.STORY, story["short_id"])
        return tags

    async def login(self, session: PeerSession, visit: Visit) -> None:
        page = self.reading(visit)
        found = page.ask("user_by_name", words.username(visit.user))
        user = only((await session.read(page.lookups))[found], "user")["id"]
        token = f"session-{visit.user}-{visit.fresh}"
        await session.write([UpdateRow("users", {"id": user}, {"session_token": token})])

    async def logout(self, session: PeerSession, visit: Visit) -> None:
        await session.read(self.reading(visit).lookups)


# --- rows ------------------------------------------------------------------------------------------------------------


async def follow(session: PeerSession, user: int, story: int, now: str, *, known: bool) -> None:
    """The one write of a Story page: when the user has last read it."""
    update = UpdateRow("read_ribbons", {"user_id": user, "story_id": story}, {"updated_at": now})
    if not known:
        ribbon = {"user_id": user, "story_id": story, "is_following": 1, "created_at": now, "updated_at": now}
        try:
            await session.write([InsertRow("read_ribbons", [ribbon])])
        except Conflict:  # another page of the same user was faster
            await session.write([update])
        return
    await session.write([update])


def voted(
    cast: Sequence[Mapping[str, Any]], vote: int, user: int, story: int, comment: int | None
) -> InsertRow | UpdateRow:
    """The vote as a row, or as a change of the one that was cast before."""
    reason = None if vote > 0 else "O"
    if cast:
        about = {"user_id": user, "story_id": story, "comment_id": comment}
        return UpdateRow("votes", {"id": cast[0]["id"]}, {"vote": vote, "reason": reason}, about=about)
    row = {"user_id": user, "story_id": story, "comment_id": comment, "vote": vote, "reason": reason}
    return InsertRow("votes", [row])


def new_comment(visit: Visit, story: int, parent: Mapping[str, Any] | None) -> InsertRow:
    text = "Said in a load run."
    row = {
        "id": visit.fresh,
        "created_at": visit.now,
        "updated_at": visit.now,
        "short_id": words.comment_short_id(visit.fresh),
        "story_id": story,
        "user_id": visit.user,
        "parent_comment_id": parent["id"] if parent else None,
        "thread_id": parent["thread_id"] if parent else visit.fresh,
        "comment": text,
        "markeddown_comment": f"<p>{text}</p>",
    }
    return InsertRow("comments", [row])


def new_story(visit: Visit) -> dict[str, Any]:
    return {
        "id": visit.fresh,
        "created_at": visit.now,
        "user_id": visit.user,
        "url": f"https://submitted.example.com/{visit.fresh}",
        "title": f"Submitted in a load run: {visit.fresh}",
        "description": "",
        "short_id": words.story_short_id(visit.fresh),
        "markeddown_description": "",
    }


def only(answer: Answer, what: str) -> dict[str, Any]:
    """The row that a page cannot be made without."""
    rows = answer.rows()
    if not rows:
        raise RequestFailed(f"the {what} is not there")
    return rows[0]
