"""Look-ups that refer to the answers of others in the same request: they mean what the values written out mean."""

from __future__ import annotations

import json
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from fake_deployment import FakeDeployment

from api.lookups.lookups import MAX_REFERRING, LookupCalls, ManyLookups
from api.lookups.references import Take, values_of
from api.lookups.response_cache import Kept
from controller.deployment import Deployment, ViewInfo
from controller.embedded.local import LocalDeployment
from controller.lookups.binding import KEYS_PER_LOOKUP
from domains.errors import LimitExceeded
from domains.language.types import BIGINT, DOUBLE, Column

MORE = """
CREATE VIEW OfAuthors AS SELECT author, id, title FROM stories WHERE author IN (?) ORDER BY id;
CREATE VIEW VotesOn AS SELECT story_id, user_id FROM votes WHERE story_id IN (?) ORDER BY story_id, user_id;
CREATE VIEW HasVoted AS SELECT story_id, user_id FROM votes WHERE story_id = ? AND user_id = ?;
CREATE VIEW HowMany AS SELECT COUNT(*) AS n FROM votes WHERE story_id = ?;
CREATE VIEW Newest AS SELECT id, author, title FROM stories ORDER BY id DESC LIMIT 3
"""
STORIES = [
    {"id": 1, "author": 5, "title": "one"},
    {"id": 2, "author": 6, "title": None},
    {"id": 3, "author": 5, "title": "one"},
]
VOTES = [{"story_id": 1, "user_id": 7}, {"story_id": 1, "user_id": 8}, {"story_id": 3, "user_id": 7}]

Asks = tuple[str, list[Any]]


@pytest.fixture
async def site(http: httpx.AsyncClient, deployment: Deployment) -> httpx.AsyncClient:
    if isinstance(deployment, FakeDeployment):
        pytest.skip("it binds no parameters")
    made = await http.post("/v1/sql", json={"sql": MORE})
    assert made.status_code == 200, made.text
    for table, rows in (("stories", STORIES), ("votes", VOTES)):
        written = await http.post(f"/v1/tables/{table}/rows", json={"rows": rows})
        http.headers["Headrace-Token"] = written.json()["token"]
    for view in ("Newest", "OfAuthors", "VotesOn"):  # the writes have arrived, whatever is asked without a token
        keys = [] if view == "Newest" else [[1]]
        assert (await http.post(f"/v1/views/{view}/lookup", json={"keys": [keys]})).status_code == 200
    return http


def body_of(wanted: list[Asks], spaced: bool = False) -> bytes:
    lookups = [{"view": view, "keys": keys} for view, keys in wanted]
    return json.dumps({"lookups": lookups}, separators=None if spaced else (",", ":")).encode()


async def ask(http: httpx.AsyncClient, *wanted: Asks) -> list[Any]:
    """What is answered in each way of asking: with a token, of holes, of what is there, of what is kept; as JSON has it
    with other spaces, too."""
    said = []
    with_token = await http.post("/v1/lookups", content=body_of(list(wanted)))
    without = {name: value for name, value in http.headers.items() if name != "headrace-token"}
    for spaced in (False, False, False, True):
        request = http.build_request("POST", "/v1/lookups", content=body_of(list(wanted), spaced))
        request.headers = httpx.Headers({**without, "content-length": request.headers["content-length"]})
        said.append(await http.send(request))
    assert {each.status_code for each in (with_token, *said)} == {200}, (with_token.text, said[0].text)
    assert {each.content for each in (with_token, *said)} == {with_token.content}
    results: list[Any] = with_token.json()["results"]
    return results


