"""TPC-H kept up to date: every query answers as DuckDB does, as loaded and after each refresh."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest

from loadgen.bench.tpch.data import Recomputed, difference, generate, parameterised, queries
from loadgen.bench.tpch.kept import KeptQueries, fill
from loadgen.bench.tpch.refresh import RefreshStream

SCALE = 0.01
"""With less, partsupp has some of its keys twice."""
LOADED = "{key} // 32 % 5 = 1"
"""The orders that are loaded: a fifth, which takes a fifth of the time, and every query still has an answer of some."""
JOINED = (3, 5, 13, 15, 16, 18)
"""For several shards: an aggregate above joins, cross joins, outer joins, ranking, DISTINCT."""


ASKED = (3, 11, 12, 15, 17, 20, 22)
"""With parameters: as keys, as ranges and lists applied to what is read, beside a correlated subquery, and below what
another part of the query reads."""
OTHERS: tuple[tuple[int, dict[object, object]], ...] = (
    (11, {"GERMANY": "FRANCE"}),
    (11, {"GERMANY": "KENYA", 0.0001: 0.004}),
    (15, {"1996-01-01": "1994-05-01"}),
    (20, {"forest%": "%a%", "CANADA": "FRANCE"}),
    (20, {"forest%": "%", "1994-01-01": "1995-01-01"}),
    (22, {"13": "10", "17": "99"}),
)
"""Queries of these, and values in the place of those of the validation run."""


@pytest.mark.parametrize(
    ("shards", "numbers", "sizes", "asked"),
    [(1, tuple(queries()), (1, 7, 300), False), (3, JOINED, (1, 50), False), (1, ASKED, (1, 30), True)],
)
async def test_every_answer_is_that_of_duckdb_after_each_refresh(
    tmp_path: Path, shards: int, numbers: tuple[int, ...], sizes: tuple[int, ...], asked: bool
) -> None:
    generate(SCALE, tmp_path / "rows")
    peer = Recomputed(tmp_path / "rows")
    for table, key in (("orders", "o_orderkey"), ("lineitem", "l_orderkey")):
        peer.rows(f"DELETE FROM {table} WHERE NOT ({LOADED.format(key=key)})")
    assert all(map(peer.rows, queries().values())), "an answer without rows compares nothing"
    await fill(tmp_path / "data", shards, peer)
    kept = await KeptQueries.open(tmp_path / "data", asked=asked)
    for number in numbers:
        await kept.install(number)
    stream = RefreshStream(peer)
    await _compare(kept, numbers, peer, {})
    for size in sizes:
        refresh = stream.take(size)
        assert refresh.apply(peer) > 2 * size
        _, token = await kept.refresh(refresh)
        await _compare(kept, numbers, peer, token)
    for number, others in OTHERS if asked else ():
        text, values = queries()[number], [_other(others, value) for value in parameterised(number)[1]]
        for old, new in others.items():
            text = text.replace(str(old), str(new))
        _, answer = await kept.answer(number, token, values)
        assert answer, "an answer without rows compares nothing"
        assert difference(answer, peer.rows(text)) == "", f"query {number} of {others}"
    await kept.close()


def _other(others: dict[object, object], value: object) -> object:
    return [_other(others, each) for each in value] if isinstance(value, list) else others.get(value, value)


async def _compare(kept: KeptQueries, numbers: tuple[int, ...], peer: Recomputed, token: dict[str, int]) -> None:
    answered = 0
    for number in numbers:
        _, answer = await kept.answer(number, token)
        assert difference(answer, peer.rows(queries()[number])) == "", f"query {number}"
        answered += bool(answer)
    assert answered > len(numbers) * 2 / 3, "answers without rows compare nothing"


def test_the_parameters_of_the_validation_run_are_those_of_the_standard_text() -> None:
    assert parameterised(16)[1] == ["Brand#45", "MEDIUM POLISHED%", [49, 14, 23, 45, 19, 3, 36, 9]]
    assert parameterised(4)[1] == ["1993-07-01", "1993-07-01"]
    for number, text in queries().items():
        asked, values = parameterised(number)
        assert asked.count("?") == len(values) > 0
        assert not {"{", "}"} & set(text + asked)


def test_refreshes_take_keys_that_are_free_and_rows_that_fit(tmp_path: Path) -> None:
    generate(SCALE, tmp_path / "rows")
    peer = Recomputed(tmp_path / "rows")
    stream, again = RefreshStream(peer), RefreshStream(peer)
    taken = {key for (key,) in peer.rows("SELECT o_orderkey FROM orders")}
    for _ in range(2):
        refresh = stream.take(20)
        assert refresh == again.take(20)
        assert {row[0] for row in refresh.orders}.isdisjoint(taken)
        assert set(refresh.deleted) < taken
        assert {row[0] for row in refresh.lineitems} == {row[0] for row in refresh.orders}
        taken = (taken | {row[0] for row in refresh.orders}) - set(refresh.deleted)  # type: ignore[arg-type]
        refresh.apply(peer)
        assert {key for (key,) in peer.rows("SELECT o_orderkey FROM orders")} == taken
    strangers = "SELECT COUNT(*) FROM lineitem LEFT JOIN partsupp ON ps_partkey = l_partkey AND ps_suppkey = l_suppkey"
    assert peer.rows(f"{strangers} WHERE ps_partkey IS NULL") == [(0,)]
    with pytest.raises(ValueError, match="loaded ones are left"):
        stream.take(20_000)


@pytest.mark.parametrize(
    ("ours", "theirs", "says"),
    [
        ([["a", "17.00"], ["b", 2]], [("b", 2), ("a", Decimal(17))], ""),
        ([["25.575155"]], [(25.5751547,)], ""),
        ([["25.575155"]], [(25.5751556,)], "25.575155"),
        ([[None]], [(None,)], ""),
        ([[1], [1]], [(1,)], "2 rows, and 1"),
        ([["a", "1.10"]], [("a", Decimal("1.1"))], ""),
        ([["a", "1.10"]], [("a", Decimal("1.2"))], "in DuckDB"),
    ],
)
def test_answers_are_compared_as_bags_of_values(
    ours: list[list[object]], theirs: list[tuple[object, ...]], says: str
) -> None:
    found = difference(ours, theirs)
    assert (says in found) if says else found == ""
