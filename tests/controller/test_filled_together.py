"""What one request misses of several views is filled in one batch, and the asker is woken once."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from api.lookups.lookups import LookupCalls
from api.lookups.references import LookupText
from controller.embedded.local import LocalDeployment

VIEWS = {"by_id": "id = ?", "by_author": "author = ?", "by_both": "author = ? AND id IN (?)"}
WANTED = [LookupText("by_id", [[1], [2], [9]]), LookupText("by_author", [[7]]), LookupText("by_both", [[7, [1, 2]]])]
ONE, TWO = b'{"id":1}', b'{"id":2}'
ANSWER = b'{"results":[[[%s],[%s],[]],[[%s,%s]],[[%s,%s]]]}' % (ONE, TWO, ONE, TWO, ONE, TWO)


@pytest.fixture(params=[1, 2])
async def deployment(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[LocalDeployment]:
    opened = await LocalDeployment.open(tmp_path, shards=request.param)
    try:
        await opened.execute("CREATE TABLE stories (id INT PRIMARY KEY, author INT)")
        await opened.insert("stories", [{"id": 1, "author": 7}, {"id": 2, "author": 7}])
        for name, condition in VIEWS.items():
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