async def test_what_references_stand_for(site: httpx.AsyncClient, subtests: pytest.Subtests) -> None:
    of_authors = ("OfAuthors", [[[5, 6]]])  # stories 1, 2, 3 by 5, 6, 5
    nobody = ("OfAuthors", [[[99]]])
    one = {"story_id": 1, "user_id": 7}, {"story_id": 1, "user_id": 8}
    three = {"story_id": 3, "user_id": 7}
    cases: list[tuple[str, list[Asks], Any]] = [
        ("all of a list", [of_authors, ("VotesOn", [[{"all": [0, "id"]}]])], [[*one, three]]),
        ("by the column's name as SQL has it", [of_authors, ("VotesOn", [[{"all": [0, "ID"]}]])], [[*one, three]]),
        ("a key by name", [of_authors, ("VotesOn", [{"story_id": {"all": [0, "id"]}}])], [[*one, three]]),
        (
            "beside other keys",
            [of_authors, ("VotesOn", [[[3]], [{"first": [0, "id"]}], [1]])],
            [[three], [*one], [*one]],
        ),
        ("the first row", [of_authors, ("VotesOn", [[{"first": [0, "id"]}]])], [[*one]]),
        ("the rows of all keys", [("OfAuthors", [[6], [5]]), ("VotesOn", [[{"all": [0, "id"]}]])], [[*one, three]]),
        ("the first of all keys", [("OfAuthors", [[99], [5]]), ("VotesOn", [[{"first": [0, "id"]}]])], [[*one]]),
        ("each row a key", [of_authors, ("VotesOn", [[{"each": [0, "id"]}]])], [[*one], [], [three]]),
        ("each author once", [of_authors, ("OfAuthors", [[{"each": [0, "author"]}]])], "two"),
        (
            "two columns of one row",
            [("VotesOn", [[[1, 3]]]), ("HasVoted", [[{"each": [0, "story_id"]}, {"each": [0, "user_id"]}]])],
            [[one[0]], [one[1]], [three]],
        ),
        ("with a value beside", [of_authors, ("HasVoted", [[{"each": [0, "id"]}, 7]])], [[one[0]], [], [three]]),
        (
            "first with each",
            [of_authors, ("VotesOn", [[3]]), ("HasVoted", [[{"each": [0, "id"]}, {"first": [1, "user_id"]}]])],
            [[one[0]], [], [three]],
        ),
        ("nothing", [nobody, ("VotesOn", [[{"all": [0, "id"]}]])], [[]]),
        ("not even a first row", [nobody, ("VotesOn", [[{"first": [0, "id"]}]])], [[]]),
        ("no keys", [nobody, ("VotesOn", [[{"each": [0, "id"]}]])], []),
        ("an aggregate over nothing", [nobody, ("HowMany", [[{"first": [0, "id"]}]])], [[{"n": 0}]]),
        ("NULL is in no list", [of_authors, ("ByTitle", [[{"each": [0, "title"]}]])], "titles"),
        ("the first is NULL", [("OfAuthors", [[6]]), ("ByTitle", [[{"first": [0, "title"]}]])], [[]]),
        (
            "three after another",
            [of_authors, ("VotesOn", [[{"all": [0, "id"]}]]), ("OfAuthors", [[{"all": [1, "user_id"]}]]), nobody],
            None,
        ),
    ]
    expected = {
        "two": [
            [{"author": 5, "id": 1, "title": "one"}, {"author": 5, "id": 3, "title": "one"}],
            [{"author": 6, "id": 2, "title": None}],
        ],
        "titles": [[{"id": 1, "title": "one"}, {"id": 3, "title": "one"}]],
    }
    for name, wanted, said in cases:
        with subtests.test(name):
            results = await ask(site, *wanted)
            if said is None:
                assert results[1:] == [[[*one, three]], [[]], [[]]]
            elif said == "titles":
                assert sorted(results[-1][0], key=repr) == sorted(expected[said][0], key=repr)
            else:
                assert results[-1] == (expected[said] if isinstance(said, str) else said)


