"""A deployment of several shards answers what one of a single shard answers; and where it cannot, it says so."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from controller.deployment import in_one_state
from controller.embedded.local import LocalDeployment
from controller.lookups.view_lookup import ShardedLookup
from domains.errors import BadRequest, ConstraintViolation, StorageFailure

SCHEMA = """
CREATE TABLE items (id BIGINT NOT NULL PRIMARY KEY, kind TEXT NOT NULL, price DECIMAL(8, 2), UNIQUE (id, kind));
CREATE VIEW ById AS SELECT id, kind, price FROM items WHERE id = ?;
CREATE VIEW Listed AS SELECT id, kind FROM items WHERE id IN (?);
CREATE VIEW Dearest AS SELECT id, kind, price FROM items WHERE kind IN (?) ORDER BY price DESC, id LIMIT 7;
CREATE VIEW Paged AS SELECT id, kind, price FROM items WHERE kind IN (?) ORDER BY price, id LIMIT ? OFFSET ?;
CREATE VIEW Kinds AS SELECT kind, COUNT(*) AS items, SUM(price) AS total FROM items WHERE kind IN (?) GROUP BY kind;
CREATE VIEW Overall AS SELECT COUNT(*) AS items, MIN(price) AS least FROM items
"""
KINDS = tuple("abcdefghij")
SHARDS = 3

Pair = tuple[LocalDeployment, LocalDeployment]


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[Pair]:
    """One shard, and several."""
    one = await LocalDeployment.open(tmp_path / "one")
    many = await LocalDeployment.open(tmp_path / "many", shards=SHARDS)
    for deployment in (one, many):
        await deployment.execute(SCHEMA)
    yield one, many
    await one.close()
    await many.close()


async def fill(deployment: LocalDeployment, seed: int) -> None:
    rng = random.Random(seed)
    rows = [
        {"id": id, "kind": rng.choice(KINDS), "price": None if rng.random() < 0.1 else f"{rng.randrange(500)}.25"}
        for id in range(200)
    ]
    written = await deployment.insert("items", rows)
    assert written.rows_affected == 200


@pytest.mark.parametrize("seed", [0, 1])
async def test_look_ups_over_shards_are_those_of_one(pair: Pair, seed: int) -> None:
    one, many = pair
    for deployment in pair:
        await fill(deployment, seed)
    rng = random.Random(seed)
    for _ in range(60):
        kinds = rng.sample((*KINDS, "none"), rng.randint(1, 6))
        ids = rng.sample(range(-5, 210), rng.randint(1, 12))
        keys: dict[str, list[Any]] = {
            "Listed": [[ids], [ids[:1]]],
            "Dearest": [[kinds], [kinds[:1]]],
            "Paged": [[kinds, rng.randint(0, 9), rng.randint(0, 9)]],
            "Kinds": [[kinds]],
            "Overall": [[]],
            "ById": [[id] for id in ids],
        }
        view = rng.choice(list(keys))
        for _ in range(2):  # a miss and a hit
            # Views without an order of their own have that of the list, so all are compared as they come.
            assert await many.pages(view, keys[view]) == await one.pages(view, keys[view]), (view, keys[view])
        if rng.random() < 0.2:
            await many.evict("ById", keys["ById"])


async def test_hits_are_found_in_every_shard(pair: Pair) -> None:
    _, many = pair
    await fill(many, 1)
    lookup = many.prepare("ById")
    assert isinstance(lookup, ShardedLookup)
    assert len(lookup.shards) == SHARDS
    keys = [[id] for id in range(30)]
    first = await many.pages("ById", keys)
    before = lookup.hits
    assert in_one_state(lambda reading: lookup.try_pages(keys, reading)) == (first, [])
    assert lookup.hits == before + 30
    assert [lookup.try_page({"id": [str(id)]}) for id in range(30)] == first
    assert await many.evict("ById", keys) == 30
    assert in_one_state(lambda reading: lookup.try_pages(keys, reading))[0] == [None] * 30


async def test_an_update_or_delete_goes_where_its_rows_are(pair: Pair) -> None:
    one, many = pair
    for deployment in pair:
        await fill(deployment, 2)
    for sql in (
        "UPDATE items SET price = 1 WHERE id IN (3, 4, 5, 700)",
        "UPDATE items SET price = 2 WHERE kind = 'a'",
        "DELETE FROM items WHERE id = 9",
        "DELETE FROM items WHERE kind IN ('b', 'c')",
    ):
        (found,), _ = await many.execute(sql)
        (wanted,), _ = await one.execute(sql)
        assert found.rows_affected == wanted.rows_affected, sql
    limited = "DELETE FROM items WHERE kind <> 'a' LIMIT 11"
    (found,), clock = await many.execute(limited)
    assert found.rows_affected == 11
    left = json.loads(b"[" + await many.page("Overall", {}, token=clock) + b"]")
    (counted,), _ = await many.execute("SELECT id FROM items")
    assert left[0]["items"] == len(counted.rows)


async def test_a_token_names_the_shards_and_is_reached(pair: Pair) -> None:
    _, many = pair
    written = await many.insert("items", [{"id": id, "kind": "a"} for id in range(SHARDS)])
    assert written.clock == {f"items@{shard}": 1 for shard in range(SHARDS)}
    assert await many.page("ById", {"id": ["2"]}, token=written.clock) == b'{"id":2,"kind":"a","price":null}'
    with pytest.raises(BadRequest, match="another deployment"):
        await many.page("ById", {"id": ["2"]}, token={"items": 1})


async def test_a_write_that_fails_in_one_shard_says_what_others_did(pair: Pair) -> None:
    _, many = pair
    await many.insert("items", [{"id": 1, "kind": "a"}])
    with pytest.raises(ConstraintViolation) as raised:
        await many.insert("items", [{"id": id, "kind": "a"} for id in (1, 2, 3)])
    assert raised.value.hint is not None
    assert "2 rows were changed in other shards" in raised.value.hint
    with pytest.raises(ConstraintViolation) as raised:
        await many.insert("items", [{"id": id, "kind": "a"} for id in (1, 1 + SHARDS)])
    assert "other shards" not in (raised.value.hint or "")


async def test_shards_are_there_again_and_their_number_is_fixed(tmp_path: Path) -> None:
    many = await LocalDeployment.open(tmp_path, shards=SHARDS)
    await many.execute(SCHEMA)
    await fill(many, 3)
    status = await many.status()
    assert status["tables"]["items"]["rows"] == 200
    await many.close()
    with pytest.raises(StorageFailure, match="3 shards, not 2"):
        await LocalDeployment.open(tmp_path, shards=2)
    again = await LocalDeployment.open(tmp_path, shards=SHARDS)
    assert json.loads(await again.page("Overall", {}))["items"] == 200
    await again.execute("ALTER TABLE items ADD COLUMN note TEXT DEFAULT 'x'")
    await again.insert("items", [{"id": 1000, "kind": "z"}])
    await again.close()
    again = await LocalDeployment.open(tmp_path, shards=SHARDS)
    (notes,), _ = await again.execute("SELECT note FROM items WHERE id IN (1000, 5)")
    assert notes.rows == (("x",), ("x",))
    await again.close()


async def test_writes_that_meet_an_alteration_are_made_anew(pair: Pair) -> None:
    """Rows made for an older schema are never stored under a newer one, in whichever shard."""
    _, many = pair
    ended = asyncio.Event()
    written = 0

    async def write(first: int) -> int:
        count = 0
        while not ended.is_set():
            ids = range(first + 3 * count, first + 3 * count + 3)
            result = await many.insert("items", [{"id": id, "kind": "a"} for id in ids])
            assert result.rows_affected == 3
            count += 1
        return 3 * count

    writers = [asyncio.create_task(write(number * 10**6)) for number in range(4)]
    for number in range(8):
        await many.execute(f"ALTER TABLE items ADD COLUMN c{number} INT DEFAULT {number}")
    ended.set()
    written = sum(await asyncio.gather(*writers))
    (found,), _ = await many.execute("SELECT * FROM items")
    assert len(found.rows) == written
    assert {row[-8:] for row in found.rows} == {tuple(range(8))}


async def test_a_schema_has_one_version_also_after_a_restart(tmp_path: Path) -> None:
    sql = """CREATE TABLE t (id BIGINT PRIMARY KEY AUTO_INCREMENT, a DECIMAL(9, 3) DEFAULT 1.5, b DOUBLE DEFAULT 1,
      c BLOB, d BOOL DEFAULT TRUE, e DATETIME DEFAULT CURRENT_TIMESTAMP, f VARCHAR(9) DEFAULT 'x', g DATE,
      INDEX (b, a));
      INSERT INTO t (g) VALUES (NULL)"""
    for statements in (sql, "INSERT INTO t (g) VALUES (NULL); INSERT INTO t (id, g) VALUES (1000, NULL)"):
        deployment = await LocalDeployment.open(tmp_path, shards=SHARDS)
        await deployment.execute(statements)
        await deployment.close()
