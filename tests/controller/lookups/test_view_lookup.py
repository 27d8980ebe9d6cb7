"""Look-ups in views: the short lane answers as the general way, and what a request misses is filled in one batch."""

from __future__ import annotations

import json
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from api.lookups.lookups import LookupCalls
from api.lookups.references import LookupText
from controller.embedded.local import LocalDeployment
from controller.statements import selects
from domains.errors import HeadraceError
from migrations.parse.measure import SqlLimits
from migrations.query import finish
from worker.reader_map import in_one_state
from worker.service.child_pool import ChildPool

SCHEMA = """
CREATE TABLE marks (user_id BIGINT NOT NULL, story_id BIGINT NOT NULL, note TEXT, PRIMARY KEY (user_id, story_id));
CREATE VIEW mark AS SELECT /*+ PARTIAL_BY(user_id) */ story_id, note FROM marks WHERE user_id = ? AND story_id = ?;
CREATE VIEW some AS SELECT /*+ PARTIAL_BY(user_id) */ story_id, note FROM marks WHERE user_id = ? AND story_id IN (?);
CREATE VIEW backwards AS SELECT /*+ PARTIAL_BY(user_id) */ note FROM marks WHERE story_id IN (?) AND user_id = ?;
CREATE VIEW pair AS SELECT note FROM marks WHERE user_id = ? AND story_id = ?;
CREATE VIEW ordered AS SELECT story_id FROM marks WHERE user_id = ? ORDER BY story_id DESC;
CREATE VIEW first AS SELECT story_id FROM marks WHERE user_id = ? ORDER BY story_id LIMIT 1;
CREATE VIEW counted AS SELECT COUNT(*) AS c FROM marks WHERE user_id = ?
"""
VIEWS = ("mark", "some", "backwards", "pair", "ordered", "first", "counted")
VALUES = (0, 1, 2, 3, 7, [1], [2, 3], [3, 2, 3], list(range(12)), -1, 2**63, -(2**70), True, 1.0, "1", None, [], [None])


@pytest.fixture
async def local(tmp_path: Path) -> AsyncIterator[LocalDeployment]:
    opened = await LocalDeployment.open(tmp_path / "data", memory_limit=64_000_000, domains=1, read_timeout=60)
    await opened.execute(SCHEMA)
    for user, stories in ((1, 1), (2, 2), (3, 40)):  # one row, two, and more than are taken apart at once
        for story in range(stories):
            await opened.insert("marks", [{"user_id": user, "story_id": story, "note": f"{user} {story}"}])
    yield opened
    await opened.close()


async def test_it_says_what_the_general_way_says(local: LocalDeployment) -> None:
    draw, quick = random.Random(5), dict.fromkeys(VIEWS, 0)
    for _ in range(600):
        view = draw.choice(list(quick))
        lookup = local.prepare(view)
        key: Any = [draw.choice(VALUES) for _ in range(draw.choice((len(lookup.binding.parameters),) * 9 + (3,)))]
        before = local.counted()
        short = in_one_state(lambda reading, key=key, lookup=lookup: lookup.try_short(key, reading))  # type: ignore[misc]
        counted = local.counted()
        if short is None:
            assert counted == before, "whoever is asked next counts"
        try:
            (page,) = await local.pages(view, [key])
        except HeadraceError:
            assert short is None
            continue
        if short is not None:
            quick[view] += 1
            assert short.page == page, (view, key)
            assert counted == (before[0] + 1, before[1])
    assert all(quick.values()), quick


async def test_what_it_keeps_is_given_up_with_its_key(local: LocalDeployment) -> None:
    lookup = local.prepare("pair")
    await local.pages("pair", [[3, 7]])
    found = in_one_state(lambda reading: lookup.try_short([3, 7], reading))
    assert found is not None
    assert in_one_state(lambda reading: lookup.states([found.marker], reading)) == [found.state]
    await local.update("marks", {"user_id": 3, "story_id": 7}, {"note": "another"})
    assert in_one_state(lambda reading: lookup.states([found.marker], reading)) != [found.state]


