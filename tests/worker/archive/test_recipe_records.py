"""Which recipe was in force at a position, or at a time."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest

from domains.archive.manifest import ArchiveFenced, ManifestDamaged
from domains.plan.packets import Clock
from worker.archive.place import Place
from worker.archive.recipes import RecipeBook, RecipeRecord, record_at

FORMER, LATER = "2026-01-31T08:00:00.000Z", "2026-01-31T09:00:00.000Z"
RECORDS = [
    RecipeRecord(FORMER, {"t": 3}, {"t": "a"}, 1, "t"),
    RecipeRecord(LATER, {"t~1": 1, "u": 5}, {"t~1": "b", "u": "c"}, 1, "DROP TABLE t, and another one"),
]


@pytest.mark.parametrize(
    ("positions", "expected"),
    [
        ({"t": 2}, FORMER),
        ({"t": 3}, FORMER),
        ({"t~1": 1}, LATER),
        ({"u": 5}, LATER),
        ({"u": 9, "t~1": 1}, LATER),
    ],
)
def test_a_position_of_a_table_that_was_dropped_is_one_of_when_it_was_there(positions: Clock, expected: str) -> None:
    found = record_at(RECORDS, positions=positions)
    assert found is not None
    assert found.time == expected


def test_at_a_time_and_at_the_end() -> None:
    assert record_at(RECORDS, time="2026-01-31T08:59:59.000Z") is RECORDS[0]
    assert record_at(RECORDS) is RECORDS[1]
    assert record_at([]) is None


def hour(number: int) -> str:
    return f"2026-01-31T{number:02}:00:00.000Z"


def test_what_was_in_force_only_before_the_retention_is_let_go(tmp_path: Path) -> None:
    book = RecipeBook(Place(str(tmp_path)))
    for number in range(1, 6):
        book.keep(RecipeRecord(hour(number), {"t": number}, {"t": "a"}, 1, f"recipe {number}"))
    for before, left in ((0, 5), (1, 5), (3, 3), (4, 2), (9, 1), (9, 1)):
        book.expire(hour(before))
        assert [record.recipe for record in book.records()] == [f"recipe {at}" for at in range(6 - left, 6)]
    assert book.keep(RecipeRecord(hour(9), {"t": 7}, {"t": "a"}, 1, "recipe 5")).record.number == 5, (
        "it is in force yet"
    )
    assert record_at(book.records(), positions={"t": 5}) is not None
    assert record_at(book.records(), positions={"t": 4}) is None, "its recipe was another, which is not known any more"
    assert record_at(book.records(), time=hour(4)) is None


@pytest.mark.parametrize("seed", range(20))
def test_as_of_what_is_kept_the_record_stays_the_same_and_is_never_another(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    book, positions, generations = RecipeBook(Place(str(tmp_path))), {"t": 0, "u": 0}, {"t": 0, "u": 0}
    asked: list[tuple[int, Clock]] = []
    for number in range(1, 20):
        for table in positions:
            if rng.random() < 0.15:
                generations[table] += 1
                positions[table] = 0
            positions[table] += rng.randrange(4)
        now = {f"{table}~{generations[table]}": at for table, at in positions.items()}
        asked += [(number, {base: at for base, at in now.items() if rng.random() < 0.8})]
        recipe = f"recipe {number if number == 1 or rng.random() < 0.6 else number - 1}"
        book.keep(RecipeRecord(hour(number), now, {base: base for base in now}, 1, recipe))
    before, boundary = book.records(), rng.randrange(20)
    book.expire(hour(boundary))
    after = book.records()
    for number, clock in asked:
        told = f"seed {seed}, boundary {boundary}, as of hour {number}, {clock}"
        at_time, was = record_at(after, time=hour(number)), record_at(before, time=hour(number))
        assert recipe_of(at_time) in ({recipe_of(was)} | ({None} if number < boundary else set())), told
        at_clock, was = record_at(after, positions=clock), record_at(before, positions=clock)
        if was is not None and not was.identities.keys() >= clock.keys():
            was = None  # It is of no use: who restores refuses a token of what it has not.
        assert recipe_of(at_clock) in ({recipe_of(was)} | ({None} if number < boundary else set())), told


def test_a_clock_that_was_set_back_does_not_bring_an_old_recipe_back(tmp_path: Path) -> None:
    book = RecipeBook(Place(str(tmp_path)))
    for at, recipe in ((9, "one"), (8, "two"), (7, "three")):
        book.keep(RecipeRecord(hour(at), {"t": 5}, {"t": "a"}, 1, recipe))
    assert [record.recipe for record in book.records()] == ["one", "two", "three"]
    assert [record.time for record in book.records()] == [hour(9), f"{hour(9)[:-2]}1Z", f"{hour(9)[:-2]}2Z"]
    last = record_at(book.records())
    assert last is not None
    assert last.recipe == "three"


def test_records_without_a_number_come_first_in_the_order_of_their_times(tmp_path: Path) -> None:
    place = Place(str(tmp_path))
    for at in (9, 8):
        record = {"time": hour(at), "positions": {}, "identities": {}, "shards": 1, "recipe": f"old {at}"}
        place.replace(f"recipes/{hour(at)}.json", json.dumps(record).encode())
    RecipeBook(place).keep(RecipeRecord(hour(7), {}, {}, 1, "new"))
    assert [record.recipe for record in RecipeBook(place).records()] == ["old 8", "old 9", "new"]


def test_a_recipe_that_is_behind_is_not_recorded_and_of_two_at_once_the_later_counts(tmp_path: Path) -> None:
    place = Place(str(tmp_path))
    late, early = RecipeBook(place), RecipeBook(place)
    assert late.keep(RecipeRecord(hour(1), {}, {}, 1, "first", version=(3, 1))).record.number == 1
    early.records()
    early.keep(RecipeRecord(hour(9), {}, {}, 1, "third", version=(3, 3)))  # By a clock that is ahead.
    with pytest.raises(ArchiveFenced):
        RecipeBook(place).keep(RecipeRecord(hour(2), {}, {}, 1, "second", version=(3, 2)))
    late.keep(RecipeRecord(hour(2), {}, {}, 1, "second", version=(3, 2)))  # It has not seen the third.
    assert [record.recipe for record in RecipeBook(place).records()] == ["first", "second", "third"]
    RecipeBook(place).keep(RecipeRecord(hour(2), {}, {}, 1, "fourth", version=(4, 4)))
    assert RecipeBook(place).records()[-1].recipe == "fourth"


def test_a_bit_that_turns_in_a_record_is_noticed(tmp_path: Path) -> None:
    place = Place(str(tmp_path))
    RecipeBook(place).write(replace(RECORDS[1], number=1, version=(3, 1)))
    file = f"recipes/{LATER}.json"
    whole, (wanted,) = place.read(file), RecipeBook(place).records()
    assert whole is not None
    for bit in range(8 * len(whole)):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        Path(place.at(file)).write_bytes(damaged)
        try:
            assert RecipeBook(place).records() == [wanted], bit
        except ManifestDamaged as error:
            assert LATER in str(error), bit  # noqa: PT017


def recipe_of(record: RecipeRecord | None) -> str | None:
    return None if record is None else record.recipe


@pytest.mark.parametrize("gone", ["the last", "one of many", "a record's last", "a record"])
def test_a_cut_that_was_deleted_is_missed(tmp_path: Path, gone: str) -> None:
    book, place = RecipeBook(Place(str(tmp_path))), Place(str(tmp_path))
    for at, recipe in enumerate(("one", "one", "one", "two", "two", "three", "three", "three")):
        book.keep(RecipeRecord(hour(at), {"t": at}, {"t": "a"}, 1, recipe))
    before = list(RecipeBook(place).cuts())
    for cut in before:
        RecipeBook(place).check_behind(cut)
    number = {"the last": 7, "one of many": 1, "a record's last": 4, "a record": 3}[gone]
    missing = before[number]
    if missing.number:
        (file,) = (tmp_path / "cuts").glob(f"{missing.record.number:012}-{missing.number:012}-*.json")
    else:
        file = tmp_path / "recipes" / f"{missing.record.time}.json"
    file.unlink()
    found = RecipeBook(place).cut_at(missing.time)
    assert found is not None
    assert found.positions == before[number - 1].positions
    with pytest.raises(ManifestDamaged, match=f"the cut behind that of {found.time} is missing"):
        RecipeBook(place).check_behind(found)
    for cut in before[: number - 1]:
        RecipeBook(place).check_behind(cut)
