"""Snapshots of several shards are of one moment, whatever crashes; and each mistake in taking one shows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import pytest

from controller.transactions.in_doubt import InDoubt
from controller.transactions.snapshots import Snapshots
from domains.engine.transactions.snapshots import StandingStill
from domains.engine.transactions.transactions import Transactions
from domains.errors import AlreadyExists, HeadraceError, Locked, SnapshotGone, TransactionEnded
from domains.plan.graph import DomainIndex
from domains.plan.packets import (
    Commit,
    Failed,
    Insert,
    InTransaction,
    Prepare,
    Reply,
    RequestId,
    Within,
    Write,
    Written,
)
from domains.plan.snapshots import DropSnapshot, GoOn, KeepSnapshot, SnapshotAct, StandStill
from domains.store.memory_store import MemoryStore
from domains.store.storage import SnapshotRecord
from tests.cluster_simulation.loop import VirtualLoop
from tests.controller.transactions.over_shards import Chances, Shard, Sharded, ran
from tests.histories.checker import check

CALM = Chances(0.0, 0.0, 0.0)
UNLUCKY = Chances(0.03, 1.5, 0.2, patience=0.5, doubt=0.2)


@pytest.mark.parametrize("lists", [True, False], ids=["lists", "registers"])
@pytest.mark.parametrize("chances", [Chances(), UNLUCKY, CALM], ids=["ordinary", "unlucky", "calm"])
@pytest.mark.parametrize("seed", range(2))
def test_a_snapshot_is_a_transaction_that_reads_all(seed: int, chances: Chances, lists: bool) -> None:
    done = ran(seed, lists=lists, chances=chances, snapshots=True)
    report = check(done.events, "strict-serializable")
    assert report.holds, str(report)
    assert done.taker is not None
    assert done.taker.taken
    assert done.taker.read_again, "one stays as it is while others write"


def asked(shard: Shard, act: Any, within: Within = None) -> Written | HeadraceError:
    effects = shard.domain.handle(Write(RequestId(1), act, within))
    (outcome,) = [each.outcome for each in effects if isinstance(each, Reply)]
    if isinstance(outcome, Failed):
        return outcome.error
    assert isinstance(outcome, Written)
    return outcome


def shard_alone() -> Shard:
    return Sharded(VirtualLoop(), Random(1), CALM, lists=False).shards[0]


def test_a_shard_that_stands_still_takes_no_writes() -> None:
    shard, own = shard_alone(), InTransaction("s")
    assert isinstance(asked(shard, Insert("t", ((0, 0, 1),))), Written)
    assert isinstance(asked(shard, StandStill(), own), Written)
    assert isinstance(asked(shard, Insert("t", ((3, 0, 1),))), Locked)
    assert isinstance(asked(shard, StandStill(), InTransaction("other")), Locked)
    assert isinstance(asked(shard, GoOn(), own), TransactionEnded), "it has kept nothing"
    for _ in "it may be asked twice":
        assert isinstance(asked(shard, KeepSnapshot(1.0), own), Written)
    assert isinstance(asked(shard, Insert("t", ((3, 0, 1),))), Locked), "others may have to keep theirs yet"
    assert not shard.store.snapshots()
    for _ in "it may be asked twice":
        assert isinstance(asked(shard, GoOn(), own), Written)
    assert isinstance(asked(shard, Insert("t", ((3, 0, 1),))), Written)
    assert shard.store.snapshot("s").table("t").find((), ()) == [((0, 0, 1), 1)]
    assert isinstance(asked(shard, KeepSnapshot(1.0), own), TransactionEnded)
    assert isinstance(asked(shard, StandStill(), own), AlreadyExists)
    assert isinstance(asked(shard, DropSnapshot(), own), Written)
    with pytest.raises(SnapshotGone):
        shard.store.snapshot("s")


def test_what_is_decided_meanwhile_is_in_no_part_of_it() -> None:
    """The first shard has kept its tables, and the second has yet to: what the first decided, the second would do."""
    first, second = Sharded(VirtualLoop(), Random(1), CALM, lists=False).shards[:2]
    own, begun = InTransaction("s"), InTransaction("1", begins=True)
    assert isinstance(asked(first, Insert("t", ((0, 0, 1),)), begun), Written)
    for act in (Insert("t", ((1, 0, 1),)), Prepare(DomainIndex(0))):
        assert isinstance(asked(second, act, begun), Written)
    for shard in (first, second):
        assert isinstance(asked(shard, StandStill(), own), Written)
    assert isinstance(asked(first, KeepSnapshot(1.0), own), Written)
    decide = Commit((DomainIndex(1),)), InTransaction("1")
    assert isinstance(asked(first, *decide), Locked)
    assert isinstance(asked(second, KeepSnapshot(1.0), own), Written)
    for shard in (first, second):
        assert isinstance(asked(shard, GoOn(), own), Written)
    assert isinstance(asked(first, *decide), Written)
    assert isinstance(asked(second, Commit(decided=True), InTransaction("1")), Written)
    assert [shard.store.snapshot("s").table("t").find((), ()) for shard in (first, second)] == [[], []]


@pytest.mark.parametrize("how", ["crashed", "told", "never"])
def test_a_shard_that_has_gone_on_keeps_nothing(how: str) -> None:
    shard, own = shard_alone(), InTransaction("s")
    if how != "never":
        assert isinstance(asked(shard, StandStill(), own), Written)
    if how == "crashed":
        shard.crash(0.0)
    elif how == "told":
        assert isinstance(asked(shard, DropSnapshot(), own), Written)
    assert isinstance(asked(shard, Insert("t", ((3, 0, 1),))), Written)
    assert isinstance(asked(shard, KeepSnapshot(1.0), own), TransactionEnded)
    assert isinstance(asked(shard, GoOn(), own), TransactionEnded)
    assert not shard.store.snapshots()


@pytest.mark.parametrize("how", ["crashed", "told"])
@pytest.mark.parametrize("held", [False, True])
def test_what_was_kept_by_a_shard_that_has_gone_on_is_told_to_nobody(how: str, held: bool) -> None:
    shard, own = shard_alone(), InTransaction("s")
    assert isinstance(asked(shard, StandStill(), own), Written)
    assert isinstance(asked(shard, KeepSnapshot(1.0, held), own), Written)
    if how == "crashed":
        shard.crash(0.0)
    else:
        assert isinstance(asked(shard, DropSnapshot(), own), Written)
    assert isinstance(asked(shard, Insert("t", ((3, 0, 1),))), Written)
    assert isinstance(asked(shard, GoOn(), own), TransactionEnded)
    assert not shard.store.snapshots()


@pytest.mark.parametrize("held", [False, True])
def test_only_what_is_held_is_there_after_a_crash(held: bool) -> None:
    shard, own = shard_alone(), InTransaction("s")
    for act in (StandStill(), KeepSnapshot(1.0, held), GoOn()):
        assert isinstance(asked(shard, act, own), Written)
    shard.crash(0.0)
    assert list(shard.store.snapshots()) == (["s"] if held else [])


# --- mistakes, each of which is found --------------------------------------------------------------------------------

_take = StandingStill.take


def _writes_pass(self: StandingStill, *, but: str = "") -> None:
    """Nothing waits for a snapshot."""


def _plain_writes_pass(self: Transactions, operation: Any) -> Any:
    return self._changed_by(self._written, operation)


async def _does_not_wait_for_what_is_decided(self: Snapshots, bases: Sequence[DomainIndex]) -> None:
    """A shard keeps its tables without what another has committed."""


def _keeps_without_standing_still(self: StandingStill, act: SnapshotAct, name: str) -> None:
    if isinstance(act, KeepSnapshot):
        self.still = name
    _take(self, act, name)


def _goes_on_at_once(self: StandingStill, act: SnapshotAct, name: str) -> None:
    _take(self, act, name)
    if isinstance(act, StandStill):
        self.still = ""


async def _never_told_to_go_on(self: InDoubt, base: DomainIndex) -> Any:
    return type("Nothing", (), {"still": ""})


def _keeps_the_tables_themselves(self: MemoryStore, record: SnapshotRecord) -> None:
    self._untold[record.name] = record, self


def _goes_on_once_it_has_kept(self: StandingStill, act: SnapshotAct, name: str) -> None:
    """It decides what another one, which has yet to keep its own, commits before."""
    _take(self, act, name)
    if isinstance(act, KeepSnapshot):
        _take(self, GoOn(), name)


async def _collects_nothing(self: Snapshots, before: float) -> None:
    """What is left of one that was given up stays."""


MISTAKES: list[tuple[type, str, Callable[..., Any]]] = [
    (StandingStill, "check", _writes_pass),
    (Snapshots, "_settled", _does_not_wait_for_what_is_decided),
    (StandingStill, "take", _goes_on_at_once),
    (StandingStill, "take", _goes_on_once_it_has_kept),
    (InDoubt, "_look_at", _never_told_to_go_on),
    (MemoryStore, "keep_snapshot", _keeps_the_tables_themselves),
    (Snapshots, "_collect", _collects_nothing),
]
SEEDS = 10


def _finds(seed: int) -> bool:
    for lists in (False, True):
        for chances in (UNLUCKY, CALM):
            try:
                done = ran(seed, lists=lists, chances=chances, snapshots=True)
            except (AssertionError, HeadraceError):
                return True
            if not check(done.events, "strict-serializable").holds:
                return True
    return False


@pytest.mark.parametrize(("where", "name", "instead"), MISTAKES, ids=lambda each: getattr(each, "__name__", str(each)))
def test_a_planted_mistake_in_snapshots_is_found(
    where: type, name: str, instead: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(where, name, instead)
    found = next((seed for seed in range(SEEDS) if _finds(seed)), None)
    print(f"{where.__name__}.{name}: seed {found}")
    assert found is not None


@pytest.mark.parametrize(
    ("where", "name", "instead", "scene"),
    [
        (Transactions, "write_beside", _plain_writes_pass, test_a_shard_that_stands_still_takes_no_writes),
        (
            StandingStill,
            "take",
            _keeps_without_standing_still,
            lambda: test_a_shard_that_has_gone_on_keeps_nothing("crashed"),
        ),
        (StandingStill, "take", _goes_on_once_it_has_kept, test_what_is_decided_meanwhile_is_in_no_part_of_it),
    ],
    ids=lambda each: getattr(each, "__name__", str(each)),
)
def test_a_planted_mistake_in_snapshots_shows_in_its_scene(
    where: type, name: str, instead: Callable[..., Any], scene: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(where, name, instead)
    with pytest.raises(AssertionError):
        scene()