ALL, FIRST = {"all": [0, "id"]}, {"first": [0, "id"]}
OF_AUTHORS = ("OfAuthors", [[[5, 6]]])
NO_REFERENCES: list[tuple[list[Asks], int, str]] = [
    ([("VotesOn", [[ALL]])], 400, "lookups[0] refers to lookups[0], which does not come before it"),
    ([("VotesOn", [[{"all": [1, "id"]}]]), OF_AUTHORS], 400, "lookups[0] refers to lookups[1]"),
    ([OF_AUTHORS, ("VotesOn", [[{"all": [7, "id"]}]])], 400, "lookups[1] refers to lookups[7]"),
    ([OF_AUTHORS, ("VotesOn", [[{"all": [0, "idd"]}]])], 400, 'view "OfAuthors" has no column "idd"'),
    ([("OfAuthors", [[99]]), ("VotesOn", [[{"all": [0, "idd"]}]])], 400, 'view "OfAuthors" has no column "idd"'),
    ([OF_AUTHORS, ("StoriesWithVC", [[ALL]])], 400, '"all" is a list, and a parameter of view "StoriesWithVC"'),
    ([("OfAuthors", [[6]]), ("StoriesWithVC", [{"id": ALL}])], 400, '"all" is a list'),
    ([OF_AUTHORS, ("StoriesWithVC", [[FIRST, FIRST]])], 400, "has 1 values, not 2"),
    ([OF_AUTHORS, ("VotesOn", [{"story": FIRST}])], 400, 'has no parameter "story"'),
    ([OF_AUTHORS, ("VotesOn", [[{"some": [0, "id"]}]])], 400, "must be a reference"),
    ([OF_AUTHORS, ("VotesOn", [[{}]])], 400, "must be a reference"),
    ([OF_AUTHORS, ("VotesOn", [[{"all": [0, "id"], "first": [0, "id"]}]])], 400, "must be a reference"),
    ([OF_AUTHORS, ("VotesOn", [[{"all": ["0", "id"]}]])], 400, "must be a reference"),
    ([OF_AUTHORS, ("VotesOn", [[{"all": [-1, "id"]}]])], 400, "must be a reference"),
    ([OF_AUTHORS, ("VotesOn", [[{"all": [True, "id"]}]])], 400, "must be a reference"),
    (
        [OF_AUTHORS, OF_AUTHORS, ("HasVoted", [[{"each": [0, "id"]}, {"each": [1, "id"]}]])],
        400,
        "of the rows of one look-up, not of 2",
    ),
    ([OF_AUTHORS, ("VotesOn", [[FIRST], 7])], 400, "a key is a list or an object"),
    ([OF_AUTHORS, ("VotesO", [[ALL]])], 404, "VotesO"),
    ([("OfAuthor", [[5]]), ("VotesOn", [[ALL]])], 404, "OfAuthor"),
]


async def test_references_that_are_none(site: httpx.AsyncClient, subtests: pytest.Subtests) -> None:
    token = site.headers["headrace-token"]
    for wanted, status, said in NO_REFERENCES:
        for spaced in (False, True):
            for headers in ({"Headrace-Token": token}, {}):
                with subtests.test(said, spaced=spaced, token=bool(headers)):
                    answer = await site.post("/v1/lookups", content=body_of(wanted, spaced), headers=headers)
                    assert answer.status_code == status, answer.text
                    assert said in answer.json()["error"]["message"]


def test_numbers_beyond_64_bits_are_taken_as_they_are() -> None:
    columns = (Column("n", BIGINT), Column("x", DOUBLE))
    info = ViewInfo("v", "", columns, (), external=True, ad_hoc=False, materialization="partial")
    answer = b'[[{"n":99999999999999999999,"x":1.5},{"n":null,"x":2.5}],[{"n":7,"x":1.5}]]'
    assert values_of(Take("all", ("n",)), answer, info).given == [99999999999999999999, 7]
    assert values_of(Take("first", ("N",)), answer, info).text == b"99999999999999999999"
    assert values_of(Take("all", ("x",)), answer, info).given == [1.5, 2.5]
    assert values_of(Take("each", ("x", "n")), answer, info).given == [(1.5, 99999999999999999999), (1.5, 7)]


# --- a request with references is as good as its look-ups in rounds -------------------------------------------------

