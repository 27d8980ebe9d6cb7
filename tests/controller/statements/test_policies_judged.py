"""Every query over tables with policies answers what SQLite answers over the rows that these let through, for each
user: as a SELECT without a view, and as a view that serves all of them, with evictions in between."""

from __future__ import annotations

import os
import random
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from controller.access.session import OPEN, Caller
from controller.deployment import RequestMoment
from controller.embedded.local import LocalDeployment
from domains.errors import Forbidden, HeadraceError, StillInUse, Unsupported
from domains.language.types import Row
from tests.migrations.oracle import SCHEMAS, VIEWS, comparable, judge, random_tables
from tests.migrations.query_cases import Case, read_cases

Claims = dict[str, Any]
Shows = Callable[[Row, Claims], bool]


def is_tried(case: Case) -> bool:
    """Not what is no statement (named parameters), nor what SQLite divides otherwise with other rows."""
    return " :" not in case.sql and (" / " not in case.sql or bool(case.sqlite))


def same(value: Any, claim: Any) -> bool:
    return value is not None and claim is not None and str(value) == str(claim)


POLICIES: dict[str, list[tuple[str, Shows]]] = {
    "stories": [
        ("author = CURRENT_CLAIM('sub')", lambda row, claims: same(row[1], claims.get("sub"))),
        ("score > 2", lambda row, claims: row[3] is not None and row[3] > 2),
        (
            "author = CURRENT_CLAIM('sub') AND CURRENT_CLAIM('word') = title",
            lambda row, claims: same(row[1], claims.get("sub")) and same(row[2], claims.get("word")),
        ),
        (
            "CURRENT_CLAIM('role') IN ('editor', 'owner')",
            lambda row, claims: claims.get("role") in ("editor", "owner"),
        ),
        (
            "score <= CURRENT_CLAIM('level')",
            lambda row, claims: (
                row[3] is not None and isinstance(claims.get("level"), int) and row[3] <= claims["level"]
            ),
        ),
    ],
    "votes": [
        ("user = CURRENT_CLAIM('sub')", lambda row, claims: same(row[0], claims.get("sub"))),
        (
            "vote IS NULL OR CURRENT_CLAIM('role') = 'editor'",
            lambda row, c: row[2] is None or c.get("role") == "editor",
        ),
    ],
    "users": [
        ("CURRENT_CLAIM('sub') = id", lambda row, claims: same(row[0], claims.get("sub"))),
        ("name = CURRENT_CLAIM('word')", lambda row, claims: same(row[1], claims.get("word"))),
    ],
    "tags": [("weight >= 1", lambda row, claims: row[2] is not None and row[2] >= 1)],
}
USERS: list[Claims] = [
    {},
    {"sub": 1},
    {"sub": "2", "role": "editor", "word": "corn"},
    {"sub": 3, "level": 1, "word": "apple"},
    {"sub": ["1"], "role": {"editor": True}, "level": "no number"},
    {"sub": "1 ", "word": 7},
]
SEEDS = int(os.environ.get("SEEDS", "2"))
VIEWED = 40
"""Queries of a seed that become views."""


def of(claims: Claims) -> Caller:
    return Caller("", None, claims=claims, claimed=True)


def shown(tables: dict[str, list[Row]], chosen: dict[str, list[Shows]], claims: Claims) -> dict[str, list[Row]]:
    return {
        name: [row for row in rows if name not in chosen or any(policy(row, claims) for policy in chosen[name])]
        for name, rows in tables.items()
    }


async def filled(path: Path, tables: dict[str, list[Row]]) -> LocalDeployment:
    deployment = await LocalDeployment.open(path, memory_limit=64_000_000, domains=2)
    for schema in SCHEMAS:
        key = ", ".join(schema.columns[at].name for at in schema.primary_key)
        columns = ", ".join(f"{each.name} {each.type.name}" for each in schema.columns)
        await deployment.execute(f"CREATE TABLE {schema.name} ({columns}{f', PRIMARY KEY ({key})' if key else ''})")
        places = ", ".join("?" * len(schema.columns))
        for row in tables[schema.name]:
            await deployment.execute(f"INSERT INTO {schema.name} VALUES ({places})", list(row))
    for sql in VIEWS:
        await deployment.execute(sql)
    return deployment


