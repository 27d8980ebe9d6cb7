"""Who asks for what: the mix, the popularity, and which queries each page makes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest
from load_targets import Recorder, values_of

from loadgen.peers.opening import NullAnswer, NullSession
from loadgen.peers.store import Conflict, InsertRow, Lookup, RequestFailed, UpdateRow
from loadgen.workloads.lobsters import VARIANTS, LobstersWorkload, natural, rate_of, whole_pages
from loadgen.workloads.pages import NaturalPages, follow, voted
from loadgen.workloads.visits import FIRST_FREE, MAKING, MIX, Visit, Visits
from loadgen.workloads.whole import WholePages, votes_among
from lobsters.data import Data
from lobsters.words import story_short_id

SCALE = 0.02
VISIT = Visit("Story", user=3, story=5, comment=9, fresh=FIRST_FREE + 1, now="2018-04-20 00:00:01")

EVERY = ["user_by_id", "notifications_of_user", "keystore_value"]
LISTED = [
    "tag_filters_of_user",
    "listed_stories",
    "taggings_of_stories",
    "suggested_titles_of_stories",
    "suggested_taggings_of_stories",
    "story_votes_of_user",
    "hidden_of_user",
    "saved_of_user",
    "users_by_id",
    "tags_by_id",
]
STORY = [
    "story_by_short_id",
    "read_ribbon",
    "story_comments",
    "taggings_of_stories",
    "users_by_id",
    "merged_stories",
    "comment_votes_on_story",
    "story_votes_of_user",
    "hidden_of_user",
    "saved_of_user",
    "users_by_id",
    "tags_by_id",
]
ASKED = {
    "Frontpage": (["frontpage_ids", *LISTED], 0),
    "Recent": (["recent_ids", *LISTED], 0),
    "Story": (STORY, 1),
    "Comments": (
        [
            "newest_comment_ids",
            "comments_by_id",
            "comment_votes_of_user",
            "stories_by_id",
            "hidden_of_user",
            "users_by_id",
            "users_by_id",
        ],
        0,
    ),
    "User": (["user_by_name", "stats_of_user", "favourite_tag", "hats_of_user", "tags_by_id"], 0),
    "StoryUpvote": (["story_by_short_id", "story_votes_of_user"], 1),
    "StoryDownvote": (["story_by_short_id", "story_votes_of_user"], 1),
    "CommentUpvote": (["comment_by_short_id", "comment_votes_of_user"], 1),
    "CommentDownvote": (["comment_by_short_id", "comment_votes_of_user"], 1),
    "Comment": (
        ["story_by_short_id", "comment_by_short_id", "users_by_id", "comment_votes_of_user", "read_ribbon"],
        2,
    ),
    "Reply": (
        ["comment_by_short_id", "comment_by_short_id", "users_by_id", "comment_votes_of_user", "read_ribbon"],
        2,
    ),
    "Submit": (["tags_by_name", "stories_by_url", "story_by_short_id"], 3),
    "Login": (["user_by_name"], 1),
    "Logout": ([], 0),
}
"""Queries beside those of every page, and changes: the table of docs/lobsters.md."""


def test_the_mix_is_the_published_one() -> None:
    assert sum(MIX.values()) == 100_000
    visits = Visits(Data(SCALE), seed=1, started=0)
    drawn = Counter(visits.draw(0.0).kind for _ in range(50_000))
    for kind, share in MIX.items():
        expected = share / 2
        assert abs(drawn[kind] - expected) <= 5 * expected**0.5 + 1, kind


def test_a_seed_decides_everything_but_what_is_made() -> None:
    def drawn(seed: int, started: float) -> list[tuple[object, ...]]:
        visits = Visits(Data(SCALE), seed, started)
        return [(v.kind, v.user, v.story, v.comment, v.now) for v in (visits.draw(i / 10) for i in range(200))]

    assert drawn(1, 0) == drawn(1, 1000)
    assert drawn(1, 0) != drawn(2, 0)
    first, second = Visits(Data(SCALE), 1, 1000.0).draw(0), Visits(Data(SCALE), 1, 1001.0).draw(0)
    assert FIRST_FREE <= first.fresh < second.fresh < 2**31


def test_what_is_made_has_numbers_that_no_other_run_uses() -> None:
    """A run of 5,000 pages a second has less of them than there are until the run that begins a second later."""
    visits = Visits(Data(SCALE), seed=1, started=1000.0)
    drawn = [visits.draw(0.0) for _ in range(5_000)]
    made = [visit.fresh for visit in drawn if visit.kind in MAKING]
    assert len(set(made)) == len(made) > 10
    later = Visits(Data(SCALE), 2, 1001.0)
    assert max(made) < min(later.draw(0.0).fresh for _ in range(5_000))


def test_what_many_vote_for_many_read() -> None:
    data = Data(SCALE)
    visits = Visits(data, seed=1, started=0)
    drawn = Counter(visits.draw(0).story for _ in range(50_000))
    voted_most = sorted(range(1, data.shape.stories + 1), key=lambda story: -data.story_votes[story - 1])
    tenth = len(voted_most) // 10
    share = sum(drawn[story] for story in voted_most[:tenth]) / 50_000
    votes = sum(data.story_votes[story - 1] for story in voted_most[:tenth]) / sum(data.story_votes)
    assert share == pytest.approx(votes, rel=0.05)


def test_the_scale_is_the_real_site_s_rate() -> None:
    assert rate_of(60) == pytest.approx(46)


@pytest.mark.parametrize("kind", MIX)
async def test_each_page_asks_and_writes_what_it_should(kind: str, recorder: Recorder) -> None:
    pages = NaturalPages(natural().queries)
    await pages.by_kind[kind](recorder, VISIT)
    queries, changes = ASKED[kind]
    assert Counter(recorder.asked()) == Counter([*EVERY, *queries])
    assert recorder.asked()[:3] == EVERY
    assert len(recorder.changes) == changes
    for lookup in (each for one in recorder.rounds for each in one):
        assert len(lookup.values) == len(lookup.query.lists)
        for value, is_list in zip(lookup.values, lookup.query.lists, strict=True):
            assert isinstance(value, list) == is_list, lookup


WHOLE = {
    "Frontpage": (["frontpage_ids", "story_in_list", "marks_of_reader"], 0),
    "Recent": (["recent_ids", "story_in_list", "marks_of_reader"], 0),
    "Story": (["story_page", "marks_of_reader"], 1),
    "Comments": (["newest_comment_ids", "comment_in_list", "marks_of_reader"], 0),
    "User": (["user_page"], 0),
    "StoryUpvote": (["story_page", "marks_of_reader"], 1),
    "StoryDownvote": (["story_page", "marks_of_reader"], 1),
    "CommentUpvote": (["comment_by_name", "marks_of_reader"], 1),
    "CommentDownvote": (["comment_by_name", "marks_of_reader"], 1),
    "Comment": (["story_page", "comment_by_name", "marks_of_reader"], 2),
    "Reply": (["comment_by_name", "comment_by_name", "marks_of_reader"], 2),
    "Submit": (["tags_by_name", "stories_by_url", "story_page"], 3),
    "Login": (["user_by_name"], 1),
    "Logout": ([], 0),
}
"""The same of the variant whose pages are one answer each."""


@pytest.mark.parametrize("kind", MIX)
async def test_each_whole_page_asks_and_writes_what_it_should(kind: str, recorder: Recorder) -> None:
    await WholePages(whole_pages().queries).by_kind[kind](recorder, VISIT)
    queries, changes = WHOLE[kind]
    assert Counter(recorder.asked()) == Counter(["reader_by_id", "keystore_value", *queries])
    assert len(recorder.changes) == changes


def test_a_vote_is_found_among_a_reader_s_marks() -> None:
    on_story, on_comment = ({"mark": "vote", "comment_id": comment, "id": 1} for comment in (None, 7))
    marks = [{"mark": "saved", "comment_id": None}, on_comment, on_story]
    assert (votes_among(marks, None), votes_among(marks, 7), votes_among(marks, 8)) == ([on_story], [on_comment], [])


async def test_a_story_is_asked_for_by_name(recorder: Recorder) -> None:
    await NaturalPages(natural().queries).story(recorder, VISIT)
    assert values_of(recorder.rounds[0], "story_by_short_id") == (story_short_id(VISIT.story),)
    assert values_of(recorder.rounds[0], "notifications_of_user") == (VISIT.user,)


async def test_a_story_that_is_not_there_is_a_failure() -> None:
    class Empty(NullSession):
        async def read(self, lookups: Sequence[Lookup]) -> list[NullAnswer]:
            return [NullAnswer([])] * len(lookups)

    with pytest.raises(RequestFailed, match="the story is not there"):
        await NaturalPages(natural().queries).story(Empty(), VISIT)


def test_a_second_vote_changes_the_first() -> None:
    assert isinstance(voted([], 1, 3, 5, None), InsertRow)
    again = voted([{"id": 44}], -1, 3, 5, None)
    about = {"user_id": 3, "story_id": 5, "comment_id": None}
    assert again == UpdateRow("votes", {"id": 44}, {"vote": -1, "reason": "O"}, about=about)


async def test_a_ribbon_that_another_page_was_faster_to_make_is_changed() -> None:
    class Contended(Recorder):
        async def write(self, changes: object) -> int:
            await super().write(changes)  # type: ignore[arg-type]
            if isinstance(self.changes[-1], InsertRow):
                raise Conflict("409")
            return 1

    session = Contended()
    await follow(session, 3, 5, VISIT.now, known=False)
    assert [type(each) for each in session.changes] == [InsertRow, UpdateRow]


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_variant_is_probed_by_a_query_of_its_own(variant: str) -> None:
    workload = LobstersWorkload(variant=variant, data_scale=SCALE)
    probe = workload.probe()
    assert workload.program.queries[probe.query.name] == probe.query


def test_a_workload_gives_the_rows_that_it_expects() -> None:
    workload = LobstersWorkload(data_scale=0.003)
    rows, total = workload.rows()
    assert sum(len(batch) for _, batch in rows) == total
    again, _ = workload.rows()
    assert next(again)
