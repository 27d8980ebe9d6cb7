"""A view that is partial by some of its parameters: what is a hole, what an answer, and what an eviction takes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from api.encoding import parse
from controller.embedded.local import LocalDeployment
from controller.statements import shapes
from domains.operators.edges import ReaderOperator

MARKS = [(user, story, (user * story) % 7) for user in (1, 2, 3) for story in range(user * 3)]
VIEWS = {
    "listed": "SELECT {hint} user, story, weight FROM marks WHERE user = ? AND story IN (?)",
    "one": "SELECT {hint} story, weight FROM marks WHERE story = ? AND user = ?",
    "ranged": "SELECT {hint} story FROM marks WHERE user = ? AND weight IN (?) AND story >= ? ORDER BY story DESC",
    "counted": "SELECT {hint} COUNT(*) AS n FROM marks WHERE user = ? AND weight = ?",
    "limited": "SELECT {hint} story FROM marks WHERE user IN (?) AND weight IN (?) ORDER BY story, user LIMIT 3",
    "topmost": "SELECT {hint} story FROM marks WHERE user = ? AND weight = ? ORDER BY story DESC LIMIT 2",
}
HINT = "/*+ PARTIAL_BY(user) */"
KEYS: dict[str, list[Any]] = {
    "listed": [[1, [0, 1, 2, 99]], [3, list(range(20))], [3, [8, 2]], [9, [1]], [2, []], [2, [None]], [2, [4]]],
    "one": [[2, 1], [99, 1], [5, 2], [5, 1], [None, 1], ["5", 2]],
    "ranged": [[3, [0, 3, 6], 1], [3, [6, 1.5], 7], [2, [0], 0], [1, [5], 0]],
    "counted": [[3, 0], [3, 99], [7, 1]],
    "limited": [[[1, 2, 3], [0, 1, 2]], [[3], [3, 6]], [[8, 9], [1]]],
    "topmost": [[3, 0], [2, 4], [2, 99]],
}


@pytest.fixture(params=["one", "sharded", "spread"])
async def deployment(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[LocalDeployment]:
    shards, domains = {"one": (1, 1), "sharded": (3, 1), "spread": (1, 3)}[request.param]
    opened = await LocalDeployment.open(tmp_path, shards=shards, domains=domains)
    try:
        await opened.execute("CREATE TABLE marks (user INT, story INT, weight INT, PRIMARY KEY (user, story))")
        await opened.insert("marks", [{"user": u, "story": s, "weight": w} for u, s, w in MARKS])
        for name, query in VIEWS.items():
            await opened.execute(f"CREATE EXT VIEW {name} AS {query.format(hint=HINT)}")
            await opened.execute(f"CREATE EXT VIEW plain_{name} AS {query.format(hint='')}")
        yield opened
    finally:
        await opened.close()


def held(deployment: LocalDeployment, view: str) -> set[Any]:
    """The keys that the view's reader has filled, in all shards."""
    node = deployment.state.flow.readers[view]
    found: set[Any] = set()
    for domain in deployment.dataflow.domains.values():
        if node in domain.vertices:
            operator = domain.vertices[node].operator
            assert isinstance(operator, ReaderOperator)
            found.update(operator.filled.keys())
    return found


def there(deployment: LocalDeployment, user: int, *stories: int) -> bytes | None:
    """What the reader map has of a look-up; nothing is filled."""
    found = deployment.prepare("listed").try_page({"user": [str(user)], "story": list(map(str, stories))})
    return found if isinstance(found, bytes) else None


def rows(pages: list[bytes]) -> list[Any]:
    return [parse(b"[" + page + b"]") for page in pages]


def unordered(pages: list[bytes]) -> list[Any]:
    return [sorted(page, key=repr) for page in rows(pages)]


