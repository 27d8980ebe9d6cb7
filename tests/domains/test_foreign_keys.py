"""Foreign keys in the engine: one commit over several tables is one pass. (What they mean is in ``sql_logic``.)"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

import pytest

from domains.engine.control import perform
from domains.engine.domain import Domain, Step
from domains.engine.writing.foreign_keys import DEEPEST
from domains.language.types import Delta, ForeignKey, Reaction, Row
from domains.plan.commands import AlterTable
from domains.plan.packets import (
    Amend,
    Delete,
    Failed,
    Insert,
    Once,
    Operation,
    Publish,
    Reply,
    RequestId,
    Update,
    Write,
    Written,
)
from tests.domains.graphs import Flow, constant, equals


def related(on_delete: Reaction = Reaction.CASCADE, on_update: Reaction = Reaction.CASCADE) -> Domain:
    """A table ``p (id, x)``, a table ``c (id, p)`` whose rows name its rows, and a view of what they come to."""
    flow = Flow()
    parents, children = flow.table("p", "id", "x", key=(0,)), flow.table("c", "id", "p", key=(0,))
    flow.reader("pairs", flow.join(parents, children, (0, 1)))
    flow.start()
    domain: Domain = flow.simulation.domains[0]
    key = ForeignKey("f", (1,), "p", ("id",), on_delete, on_update)
    perform(domain, AlterTable(replace(flow.tables["c"], foreign_keys=(key,))))
    do(domain, Insert("p", ((1, 5), (3, 6))))
    do(domain, Insert("c", ((10, 1), (11, 1), (30, 3))))
    return domain


def do(domain: Domain, operation: Operation, once: Once | None = None) -> tuple[Counter[Row], Written | Failed]:
    """What the view is told, and the answer."""
    told: Counter[Row] = Counter()
    outcome = None
    for effect in domain.handle(Write(RequestId(1), operation, once)):
        if isinstance(effect, Publish):
            for _, (row, weight) in effect.deltas:
                told[row] += weight
        elif isinstance(effect, Reply):
            assert isinstance(effect.outcome, Written | Failed)
            outcome = effect.outcome
    assert outcome is not None
    return Counter({row: weight for row, weight in told.items() if weight}), outcome


MOVE = Update("p", equals(0, 1), ((0, constant(2)),))
MOVED = {(1, 5, 10, 1): -1, (1, 5, 11, 1): -1, (2, 5, 10, 2): 1, (2, 5, 11, 2): 1}


def test_one_commit_of_two_tables_is_one_pass() -> None:
    domain = related()
    told, outcome = do(domain, MOVE)
    assert told == MOVED
    assert isinstance(outcome, Written)
    assert (outcome.rows_affected, outcome.clock) == (1, {"p": 2, "c": 2}), "a token waits for both"
    assert [domain.store.log(table, 1, 9)[0][0] for table in "pc"] == [2, 2], "each table's log has its own part"
    assert do(domain, Delete("p", equals(0, 2)))[0] == {row: -1 for row, weight in MOVED.items() if weight > 0}


def test_a_pass_for_each_table_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mutant: what both changes bring counts twice, and what both take is missed."""
    spread = Domain.spread

    def one_by_one(domain: Domain, changed: Mapping[str, list[Delta]], step: Step) -> None:
        for table, deltas in changed.items():
            spread(domain, {table: deltas}, step)

    monkeypatch.setattr(Domain, "spread", one_by_one)
    assert do(related(), MOVE)[0] == {(2, 5, 10, 2): 2, (2, 5, 11, 2): 2}


def test_a_write_that_is_sent_again_cascades_once() -> None:
    domain = related()
    rows = Insert("p", ((1, 7),), "replace")
    told, _ = do(domain, rows, Once("s", 1))
    assert told == {(1, 5, 10, 1): -1, (1, 5, 11, 1): -1}
    do(domain, Insert("c", ((12, 1),)))
    told, outcome = do(domain, rows, Once("s", 1))
    assert told == {}
    assert isinstance(outcome, Written)
    assert outcome.repeated
    assert len(domain.store.table("c").find((), ())) == 2


