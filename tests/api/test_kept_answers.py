"""Answers that are given out again are those that reading anew would give, whatever happens in between."""

from __future__ import annotations

import json
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.lookups.lookups import LookupCalls, ManyLookups, parse_lookups, parse_piece
from api.lookups.response_cache import ANSWER_MAX, OVERHEAD, Kept, ResponseCache, pieces_of
from controller.embedded.local import LocalDeployment
from domains.errors import BadRequest, NotFound

SCHEMA = """
CREATE TABLE stories (id BIGINT NOT NULL PRIMARY KEY, author BIGINT NOT NULL, title TEXT);
CREATE TABLE votes (story_id BIGINT NOT NULL, user_id BIGINT NOT NULL, PRIMARY KEY (story_id, user_id));
CREATE VIEW StoriesWithVC AS SELECT s.id AS id, s.title AS title, COUNT(v.user_id) AS vcount
  FROM stories s LEFT JOIN votes v ON v.story_id = s.id WHERE s.id IN (?) GROUP BY s.id, s.title;
CREATE VIEW VotesOfUser AS SELECT user_id, story_id FROM votes WHERE user_id = ? AND story_id IN (?);
CREATE VIEW MarksOfUser AS SELECT /*+ PARTIAL_BY(user_id) */ user_id, story_id FROM votes
  WHERE user_id = ? AND story_id = ?;
CREATE VIEW StoryById AS SELECT id, title FROM stories WHERE id = ?;
CREATE VIEW OfAuthor AS SELECT id, title FROM stories WHERE author = ? ORDER BY title;
CREATE VIEW ByTitle AS SELECT id, title FROM stories WHERE title = ?;
CREATE VIEW Newest AS SELECT id, title FROM stories ORDER BY id DESC LIMIT 3
"""
TITLES = ["one", "},{", '"}]},{"view":"ByTitle"', "två"]
texts = st.sampled_from([*TITLES, "", "},{", "}, {", '{"lookups":[{'])
keys = st.lists(st.one_of(st.integers(0, 9), texts, st.lists(st.integers(0, 9), max_size=3)), max_size=3)
lookups_of = st.lists(st.fixed_dictionaries({"view": texts, "keys": st.lists(keys, max_size=2)}), max_size=4)


@given(lookups_of, st.booleans())
def test_pieces_that_are_look_ups_are_those_of_the_body(wanted: list[dict[str, Any]], spaced: bool) -> None:
    body = json.dumps({"lookups": wanted}, separators=None if spaced else (",", ":")).encode()
    pieces = pieces_of(body)
    if pieces is None:
        assert not wanted
        return
    try:
        parsed = [parse_piece(piece) for piece in pieces]
    except BadRequest:  # a string holds what stands between two: then the body is parsed as a whole
        assert any("},{" in text or "}, {" in text for text in map(str, wanted))
        return
    assert parsed == parse_lookups(body)


@given(st.binary(max_size=60))
def test_pieces_of_anything_mean_what_the_whole_means(noise: bytes) -> None:
    body = b'{"lookups":[{"view":"v","keys":[' + noise + b"]}]}"
    try:
        parsed = [parse_piece(piece) for piece in pieces_of(body) or ()]
    except BadRequest:
        return
    assert parsed == parse_lookups(body)


def test_what_is_used_outlives_what_is_not_and_all_of_it_is_bounded() -> None:
    answer = b"x" * 1000
    room = 2 * 20 * (len(answer) + OVERHEAD)
    answers = ResponseCache(room)
    for number in range(200):
        answers.keep(b"%d" % number, Kept(None, b"", 1, answer))  # type: ignore[arg-type]
        assert answers.get(b"0") is not None
        assert len(answers) <= 40
    assert answers.get(b"100") is None
    answers.keep(b"large", Kept(None, b"", 1, b"x" * (ANSWER_MAX + 1)))  # type: ignore[arg-type]
    assert answers.get(b"large") is None