async def governed(deployment: LocalDeployment, rng: random.Random) -> dict[str, list[Shows]]:
    """Policies on some tables, but for those that cannot be below a view that is there."""
    chosen: dict[str, list[Shows]] = {}
    for table in rng.sample(sorted(POLICIES), rng.randint(1, 3)):
        known = POLICIES[table]
        for number, (text, shows) in enumerate(rng.sample(known, min(len(known), rng.randint(1, 2)))):
            try:
                await deployment.execute(f"CREATE POLICY p{number} ON {table} FOR SELECT USING ({text})")
            except StillInUse:
                continue
            chosen.setdefault(table, []).append(shows)
    return chosen


def judges(tables: dict[str, list[Row]], chosen: dict[str, list[Shows]]) -> list[sqlite3.Connection]:
    found = [judge(shown(tables, chosen, claims)) for claims in USERS]
    for connection in found:
        connection.execute("PRAGMA case_sensitive_like = ON")
    return found


def expected(connection: sqlite3.Connection, case: Case, values: tuple[Any, ...]) -> list[Row]:
    flat = [each for value in values for each in (value if isinstance(value, list) else [value])]
    return connection.execute(case.sqlite or case.sql, flat).fetchall()


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_selects(tmp_path: Path, seed: int) -> None:
    tables, rng = random_tables(seed), random.Random(seed)
    deployment = await filled(tmp_path, tables)
    chosen = await governed(deployment, rng)
    known, asked = judges(tables, chosen), 0
    everything = judge(tables)
    everything.execute("PRAGMA case_sensitive_like = ON")
    for case in rng.sample([case for case in read_cases("queries.txt") if is_tried(case)], 150):
        values = case.values[0]
        params = [list(value) if isinstance(value, list) else value for value in values]
        for claims, connection in [*zip(USERS, known, strict=True), (None, everything)]:
            session = OPEN if claims is None else of(claims)
            for _ in range(2):  # With warm caches, too.
                results, _ = await deployment.execute(case.sql, params, session=session)
                rows = list(results[-1].rows)
                wanted = expected(connection, case, values)
                assert sorted(map(repr, plain(rows))) == sorted(map(repr, plain(wanted))), (case.sql, claims)
                asked += 1
    assert asked > 1_000
    await deployment.close()


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_views(tmp_path: Path, seed: int) -> None:
    tables, rng = random_tables(seed), random.Random(seed)
    deployment = await filled(tmp_path, tables)
    chosen = await governed(deployment, rng)
    known = judges(tables, chosen)
    views: list[tuple[str, Case]] = []
    cases = [case for case in read_cases("queries.txt") if "LIMIT ?" not in case.sql and is_tried(case)]
    for number, case in enumerate(rng.sample(cases, VIEWED)):
        try:
            await deployment.execute(f"CREATE EXT VIEW v{number} AS {case.sql}")
        except Unsupported:
            continue
        views.append((f"v{number}", case))
    assert len(views) > VIEWED // 3
    for _ in range(2):
        for name, case in rng.sample(views, len(views)):
            for at in rng.sample(range(len(USERS)), 3):
                await compare(deployment, name, case, USERS[at], known[at])
            if rng.random() < 0.3:
                key = [case.values[0][each] for each in deployment.state.planned[name].placeholders]
                await forgotten(deployment, name, key, rng.choice(USERS))
        await changed(deployment, tables, rng)
        known = judges(tables, chosen)
    for table, policies in list(deployment.state.catalog.policies.items()):
        for policy in policies:
            await deployment.execute(f"DROP POLICY {policy.name} ON {table}")
    known = judges(tables, {})
    for name, case in views:
        await compare(deployment, name, case, USERS[1], known[1])
    await deployment.close()


async def compare(
    deployment: LocalDeployment, name: str, case: Case, claims: Claims, connection: sqlite3.Connection
) -> None:
    for values in case.values:
        moment = RequestMoment(asker=of(claims))
        arguments: list[Any] = [None] * len(deployment.state.planned[name].parameters)
        for place, value in zip(deployment.state.planned[name].placeholders, values, strict=True):
            arguments[place] = value
        (page,) = await deployment.pages(name, [arguments], moment=moment)
        rows = [tuple(each.values()) for each in orjson.loads(b"[" + page + b"]")]
        wanted = [row[: len(rows[0])] if rows else row for row in expected(connection, case, values)]
        assert len(rows) == len(wanted), (case.sql, claims, values, rows, wanted)
        if len({each.name for each in deployment.state.planned[name].columns}) == len(wanted[0] if wanted else ()):
            assert sorted(map(repr, plain(rows))) == sorted(map(repr, plain(wanted))), (case.sql, claims, values)


