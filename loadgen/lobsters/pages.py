"""The pages of the site with natural queries: aggregates are computed by the system, the application only asks.

Each page is a coroutine over a :class:`~loadgen.peers.store.Session`: rounds of look-ups that need one another's
answers, then what it writes. Which queries a page has is listed at the top of ``page_queries.sql``.

::

    Story      ── story by short id, user, notices ─► its votes, comments, ribbon, … ─► names, tags ─► ribbon
    Frontpage  ── 51 ids, user, notices, filters ───► the stories, their marks, …    ─► names, tags
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from loadgen.lobsters import words
from loadgen.lobsters.visits import Visit
from loadgen.pace.errors import RequestFailed
from loadgen.peers.store import Answer, Conflict, Insert, Lookup, Query, Session, Update

Page = Callable[[Session, Visit], Awaitable[None]]


class NaturalPages:
    """All pages, by :data:`~loadgen.lobsters.visits.MIX`' names for them."""

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

    # --- what every page asks -----------------------------------------------------------------------------------

    def ask(self, name: str, *values: Any) -> Lookup:
        return Lookup(self._queries[name], values)

    def every(self, user: int) -> list[Lookup]:
        """Who is logged in, and the two numbers beside the name."""
        return [
            self.ask("user_by_id", user),
            self.ask("notifications_of_user", user),
            self.ask("keystore_value", f"user:{user}:unread_messages"),
        ]

    async def first(self, session: Session, visit: Visit, *lookups: Lookup) -> Sequence[Answer]:
        """The first round: what every page asks, and the page's own. Its own answers."""
        every = self.every(visit.user)
        return (await session.read([*every, *lookups]))[len(every) :]

    # --- lists ---------------------------------------------------------------------------------------------------

    async def frontpage(self, session: Session, visit: Visit) -> None:
        await self._listed(session, visit, "frontpage_ids")

    async def recent(self, session: Session, visit: Visit) -> None:
        await self._listed(session, visit, "recent_ids")

    async def _listed(self, session: Session, visit: Visit, ids: str) -> None:
        user = visit.user
        listed, _ = await self.first(session, visit, self.ask(ids), self.ask("tag_filters_of_user", user))
        stories = listed.column("story_id")
        if not stories:
            raise RequestFailed("there is no story to list")
        shown, taggings, *_ = await session.read(
            [
                self.ask("listed_stories", stories),
                self.ask("taggings_of_stories", stories),
                self.ask("suggested_titles_of_stories", stories),
                self.ask("suggested_taggings_of_stories", stories),
                self.ask("story_votes_of_user", user, stories),
                self.ask("hidden_of_user", user, stories),
                self.ask("saved_of_user", user, stories),
            ]
        )
        await self.named(session, shown.column("user_id"), taggings.column("tag_id"))

    async def named(self, session: Session, users: Sequence[int], tags: Sequence[int] = ()) -> None:
        """The last round of most pages: names of users and of tags."""
        lookups = []
        if users:
            lookups.append(self.ask("users_by_id", distinct(users)))
        if tags:
            lookups.append(self.ask("tags_by_id", distinct(tags)))
        if lookups:
            await session.read(lookups)

    async def comments(self, session: Session, visit: Visit) -> None:
        (newest,) = await self.first(session, visit, self.ask("newest_comment_ids"))
        comments = newest.column("comment_id")
        if not comments:
            raise RequestFailed("there is no comment to list")
        shown, _ = await session.read(
            [self.ask("comments_by_id", comments), self.ask("comment_votes_of_user", visit.user, comments)]
        )
        rows = shown.rows()
        stories = distinct([row["story_id"] for row in rows])
        told, *_ = await session.read(
            [
                self.ask("stories_by_id", stories),
                self.ask("hidden_of_user", visit.user, stories),
                self.ask("users_by_id", distinct([row["user_id"] for row in rows])),
            ]
        )
        await self.named(session, told.column("user_id"))

    # --- one thing -----------------------------------------------------------------------------------------------

    async def story(self, session: Session, visit: Visit) -> None:
        user = visit.user
        (found,) = await self.first(session, visit, self.ask("story_by_short_id", words.story_short_id(visit.story)))
        row = only(found, "story")
        story = row["id"]
        ribbon, comments, taggings, *_ = await session.read(
            [
                self.ask("read_ribbon", user, story),
                self.ask("story_comments", story),
                self.ask("taggings_of_stories", [story]),
                self.ask("users_by_id", [row["user_id"]]),
                self.ask("merged_stories", story),
                self.ask("comment_votes_on_story", user, story),
                self.ask("story_votes_of_user", user, [story]),
                self.ask("hidden_of_user", user, [story]),
                self.ask("saved_of_user", user, [story]),
            ]
        )
        await self.named(session, comments.column("user_id"), taggings.column("tag_id"))
        await follow(session, user, story, visit.now, known=bool(ribbon.rows()))

    async def user(self, session: Session, visit: Visit) -> None:
        # Whose page it is: the author of the story that the visit would read, so that it is seldom one's own.
        (found,) = await self.first(session, visit, self.ask("user_by_name", words.username(visit.user)))
        user = only(found, "user")["id"]
        _, favourite, _ = await session.read(
            [self.ask("stats_of_user", user), self.ask("favourite_tag", user), self.ask("hats_of_user", user)]
        )
        await self.named(session, (), favourite.column("tag_id"))

    # --- what writes ---------------------------------------------------------------------------------------------

    async def story_upvote(self, session: Session, visit: Visit) -> None:
        await self.vote_on_story(session, visit, 1)

    async def story_downvote(self, session: Session, visit: Visit) -> None:
        await self.vote_on_story(session, visit, -1)

    async def vote_on_story(self, session: Session, visit: Visit, vote: int) -> None:
        (found,) = await self.first(session, visit, self.ask("story_by_short_id", words.story_short_id(visit.story)))
        story = only(found, "story")["id"]
        (cast,) = await session.read([self.ask("story_votes_of_user", visit.user, [story])])
        await session.write([voted(cast.rows(), vote, visit.user, story, None)])

    async def comment_upvote(self, session: Session, visit: Visit) -> None:
        await self.vote_on_comment(session, visit, 1)

    async def comment_downvote(self, session: Session, visit: Visit) -> None:
        await self.vote_on_comment(session, visit, -1)

    async def vote_on_comment(self, session: Session, visit: Visit, vote: int) -> None:
        name = words.comment_short_id(visit.comment)
        (found,) = await self.first(session, visit, self.ask("comment_by_short_id", name))
        row = only(found, "comment")
        (cast,) = await session.read([self.ask("comment_votes_of_user", visit.user, [row["id"]])])
        await session.write([voted(cast.rows(), vote, visit.user, row["story_id"], row["id"])])

    async def comment(self, session: Session, visit: Visit) -> None:
        (found,) = await self.first(session, visit, self.ask("story_by_short_id", words.story_short_id(visit.story)))
        row = only(found, "story")
        await self._post(session, visit, row["id"], row["user_id"], None)

    async def reply(self, session: Session, visit: Visit) -> None:
        name = words.comment_short_id(visit.comment)
        (found,) = await self.first(session, visit, self.ask("comment_by_short_id", name))
        parent = only(found, "comment")
        await self._post(session, visit, parent["story_id"], parent["user_id"], parent)

    async def _post(
        self, session: Session, visit: Visit, story: int, head: int, parent: Mapping[str, Any] | None
    ) -> None:
        # Whether the name is free, as the site asks before it uses one; who is answered; what was read last.
        name = words.comment_short_id(visit.fresh)
        await session.read(
            [
                self.ask("comment_by_short_id", name),
                self.ask("users_by_id", [head]),
                self.ask("comment_votes_of_user", visit.user, [visit.fresh]),
                self.ask("read_ribbon", visit.user, story),
            ]
        )
        await session.write(
            [
                new_comment(visit, story, parent),
                voted([], 1, visit.user, story, visit.fresh),
            ]
        )

    async def submit(self, session: Session, visit: Visit) -> None:
        tag = words.TAGS[visit.fresh % len(words.TAGS)][0]
        name, url = words.story_short_id(visit.fresh), f"https://submitted.example.com/{visit.fresh}"
        tags, *_ = await self.first(
            session,
            visit,
            self.ask("tags_by_name", [tag]),
            self.ask("stories_by_url", url),
            self.ask("story_by_short_id", name),
        )
        await session.write(
            [
                Insert("stories", [new_story(visit, name, url)]),
                Insert("taggings", [{"story_id": visit.fresh, "tag_id": only(tags, "tag")["id"]}]),
                voted([], 1, visit.user, visit.fresh, None),
            ]
        )

    async def login(self, session: Session, visit: Visit) -> None:
        (found,) = await self.first(session, visit, self.ask("user_by_name", words.username(visit.user)))
        token = f"session-{visit.user}-{visit.fresh}"
        await session.write([Update("users", {"id": only(found, "user")["id"]}, {"session_token": token})])

    async def logout(self, session: Session, visit: Visit) -> None:
        await session.read(self.every(visit.user))


