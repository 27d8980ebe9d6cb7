"""UPDATE and DELETE look their rows up by the first columns of a key or an index, and hit what a scan would hit."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from domains.language.compile import compile_predicate
from domains.language.types import Delta, Row
from domains.plan.packets import Delete, Update
from domains.store.memory_store import MemoryStore, MemoryTable
from domains.store.selecting import keys_of, selected
from migrations.catalog import Catalog
from migrations.statements.statement import WriteStatement
from tests.migrations.statement_catalog import one, perform
from worker.rocks import RocksStore
from worker.rocks.table import RocksTable

CATALOG = perform(
    """
    CREATE TABLE lines (o INT, n VARCHAR(20), price DECIMAL(8,2), made DATE, word VARCHAR(20), amount BIGINT,
                        PRIMARY KEY (o, n), KEY by_word (word, made, amount), UNIQUE KEY u (amount, o));
    CREATE TABLE bag (o INT, n VARCHAR(200), price DECIMAL(8,2), made DATE, word VARCHAR(20), amount BIGINT,
                      KEY by_word (word, price, made), KEY by_n (n, o));
    """,
    Catalog(),
)
Table = MemoryTable | RocksTable


@pytest.fixture(params=["memory", "rocks"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MemoryStore | RocksStore]:
    if request.param == "memory":
        yield MemoryStore()
    else:
        opened = RocksStore(tmp_path / "base")
        yield opened
        opened.close()


def operation_of(sql: str, *params: Any) -> Update | Delete:
    statement = one(sql, *params, catalog=CATALOG)
    assert isinstance(statement, WriteStatement)
    assert isinstance(statement.operation, (Update, Delete))
    return statement.operation


def write(store: MemoryStore | RocksStore, name: str, deltas: list[Delta]) -> None:
    store.table(name).stage(deltas)
    store.commit([(name, store.position(name) + 1, deltas)])


def filled(store: MemoryStore | RocksStore, name: str, rows: list[Row]) -> Table:
    table = store.create_table(CATALOG.tables[name])
    write(store, name, list(Counter(rows).items()))
    return table


def line(o: int, n: str) -> Row:
    return (o, n, None, "2026-01-02", f"w{o}", 100 * o + int(n))


@pytest.mark.parametrize(
    ("where", "hits"),
    [
        ("o = 3", 4),
        ("o IN (3, 4, 3) AND price IS NULL", 8),
        ("(o, n) IN ((3, '1'), (4, '9'), (5, '2'), (3, '1'))", 2),
        ("(n, o) IN (('1', 3))", 1),
        ("o = 3 AND (n, o) IN (('1', 3), ('1', 4))", 1),
        ("(o = 3 AND n = '1') OR (o = 4 AND n = '2')", 2),
        ("word = 'w3'", 4),
        ("word = 'w3' AND made = '2026-01-02'", 4),
        ("amount IN (301, 302)", 2),
        ("o = 3 AND o = 4", 0),
        ("(o, n) IN ((3, NULL))", 0),
    ],
)
def test_no_row_is_read_that_the_key_does_not_name(
    store: MemoryStore | RocksStore, where: str, hits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = filled(store, "lines", [line(o, str(n)) for o in range(20) for n in range(4)])
    operation = operation_of(f"DELETE FROM lines WHERE {where}")
    read = 0
    for method in ("find", "find_many"):
        original = getattr(type(table), method)

        def counted(self: Any, columns: Any, keys: Any, original: Any = original, method: str = method) -> Any:
            nonlocal read
            answer = original(self, columns, keys)
            read += len(answer) if method == "find" else sum(map(len, answer))
            return answer

        monkeypatch.setattr(type(table), method, counted)
    assert len(selected(table, operation)) == hits
    assert read <= 2 * hits, f"{read} rows were read for {hits}"


def test_a_prefix_of_the_primary_key_needs_no_index(store: MemoryStore | RocksStore) -> None:
    table = filled(store, "lines", [line(o, str(n)) for o in range(5) for n in range(3)])
    assert table.has_index((0,))
    table.add_index((0,))
    assert table.build_index((0,), None, 1) is None
    assert sorted(table.find((0,), (3,))) == [(line(3, str(n)), 1) for n in range(3)]
    assert [len(rows) for rows in table.find_many((0,), [(4,), (9,), (0,)])] == [3, 0, 3]
    assert table.count_many((0,), [(4,), (9,)], 2) == [2, 0]
    write(store, "lines", [(line(3, "0"), -1), (line(3, "7"), 1)])
    assert sorted(row[1] for (rows,) in [table.find_many((0,), [(3,)])] for row, _ in rows) == ["1", "2", "7"]
    # A secondary index may be dropped, and first columns of it are then no way in.
    assert not table.has_index((4,))


def test_a_key_of_two_lists_is_not_more_look_ups_than_the_table_has_rows() -> None:
    access = (((0,), tuple((n,) for n in range(1000))), ((1,), tuple((n,) for n in range(1000))))
    assert keys_of(access, (0, 1), 999_999) is None
    assert keys_of(access, (0,), 1000) == [(n,) for n in range(1000)]
    table = filled(MemoryStore(), "lines", [line(o, str(n)) for o in range(5) for n in range(3)])
    many = ", ".join(f"'{n}'" for n in range(300))
    operation = operation_of(f"DELETE FROM lines WHERE o IN (1, 2) AND n IN ({many})")
    assert len(selected(table, operation)) == 6


def literal(rng: random.Random, column: str) -> str:
    """Of the column's type more often than not; NULL, another type and what no row has are among them."""
    whole = str(rng.randrange(-1, 4))
    if rng.random() < 0.1:
        return "NULL"
    if rng.random() < 0.25:
        return rng.choice(
            [whole, f"'{whole}'", f"{whole}.0", f"{whole}.5", f"{whole}e0", "'x'", "'2026-01-02'", "TRUE"]
        )
    values = {
        "o": whole,
        "amount": whole,
        "n": rng.choice(["'1'", "'x'", "'x\\0y'", "''", "'long long long long'"]),
        "word": rng.choice(["'1'", "'x'", "'X'", "''"]),
        "price": rng.choice(["1.5", "1.50", "0", "-2.25", "1.505"]),
        "made": rng.choice(["'2026-01-02'", "'2026-1-2'", "'2026-01-03'", "'2026-01-02 10:00'"]),
    }
    return values[column]


