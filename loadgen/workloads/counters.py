"""The pages with hand-optimised queries: the application keeps the counters that it reads.

Reads are the natural pages' (``hand_optimised.sql`` has their other texts). Whoever votes, comments or submits reads
what the counters depend on, computes them, and writes them in the same transaction::

    StoryVote    story, vote, tags' modifiers, comments' points, merged score ─► vote, karma, story's votes and hotness
    CommentVote  the same of the comment's story                              ─► and the comment's own votes

Two that vote at the same moment may each compute a hotness without the other's vote, and a vote on a story that was
merged does not heat the one that it was merged into: the next vote there mends it. Votes and karma are added to, so
those are exact.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from loadgen.peers.store import Answer, Change, InsertRow, PeerSession, UpdateRow, all_of, first
from loadgen.workloads.pages import NaturalPages, PageReading, new_comment, new_story, only, voted
from loadgen.workloads.visits import Visit
from lobsters import words

HOTNESS_WINDOW = 7.92e4
"""Seconds of age that ten times the points make up for: 22 hours."""
PARTS = 3
"""Look-ups that a story's hotness is computed from."""


class HandOptimisedPages(NaturalPages):
    """All pages, with counters."""

    async def vote_on_story(self, session: PeerSession, visit: Visit, vote: int) -> None:
        page = self.reading(visit)
        found = page.ask("story_by_short_id", words.story_short_id(visit.story))
        cast = page.ask("story_votes_of_user", visit.user, all_of(found, "id"))
        self._ask_hotness(page, found, "id")
        answers = await session.read(page.lookups)
        story, parts = only(answers[found], "story"), answers[-PARTS:]
        before = answers[cast].rows()
        up, down = _change(before, vote)
        if not (up or down):
            return  # the same vote again
        hotness = _hotness(story, up - down, 0, parts)
        changes: list[Change] = [
            voted(before, vote, visit.user, story["id"], None),
            UpdateRow("users", {"id": story["user_id"]}, add={"karma": up - down}),
            UpdateRow("stories", {"id": story["id"]}, {"hotness": hotness}, {"upvotes": up, "downvotes": down}),
        ]
        await session.write(changes)

    async def vote_on_comment(self, session: PeerSession, visit: Visit, vote: int) -> None:
        page = self.reading(visit)
        found = page.ask("comment_by_short_id", words.comment_short_id(visit.comment))
        cast = page.ask("comment_votes_of_user", visit.user, all_of(found, "id"))
        of_story = page.ask("story_by_id", first(found, "story_id"))
        self._ask_hotness(page, found, "story_id")
        answers = await session.read(page.lookups)
        comment, story, parts = only(answers[found], "comment"), only(answers[of_story], "story"), answers[-PARTS:]
        before = answers[cast].rows()
        up, down = _change(before, vote)
        if not (up or down):
            return
        heats = up - down if comment["user_id"] != story["user_id"] else 0
        changes: list[Change] = [
            voted(before, vote, visit.user, comment["story_id"], comment["id"]),
            UpdateRow("users", {"id": comment["user_id"]}, add={"karma": up - down}),
            UpdateRow(
                "comments",
                {"id": comment["id"]},
                add={"upvotes": up, "downvotes": down},
                about={"story_id": comment["story_id"]},
            ),
            UpdateRow("stories", {"id": story["id"]}, {"hotness": _hotness(story, 0, heats, parts)}),
        ]
        await session.write(changes)

    def _ask_to_post(self, page: PageReading, visit: Visit, head: int, story: str) -> None:
        # The comment's own vote heats its story, so its posting reads what a vote on it would.
        super()._ask_to_post(page, visit, head, story)
        page.ask("story_by_id", first(head, story))
        self._ask_hotness(page, head, story)

    async def _post(
        self,
        session: PeerSession,
        visit: Visit,
        answers: Sequence[Answer],
        story: int,
        head: int,
        parent: Mapping[str, Any] | None,
    ) -> None:
        of_story, *parts = answers[-1 - PARTS :]
        row = only(of_story, "story")
        heats = 1 if visit.user != row["user_id"] else 0
        posted = new_comment(visit, story, parent)
        with_counters = InsertRow("comments", [{**each, "upvotes": 1} for each in posted.rows], {"answered": head})
        changes: list[Change] = [
            with_counters,
            voted([], 1, visit.user, story, visit.fresh),
            UpdateRow("users", {"id": visit.user}, add={"comments_count": 1, "karma": 1}),
            UpdateRow("stories", {"id": story}, {"hotness": _hotness(row, 0, heats, parts)}, {"comments_count": 1}),
        ]
        await session.write(changes)

    async def submit(self, session: PeerSession, visit: Visit) -> None:
        page, story = self.reading(visit), {**new_story(visit), "upvotes": 0, "downvotes": 0}
        tags = self._ask_to_submit(page, visit, story)
        modifiers = page.ask("tags_by_id", all_of(tags, "id"))
        answers = await session.read(page.lookups)
        number = only(answers[tags], "tag")["id"]
        base = float(only(answers[modifiers], "tag")["hotness_mod"])
        counters = {"upvotes": 1, "hotness": hotness_of(base, 1.0, 0.0, story["created_at"])}
        changes: list[Change] = [
            InsertRow("stories", [{**story, **counters}]),
            InsertRow("taggings", [{"story_id": visit.fresh, "tag_id": number}]),
            voted([], 1, visit.user, visit.fresh, None),
            UpdateRow("users", {"id": visit.user}, add={"stories_count": 1, "karma": 1}),
        ]
        await session.write(changes)

    def _ask_hotness(self, page: PageReading, head: int, story: str) -> None:
        """The sums of a story's hotness: the last :data:`PARTS` look-ups of a page."""
        page.ask("tag_hotness_of_story", first(head, story))
        page.ask("comment_points_of_story", first(head, story))
        page.ask("score_merged_into_story", first(head, story))


def _change(before: Sequence[Mapping[str, Any]], vote: int) -> tuple[int, int]:
    """The change of upvotes and downvotes by a vote, after the one that was cast before."""
    earlier = before[0]["vote"] if before else 0
    return (vote == 1) - (earlier == 1), (vote == -1) - (earlier == -1)


def _hotness(story: Mapping[str, Any], added: int, heated: int, parts: Sequence[Answer]) -> float:
    """After ``added`` points of the story's own and ``heated`` of its comments."""
    base, points, merged = (_sum(part, name) for part, name in zip(parts, ("base", "points", "score"), strict=True))
    score = story["upvotes"] - story["downvotes"] + added + merged
    return hotness_of(base, score, points + heated, story["created_at"])


def _sum(answer: Answer, name: str) -> float:
    return float(sum(float(value or 0) for value in answer.column(name)))


def hotness_of(base: float, score: float, points: float, created_at: Any) -> float:
    """The natural program's formula (``story_hotness``)."""
    sign = (score > 0) - (score < 0)
    order = math.log10(max(abs(score + 1) + points, 1)) * sign
    return round(-(base + order + _seconds(created_at) / HOTNESS_WINDOW), 7)


def _seconds(created_at: Any) -> float:
    """Since 1970; a driver gives a datetime, JSON a text."""
    moment = created_at if isinstance(created_at, datetime) else datetime.fromisoformat(str(created_at))
    return moment.replace(tzinfo=UTC).timestamp()