# --- rows ------------------------------------------------------------------------------------------------------------


async def follow(session: Session, user: int, story: int, now: str, *, known: bool) -> None:
    """The one write of a Story page: when the user has last read it."""
    update = Update("read_ribbons", {"user_id": user, "story_id": story}, {"updated_at": now})
    if not known:
        ribbon = {"user_id": user, "story_id": story, "is_following": 1, "created_at": now, "updated_at": now}
        try:
            await session.write([Insert("read_ribbons", [ribbon])])
        except Conflict:  # another page of the same user was faster
            await session.write([update])
        return
    await session.write([update])


def voted(cast: Sequence[Mapping[str, Any]], vote: int, user: int, story: int, comment: int | None) -> Insert | Update:
    """The vote as a row, or as a change of the one that was cast before."""
    reason = None if vote > 0 else "O"
    if cast:
        about = {"user_id": user, "story_id": story, "comment_id": comment}
        return Update("votes", {"id": cast[0]["id"]}, {"vote": vote, "reason": reason}, about=about)
    row = {"user_id": user, "story_id": story, "comment_id": comment, "vote": vote, "reason": reason}
    return Insert("votes", [row])


def new_comment(visit: Visit, story: int, parent: Mapping[str, Any] | None) -> Insert:
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
    return Insert("comments", [row])


def new_story(visit: Visit, name: str, url: str) -> dict[str, Any]:
    return {
        "id": visit.fresh,
        "created_at": visit.now,
        "user_id": visit.user,
        "url": url,
        "title": f"Submitted in a load run: {visit.fresh}",
        "description": "",
        "short_id": name,
        "markeddown_description": "",
    }


def only(answer: Answer, what: str) -> dict[str, Any]:
    """The row that a page cannot be made without."""
    rows = answer.rows()
    if not rows:
        raise RequestFailed(f"the {what} is not there")
    return rows[0]


def distinct(values: Sequence[Any]) -> list[Any]:
    return list(dict.fromkeys(values))