SCHEMA = """
CREATE TABLE stories (id BIGINT NOT NULL PRIMARY KEY, author BIGINT NOT NULL, title TEXT);
CREATE TABLE votes (story_id BIGINT NOT NULL, user_id BIGINT NOT NULL, PRIMARY KEY (story_id, user_id));
CREATE VIEW StoriesWithVC AS SELECT s.id AS id, s.title AS title, COUNT(v.user_id) AS vcount
  FROM stories s LEFT JOIN votes v ON v.story_id = s.id WHERE s.id = ? GROUP BY s.id, s.title;
CREATE VIEW ByTitle AS SELECT id, title FROM stories WHERE title = ?;
CREATE VIEW MarksOf AS SELECT /*+ PARTIAL_BY(user_id) */ user_id, story_id FROM votes
  WHERE user_id = ? AND story_id IN (?);
"""
COLUMNS = {
    "OfAuthors": ("author", "id", "title"),
    "VotesOn": ("story_id", "user_id"),
    "MarksOf": ("user_id", "story_id"),
    "HasVoted": ("story_id", "user_id"),
    "HowMany": ("n",),
    "Newest": ("id", "author", "title"),
    "StoriesWithVC": ("id", "title", "vcount"),
    "ByTitle": ("id", "title"),
}
LISTS = {
    "OfAuthors": (True,),
    "VotesOn": (True,),
    "MarksOf": (False, True),
    "HasVoted": (False, False),
    "HowMany": (False,),
    "Newest": (),
    "StoriesWithVC": (False,),
}


