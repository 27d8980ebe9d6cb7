"""Whatever disks are lost, no transaction over shards is left by halves; and each mistake in bringing it back shows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from domains.archive import redo
from domains.archive.redo import KeptTransaction, by_key
from domains.engine.transactions.parts import Parts
from domains.language.types import BIGINT, TEXT, TableColumn, TableSchema
from domains.plan.copies import COPIES_MOST, PartCopy, changes_of, copied, kept_copies
from domains.plan.graph import DomainIndex
from domains.store.memory_store import MemoryStore, MemoryTable
from domains.store.storage import TransactionPart
from tests.controller.transactions import lost_disks
from tests.controller.transactions.lost_disks import LosableShard, ran_with_losses
from tests.controller.transactions.over_shards import Chances

UNLUCKY = Chances(0.03, 1.5, 0.2, patience=0.5, doubt=0.2)


@pytest.mark.parametrize("seed", range(6))
def test_a_transaction_over_shards_outlives_the_disk_of_one(seed: int) -> None:
    done = ran_with_losses(seed)
    assert not done.halves()
    assert done.losing.cuts
    assert sum(shard.losses for shard in done.losing.shards)


def test_some_were_brought_back() -> None:
    runs = [ran_with_losses(seed, chances=UNLUCKY) for seed in range(3)]
    assert not [half for done in runs for half in done.halves()]
    assert sum(done.losing.brought_back for done in runs) > 3


# --- mistakes that must show ----------------------------------------------------------------------------------------

_redo, _kept_with, _note = redo.redo, redo.kept_with, Parts.note


def _believe_all(self: Parts, own: Any, act: Any) -> None:
    """Whatever was told in an earlier incarnation counts."""


def _do_all_again(store: Any, shard: Any, shards: int, kept: Any, archived: Any) -> Any:
    return _redo(store, shard, shards, kept, {})


def _forget_what_is_archived(store: Any, shard: Any, shards: int, kept: Any, archived: Any) -> Any:
    """The next manifest does not name it."""
    ids = {id for each in archived.values() for id in each}
    return _redo(store, shard, shards, [each for each in kept if each.id not in ids], {})


def _in_any_order(transaction: Any, shard: DomainIndex) -> int:
    return -sum(map(ord, str(sorted(transaction.copies)))) if shard else 0


def _ignore_the_prepared(store: Any, shard: Any, incarnation: int, lost: Any) -> list[KeptTransaction]:
    return [each for each in _kept_with(store, shard, incarnation, lost) if not each.is_prepared]


def _only_the_decider_keeps(self: Parts, own: Any, act: Any, domain: Any, changes: Any) -> None:
    _note(self, own, act if act.others else replace(act, copies=()), domain, changes)


def _nothing_is_behind(self: Parts, id: str) -> tuple[Any, ...]:
    return ()


def _settled_is_forgotten(self: LosableShard, kept: Any, settled: Any) -> int:
    return _make_again(self, kept, frozenset())


_make_again = LosableShard.make_again

MISTAKES: list[tuple[Any, str, Callable[..., Any], int]] = [
    (Parts, "check", _believe_all, 0),
    (lost_disks, "redo", _do_all_again, 0),
    (lost_disks, "redo", _forget_what_is_archived, 0),
    (redo, "_order", _in_any_order, 0),
    (lost_disks, "kept_with", _ignore_the_prepared, 0),
    (Parts, "note", _only_the_decider_keeps, 0),
    (Parts, "_behind", _nothing_is_behind, 54),
    (LosableShard, "make_again", _settled_is_forgotten, 0),
]


@pytest.mark.parametrize(("where", "what", "mistake", "first"), MISTAKES, ids=[each[2].__name__ for each in MISTAKES])
def test_a_mistake_shows(
    monkeypatch: pytest.MonkeyPatch, where: Any, what: str, mistake: Callable[..., Any], first: int
) -> None:
    monkeypatch.setattr(where, what, mistake)
    for seed in range(first, first + 30):
        try:
            shown = ran_with_losses(seed, chances=UNLUCKY if seed % 2 else None).halves()
        except AssertionError as error:
            shown = [str(error)]
        if shown:
            print(f"{what}: seed {seed}")
            return
    raise AssertionError("nobody has noticed")


# --- rows, by their keys --------------------------------------------------------------------------------------------

ID, NAME, NOTE = TableColumn("id", BIGINT, nullable=False), TableColumn("name", TEXT), TableColumn("note", TEXT)
KEYED = TableSchema("t", (ID, NAME), primary_key=(0,), unique=((1,),))
SHARD, OTHER = DomainIndex(0), DomainIndex(1)


def stored(schema: TableSchema, *rows: tuple[Any, ...]) -> MemoryStore:
    store = MemoryStore(keep_log=False)
    store.create_table(schema).stage([(row, 1) for row in rows])
    store.commit([(schema.name, 5, [])])
    return store


def left(table: MemoryTable, deltas: list[Any]) -> tuple[list[Any], int]:
    changed, displaced = by_key(table, deltas)
    table.stage(changed)
    table.commit()
    return sorted(row for row, weight in table.find((), ()) for _ in range(weight)), displaced


@pytest.mark.parametrize(
    ("rows", "deltas", "then", "displaced"),
    [
        ([(1, "a")], [((1, "a"), -1), ((1, "b"), 1)], [(1, "b")], 0),
        ([(1, "x")], [((1, "a"), -1), ((1, "b"), 1)], [(1, "b")], 0),  # A write that is lost had made it "a".
        ([], [((1, "a"), -1), ((1, "b"), 1)], [(1, "b")], 0),
        ([(1, "b")], [((1, "a"), -1), ((1, "b"), 1)], [(1, "b")], 0),
        ([(1, "x")], [((1, "a"), -1)], [], 0),
        ([], [((1, "a"), -1)], [], 0),
        ([(2, "b")], [((1, "b"), 1)], [(1, "b")], 1),  # A write that is lost had freed the name.
        ([(2, "b"), (3, "c")], [((1, "b"), 1), ((2, "c"), 1)], [(1, "b"), (2, "c")], 1),
        ([(1, None), (2, None)], [((3, None), 1)], [(1, None), (2, None), (3, None)], 0),
    ],
)
def test_rows_are_put_by_their_keys(rows: list[Any], deltas: list[Any], then: list[Any], displaced: int) -> None:
    assert left(stored(KEYED, *rows).table("t"), deltas) == (then, displaced)


def test_a_bag_loses_no_more_than_it_has() -> None:
    bag = TableSchema("t", (ID, NAME))
    table = stored(bag, (1, "a"), (1, "a"), (2, "b")).table("t")
    assert left(table, [((1, "a"), -1), ((3, "c"), -1), ((2, "b"), 2)]) == ([(1, "a"), (2, "b"), (2, "b"), (2, "b")], 0)


def kept(*rows: Any, decider: DomainIndex = OTHER, generation: int = 0, **also: Any) -> KeptTransaction:
    copy = PartCopy(SHARD, 3, 7, copied({("t", generation): list(rows)}))
    return KeptTransaction("a", OTHER, decider, (copy, PartCopy(OTHER, 2, 4, b"")), **also)


def test_rows_of_before_an_alter_are_widened() -> None:
    store = stored(replace(KEYED, columns=(ID, NAME, replace(NOTE, initial="new", has_initial=True))))
    done = redo.redo(store, SHARD, 2, [kept(((1, "a"), 1))], {})
    assert store.table("t").find((), ()) == [((1, "a", "new"), 1)]
    assert (done.transactions, store.position("t")) == (1, 6)


def test_another_table_of_the_name_has_none_of_its_rows() -> None:
    store = stored(KEYED)
    assert redo.redo(store, SHARD, 2, [kept(((1, "a"), 1), generation=1)], {}).transactions == 0
    assert store.table("t").row_count == 0


def test_what_is_archived_is_noted_and_not_done_again() -> None:
    store = stored(KEYED, (1, "later"))
    assert redo.redo(store, SHARD, 2, [kept(((1, "a"), 1))], {"t": ["a"]}).transactions == 0
    assert store.table("t").find((), ()) == [((1, "later"), 1)]
    assert store.parts()["a"] == TransactionPart(OTHER, (), {"t@0": 5}, {"t@0": 5}, {"t@0": 5}, 7, 7)


def test_who_decides_has_its_decision_again() -> None:
    store = stored(KEYED)
    redo.redo(store, SHARD, 2, [kept(((1, "a"), 1), decider=SHARD)], {})
    assert store.records()["a"].others == (OTHER,)
    assert {copy.shard for copy in store.copies_of("a")} == {SHARD, OTHER}


def test_what_it_has_met_is_brought_back_with_it() -> None:
    """It was decided in the lost shard, and is prepared in the other, which has not heard."""
    store = stored(KEYED)
    met = copied({("t", 0): [((1, "a"), 1)]})
    copy = PartCopy(SHARD, 3, 9, copied({("t", 0): [((1, "a"), -1), ((1, "ab"), 1)]}), (("a", 7, met),))
    prepared = KeptTransaction("a", OTHER, SHARD, (PartCopy(OTHER, 2, 4),), is_prepared=True)
    both = [prepared, KeptTransaction("b", DomainIndex(2), SHARD, (copy,))]
    assert redo.redo(stored(KEYED), SHARD, 3, both[1:], {}).transactions == 1, "what others have heard of they keep"
    assert redo.redo(store, SHARD, 3, both, {}).transactions == 2
    assert store.table("t").find((), ()) == [((1, "ab"), 1)]
    assert {id: record.others for id, record in store.records().items()} == {"a": (OTHER,), "b": (DomainIndex(2),)}


def test_no_value_of_auto_increment_is_given_again() -> None:
    store = stored(replace(KEYED, columns=(replace(ID, auto_increment=True), NAME)))
    redo.redo(store, SHARD, 2, [kept(((40, "a"), 1))], {})
    assert store.table("t").next_auto_increment(1) == 41


def test_what_was_too_large_to_be_kept_is_named() -> None:
    large = PartCopy(SHARD, 3, 7, b"x" * COPIES_MOST, (("b", 1, b"x"),))
    copies = kept_copies([large, PartCopy(OTHER, 2, 4, b"[]"), PartCopy(DomainIndex(2), 1)])
    assert [(copy.changes, copy.behind, copy.is_left_out) for copy in copies] == [
        (b"", (), True),
        (b"", (), True),
        (b"", (), False),
    ]
    assert kept_copies(copies) == copies
    transaction = KeptTransaction("a", OTHER, OTHER, copies)
    assert redo.kept_from_json(redo.kept_to_json([transaction]), "kept") == [transaction]
    assert redo.redo(stored(KEYED), SHARD, 3, [transaction], {}).halves == ["a"]
    assert redo.redo(stored(KEYED), SHARD, 3, [transaction], {"t": ["a"]}).halves == [], "it is archived"
    assert redo.redo(stored(KEYED), DomainIndex(2), 3, [transaction], {}).halves == [], "it has read only"


def test_what_is_only_prepared_is_not_committed() -> None:
    store = stored(KEYED)
    prepared = partial(kept, ((1, "a"), 1), decider=SHARD, is_prepared=True)
    redo.redo(store, SHARD, 2, [prepared()], {})
    assert not store.records()
    assert not store.parts()
    redo.redo(store, SHARD, 2, [prepared()], {"t": ["a"]})
    assert store.records()["a"].others == (OTHER,)


def test_copies_are_what_was_copied() -> None:
    rows = [((1, "ä\ud800", None, b"\x00", 2**70, 1.5), -2)]
    assert changes_of(copied({("t", 3): rows})) == {("t", 3): rows}
    assert copied({}) == b""