# --- what one request misses of several views ---------------------------------------------------------------------


CONDITIONS = {"by_id": "id = ?", "by_author": "author = ?", "by_both": "author = ? AND id IN (?)"}
WANTED = [LookupText("by_id", [[1], [2], [9]]), LookupText("by_author", [[7]]), LookupText("by_both", [[7, [1, 2]]])]
ONE, TWO = b'{"id":1}', b'{"id":2}'
ANSWER = b'{"results":[[[%s],[%s],[]],[[%s,%s]],[[%s,%s]]]}' % (ONE, TWO, ONE, TWO, ONE, TWO)


@pytest.fixture(params=[1, 2])
async def deployment(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[LocalDeployment]:
    opened = await LocalDeployment.open(tmp_path, shards=request.param)
    try:
        await opened.execute("CREATE TABLE stories (id INT PRIMARY KEY, author INT)")
        await opened.insert("stories", [{"id": 1, "author": 7}, {"id": 2, "author": 7}])
        for name, condition in CONDITIONS.items():
            await opened.execute(f"CREATE EXT VIEW {name} AS SELECT id FROM stories WHERE {condition} ORDER BY id")
        yield opened
    finally:
        await opened.close()


async def test_one_batch_fills_all_views(deployment: LocalDeployment) -> None:
    lookups = LookupCalls(deployment).many
    before = deployment.dataflow.flusher.batches
    asked = lookups.ask_for(WANTED, None)
    assert len(asked.late) == len(WANTED)
    assert await lookups.finish(asked, None) == (ANSWER, b"")
    if deployment.state.shards == 1:
        assert deployment.dataflow.flusher.batches == before + 1
    again = lookups.ask_for(WANTED, None)
    assert (again.late, again.body()) == ([], ANSWER)


async def test_what_was_there_stays_and_only_the_rest_is_filled(deployment: LocalDeployment) -> None:
    lookups = LookupCalls(deployment).many
    await deployment.pages("by_id", [[2]])
    asked = lookups.ask_for(WANTED, None)
    assert asked.late[0].found == [None, TWO, None]
    assert await lookups.finish(asked, None) == (ANSWER, b"")


async def test_a_view_that_is_replaced_meanwhile_is_asked_again(deployment: LocalDeployment) -> None:
    lookups = LookupCalls(deployment).many
    asked = lookups.ask_for(WANTED, None)
    await deployment.execute("CREATE OR REPLACE VIEW by_id AS SELECT id FROM stories WHERE id = ? AND author = 7")
    assert await lookups.finish(asked, None) == (ANSWER, b"")


async def test_what_is_worked_out_of_many_rows_is_so_beside(
    local: LocalDeployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = "SELECT story_id, note FROM marks WHERE user_id > ? OR note = ? ORDER BY note"
    await local.execute(f"CREATE VIEW late AS {view}")
    many = [{"user_id": 9, "story_id": each, "note": f"{each:04d}"} for each in range(1_500)]
    await local.insert("marks", many)
    expected = [(each["story_id"], each["note"]) for each in many]
    beside = ChildPool()
    local.read_within(SqlLimits(), beside)
    here = finish.Finish.page
    monkeypatch.setattr(finish.Finish, "page", lambda *_: pytest.fail("it holds the event loop"))
    monkeypatch.setattr(selects, "LONG_PAGE", 1_000)
    try:
        (page,) = await local.pages("late", [[8, "x"]])
        names = [parameter.name for parameter in local.prepare("late").binding.parameters]
        assert page == await local.page("late", dict(zip(names, (["8"], ["x"]), strict=True)))
        assert [tuple(row.values()) for row in json.loads(b"[" + page + b"]")] == expected
        ((selected,), _) = await local.execute(view.replace("?", "8", 1).replace("?", "'x'"))
        assert list(selected.rows) == expected
        monkeypatch.setattr(finish.Finish, "page", here)
        await local.execute("DELETE FROM marks WHERE user_id = 9 AND story_id > 20")
        (page,) = await local.pages("late", [[8, "x"]])
        assert page.count(b"note") == 21
    finally:
        await beside.close()