@pytest.fixture(params=[1, 3], ids=["one", "sharded"])
async def local(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[LocalDeployment]:
    opened = await LocalDeployment.open(
        tmp_path / "data", memory_limit=64_000_000, domains=2, shards=request.param, read_timeout=60
    )
    await opened.execute(SCHEMA + MORE)
    yield opened
    await opened.close()


def drawn(draw: random.Random, earlier: list[Asks]) -> Asks:
    """A look-up whose values are numbers, or references to numbers of those before."""
    view = draw.choice(list(LISTS))
    source = draw.randrange(len(earlier)) if earlier else None

    def value(is_list: bool) -> Any:
        kinds = ("first", "each", "all") if is_list else ("first", "each")
        if source is None or draw.random() < 0.3:
            return [draw.randrange(6) for _ in range(draw.randrange(1, 4))] if is_list else draw.randrange(6)
        kind = draw.choice(kinds)
        place = source if kind == "each" else draw.randrange(len(earlier))
        numbers = [name for name in COLUMNS[earlier[place][0]] if name != "title"]
        return {kind: [place, draw.choice(numbers)]}

    return view, [[value(is_list) for is_list in LISTS[view]] for _ in range(draw.randrange(1, 3))]


def in_words(key: list[Any], results: list[list[list[dict[str, Any]]]]) -> list[list[Any]]:
    """The keys that a key with references stands for, as ``docs/http.md`` defines it."""

    def rows_of(place: int) -> list[dict[str, Any]]:
        return [row for page in results[place] for row in page]

    eaches = [value["each"] for value in key if isinstance(value, dict) and "each" in value]
    made: list[list[Any]] = []
    for row in rows_of(eaches[0][0]) if eaches else [{}]:
        one: list[Any] = []
        for value in key:
            match value:
                case {"first": [place, column]}:
                    one.append(rows_of(place)[0][column] if rows_of(place) else None)
                case {"all": [place, column]}:
                    found = [each[column] for each in rows_of(place) if each[column] is not None]
                    one.append(sorted(set(found), key=found.index) or None)
                case {"each": [_, column]}:
                    one.append(row[column])
                case _:
                    one.append(value)
        if one not in made:
            made.append(one)
    return made


@pytest.mark.parametrize("seed", range(4))
async def test_a_request_with_references_says_what_rounds_say(local: LocalDeployment, seed: int) -> None:
    draw = random.Random(seed)
    lookups = LookupCalls(local).many
    asked_again = 0
    bodies: list[list[Asks]] = []
    for _ in range(150):
        match draw.randrange(8):
            case 0:
                row = [draw.randrange(6), draw.randrange(6), draw.choice(["one", "two", None])]
                await local.execute("REPLACE INTO stories (id, author, title) VALUES (?, ?, ?)", row)
            case 1 | 2:
                vote = [draw.randrange(6), draw.randrange(6)]
                await local.execute("INSERT IGNORE INTO votes (story_id, user_id) VALUES (?, ?)", vote)
            case 3:
                await local.execute("DELETE FROM votes WHERE story_id = ?", [draw.randrange(6)])
            case 4:
                await local.evict("VotesOn", [[list(range(draw.randrange(1, 6)))]])
                await local.evict("OfAuthors", [[[draw.randrange(6)]]])
                await local.evict("MarksOf", [[draw.randrange(6), 1]])
            case _:
                if bodies and draw.random() < 0.5:
                    wanted = draw.choice(bodies)
                else:
                    wanted = []
                    for _ in range(draw.randrange(2, 7)):
                        wanted.append(drawn(draw, wanted))
                    bodies.append(wanted)
                body = body_of(wanted, spaced=draw.random() < 0.2)
                asked = lookups.ask(body, None)
                asked_again += not asked.late
                found = json.loads((await lookups.finish(asked, None))[0])["results"]
                results: list[Any] = []
                for view, keys in wanted:
                    plain = [each for key in keys for each in in_words(key, results)]
                    pages = await local.pages(view, plain)
                    results.append([json.loads(b"[" + page + b"]") for page in pages])
                    assert found[len(results) - 1] == results[-1], (seed, wanted, len(results) - 1)
    assert asked_again > 8


async def answer(lookups: ManyLookups, body: bytes) -> bytes:
    return (await lookups.finish(lookups.ask(body, None), None))[0]


async def test_what_was_taken_from_an_answer_goes_with_it(local: LocalDeployment) -> None:
    await local.execute("INSERT INTO stories (id, author, title) VALUES (1, 5, 'one'), (2, 5, 'two')")
    await local.execute("INSERT INTO votes (story_id, user_id) VALUES (1, 7), (2, 7), (2, 8)")
    lookups = LookupCalls(local).many
    body = body_of([("OfAuthors", [[[5]]]), ("VotesOn", [[{"all": [0, "id"]}]])])

    async def votes() -> int:
        return len(json.loads(await answer(lookups, body))["results"][1][0])

    assert [await votes() for _ in range(3)] == [3, 3, 3]
    source = lookups.ask(body, None).sources[0]
    assert isinstance(source, Kept)
    assert [values.given for values in source.values.values()] == [[1, 2]]
    assert lookups.ask(body, None).sources[1] is lookups.ask(body, None).sources[1], "it is kept, too"
    await local.execute("UPDATE stories SET author = 6 WHERE id = 2")
    assert await votes() == 1
    await local.execute("INSERT INTO votes (story_id, user_id) VALUES (1, 9)")
    assert await votes() == 2


@pytest.mark.parametrize("local", [1], indirect=True)
async def test_pieces_with_references_do_not_fill_the_memory(local: LocalDeployment) -> None:
    lookups = LookupCalls(local).many
    for user in range(MAX_REFERRING + 10):
        lookups.ask(body_of([("Newest", [[]]), ("MarksOf", [[user, {"all": [0, "id"]}]])]), None)
        if user == 2:
            await answer(lookups, body_of([("Newest", [[]])]))
    assert 0 < len(lookups._referring) <= MAX_REFERRING


@pytest.mark.parametrize("local", [1], indirect=True)
async def test_no_more_keys_than_a_look_up_may_name(local: LocalDeployment) -> None:
    await local.execute("CREATE VIEW Everyone AS SELECT id FROM stories")
    await local.insert("stories", [{"id": id, "author": 1} for id in range(KEYS_PER_LOOKUP + 1)])
    for kind in ("all", "each"):
        with pytest.raises(LimitExceeded, match=f"more than {KEYS_PER_LOOKUP} keys|{KEYS_PER_LOOKUP} are allowed"):
            await answer(LookupCalls(local).many, body_of([("Everyone", [[]]), ("VotesOn", [[{kind: [0, "id"]}]])]))


@pytest.mark.parametrize("local", [1], indirect=True)
async def test_references_are_counted_before_they_are_read(local: LocalDeployment) -> None:
    body = body_of([("Everyone", [[]]), ("VotesOn", [[{"first": [0, "id"]}]] * 1_001)])
    with pytest.raises(LimitExceeded, match="more than 1000 references"):
        await answer(LookupCalls(local).many, body)
