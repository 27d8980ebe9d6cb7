"""KILL in a cluster: a connection's number says which api process has it, so that no stranger's is closed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from controller.statements.running import Lists, RunningStatements
from domains.errors import NotFound


def lists(process: int) -> Lists:
    made = Lists(list, RunningStatements())
    made.others = cast(Any, SimpleNamespace(number=process, name=f"api-{process}"))
    return made


async def test_a_number_is_of_one_process() -> None:
    ended: list[str] = []
    one, other = lists(1), lists(2)
    first, second = one.connected(lambda: ended.append("one")), other.connected(lambda: ended.append("other"))
    assert first != second
    assert max(first, second) < 2**32
    with pytest.raises(NotFound, match=f"connection {second} is not of this api process"):
        await one.kill(second, query=False)
    assert not ended
    await one.kill(first, query=True)
    assert not ended, "KILL QUERY leaves it open"
    await one.kill(first, query=False)
    assert ended == ["one"]


async def test_alone_it_is_a_small_number() -> None:
    ended: list[str] = []
    alone = Lists(list, RunningStatements())
    number = alone.connected(lambda: ended.append("it"))
    assert number == 1
    await alone.kill(number, query=False)
    assert ended == ["it"]
    alone.disconnected(number)
    with pytest.raises(NotFound, match="no statement 1 runs"):
        await alone.kill(number, query=False)
