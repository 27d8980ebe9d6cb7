"""A cut has each transaction over shards wholly or not at all, and all that was answered before it was asked for."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from math import inf
from typing import Any

import pytest

from domains.archive.transactions import ArchivedPart, PartPlace, WholeCut, missing_parts, whole
from domains.plan.packets import Clock
from domains.store.memory_store import MemoryStore
from domains.store.storage import TransactionPart
from tests.controller.transactions import cuts
from tests.controller.transactions.cuts import CutRun, ran_with_cuts
from tests.controller.transactions.over_shards import Chances
from tests.histories.checker import check

UNLUCKY = Chances(0.03, 1.5, 0.2, patience=0.5, doubt=0.2)


def judged(seed: int, *, lists: bool, chances: Chances | None = None) -> CutRun:
    done = ran_with_cuts(seed, lists=lists, chances=chances)
    report = check(done.judged(), "serializable")
    assert report.holds, str(report)
    assert done.left == 0, "what a cut has wholly need not be told again"
    return done


@pytest.mark.parametrize("lists", [True, False], ids=["lists", "registers"])
@pytest.mark.parametrize("seed", range(4))
def test_each_cut_is_what_serial_transactions_come_to(seed: int, lists: bool) -> None:
    assert judged(seed, lists=lists).cutting.cuts > 20


def test_some_were_cut_in_the_middle() -> None:
    runs = [judged(seed, lists=lists, chances=UNLUCKY).cutting for seed in (1, 2, 5) for lists in (True, False)]
    assert sum(each.completed for each in runs) > 3
    assert sum(each.went_back for each in runs) > 3


# --- the parts of one transaction, as they may be cut ----------------------------------------------------------------


def part(shard: int, *, prepared: int = 4, before: int = 5, written: int | None = 6) -> ArchivedPart:
    """Of a transaction that shard 0 decides. ``written`` is 0 in a shard that it has only read; None: not committed."""
    base = f"t@{shard}"
    committed = None if written is None else {base: written} if written else {}
    others = (1,) if shard == 0 else ()
    return ArchivedPart("a", shard, 0, others, {base: prepared}, {base: before}, committed, {}, 1, 2)


def at(first: int, second: int) -> Clock:
    return {"t@0": first, "t@1": second}


def test_what_all_have_is_in() -> None:
    assert whole(at(6, 9), [part(0), part(1)]) == WholeCut(at(6, 9), (), ("a",))


def test_what_is_prepared_is_added() -> None:
    found = whole(at(6, 4), [part(0), part(1)])
    assert (found.positions, found.settled) == (at(6, 4), ())
    assert found.lacking == (part(1),)
    waiting = part(1, written=None)
    assert whole(at(6, 4), [part(0), waiting]).lacking == (waiting,)


def test_who_was_cut_before_it_was_prepared_takes_the_others_back() -> None:
    assert whole(at(8, 3), [part(0), part(1)]).positions == at(5, 3)
    assert whole(at(8, 3), [part(0)]).positions == at(5, 3)


def test_what_is_nowhere_committed_is_not_in() -> None:
    found = whole(at(4, 4), [part(0, written=None), part(1, written=None)])
    assert found == WholeCut(at(4, 4))
    assert not missing_parts([part(0, written=None)])


def test_a_shard_that_was_only_read_shows_it_too() -> None:
    """What was written there since may stand on it."""
    read = part(1, written=0)
    assert whole(at(3, 6), [part(0), read]).positions == at(3, 5)
    assert whole(at(4, 6), [part(0), read]).lacking == (part(0),)
    assert whole(at(3, 5), [part(0), read]).positions == at(3, 5)


def test_tables_of_a_shard_go_back_together() -> None:
    one = replace(part(0), before={"t@0": 5, "u@0": 7}, committed={"t@0": 6})
    found = whole({"t@0": 6, "u@0": 9, "t@1": 3}, [one, part(1)])
    assert found.positions == {"t@0": 5, "u@0": 7, "t@1": 3}
    split = replace(part(0), others=(), before={"t@0": 5, "u@0": 7}, committed={"t@0": 6, "u@0": 8})
    assert whole({"t@0": 5, "u@0": 9}, [split]).positions == {"t@0": 5, "u@0": 7}, "a token names one of its tables"


def test_a_part_that_is_lost_is_waited_for_no_longer() -> None:
    missing = missing_parts([part(0)])
    assert missing == {("a", 1)}
    assert whole(at(6, 3), [part(0)], missing) == WholeCut(at(6, 3), (), ("a",))


def test_a_table_that_is_not_in_the_cut_does_not_matter() -> None:
    assert whole({"t@0": 6}, [part(0), part(1)]) == WholeCut({"t@0": 6}, (), ("a",))


def test_what_was_prepared_behind_a_reader_goes_back_with_it() -> None:
    """Both at the same positions, since to read has none."""
    written = replace(part(0, written=None), id="b", others=(), decider=1, prepared={"t@0": 5}, prepared_order=3)
    also = replace(part(1), id="b", decider=1, others=(0,), prepared_order=3, order=4)
    reads = replace(part(0, written=0), decider=2, others=())
    decides = replace(part(2, prepared=9, before=9), decider=2, others=(0,))
    here = {"t@0": 6, "t@1": 6, "t@2": 3}
    assert whole(here, [written, also]).lacking == (written,)
    found = whole(here, [written, also, reads, decides])
    assert found == WholeCut({"t@0": 5, "t@1": 5, "t@2": 3})


# --- mistakes, each of which is found --------------------------------------------------------------------------------

_note_part = MemoryStore.note_part
is_prepared = ArchivedPart.is_prepared


def _cut_as_it_comes(positions: Clock, told: Iterable[ArchivedPart], lost: Collection[PartPlace] = ()) -> WholeCut:
    return WholeCut(positions, (), whole(positions, told, lost).settled)


def _nothing_is_added(positions: Clock, told: Iterable[ArchivedPart], lost: Collection[PartPlace] = ()) -> WholeCut:
    return replace(whole(positions, told, lost), lacking=())


def _nobody_goes_back(positions: Clock, told: Iterable[ArchivedPart], lost: Collection[PartPlace] = ()) -> WholeCut:
    return replace(whole(positions, told, lost), positions=positions)


def _all_that_is_missing_is_lost(
    positions: Clock, told: Iterable[ArchivedPart], lost: Collection[PartPlace] = ()
) -> WholeCut:
    parts = list(told)
    return whole(positions, parts, missing_parts(parts))


def _reads_are_nothing(self: MemoryStore, transaction: str, noted: TransactionPart, copies: Any = ()) -> None:
    if noted.committed:
        _note_part(self, transaction, noted, copies)


def _only_the_decider_notes(self: MemoryStore, transaction: str, noted: TransactionPart, copies: Any = ()) -> None:
    if noted.others:
        _note_part(self, transaction, noted, copies)


def _always_prepared(self: ArchivedPart, positions: Clock, end: float) -> bool:
    return True


def _without_order(self: ArchivedPart, positions: Clock, end: float) -> bool:
    return is_prepared(self, positions, inf)


MISTAKES: list[tuple[Any, str, Callable[..., Any]]] = [
    (cuts, "whole", _cut_as_it_comes),
    (cuts, "whole", _nothing_is_added),
    (cuts, "whole", _nobody_goes_back),
    (cuts, "whole", _all_that_is_missing_is_lost),
    (MemoryStore, "note_part", _reads_are_nothing),
    (MemoryStore, "note_part", _only_the_decider_notes),
]
SEEDS = 40


def _finds(seed: int) -> bool:
    for lists in (True, False):
        try:
            judged(seed, lists=lists)
        except (AssertionError, ValueError):
            return True
    return False


@pytest.mark.parametrize(("where", "name", "instead"), MISTAKES, ids=lambda each: getattr(each, "__name__", ""))
def test_a_planted_mistake_is_found(
    where: Any, name: str, instead: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(where, name, instead)
    found = next((seed for seed in range(SEEDS) if _finds(seed)), None)
    print(f"{instead.__name__}: seed {found}")
    assert found is not None


@pytest.mark.parametrize(
    ("instead", "scene"),
    [
        (_always_prepared, test_who_was_cut_before_it_was_prepared_takes_the_others_back),
        (_without_order, test_what_was_prepared_behind_a_reader_goes_back_with_it),
    ],
)
def test_a_planted_mistake_shows_in_its_scene(
    instead: Callable[..., Any], scene: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs meet these seldom."""
    monkeypatch.setattr(ArchivedPart, "is_prepared", instead)
    with pytest.raises(AssertionError):
        scene()
