"""Asking for a domain that is away for a moment: how long one waits longer than it is."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from controller.cluster.serving.domain_router import FIRST_PAUSE, LINK_SECONDS, DomainRouter
from domains.plan.graph import DomainIndex
from tests.cluster_simulation.loop import VirtualLoop
from worker.protocol.messages import Done, NotHere
from worker.protocol.operations import LinkRequest

ROUND_TRIP = 0.001
DOMAIN = DomainIndex(0)


class _Cluster:
    """Workers of which one is given a domain and has it after some time; in place of the directory and of the
    connections to them, too."""

    def __init__(self, away: float, *, tells: bool, given: float = 0.0) -> None:
        """``given`` after so many seconds, here ``away`` after as many: from now on. ``tells``: it says what is missed,
        and when it comes."""
        self._loop = asyncio.get_event_loop()
        self.began = self._loop.time()
        self.back, self.given, self.tells = self.began + away, self.began + given, tells
        self.asked = 0
        self.on_moved: list[Any] = []
        self.known_epoch = 1
        if given:
            self._loop.call_later(given, self._announce)

    # --- the directory --------------------------------------------------------------------------------------------

    @property
    def cluster(self) -> Any:
        return SimpleNamespace(epoch=self.known_epoch)

    def owner(self, domain: DomainIndex) -> Any:
        return SimpleNamespace(name="new" if self.known_epoch == self._epoch(self.given) else "old")

    assignment = owner

    def _epoch(self, given: float) -> int:
        return 2 if given > self.began else 1

    def _announce(self) -> None:
        self.known_epoch = 2
        for tell in self.on_moved:
            tell()

    async def catch_up(self) -> None:
        await asyncio.sleep(ROUND_TRIP)

    # --- the connections ------------------------------------------------------------------------------------------

    def known(self, owner: Any) -> Any:
        return SimpleNamespace(ask=lambda message: self._ask(owner.name, message))

    def _ask(self, name: str, message: object) -> asyncio.Future[object]:
        """Whoever asked may give the answer up."""
        answer = self._loop.create_future()

        def told(done: asyncio.Task[object]) -> None:
            if not answer.done():
                failed = done.exception()
                answer.set_result(done.result()) if failed is None else answer.set_exception(failed)

        asyncio.ensure_future(self._answer(name, message)).add_done_callback(told)
        return answer

    async def _answer(self, name: str, message: object) -> object:
        self.asked += 1
        await asyncio.sleep(ROUND_TRIP)
        if isinstance(message, LinkRequest):
            try:
                async with asyncio.timeout(message.within):
                    while name != "new" or self._loop.time() < self.back:
                        await asyncio.sleep(ROUND_TRIP / 4)
            except TimeoutError:
                raise NotHere("not in time", unlinked=True) from None
            return Done()
        if name == "new" and self._loop.time() >= self.back:
            return "here"
        raise NotHere("not yet", epoch=1, unlinked=self.tells)


def _asked(away: float, **how: Any) -> tuple[float, int]:
    """Seconds for which one waits longer than the domain is away, and how many messages that took."""
    loop = VirtualLoop()

    async def ask() -> tuple[float, int]:
        cluster = _Cluster(away, **how)
        asking = DomainRouter(cluster, cluster)  # type: ignore[arg-type]
        assert await asking.ask(DOMAIN, lambda left: left, loop.time() + 10, repeatable=True) == "here"
        return loop.time() - cluster.back, cluster.asked

    try:
        return loop.run_until_complete(loop.create_task(ask()))
    finally:
        loop.close()


@pytest.mark.parametrize("away", [0.01, 0.03, 0.04, 0.05, 0.2, 1.0])
def test_nobody_waits_much_longer_than_something_in_a_domain_is_away(away: float) -> None:
    longer, asked = _asked(away, tells=False)
    assert longer <= max(FIRST_PAUSE, away / 4) + 3 * ROUND_TRIP
    assert asked < 40


@pytest.mark.parametrize("away", [0.0105, 0.03, 0.0402, 0.05, 0.2, 1.3])
def test_who_asks_for_a_domain_that_comes_is_told_when_it_is_there(away: float) -> None:
    longer, asked = _asked(away, tells=True)
    assert longer <= 3 * ROUND_TRIP
    assert asked <= 3 + 2 * (away // LINK_SECONDS)


@pytest.mark.parametrize("given", [0.0055, 0.02, 0.3])
def test_who_waits_at_the_worker_before_is_sent_on_when_the_domain_is_given_to_another(given: float) -> None:
    longer, asked = _asked(given + 0.02, tells=True, given=given)
    assert longer <= 3 * ROUND_TRIP
    assert asked <= 5