@pytest.fixture(params=[1, 3], ids=["one", "sharded"])
async def local(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[LocalDeployment]:
    opened = await LocalDeployment.open(
        tmp_path / "data", memory_limit=64_000_000, domains=2, shards=request.param, read_timeout=60
    )
    await opened.execute(SCHEMA)
    yield opened
    await opened.close()


def asking(*wanted: tuple[str, list[Any]]) -> bytes:
    asked = [{"view": view, "keys": keys} for view, keys in wanted]
    return json.dumps({"lookups": asked}, separators=(",", ":"), ensure_ascii=False).encode()


async def answer(lookups: ManyLookups, body: bytes) -> bytes:
    asked = lookups.ask(body, None)
    return (await lookups.finish(asked, None))[0] if asked.late else asked.body()


@pytest.mark.parametrize("seed", range(4))
async def test_kept_answers_are_those_of_now(local: LocalDeployment, seed: int) -> None:
    draw = random.Random(seed)
    lookups = LookupCalls(local).many
    again = 0
    for _ in range(250):
        match draw.randrange(10):
            case 0:
                row = {"id": draw.randrange(12), "author": draw.randrange(3), "title": draw.choice(TITLES)}
                await local.execute("REPLACE INTO stories (id, author, title) VALUES (?, ?, ?)", list(row.values()))
            case 1:
                vote = [draw.randrange(12), draw.randrange(3)]
                await local.execute("INSERT IGNORE INTO votes (story_id, user_id) VALUES (?, ?)", vote)
            case 2:
                await local.execute("DELETE FROM votes WHERE story_id = ?", [draw.randrange(12)])
            case 3:
                await local.evict("VotesOfUser", [[draw.randrange(3), list(range(draw.randrange(1, 12)))]])
                await local.evict("StoriesWithVC", [[[draw.randrange(12)]]])
                await local.evict("MarksOfUser", [[draw.randrange(3), 1]])
            case _:
                body = asking(
                    ("StoriesWithVC", [[list(range(draw.randrange(1, 5)))], [[draw.randrange(12)]]]),
                    ("VotesOfUser", [[draw.randrange(3), [1, 2, 3]]]),
                    ("MarksOfUser", [[draw.randrange(3), draw.choice((draw.randrange(12), [draw.randrange(12)]))]]),
                    ("StoryById", [[draw.choice((draw.randrange(14), [draw.randrange(14)]))]]),
                    ("OfAuthor", [[draw.randrange(3)]]),
                    ("ByTitle", [[draw.choice(TITLES)]]),
                    ("Newest", [[]]),
                )
                found = await answer(lookups, body)
                hits, misses = local.counted()
                again += found == lookups.ask(body, None).body()
                assert local.counted() == (hits + 8, misses), "each look-up is counted once"
                wanted = [(each["view"], each["keys"]) for each in json.loads(body)["lookups"]]
                anew = [await local.pages(view, keys) for view, keys in wanted]
                assert json.loads(found)["results"] == [
                    [json.loads(b"[" + page + b"]") for page in pages] for pages in anew
                ]
    assert again > 50
    assert len(lookups._kept) > 10


async def test_a_view_that_was_made_anew_is_asked_anew(local: LocalDeployment) -> None:
    lookups = LookupCalls(local).many
    body = asking(("ByTitle", [["one"]]))
    await local.execute("INSERT INTO stories (id, author, title) VALUES (1, 2, 'one')")
    for _ in range(2):
        assert await answer(lookups, body) == b'{"results":[[[{"id":1,"title":"one"}]]]}'
    assert len(lookups._kept) == 1
    await local.execute("DROP VIEW ByTitle; CREATE VIEW ByTitle AS SELECT author FROM stories WHERE title = ?")
    assert await answer(lookups, body) == b'{"results":[[[{"author":2}]]]}'
    await local.execute("DROP VIEW ByTitle")
    with pytest.raises(NotFound):
        await answer(lookups, body)


async def test_what_is_kept_still_tells_of_its_keys(local: LocalDeployment, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Any] = []
    lookups = LookupCalls(local).many
    await local.execute("INSERT INTO stories (id, author, title) VALUES (1, 2, 'one'), (2, 2, 'two')")
    body = asking(("StoriesWithVC", [[[1, 2]]]))
    await answer(lookups, body)
    view = local.prepare("StoriesWithVC")
    monkeypatch.setattr(view, "_sample", told.extend)
    for _ in range(3):  # the first is read, the second is kept, and tells since there was a miss; the third need not
        await answer(lookups, body)
    assert told.count((1,)) == told.count((2,)) > 0
    before = len(told)
    for _ in range(200):
        await answer(lookups, body)
    assert 2 * 2 <= len(told) - before <= 2 * 8, "one in sixty-four"


@pytest.mark.parametrize("local", [1], indirect=True)
async def test_an_answer_stands_while_its_own_keys_do(local: LocalDeployment, monkeypatch: pytest.MonkeyPatch) -> None:
    lookups = LookupCalls(local).many
    await local.execute("INSERT INTO votes (story_id, user_id) VALUES (1, 1), (2, 1), (1, 2)")
    body = asking(("VotesOfUser", [[1, [1, 2, 3]]]))
    expected = await answer(lookups, body)
    kept = lookups.ask(body, None).body()
    read: list[bytes] = []
    monkeypatch.setattr(lookups, "_read_keys", lambda place, piece, *others: read.append(piece))
    await local.execute("INSERT INTO votes (story_id, user_id) VALUES (3, 2)")
    await answer(LookupCalls(local).many, asking(("VotesOfUser", [[2, [1]]])))
    assert lookups.ask(body, None).body() == kept == expected
    assert not read, "another key's rows and another key's fill"
    await local.execute("INSERT INTO votes (story_id, user_id) VALUES (3, 1)")
    lookups.ask(body, None)
    assert len(read) == 1
