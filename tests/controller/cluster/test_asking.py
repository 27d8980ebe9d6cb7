"""Asking for a domain that is away for a moment: how long one waits longer than it is."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from controller.cluster.asking import FIRST_PAUSE, Asking
from domains.graph import DomainIndex
from tests.cluster_simulation.loop import VirtualLoop
from worker.messages import NotHere


class _Host:
    """A worker that has no domain before a moment; in place of the directory and of the connections to it, too."""

    def __init__(self, back: float) -> None:
        self.back = back
        self.asked = 0
        self.on_moved: list[object] = []

    def owner(self, domain: DomainIndex) -> Any:
        return SimpleNamespace(name="w")

    assignment = owner

    async def catch_up(self) -> None:
        """It is up to date."""

    def known(self, owner: object) -> Any:
        return self

    def ask(self, message: object) -> asyncio.Future[object]:
        loop = asyncio.get_running_loop()
        answer = loop.create_future()
        self.asked += 1
        if loop.time() < self.back:
            answer.set_exception(NotHere("not yet"))
        else:
            answer.set_result("here")
        return answer


@pytest.mark.parametrize("away", [0.01, 0.03, 0.04, 0.05, 0.2, 1.0])
def test_nobody_waits_much_longer_than_a_domain_is_away(away: float) -> None:
    loop = VirtualLoop()
    host = _Host(loop.time() + away)
    asking = Asking(host, host)  # type: ignore[arg-type]
    asked = asking.ask(DomainIndex(0), lambda left: left, loop.time() + 10, repeatable=True)
    try:
        assert loop.run_until_complete(loop.create_task(asked)) == "here"
    finally:
        loop.close()
    assert loop.time() - host.back <= max(FIRST_PAUSE, away / 4) + 1e-9
    assert host.asked < 40