COLUMNS = ["o", "n", "price", "made", "word", "amount"]


def condition(rng: random.Random, depth: int = 2) -> str:
    chance = rng.random()
    if depth and chance < 0.2:
        return f"({condition(rng, depth - 1)} OR {condition(rng, depth - 1)})"
    if depth and chance < 0.3:
        return f"({condition(rng, depth - 1)} AND {condition(rng, depth - 1)})"
    if chance < 0.5:
        columns = rng.sample(COLUMNS, 2)
        rows = [f"({', '.join(literal(rng, column) for column in columns)})" for _ in range(rng.randrange(1, 4))]
        return f"({', '.join(columns)}) IN ({', '.join(rows)})"
    column = rng.choice(COLUMNS)
    if chance < 0.75:
        return f"{column} IN ({', '.join(literal(rng, column) for _ in range(rng.randrange(1, 5)))})"
    if chance < 0.95:
        return f"{column} = {literal(rng, column)}"
    return f"{column} {rng.choice(['<', '>=', '<>'])} {literal(rng, column)}"


def random_row(rng: random.Random) -> Row:
    """As a table of either kind may have it."""
    return (
        rng.randrange(-1, 4),
        rng.choice(["1", "x", "x\0y", "", "2026-01-02", "long long long long"]),
        rng.choice([None, Decimal("1.50"), Decimal("0.00"), Decimal("-2.25"), Decimal("1.00")]),
        rng.choice([None, "2026-01-02", "2026-01-03"]),
        rng.choice([None, "1", "x", "X", "", "1.0"]),
        rng.choice([None, -1, 0, 1, 2, 3]),
    )


@pytest.mark.parametrize("name", ["lines", "bag"])
def test_what_is_hit_is_what_a_scan_hits(store: MemoryStore | RocksStore, name: str) -> None:
    seed = random.randrange(2**32)
    rng = random.Random(seed)
    print("seed", seed)
    rows = [random_row(rng) for _ in range(120)]
    if name == "lines":
        rows = list({row[:2]: row for row in rows}.values())
        taken: set[Any] = set()
        rows = [r for r in rows if r[5] is None or ((r[5], r[0]) not in taken and not taken.add((r[5], r[0])))]
    else:
        rows = [(row[0], row[1] * rng.choice([1, 20]) if row[1] != "2026-01-02" else row[1], *row[2:]) for row in rows]
    table = filled(store, name, rows)
    looked_up = 0
    for _ in range(300):
        where = " AND ".join(condition(rng) for _ in range(rng.randrange(1, 4)))
        operation = operation_of(f"DELETE FROM {name} WHERE {where}")
        assert operation.where is not None
        holds = compile_predicate(operation.where)
        wanted = Counter({row: n for row, n in Counter(rows).items() if holds(row)})
        hit = selected(table, operation)
        assert Counter(dict(hit)) == wanted, f"seed {seed}: {where}"
        assert len(dict(hit)) == len(hit), f"seed {seed}: {where}: a row was hit twice"
        assert Counter(dict(selected(table, replace(operation, access=())))) == wanted, f"seed {seed}: {where}"
        looked_up += bool(wanted) and bool(table.best_key({at for tied, _ in operation.access for at in tied}))
    assert looked_up > 20, f"seed {seed}: hardly any statement was a look-up"
