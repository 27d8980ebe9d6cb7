"""Writes of every form under policies, statement by statement beside a model of rows: what is there afterwards, what is
told, and what is refused; in one process, in shards and in a cluster, by users in turn, with evictions between."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from controller.access.session import OPEN, Caller
from controller.deployment import OnDuplicate, RequestMoment
from controller.embedded.local import LocalDeployment
from controller.serving import Serving
from domains.errors import ConstraintViolation, Forbidden, HeadraceError
from domains.language.types import Row
from domains.plan.sharding import shard_of
from migrations.statements.rows import Act
from tests.kit.cluster_deployment import open_cluster

ITEMS = """
CREATE TABLE items (id INT PRIMARY KEY, code INT{unique}, owner INT, state VARCHAR(9), n INT, twice INT AS (n * 2));
CREATE TABLE parts (item INT, id INT, owner INT, PRIMARY KEY (item, id),
  FOREIGN KEY (item) REFERENCES items (id) ON DELETE CASCADE{updating}) SHARD BY (item);
CREATE EXT VIEW Mine AS SELECT id, n FROM items WHERE owner = ?;
CREATE EXT VIEW Whole AS SELECT COUNT(*) AS many FROM parts
"""
ID, CODE, OWNER, STATE, N, TWICE = range(6)
Holds = Callable[[Row, int], bool]
"""Of a row, for a user."""
CONDITIONS: list[tuple[str, Holds]] = [
    ("owner = CURRENT_CLAIM('sub')", lambda row, sub: row[OWNER] == sub),
    ("state = 'open'", lambda row, sub: row[STATE] == "open"),
    ("n < 6", lambda row, sub: row[N] < 6),
    ("twice > 4", lambda row, sub: row[TWICE] > 4),
    ("owner = CURRENT_CLAIM('sub') AND state <> 'shut'", lambda row, sub: row[OWNER] == sub and row[STATE] != "shut"),
    ("TRUE", lambda row, sub: True),
]
OF_PARTS: list[tuple[str, Holds]] = [
    ("owner = CURRENT_CLAIM('sub')", lambda row, sub: row[2] == sub),
    ("id < 3", lambda row, sub: row[1] < 3),
    ("TRUE", lambda row, sub: True),
]
SEEDS = int(os.environ.get("SEEDS", "2"))
USERS = (7, 8, 9)
ACTS: list[Act] = ["error", "ignore", "replace", "update"]


def of(sub: int) -> Caller:
    return Caller("", None, claims={"sub": sub}, claimed=True)


class Policies:
    """Drawn ones: for each command one, or none."""

    def __init__(self, rng: random.Random, table: str, known: list[tuple[str, Holds]]) -> None:
        self.statements: list[str] = []
        self._holds: dict[str, Holds] = {}
        for command, clauses in (
            ("SELECT", ["USING"]),
            ("INSERT", ["WITH CHECK"]),
            ("UPDATE", ["USING", "WITH CHECK"]),
            ("DELETE", ["USING"]),
        ):
            text = f"CREATE POLICY p_{command} ON {table} FOR {command}"
            if rng.random() < 0.1:
                continue
            for clause in clauses:
                condition, self._holds[f"{command} {clause}"] = known[-1] if rng.random() < 0.4 else rng.choice(known)
                text += f" {clause} ({condition})"
            self.statements.append(text)

    def let(self, what: str, row: Row, sub: int) -> bool:
        return what in self._holds and self._holds[what](row, sub)

    def shows(self, row: Row, sub: int) -> bool:
        return self.let("SELECT USING", row, sub)


Made = Callable[[Row, Row], Row]
"""(the row that is there, the one that was to be inserted) → the row as it is to be."""


@dataclass
class Statement:
    sql: str
    kind: str
    """error, ignore, replace, update; UPDATE, IGNORE, DELETE."""
    rows: list[Row] = field(default_factory=list)
    made: Made = lambda old, new: old
    meets: Callable[[Row], bool] = lambda row: False
    limit: int = 1_000_000
    returning: bool = False
    call: Callable[[Serving, Caller], Any] | None = None
    """A table call instead."""


@dataclass
class Shard:
    """The rows of one, as they are while a statement is worked out."""

    items: dict[int, Row]
    parts: dict[tuple[int, int], Row]
    of_items: Policies
    of_parts: Policies
    sub: int
    unique: bool
    told: list[Row] = field(default_factory=list)
    moved: dict[int, int | None] = field(default_factory=dict)
    """What parts name, and what they name then."""

    def met(self, row: Row) -> Iterator[Row]:
        if row[ID] in self.items:
            yield self.items[row[ID]]
        if self.unique:
            yield from [each for each in self.items.values() if each[CODE] == row[CODE] and each[ID] != row[ID]]

    def require(self, what: str, row: Row, *, seen: bool = False) -> None:
        if (seen and not self.of_items.shows(row, self.sub)) or not self.of_items.let(what, row, self.sub):
            raise Forbidden(what)

    def insert(self, statement: Statement, rows: list[Row]) -> None:
        for row in rows:
            self.require("INSERT WITH CHECK", row)
        for row in rows:
            there = next(self.met(row), None)
            stored = row
            if there is not None and statement.kind == "error":
                raise ConstraintViolation("taken")
            if there is not None and statement.kind == "ignore":
                continue
            if there is not None and statement.kind == "update":
                self.require("UPDATE USING", there, seen=True)
                stored = statement.made(there, row)
                if stored != there:
                    self.require("UPDATE WITH CHECK", stored)
                    self.change(there, stored)
            else:
                for each in list(self.met(row)):
                    self.require("DELETE USING", each, seen=True)
                    del self.items[each[ID]]
                    self.moved[each[ID]] = None
                self.items[row[ID]] = row
            if statement.returning:
                self.told.append(stored)
        if any(not self.of_items.shows(row, self.sub) for row in self.told):
            raise Forbidden("told")

    def change(self, old: Row, new: Row) -> None:
        del self.items[old[ID]]
        try:
            self.put(old, new)
        except ConstraintViolation:
            self.items[old[ID]] = old
            raise

    def put(self, old: Row, new: Row) -> None:
        if next(self.met(new), None) is not None:
            raise ConstraintViolation("taken")
        self.items[new[ID]] = new
        if new[ID] != old[ID]:
            self.moved[old[ID]] = new[ID]

    def update(self, statement: Statement, chosen: list[Row]) -> None:
        pairs = [(old, new) for old in chosen if (new := statement.made(old, ())) != old]
        for _, new in pairs:
            self.require("UPDATE WITH CHECK", new)
        if statement.kind == "IGNORE":
            for old, new in pairs:
                with suppress(ConstraintViolation):
                    self.change(old, new)
            return
        for old, _ in pairs:
            del self.items[old[ID]]
        for old, new in pairs:
            self.put(old, new)

    def delete(self, statement: Statement, chosen: list[Row]) -> None:
        for row in chosen:
            del self.items[row[ID]]
            self.moved[row[ID]] = None
            if statement.returning:
                self.told.append(row)

    def follow(self) -> None:
        for key, part in list(self.parts.items()):
            if part[0] not in self.moved:
                continue
            now = self.moved[part[0]]
            new = None if now is None else (now, *part[1:])
            what = "DELETE USING" if new is None else "UPDATE USING"
            if not self.of_parts.shows(part, self.sub) or not self.of_parts.let(what, part, self.sub):
                raise Forbidden("followed")
            if new is not None and not self.of_parts.let("UPDATE WITH CHECK", new, self.sub):
                raise Forbidden("followed")
            del self.parts[key]
            if new is not None:
                self.parts[new[:2]] = new  # type: ignore[index]


class Model:
    of_items: Policies
    of_parts: Policies

    def __init__(self, shards: int) -> None:
        self.items: dict[int, Row] = {}
        self.parts: dict[tuple[int, int], Row] = {}
        self.shards = shards

    def perform(self, statement: Statement, sub: int) -> tuple[type[HeadraceError] | None, list[Row]]:
        """What is raised, and what is told. Each shard does its part, or refuses it."""
        chosen = [
            row
            for _, row in sorted(self.items.items())
            if self.of_items.shows(row, sub)
            and self.of_items.let("DELETE USING" if statement.kind == "DELETE" else "UPDATE USING", row, sub)
            and statement.meets(row)
        ][: statement.limit]
        errors: list[type[HeadraceError]] = []
        told: list[Row] = []
        items: dict[int, Row] = {}
        parts: dict[tuple[int, int], Row] = {}
        for number in range(self.shards):
            own = {key: row for key, row in self.items.items() if shard_of(key, self.shards) == number}
            below = {key: row for key, row in self.parts.items() if shard_of(key[0], self.shards) == number}
            shard = Shard(dict(own), dict(below), self.of_items, self.of_parts, sub, self.shards == 1)
            try:
                if statement.kind == "DELETE":
                    shard.delete(statement, [row for row in chosen if row[ID] in own])
                elif statement.kind in ("UPDATE", "IGNORE"):
                    shard.update(statement, [row for row in chosen if row[ID] in own])
                else:
                    rows = [row for row in statement.rows if shard_of(row[ID], self.shards) == number]
                    shard.insert(statement, rows)
                shard.follow()
            except HeadraceError as error:
                errors.append(type(error))
            else:
                own, below = shard.items, shard.parts
                told += shard.told
            items |= own
            parts |= below
        self.items, self.parts = items, parts
        return (errors[0] if errors else None), told


def drawn(rng: random.Random, shards: int) -> Statement:
    def row() -> Row:
        n = rng.randint(0, 8)
        return (
            rng.randint(1, 12),
            rng.randint(1, 15),
            rng.choice(USERS),
            rng.choice(["open", "shut", "new"]),
            n,
            n * 2,
        )

    rows = [row() for _ in range(rng.choice([1, 1, 2, 3]))]
    values = ", ".join(f"({', '.join(repr(value) for value in each[:5])})" for each in rows)
    into = "INTO items (id, code, owner, state, n) VALUES"
    returning = rng.random() < 0.3
    told = " RETURNING id, code, owner, state, n, twice" if returning else ""
    owner, n, code, id, limit = rng.choice(USERS), rng.randint(0, 8), rng.randint(1, 15), rng.randint(1, 12), 2

    def bumped(old: Row, new: Row) -> Row:
        return (old[ID], old[CODE], new[OWNER], old[STATE], old[N] + 1, (old[N] + 1) * 2)

    def moved(old: Row, new: Row) -> Row:
        return (old[ID] + 20, *old[1:])

    def given(old: Row, new: Row) -> Row:
        return (old[ID], old[CODE], *new[2:])

    names = ("id", "code", "owner", "state", "n")
    dicts = [dict(zip(names, each, strict=False)) for each in rows]
    where: list[tuple[str, Callable[[Row], bool]]] = [
        (f"owner = {owner}", lambda row: row[OWNER] == owner),
        (f"n >= {n}", lambda row: row[N] >= n),
        (f"id = {id}", lambda row: row[ID] == id),
        (f"id IN (SELECT id FROM items WHERE n > {n})", lambda row: row[N] > n),
    ]
    text, meets = rng.choice(where[:3] if rng.random() < 0.8 else where)
    made: list[tuple[str, Made]] = [
        (f"owner = {owner}", lambda old, _: (*old[:OWNER], owner, *old[STATE:])),
        ("n = n + 1", lambda old, _: (*old[:N], old[N] + 1, (old[N] + 1) * 2)),
        ("state = 'shut'", lambda old, _: (*old[:STATE], "shut", *old[N:])),
        (f"code = {code}", lambda old, _: ((ID and 0) or old[ID], code, *old[OWNER:])),
    ]
    setting, changed = rng.choice(made)
    match rng.randrange(13):
        case 0 | 1:
            return Statement(f"INSERT {into} {values}{told}", "error", rows, returning=returning)
        case 2:
            return Statement(f"INSERT IGNORE {into} {values}{told}", "ignore", rows, returning=returning)
        case 3 | 4:
            return Statement(f"REPLACE {into} {values}{told}", "replace", rows, returning=returning)
        case 5 | 6:
            sql = f"INSERT {into} {values} ON DUPLICATE KEY UPDATE n = n + 1, owner = VALUES(owner){told}"
            return Statement(sql, "update", rows, bumped, returning=returning)
        case 7:
            return Statement(f"UPDATE items SET {setting} WHERE {text}", "UPDATE", made=changed, meets=meets)
        case 8:
            sql = f"UPDATE items SET {setting} WHERE {text} ORDER BY id LIMIT {limit}"
            return Statement(sql, "UPDATE", made=changed, meets=meets, limit=limit)
        case 9:
            if shards > 1 or rng.random() < 0.5:
                return Statement(f"UPDATE IGNORE items SET {setting} WHERE {text}", "IGNORE", made=changed, meets=meets)
            sql = f"UPDATE items SET id = id + 20 WHERE {text} AND id < 13"
            return Statement(sql, "UPDATE", made=moved, meets=lambda row: meets(row) and row[ID] < 13)
        case 10:
            returning = returning and "SELECT" not in text
            sql = f"DELETE FROM items WHERE {text}{told if returning else f' ORDER BY id LIMIT {limit}'}"
            return Statement(sql, "DELETE", meets=meets, returning=returning, limit=1_000_000 if returning else limit)
        case 11:
            act = rng.choice(ACTS)

            async def inserted(db: Serving, asker: Caller) -> None:
                columns = ("owner", "state", "n") if act == "update" else None
                await db.insert("items", dicts, None, OnDuplicate(act, columns), asker)

            return Statement(f"{act} {values}", act, rows, given, call=inserted)
        case _:

            async def written(db: Serving, asker: Caller) -> None:
                if changes:
                    await db.update("items", {"owner": owner}, {"state": "shut"}, asker)
                else:
                    await db.delete("items", {"id": id}, asker)

            changes = rng.random() < 0.5
            if changes:
                return Statement("PATCH", "UPDATE", made=made[2][1], meets=where[0][1], call=written)
            return Statement(f"DELETE {id}", "DELETE", meets=where[2][1], call=written)


async def opened(kind: str, path: Path) -> tuple[Serving, int]:
    if kind == "cluster":
        return await open_cluster(path, read_timeout=30), 3
    shards = 3 if kind == "shards" else 1
    return await LocalDeployment.open(path, memory_limit=64_000_000, domains=2, shards=shards), shards


async def all_of(db: Serving, table: str, session: Caller = OPEN) -> list[Row]:
    results, _ = await db.execute(f"SELECT * FROM {table}", session=session)
    return sorted(tuple(row) for row in results[-1].rows)


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("kind", ["one process", "shards", "cluster"])
async def test_every_write_beside_a_model(tmp_path: Path, kind: str, seed: int) -> None:
    rng = random.Random(f"{kind} {seed}")
    db, shards = await opened(kind, tmp_path)
    one = shards == 1
    await db.execute(ITEMS.format(unique=" UNIQUE" if one else "", updating=" ON UPDATE CASCADE" if one else ""))
    model, seen = Model(shards), dict.fromkeys(("done", "told", "Forbidden", "ConstraintViolation"), 0)
    for number in range(60 if kind == "cluster" else 160):
        if number % 20 == 0:
            await governed(db, model, rng)
        if number % 6 == 0:  # There are rows of all, whatever policies let be written.
            await refilled(db, model, rng)
        await one_write(db, model, rng, seen)
        if number % 5 == 0:
            await looked(db, model, rng)
    assert min(seen["done"], seen["Forbidden"]) > 5, seen
    await db.close()


async def governed(db: Serving, model: Model, rng: random.Random) -> None:
    """Other policies than before."""
    results, _ = await db.execute("SHOW POLICIES")
    for name, table, *_ in results[-1].rows:
        await db.execute(f"DROP POLICY {name} ON {table}")
    model.of_items, model.of_parts = Policies(rng, "items", CONDITIONS), Policies(rng, "parts", OF_PARTS)
    for text in (*model.of_items.statements, *model.of_parts.statements):
        await db.execute(text)


async def one_write(db: Serving, model: Model, rng: random.Random, seen: dict[str, int]) -> None:
    sub, statement = rng.choice(USERS), drawn(rng, model.shards)
    before = dict(model.items), dict(model.parts)
    about = (statement.sql, sub, model.of_items.statements, model.of_parts.statements, before)
    wanted, told = model.perform(statement, sub)
    raised, results = None, []
    try:
        if statement.call is not None:
            await statement.call(db, of(sub))
        else:
            results, _ = await db.execute(statement.sql, session=of(sub))
    except (Forbidden, ConstraintViolation) as error:
        raised = error
        seen[type(error).__name__] += 1
    assert (raised is None) == (wanted is None), (raised, wanted, *about)
    if model.shards == 1:  # Which of several shards is the first to refuse is not known.
        assert raised is None or type(raised) is wanted, (raised, wanted, *about)
    if raised is None:
        seen["done"] += (model.items, model.parts) != before
        if statement.returning:
            assert sorted(map(tuple, results[-1].rows)) == sorted(told), about
            seen["told"] += bool(told)
    assert await all_of(db, "items") == sorted(model.items.values()), about
    assert await all_of(db, "parts") == sorted(model.parts.values()), about


async def refilled(db: Serving, model: Model, rng: random.Random) -> None:
    for id in rng.sample(range(1, 13), 4):
        if id in model.items or (model.shards == 1 and any(row[CODE] == id + 20 for row in model.items.values())):
            continue
        n = rng.randint(0, 8)
        row = (id, id + 20, rng.choice(USERS), rng.choice(["open", "shut", "new"]), n, n * 2)
        await db.execute("INSERT INTO items (id, code, owner, state, n) VALUES (?, ?, ?, ?, ?)", list(row[:5]))
        model.items[id] = row
        for part in range(rng.choice([0, 0, 1, 2])):
            below = (id, rng.randint(1, 2) + 2 * part, rng.choice(USERS))
            await db.execute("INSERT INTO parts VALUES (?, ?, ?)", list(below))
            model.parts[below[:2]] = below


async def looked(db: Serving, model: Model, rng: random.Random) -> None:
    """What each user sees after the writes: in a SELECT, and in views with keys that were evicted."""
    for sub in USERS:
        shown = [row for row in model.items.values() if model.of_items.shows(row, sub)]
        assert await all_of(db, "items", of(sub)) == sorted(shown)
        owner, moment = rng.choice(USERS), RequestMoment(asker=of(sub))
        if rng.random() < 0.3:
            await db.evict("Mine", [[owner]], moment)
        (page,) = await db.pages("Mine", [[owner]], moment=moment)
        own = sorted((row[ID], row[N]) for row in shown if row[OWNER] == owner)
        assert page.count(b'"id"') == len(own), (page, own)
        (page,) = await db.pages("Whole", [[]], moment=moment)
        parts = [row for row in model.parts.values() if model.of_parts.shows(row, sub)]
        assert page == b'{"many":%d}' % len(parts)