def plain(rows: list[Any]) -> list[tuple[Any, ...]]:
    """JSON has decimals as texts."""

    def number(value: Any) -> Any:
        try:
            return round(float(value), 3)
        except (TypeError, ValueError):
            return value

    return [tuple(map(number, row)) for row in comparable(rows)]


async def forgotten(deployment: LocalDeployment, name: str, key: list[Any], claims: Claims) -> None:
    try:
        await deployment.evict(name, [key], RequestMoment(asker=of(claims)))
    except HeadraceError as error:
        assert "nothing to evict" in error.message or "parameter" in error.message  # noqa: PT017


async def changed(deployment: LocalDeployment, tables: dict[str, list[Row]], rng: random.Random) -> None:
    """Rows come, go, and come to another user."""
    for row in rng.sample(tables["stories"], 2):
        other = (row[0], rng.randint(1, 4), row[2], rng.randint(-3, 6))
        tables["stories"][tables["stories"].index(row)] = other
        sql = "UPDATE stories SET author = ?, score = ? WHERE id = ?"
        await deployment.execute(sql, [other[1], other[3], other[0]])
    vote = (rng.randint(1, 4), rng.randint(1, 9), None)
    tables["votes"].append(vote)
    await deployment.execute("INSERT INTO votes VALUES (?, ?, ?)", list(vote))
    gone = rng.choice(tables["tags"])
    tables["tags"].remove(gone)
    await deployment.execute("DELETE FROM tags WHERE story_id = ? AND tag = ?", list(gone[:2]))


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_writes(tmp_path: Path, seed: int) -> None:
    """What each user's writes make of a table is what the policies let them make of it, row by row."""
    tables, rng = random_tables(seed), random.Random(seed)
    deployment = await filled(tmp_path, tables)
    chosen = rng.sample(POLICIES["stories"], 2)
    for number, (text, _) in enumerate(chosen):
        await deployment.execute("DROP VIEW StoriesWithVC") if not number else None
        await deployment.execute(f"CREATE POLICY p{number} ON stories USING ({text})")
    stored, done, refused = {row[0]: row for row in tables["stories"]}, 0, 0
    for step in range(120):
        claims = rng.choice(USERS)
        sql, made = written(rng, 100 + step)

        def lets(row: Row, claims: Claims = claims) -> bool:
            return any(policy(row, claims) for _, policy in chosen)

        changes = {row: made(row) for row in (*stored.values(), ()) if row == () or lets(row)}
        after = {old: new for old, new in changes.items() if new != old}
        wrong = any(new is not None and new != () and not lets(new) for new in after.values())
        try:
            await deployment.execute(sql, session=of(claims))
        except Forbidden:
            assert wrong, (sql, claims)
            refused += 1
        else:
            # A row that stays what it is passes by itself: USING is its WITH CHECK.
            assert not wrong, (sql, claims)
            for old, new in after.items():
                if old:
                    del stored[old[0]]
                if new:
                    stored[new[0]] = new
            done += bool(after)
        results, _ = await deployment.execute("SELECT * FROM stories ORDER BY id", session=OPEN)
        assert plain(list(results[-1].rows)) == plain([stored[id] for id in sorted(stored)]), (sql, claims)
    assert done > 5
    assert refused > 5
    await deployment.close()


Written = Callable[[Row], Row | None]
"""What a statement makes of a row that is there; of ``()`` the one that comes. None: it goes."""


def written(rng: random.Random, free: int) -> tuple[str, Written]:
    author, score, word = rng.randint(1, 4), rng.randint(-3, 6), rng.choice(["apple", "corn"])

    def kept(row: Row, met: bool, new: Row | None) -> Row | None:
        return new if row and met else row

    match rng.randrange(4):
        case 0:
            new = (free, author, word, score)
            return f"INSERT INTO stories VALUES ({free}, {author}, '{word}', {score})", lambda r: r or new
        case 1:
            return (
                f"UPDATE stories SET score = score + 1, title = '{word}' WHERE author = {author}",
                lambda r: kept(r, r[1:2] == (author,), r and (*r[:2], word, None if r[3] is None else r[3] + 1)),
            )
        case 2:
            return (
                f"UPDATE stories SET author = {author} WHERE score > {score}",
                lambda r: kept(r, bool(r) and r[3] is not None and r[3] > score, r and (r[0], author, *r[2:])),
            )
        case _:
            return (
                f"DELETE FROM stories WHERE title = '{word}' AND score < {score}",
                lambda r: kept(r, bool(r) and r[2] == word and r[3] is not None and r[3] < score, None),
            )