@pytest.mark.parametrize("operation", [Delete("p", equals(0, 1)), MOVE, Insert("c", ((40, 4),))])
def test_a_refusal_changes_nothing_and_names_key_and_tables(operation: Operation) -> None:
    domain = related(Reaction.RESTRICT, Reaction.NO_ACTION)
    told, outcome = do(domain, operation)
    assert told == {}
    assert isinstance(outcome, Failed)
    assert outcome.error.code == "constraint_violation"
    assert all(name in outcome.error.message for name in ('"f"', '"p"', '"c"'))
    assert [domain.store.position(table) for table in "pc"] == [1, 1]


@pytest.mark.parametrize(("levels", "is_refused"), [(DEEPEST, False), (DEEPEST + 1, True)])
def test_a_cascade_has_as_many_levels_as_in_mysql(levels: int, is_refused: bool) -> None:
    flow = Flow()
    flow.reader("all", flow.table("t", "id", "up", key=(0,)))
    flow.start()
    domain: Domain = flow.simulation.domains[0]
    key = ForeignKey("f", (1,), "t", ("id",), Reaction.CASCADE)
    perform(domain, AlterTable(replace(flow.tables["t"], foreign_keys=(key,))))
    do(domain, Insert("t", ((0, None), *((n, n - 1) for n in range(1, levels + 1)))))
    _, outcome = do(domain, Delete("t", equals(0, 0)))
    assert isinstance(outcome, Failed) is is_refused
    assert domain.store.table("t").row_count == (levels + 1 if is_refused else 0)


def test_several_tables_are_written_to_in_one_commit_and_one_pass() -> None:
    domain = related(Reaction.RESTRICT, Reaction.RESTRICT)
    gone = Amend("p", ((1, 5),), also=(Amend("c", ((10, 1), (11, 1))),))
    told, outcome = do(domain, gone)
    assert told == {(1, 5, 10, 1): -1, (1, 5, 11, 1): -1}
    assert isinstance(outcome, Written)
    assert (outcome.rows_affected, outcome.clock) == (3, {"p": 2, "c": 2})
    moved = Amend("p", ((3, 6),), (), ((1, constant(7)),), also=(Amend("c", ((30, 3),), (), ((0, constant(31)),)),))
    assert do(domain, moved)[0] == {(3, 6, 30, 3): -1, (3, 7, 31, 3): 1}
    for refused in (
        Amend("p", ((3, 7),), also=(Amend("c", ((30, 3),)),)),  # It is not there as it was seen.
        Amend("p", ((3, 7),), also=(Amend("c", ((31, 3, 0),)),)),  # Nor is the table.
        Amend("p", ((3, 7),), also=(Amend("c", ()),)),  # It is named.
    ):
        told, outcome = do(domain, refused)
        assert isinstance(outcome, Failed)
        assert not told
    assert [domain.store.position(table) for table in "pc"] == [3, 3]


def test_what_cascades_comes_after_all_that_several_tables_are_told() -> None:
    domain = related()
    both = Amend("p", ((1, 5),), (), ((0, constant(2)),), also=(Amend("c", ((10, 1),), (), ((0, constant(12)),)),))
    assert do(domain, both)[0] == {
        (1, 5, 10, 1): -1,
        (1, 5, 11, 1): -1,
        (2, 5, 12, 2): 1,
        (2, 5, 11, 2): 1,
    }
    domain = related()
    away = Amend("p", ((1, 5),), also=(Amend("c", ((10, 1),)),))
    told, outcome = do(domain, away)
    assert isinstance(outcome, Written)
    assert outcome.rows_affected == 2, "what cascades is not counted"
    assert told == {(1, 5, 10, 1): -1, (1, 5, 11, 1): -1}
