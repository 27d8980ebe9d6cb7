"""The first read of a key: bound once, looked for once before its domain is asked, counted as one miss."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from api.lookups.lookups import LookupCalls
from controller.embedded.local import LocalDeployment
from controller.lookups.binding import Binding
from controller.lookups.view_lookup import HITS_PER_MISS
from worker.reader_map import ReaderSnapshot


@pytest.fixture
async def deployment(tmp_path: Path) -> AsyncIterator[LocalDeployment]:
    opened = await LocalDeployment.open(tmp_path)
    await opened.execute(
        """
        CREATE TABLE t (id INT PRIMARY KEY, word VARCHAR(20), KEY (word));
        INSERT INTO t VALUES (1, 'a'), (2, 'b');
        CREATE EXT VIEW ById AS SELECT id, word FROM t WHERE id = ?;
        CREATE EXT VIEW ByWord AS SELECT id, word FROM t WHERE word = ?;
        """
    )
    yield opened
    await opened.close()


@pytest.mark.parametrize(("view", "name", "key"), [("ById", "id", 2), ("ByWord", "word", "b")])
@pytest.mark.parametrize("call", ["page", "lookup", "lookups", "pages"])
async def test_a_miss_is_bound_looked_for_and_counted_once(
    deployment: LocalDeployment, monkeypatch: pytest.MonkeyPatch, view: str, name: str, key: Any, call: str
) -> None:
    lookups = LookupCalls(deployment)
    other = {"ById": 1, "ByWord": "a"}[view]
    await deployment.page(view, {name: [str(other)]})  # The view has its reader now.
    done: Counter[str] = Counter()

    def spy(owner: Any, method: str, what: str) -> None:
        original: Callable[..., Any] = getattr(owner, method)

        def spied(*args: Any) -> Any:
            done[what] += 1
            return original(*args)

        monkeypatch.setattr(owner, method, spied)

    for method in ("from_text", "from_json"):
        spy(Binding, method, "bound")
    spy(ReaderSnapshot, "page", "looked for")
    owed = deployment.prepare(view)._telling.owed
    misses = deployment.counted()[1]
    if call == "lookup":
        body, _ = await lookups.pages(view, [[key]], None)
        assert body == b'{"results":[[{"id":2,"word":"b"}]]}'
    elif call == "lookups":
        asked = lookups.many.ask(json.dumps({"lookups": [{"view": view, "keys": [[key]]}]}).encode(), None)
        assert await lookups.many.finish(asked, None) == (b'{"results":[[[{"id":2,"word":"b"}]]]}', b"")
    elif call == "pages":
        assert await deployment.pages(view, [[key]]) == [b'{"id":2,"word":"b"}']
    else:
        coming = lookups.page(view, {name: [str(key)]}, None)
        assert not isinstance(coming, tuple), "nobody has asked for it"
        assert await coming == (b'{"rows":[{"id":2,"word":"b"}]}', b"")
    assert deployment.counted()[1] == misses + 1
    assert deployment.prepare(view)._telling.owed == owed + HITS_PER_MISS
    assert done["looked for"] <= 2, "once before it is filled, once after"
    assert done["bound"] == (0 if view == "ById" and call != "pages" else 1)


async def test_a_view_is_prepared_once_however_it_is_spelled_until_it_is_replaced(deployment: LocalDeployment) -> None:
    first = deployment.prepare("ById")
    assert deployment.prepare("BYID") is deployment.prepare("byid") is first
    await deployment.execute("DROP VIEW ById; CREATE EXT VIEW ById AS SELECT word FROM t WHERE id = ?")
    again = deployment.prepare("ById")
    assert (first.stale, again.stale) == (True, False)
    assert [column.name for column in again.info.columns] == ["word"]


async def test_a_view_that_is_replaced_between_miss_and_fill_answers_as_it_is_now(deployment: LocalDeployment) -> None:
    lookups = LookupCalls(deployment)
    await deployment.page("ById", {"id": ["1"]})
    coming = lookups.page("ById", {"id": ["2"]}, None)
    assert not isinstance(coming, tuple)
    await deployment.execute("DROP VIEW ById; CREATE EXT VIEW ById AS SELECT word FROM t WHERE id = ?")
    assert await coming == (b'{"rows":[{"word":"b"}]}', b"")


async def test_so_do_several_look_ups(deployment: LocalDeployment) -> None:
    lookups = LookupCalls(deployment).many
    await deployment.page("ByWord", {"word": ["a"]})
    asked = lookups.ask(b'{"lookups": [{"view": "ByWord", "keys": [["a"], ["b"]]}]}', None)
    assert asked.late, "nobody has asked for b"
    await deployment.execute("DROP VIEW ByWord; CREATE EXT VIEW ByWord AS SELECT id FROM t WHERE word = ?")
    answer, _ = await lookups.finish(asked, None)
    assert answer.endswith(b',[{"id":2}]]]}'), answer