@pytest.mark.parametrize("view", VIEWS)
async def test_answers_are_those_of_the_view_without_the_hint(deployment: LocalDeployment, view: str) -> None:
    compared = unordered if "ORDER" not in VIEWS[view] else rows
    for _ in range(2):  # holes, then hits
        keys = [key for key in KEYS[view] if [] not in key]
        assert compared(await deployment.pages(view, keys)) == compared(await deployment.pages(f"plain_{view}", keys))
    await deployment.insert("marks", [{"user": 3, "story": story, "weight": story % 4} for story in range(50, 90)])
    await deployment.delete("marks", {"user": 2, "story": 4})
    await deployment.update("marks", {"user": 3, "story": 8}, {"weight": 0})
    assert compared(await deployment.pages(view, keys)) == compared(await deployment.pages(f"plain_{view}", keys))


async def test_a_hole_is_of_the_prefix_alone(deployment: LocalDeployment) -> None:
    assert there(deployment, 3, 1, 2) is None
    await deployment.pages("listed", [[3, [1, 2]]])
    assert held(deployment, "listed") == {(3,)}
    everything = there(deployment, 3, *range(9))
    assert everything is not None
    assert len(rows([everything])[0]) == 9
    assert there(deployment, 3, 77) == b""
    assert there(deployment, 2, 1) is None


async def test_an_eviction_by_any_key_takes_its_prefix(deployment: LocalDeployment) -> None:
    await deployment.pages("listed", [[2, [1]], [3, [1]]])
    assert await deployment.evict("listed", [[3, [77]], [3, [1]]]) == 1
    assert held(deployment, "listed") == {(2,)}
    assert there(deployment, 3, 1) is None
    assert there(deployment, 2, 1) is not None


async def test_explain_says_what_is_sought(deployment: LocalDeployment) -> None:
    assert "partial by (user), sought by (story)" in deployment.explain("listed")
    assert "partial by (user), sought by (weight), walked within a range of (story)" in deployment.explain("ranged")
    assert "sought" not in deployment.explain("plain_listed")


async def test_a_select_takes_the_hint_as_well(deployment: LocalDeployment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shapes, "KEEP_SECONDS", 0.0)
    text = f"SELECT {HINT} weight FROM marks WHERE user = 3 AND story IN (1, 2)"
    kept: list[str] = []
    async with asyncio.timeout(20):
        while not kept:
            ((answered,), _) = await deployment.execute(text)
            assert sorted(answered.rows) == [(3,), (6,)]
            kept = [query.view for query in deployment.queries() if query.view is not None]
    ((answered,), _) = await deployment.execute(text)
    assert sorted(answered.rows) == [(3,), (6,)]
    (ad_hoc,) = kept
    assert held(deployment, ad_hoc.lower()) == {(3,)}
    # Where its constants stay in its text there is nothing for the hint to name.
    ((answered,), _) = await deployment.execute(f"SELECT {HINT} weight FROM marks WHERE user = 3.5 AND story = 1")
    assert answered.rows == ()


async def test_where_all_is_full_every_parameter_is_sought(tmp_path: Path) -> None:
    deployment = await LocalDeployment.open(tmp_path, partial=False)
    try:
        await deployment.execute("CREATE TABLE marks (user INT, story INT, weight INT, PRIMARY KEY (user, story))")
        await deployment.insert("marks", [{"user": u, "story": s, "weight": w} for u, s, w in MARKS])
        for name, query in VIEWS.items():
            await deployment.execute(f"CREATE EXT VIEW {name} AS {query.format(hint=HINT)}")
        assert "full by (), sought by (user, story)" in deployment.explain("listed")
        (found,) = rows(await deployment.pages("listed", [[3, [8, 2, 77]]]))
        assert [row["story"] for row in found] == [8, 2]
        assert rows(await deployment.pages("limited", [[[1, 2, 3], [0, 1, 2]]])) == [[{"story": 0}] * 3]
        assert rows(await deployment.pages("counted", [[3, 0], [9, 9]])) == [[{"n": 2}], [{"n": 0}]]
    finally:
        await deployment.close()
