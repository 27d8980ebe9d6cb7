"""Transactions over several shards are strictly serializable whatever crashes; and each mistake in a commit shows."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from controller.hosts import TableTarget
from controller.transactions.in_doubt import InDoubt
from controller.transactions.transaction import Transaction
from domains.engine.transactions.transactions import OpenTransaction, Transactions
from domains.errors import Locked, OutcomeUnknown
from domains.plan.graph import DomainIndex
from domains.plan.packets import (
    Commit,
    Failed,
    ForgetDecision,
    Insert,
    InTransaction,
    Outcome,
    Prepare,
    Reply,
    RequestId,
    RollBack,
    TransactionAct,
    Within,
    Write,
    Written,
)
from domains.store.memory_store import MemoryStore
from migrations.flow.routing import split
from tests.cluster_simulation.loop import VirtualLoop
from tests.controller.transactions.over_shards import SHARDS, Chances, Shard, Sharded, ran
from tests.histories.checker import check

UNLUCKY = Chances(0.03, 1.5, 0.2, patience=0.5, doubt=0.2)


@pytest.mark.parametrize("lists", [True, False], ids=["lists", "registers"])
@pytest.mark.parametrize("seed", range(6))
def test_what_is_committed_is_strictly_serializable(seed: int, lists: bool) -> None:
    done = ran(seed, lists=lists)
    report = check(done.events, "strict-serializable")
    assert report.holds, str(report)
    assert report.outcomes["committed"] > 30


@pytest.mark.parametrize("lists", [True, False], ids=["lists", "registers"])
@pytest.mark.parametrize("seed", range(4))
def test_so_it_is_with_locks_where_all_that_is_read_is_locked(seed: int, lists: bool) -> None:
    """Also where a crash has lost the locks: then it is not committed."""
    done = ran(seed, lists=lists, locks=True)
    report = check(done.events, "strict-serializable")
    assert report.holds, str(report)
    assert report.outcomes["committed"] > 30


def test_what_goes_wrong_did_go_wrong() -> None:
    systems = [ran(seed, lists=False).system for seed in range(4)]
    assert sum(shard.crashes for system in systems for shard in system.shards) > 3
    assert sum(system.deaths for system in systems) > 3


def test_who_is_impatient_ends_what_others_commit() -> None:
    done = ran(2, lists=True, chances=UNLUCKY)
    assert check(done.events, "strict-serializable").holds


def answered(shard: Shard, act: TransactionAct, within: Within) -> Outcome:
    effects = shard.domain.handle(Write(RequestId(1), act, within))
    (outcome,) = [each.outcome for each in effects if isinstance(each, Reply)]
    return outcome


def test_what_is_prepared_holds_what_it_has_read_after_a_crash() -> None:
    """And nothing else that it has not come to."""
    system = Sharded(VirtualLoop(), Random(1), Chances(), lists=False)
    shard = system.shards[0]
    shard.store.create_table(replace(system.schema, name="other"))

    def asked(act: TransactionAct, within: Within = None) -> Outcome:
        return answered(shard, act, within)

    asked(Insert("t", ((0, 0, 1), (3, 0, 1))))
    within = InTransaction("1", begins=True)
    shard.domain.transactions.entered(within).tables.table("t").find((0,), (0,))
    assert isinstance(asked(Prepare(DomainIndex(1)), within), Written)
    assert isinstance(asked(Insert("t", ((3, 0, 2),), on_conflict="replace")), Written), "it has not read that"
    shard.store.sync()
    shard.crash(0.0)
    for key in (0, 3, 6):
        held = asked(Insert("t", ((key, 0, 3),), on_conflict="replace"))
        assert isinstance(held, Failed), "which of them it has read is not known"
        assert isinstance(held.error, Locked)
    assert isinstance(asked(Insert("other", ((0, 0, 1),))), Written)
    assert isinstance(asked(Commit(decided=True), within), Written)
    assert isinstance(asked(Insert("t", ((0, 0, 3),), on_conflict="replace")), Written)
    assert not shard.store.records()


def test_two_that_are_prepared_are_both_committed_after_a_crash() -> None:
    """Each holds the whole table then, of which the other changes a row."""
    system = Sharded(VirtualLoop(), Random(1), Chances(), lists=False)
    shard = system.shards[0]
    for id in ("1", "2"):
        insert = Insert("t", ((3 * int(id), 0, 1),))
        for act in (insert, Prepare(DomainIndex(1))):
            assert isinstance(answered(shard, act, InTransaction(id, begins=True)), Written)
    shard.store.sync()
    shard.crash(0.0)
    for id in ("1", "2"):
        assert isinstance(answered(shard, Commit(decided=True), InTransaction(id)), Written)
    assert len(shard.store.table("t").find((), ())) == 2


def test_a_decider_that_was_asked_has_decided() -> None:
    """Whoever commits may be slower than whoever ends what it has left."""
    shard = Sharded(VirtualLoop(), Random(1), Chances(), lists=False).shards[0]
    within = InTransaction("1", begins=True)
    assert isinstance(answered(shard, Insert("t", ((0, 0, 1),)), within), Written)
    asked = answered(shard, RollBack(), replace(within, begins=False))
    assert isinstance(asked, Written)
    assert asked.rows_affected == 0, "it was not committed"
    late = answered(shard, Commit((DomainIndex(1),)), replace(within, begins=False))
    assert isinstance(late, Failed), "others have been told that it is rolled back"
    assert not shard.store.table("t").find((), ())


def test_a_commit_whose_answer_is_lost_is_asked_for() -> None:
    """The decider has committed: no other shard may roll its part back."""
    loop = VirtualLoop()
    asyncio.set_event_loop(loop)
    system = Sharded(loop, Random(1), Chances(0.0, 0.0, 0.0), lists=False)

    async def losing(act: TransactionAct, within: InTransaction, table: TableTarget | None) -> Written:
        written = await system.transact(act, within, table)
        if isinstance(act, Commit) and act.others and not lost:
            lost.append(act)
            raise OutcomeUnknown("the answer is lost")
        return written

    async def run() -> None:
        transaction = Transaction("1", losing, 0)
        for key in (0, 1):
            await transaction.write(split(Insert("t", ((key, 0, 1),)), system.schema, SHARDS), system.target)
        await transaction.commit()

    lost: list[Commit] = []
    try:
        loop.run_until_complete(run())
    finally:
        loop.close()
    assert lost
    assert [len(shard.store.table("t").find((), ())) for shard in system.shards] == [1, 1, 0]


def test_without_faults_nothing_is_unknown() -> None:
    done = ran(1, lists=True, chances=Chances(0.0, 0.0, 0.0))
    assert not check(done.events, "strict-serializable").outcomes["unknown"]


# --- mistakes, each of which is found --------------------------------------------------------------------------------

_done = Transactions.done
_check_locks = Transactions._check_locks


def _no_locks(self: Transactions, own: OpenTransaction, *, waits: bool) -> None:
    """Nothing is held by what is prepared."""


def _plain_writes_pass(self: Transactions, operation: Any) -> Any:
    return self._changed_by(self._written, operation)


def _decides_without_a_record(self: MemoryStore, transaction: str, part: Any, copies: Any = ()) -> None:
    """Neither one nor where its part stands, which tells the same."""
    if part.others:
        self._staged_records.pop(transaction, None)
    else:
        self._staged_parts[transaction] = part, tuple(copies)


def _prepares_without_a_record(self: MemoryStore, transaction: str, record: Any) -> None:
    if record is None or record.is_committed:
        self._staged_records[transaction] = record


def _asked_is_not_decided(self: Transactions, act: Any, within: Any, written: Written) -> Written:
    if not isinstance(act, RollBack) or within.id in self.prepared:
        return _done(self, act, within, written)
    return written


async def _commits_what_is_prepared(self: InDoubt, base: DomainIndex, known: Any) -> None:
    await self._act(ForgetDecision() if known.others else Commit(decided=True), known.id, base)


async def _rolls_back_what_is_prepared(self: InDoubt, base: DomainIndex, known: Any) -> None:
    await self._act(ForgetDecision() if known.others else RollBack(), known.id, base)


async def _gives_up_without_asking(self: Transaction, others: tuple[DomainIndex, ...]) -> Written:
    assert self._decider is not None
    try:
        return await self._unlocked(Commit(others), self._decider)
    except Exception:
        self.is_over = True
        await self._end_all()
        raise


def _reads_hold(self: Transactions, own: OpenTransaction, *, waits: bool) -> None:
    if own.tables.staged_deltas():
        _check_locks(self, own, waits=waits)


MISTAKES: list[tuple[type, str, Callable[..., Any], int]] = [
    (Transactions, "_check_locks", _no_locks, 1),
    (Transactions, "_check_locks", _reads_hold, 9),
    (Transactions, "write_beside", _plain_writes_pass, 82),
    (MemoryStore, "note_part", _decides_without_a_record, 0),
    (MemoryStore, "keep", _prepares_without_a_record, 0),
    (InDoubt, "_settle", _commits_what_is_prepared, 0),
    (InDoubt, "_settle", _rolls_back_what_is_prepared, 12),
]
"""Each with a seed that finds it; where the draws have changed, others follow."""
SEEDS = 60


def _finds(seed: int) -> bool:
    for lists in (True, False):
        try:
            if not check(ran(seed, lists=lists, chances=UNLUCKY).events, "strict-serializable").holds:
                return True
        except AssertionError:
            return True
    return False


@pytest.mark.parametrize(
    ("where", "name", "instead", "first"), MISTAKES, ids=lambda each: getattr(each, "__name__", str(each))
)
def test_a_planted_mistake_is_found(
    where: type, name: str, instead: Callable[..., Any], first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(where, name, instead)
    found = next((seed for seed in range(first, first + SEEDS) if _finds(seed)), None)
    print(f"{where.__name__}.{name}: seed {found}")
    assert found is not None


_within = Transaction._within


def _begins_again(self: Transaction, domain: DomainIndex, **how: Any) -> InTransaction:
    return replace(_within(self, domain, **how), begins=True)


def test_a_lost_lock_that_nobody_asks_for_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Transaction, "_within", _begins_again)
    chances = Chances(0.0, 1.5, 0.0)
    runs = (ran(seed, lists=True, locks=True, chances=chances) for seed in range(SEEDS))
    assert not all(check(each.events, "strict-serializable").holds for each in runs)


@pytest.mark.parametrize(
    ("where", "name", "instead", "scene"),
    [
        (Transactions, "done", _asked_is_not_decided, test_a_decider_that_was_asked_has_decided),
        (Transaction, "_decided", _gives_up_without_asking, test_a_commit_whose_answer_is_lost_is_asked_for),
    ],
)
def test_a_planted_mistake_shows_in_its_scene(
    where: type, name: str, instead: Callable[..., Any], scene: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(where, name, instead)
    with pytest.raises((AssertionError, OutcomeUnknown)):
        scene()
