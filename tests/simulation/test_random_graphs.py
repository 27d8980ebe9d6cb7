"""Random dataflows, placed at random: the eight rules of ``domains/`` hold after every step, and every answer is right.

``HEADRACE_SEED`` chooses where to begin; the long mode (``-m long``) runs ``HEADRACE_GRAPHS`` graphs from there. A
failure names its seed: ``random_graphs.run(seed, steps)`` is the whole reproduction.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

import pytest

from domains.engine.domain import Domain, Step
from domains.errors import HeadraceError, StorageFailure
from domains.language.types import Delta, Row
from domains.operators import ranged
from domains.operators.join import JoinOperator
from domains.operators.ranged import RowsInOrder
from domains.plan.graph import Columns
from domains.plan.packets import Failed, Packet, Read, Reply, Upquery, Write
from domains.store.walking import bounded
from tests.failing_store import FailingTable
from tests.simulation.random_graphs import run

FIRST = int(os.environ.get("HEADRACE_SEED", "0"))
GRAPHS = int(os.environ.get("HEADRACE_GRAPHS", "20000"))
STEPS = 80
"""A step is some 0.1 ms with its checks; what breaks at all broke within 60 steps in every mutation that was tried."""
BATCHES, BATCH = 8, 60
"""In CI: about 8 seconds in all."""


def graphs(first: int, number: int, steps: int, *, bulk: bool = False) -> None:
    for seed in range(first, first + number):
        try:
            run(seed, steps, bulk=bulk)
        except Exception as error:
            error.add_note(f"reproduce with tests.simulation.random_graphs.run({seed}, {steps}, bulk={bulk})")
            raise


@pytest.mark.parametrize("batch", range(BATCHES))
def test_random_graphs_keep_the_rules(batch: int) -> None:
    graphs(FIRST + batch * BATCH, BATCH, STEPS)


@pytest.mark.parametrize("batch", range(BATCHES))
def test_random_graphs_whose_states_come_in_bulk_keep_the_rules(batch: int) -> None:
    graphs(FIRST + batch * BATCH, BATCH, STEPS, bulk=True)


def _answered_as_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error after the commit, and its domain serves on."""
    take = Domain._take_step

    def careless(self: Domain, packet: Packet, step: Step) -> None:
        try:
            take(self, packet, step)
        except StorageFailure as error:
            if isinstance(packet, Write):
                step.replies.append(Reply(packet.request, Failed(error)))

    monkeypatch.setattr(Domain, "_take_step", careless)


def _taken_for_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    """What cannot be read."""
    find_many = FailingTable.find_many

    def lenient(self: FailingTable, columns: Columns, keys: Sequence[Row]) -> list[list[Delta]]:
        try:
            return find_many(self, columns, keys)
        except StorageFailure:
            return [[] for _ in keys]

    monkeypatch.setattr(FailingTable, "find_many", lenient)


def _left_unanswered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Upqueries that cannot be read."""
    fail = Domain._fail

    def silent(self: Domain, packet: Read | Upquery, error: HeadraceError, step: Step) -> None:
        if isinstance(packet, Read):
            fail(self, packet, error, step)

    monkeypatch.setattr(Domain, "_fail", silent)


def _not_put_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row that comes after the rows of its key were put in order."""
    move = RowsInOrder.move
    monkeypatch.setattr(RowsInOrder, "move", lambda self, row, *, came: 0 if came else move(self, row, came=came))


def _ends_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of ranges: ``<=`` is taken for ``<``."""
    monkeypatch.setattr(ranged, "bounded", lambda function, *given: bounded(function.replace("e", "t"), *given))


def _joined_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of both sides that come in one step."""
    monkeypatch.setattr(JoinOperator, "_changed", lambda *_: [])


@pytest.mark.parametrize(
    "mistake",
    [
        *(_answered_as_refused, _taken_for_empty, _left_unanswered),
        *(_not_put_in_order, _ends_are_left_out, _joined_twice),
    ],
)
def test_mistakes_are_found(monkeypatch: pytest.MonkeyPatch, mistake: Callable[[pytest.MonkeyPatch], None]) -> None:
    mistake(monkeypatch)
    found = 0
    for seed in range(FIRST, FIRST + 300):
        try:
            run(seed, STEPS)
        except AssertionError:
            found += 1
        if found == 3:
            return
    pytest.fail(f"{found} seeds of 300 find it")


@pytest.mark.long
def test_many_random_graphs_keep_the_rules() -> None:
    graphs(FIRST, GRAPHS, 2 * STEPS)
    graphs(FIRST, GRAPHS // 4, 2 * STEPS, bulk=True)
