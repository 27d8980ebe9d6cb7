"""Which automatic views stay, and which go for others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from controller.embedded.local import LocalDeployment
from controller.statements.shapes import LATELY, OFTENER, TABLE_VIEWS, WRITES, WRITES_AN_ASKING, AskedShapes, Variant

POSTS = frozenset(("posts",))


def asked(shapes: AskedShapes, name: str) -> Variant:
    return shapes.asked(f"shape of {name}", name, f"SELECT {name} FROM posts", reusable=True)[1]


def test_shapes_that_are_asked_in_turns_do_not_drive_one_another_out() -> None:
    shapes = AskedShapes()
    made = 0
    for number in range(10 * LATELY):
        name = f"adhoc_{number % 200}"
        variant = asked(shapes, name)
        if variant.view is None and (going := shapes.going(variant, POSTS)) is not None:
            made += 1
            assert not going
            shapes.keep(name, variant, POSTS)
    assert made == len(shapes.kept) == TABLE_VIEWS
    waiting = asked(shapes, "adhoc_199")
    assert shapes.going(waiting, POSTS) is None
    assert 'of the table "posts"' in waiting.why(shapes.mode, "")
    assert shapes.going(waiting, frozenset(("comments",))) == [], "other tables have room"


def test_one_that_is_asked_much_more_often_takes_the_place_of_the_least_asked() -> None:
    shapes = AskedShapes()
    for number in range(TABLE_VIEWS):
        for _ in range(2 + number):
            variant = asked(shapes, f"adhoc_{number}")
        shapes.keep(f"adhoc_{number}", variant, POSTS)
    hot = Variant("SELECT 1", reusable=True)
    for _ in range(OFTENER * 2):
        assert shapes.going(hot, POSTS) is None
        hot = asked(shapes, "hot")
    assert shapes.going(hot, POSTS) == ["adhoc_0"]
    for _ in range(6 * LATELY):
        asked(shapes, "something else")
    assert shapes.going(asked(shapes, "new"), POSTS) == ["adhoc_0"], "all of them were asked long ago"


def test_a_view_of_two_tables_takes_room_of_both() -> None:
    shapes = AskedShapes()
    both = POSTS | {"comments"}
    for number in range(TABLE_VIEWS):
        shapes.keep(f"adhoc_{number}", Variant("SELECT 1", reusable=True), both)
    variant = asked(shapes, "hot")
    assert shapes.going(variant, POSTS) == ["adhoc_0"]
    assert shapes.going(variant, both) == ["adhoc_0"]


def test_one_goes_whose_tables_are_written_to_far_more_often_than_it_is_asked() -> None:
    shapes = AskedShapes()
    for name in ("seldom", "often"):
        shapes.keep(name, asked(shapes, name), POSTS)
    assert shapes.too_dear(lambda _: 5_000) == [], "from now on it is counted"
    for number in range(WRITES // WRITES_AN_ASKING + 1):
        asked(shapes, "often")
        if number % 2:
            asked(shapes, "seldom")
    assert shapes.too_dear(lambda _: 5_000 + WRITES - 1) == [], "too few writes to judge"
    assert shapes.too_dear(lambda _: 5_000 + WRITES) == ["seldom"]
    seldom = shapes.kept["seldom"]
    assert not seldom.pays, "it is to be asked again and again before it comes back"
    seldom.view = None
    assert "written to 10 times" in seldom.why(shapes.mode, "")
    assert shapes.too_dear(lambda _: 7) == [], "the table was created anew"


@pytest.fixture
async def deployment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[LocalDeployment]:
    monkeypatch.setattr("controller.statements.shapes.KEEP_SECONDS", 0.0)
    found = await LocalDeployment.open(tmp_path, shards=2)
    await found.execute("CREATE TABLE posts (id INT PRIMARY KEY, author INT, score INT, UNIQUE (score), KEY (author))")
    yield found
    await found.close()


async def ask(deployment: LocalDeployment, sql: str, times: int) -> None:
    for _ in range(times):
        await deployment.execute(sql)
        await deployment.selects.settled()


async def test_writes_drop_a_view_that_nobody_asks(
    deployment: LocalDeployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("controller.statements.shapes.WRITES", 20)
    monkeypatch.setattr("controller.statements.selects.REVIEW_SECONDS", 0.05)
    sql = "SELECT id FROM posts WHERE author = 7"
    await ask(deployment, sql, 5)
    assert deployment.selects.shapes.kept
    await asyncio.sleep(0.2)
    for number in range(40):
        await deployment.execute(f"INSERT INTO posts VALUES ({number}, 7, {number})")
    async with asyncio.timeout(20):
        while deployment.selects.shapes.kept:
            await asyncio.sleep(0.05)
    (found,), _ = await deployment.execute(sql)
    assert sorted(found.rows) == [(number,) for number in range(40)]
    assert "written to" in deployment.queries()[0].why


@pytest.mark.parametrize("condition", ["id = 7", "score = 7", "id IN (7, 8)"])
async def test_a_lookup_by_a_unique_key_has_no_view(deployment: LocalDeployment, condition: str) -> None:
    await ask(deployment, f"SELECT author FROM posts WHERE {condition}", 8)
    assert not deployment.selects.shapes.kept
    (shape,) = deployment.queries()
    assert "by a unique key" in shape.why
