"""The judge of live views: what many subscriptions were sent, folded, is at each event exactly the answer of the base
log up to its token; under random writes, evictions, broken and slow connections, by events and by WebSockets."""

from __future__ import annotations

import asyncio
import random
import sqlite3
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest
from headrace_client import tokens

from api.app import create_app
from controller.embedded.local import LocalDeployment
from controller.serving import Serving
from domains.plan.graph import DomainIndex
from tests.kit.cluster_deployment import open_cluster
from tests.kit.live_stream import EventReader, Folded, SocketReader, get

TABLES = {
    "stories": "id BIGINT NOT NULL PRIMARY KEY, author BIGINT, score BIGINT, title VARCHAR(20)",
    "votes": "id BIGINT NOT NULL PRIMARY KEY, story BIGINT",
    "members": "id BIGINT NOT NULL PRIMARY KEY, reader BIGINT, author BIGINT",
}
VIEWS = {
    "ByAuthor": "SELECT id, title FROM stories WHERE author = ?",
    "Titles": "SELECT title FROM stories WHERE author = ?",
    "Best": "SELECT id, score, title FROM stories WHERE author = ? ORDER BY score DESC, id LIMIT 3",
    "Unseen": "SELECT id, title FROM stories WHERE author = ? ORDER BY score DESC, id",
    "Above": "SELECT id, score FROM stories WHERE author = ? AND score > ? ORDER BY score, id",
    "Matching": "SELECT id, title FROM stories WHERE author = ? AND title LIKE ?",
    "Several": "SELECT id, score FROM stories WHERE author IN (?) ORDER BY score DESC, id LIMIT 4",
    "Counted": "SELECT s.id AS id, s.title AS title, COUNT(v.id) AS n FROM stories s LEFT JOIN votes v"
    " ON v.story = s.id WHERE s.id = ? GROUP BY s.id, s.title",
    "Feed": "SELECT s.id AS id, s.title AS title FROM members m JOIN stories s ON s.author = m.author"
    " WHERE m.reader = ?",
}
ASKED: list[tuple[str, str, tuple[Any, ...]]] = [
    *[(view, f"author={at}", (at,)) for view in ("ByAuthor", "Titles", "Best", "Unseen") for at in range(3)],
    *[("Above", f"author={at}&score=5", (at, 5)) for at in range(2)],
    *[("Matching", f"author={at}&title=%25a%25", (at, "%a%")) for at in range(2)],
    ("Several", "author=0&author=2", (0, 2)),
    *[("Counted", f"id={at}", (at,)) for at in range(6)],
    *[("Feed", f"reader={at}", (at,)) for at in range(3)],
]
SELECTS = {
    "Authors": "SELECT author, COUNT(*) AS n, MAX(score) AS best FROM stories GROUP BY author",
    "Popular": "SELECT s.title AS title, COUNT(*) AS n FROM stories s JOIN votes v ON v.story = s.id"
    " WHERE s.author = ? GROUP BY s.title",
    "Middle": "SELECT id, score FROM stories WHERE author = ? AND score BETWEEN 2 AND 7"
    " ORDER BY score DESC, id LIMIT 3",
    "Alone": "SELECT m.id AS id FROM members m LEFT JOIN stories s ON s.author = m.author"
    " WHERE m.reader = ? AND s.id IS NULL",
}
"""Followed without a declared view."""
FOLLOWED: list[tuple[str, str, tuple[Any, ...]]] = [
    ("Authors", "", ()),  # Of one process only: a cluster keeps no answer without a key that nobody declared.
    *[(name, "", (at,)) for name in ("Popular", "Middle", "Alone") for at in range(2)],
]
WRITES = 300
PATIENCE = 60.0


class Log:
    """Every write by the base shard and position that it got, and what SQL answers as of a clock."""

    def __init__(self) -> None:
        self.writes: list[tuple[Mapping[str, int], str, tuple[Any, ...]]] = []
        self._answers: dict[Any, list[tuple[Any, ...]]] = {}
        self._made: dict[Any, sqlite3.Connection] = {}

    def at(self, clock: Mapping[str, int]) -> sqlite3.Connection:
        key = tuple(sorted(clock.items()))
        if key not in self._made:
            made = self._made[key] = sqlite3.connect(":memory:")
            for name, columns in TABLES.items():
                made.execute(f"CREATE TABLE {name} ({columns})")
            by_position = sorted(self.writes, key=lambda write: max(write[0].values()))
            for positions, sql, values in by_position:
                if all(clock.get(base, 0) >= position for base, position in positions.items()):
                    made.execute(sql, values)
        return self._made[key]

    def answer(self, view: str, values: tuple[Any, ...], clock: Mapping[str, int]) -> list[dict[str, Any]]:
        sql = text_of(view).replace("IN (?)", f"IN ({', '.join('?' * len(values))})")
        cursor = self.at(clock).execute(sql, values)
        return [dict(zip([column[0] for column in cursor.description], row, strict=True)) for row in cursor]


class Follower:
    """One subscription that is broken off and taken up again; keeps what it folded to at each token."""

    def __init__(
        self, app: Any, view: str, query: str, values: tuple[Any, ...], rng: random.Random, short: bool
    ) -> None:
        self.app, self.view, self.query, self.values, self.rng = app, view, query, values, rng
        self.folded = Folded()
        self.seen: list[tuple[dict[str, int], list[Any], Any]] = []
        """The clock, the rows, and those parts of them that are of other clocks; None: it is not said whether there are
        such."""
        self.offset = ""
        self.short = short
        self.resumed = self.begun = self.events = self.evicted = 0
        self.clock: dict[str, int] = {}
        self.in_parts = 0
        self.refused = ""

    async def follow(self) -> None:
        while True:
            await self._connection()

    async def _connection(self) -> None:
        base = f"/v1/views/{self.view}/live?{self.query}"
        if not self.offset:
            answered = await get(self.app, base)
            if answered.status == 503 and self.short:
                await asyncio.sleep(0.05)
                return
            assert answered.status == 200, answered.body
            self.begun += 1
            self.take(answered.json, answered.headers["stream-next-offset"], answered.headers["headrace-token"])
        if self.rng.random() < 0.1:
            answered = await get(self.app, f"{base}&offset={self.offset}")
            if answered.status == 200:
                self.take(answered.json, answered.headers["stream-next-offset"], answered.headers["headrace-token"])
        stream = EventReader(self.app, f"{base}&offset={self.offset}&live=sse", straight=self.rng.random() < 0.7)
        try:
            await stream.began.wait()
            if stream.status == 410:
                self.offset = ""
                return
            if stream.status == 503 and self.short:
                await asyncio.sleep(0.05)
                return
            assert stream.status == 200
            self.resumed += 1
            left = self.rng.randrange(3, 30)
            messages: list[Any] = []
            while left and (event := await stream.event()) is not None:
                name, data = event
                if name == "data":
                    messages += data
                    continue
                if "ended" in data:
                    assert data["ended"] == "evicted", data
                    assert self.short, data
                    self.evicted += 1
                    break
                self.take(messages, data["streamNextOffset"], data["token"], data.get("parts", ()))
                messages, left = [], left - 1
                if self.rng.random() < 0.1:
                    stream.reads.clear()
                    await asyncio.sleep(self.rng.random() * 0.2)
                    stream.reads.set()
        finally:
            await stream.close()

    def take(self, messages: list[Any], offset: str, token: str, parts: Any = None) -> None:
        assert offset > self.offset or (offset == self.offset and not messages), (offset, self.offset, messages)
        self.offset, self.clock = offset, tokens.decode(token)
        self.events += bool(messages)
        self.folded.take(messages)
        self.seen.append((self.clock, self.folded.listed(), parts))

    def judge(self, log: Log, atomic: bool) -> int:
        """How many states were in parts: of an answer whose keys are in several shards, if it is not ``atomic``."""
        several, in_parts = self.view == "Several" and not atomic, 0
        for number, (clock, rows, parts) in enumerate(self.seen):
            if several and parts is None and number < len(self.seen) - 1:
                continue
            expected = log.answer(self.view, self.values, clock)
            if parts:
                in_parts += 1
                keys = [tuple(key) for part in parts for key in part["keys"]]
                assert sorted(keys) == [(at,) for at in self.values]
                each = [(tuple(key[0] for key in part["keys"]), tokens.decode(part["token"])) for part in parts]
                found = [row for keys, at in each for row in log.answer(self.view, keys, at)]
                expected = sorted(found, key=lambda row: (-row["score"], row["id"]))[:4]
            if "ORDER BY" in text_of(self.view):
                assert rows == expected, (self.view, self.values, clock, parts)
            else:
                assert counted(rows) == counted(expected), (self.view, self.values, clock)
        return in_parts


class SharedSocket:
    """Several subscriptions by one WebSocket, which are left and taken up again, and which breaks off."""

    def __init__(self, app: Any, followers: list[Follower], rng: random.Random, short: bool) -> None:
        self.app, self.rng, self.short = app, rng, short
        self.named = {str(at): each for at, each in enumerate(followers)}

    async def follow(self) -> None:
        while True:
            await self._connection()

    def _asked(self, name: str) -> dict[str, Any]:
        each = self.named[name]
        if each.view in SELECTS:
            place = {"offset": each.offset} if each.offset else {}
            return {"sql": SELECTS[each.view], "params": list(each.values), "name": name, **place}
        given = parse_qs(each.query)
        parameters = {key: values if each.view == "Several" else values[0] for key, values in given.items()}
        place = {"offset": each.offset} if each.offset else {}
        return {"view": each.view, "parameters": parameters, "name": name, **place}

    async def _connection(self) -> None:
        rng, messages = self.rng, list[Any]()
        socket = SocketReader(self.app, straight=rng.random() < 0.7)
        try:
            socket.say(subscribe=[self._asked(name) for name in self.named])
            for each in self.named.values():
                each.resumed += bool(each.offset)
            left = rng.randrange(30, 300)
            while left and (told := await socket.text()) is not None:
                if isinstance(told, list):
                    messages += told
                    continue
                await self._heard(socket, told, messages)
                messages, left = [], left - 1
                if rng.random() < 0.03:
                    socket.reads.clear()
                    await asyncio.sleep(rng.random() * 0.2)
                    socket.reads.set()
        finally:
            await socket.close()

    async def _heard(self, socket: SocketReader, told: Any, step: list[Any]) -> None:
        name = told["subscription"]
        own = self.named[name]
        if "error" in told:
            assert self.short or own.view in SELECTS, told
            assert told["error"]["code"] in ("unavailable", "not_found"), told
            own.refused = told["error"]["message"]
            await asyncio.sleep(0.05)
            socket.say(subscribe=[self._asked(name)])
            return
        if "ended" in told:
            # A view that was made for a SELECT may go, and is made again when it is asked for again.
            goes = ("evicted", "dropped") if self.short or own.view in SELECTS else ()
            assert told["ended"] in ("unsubscribed", *goes), told
            own.evicted += told["ended"] == "evicted"
            socket.say(subscribe=[self._asked(name)])
            return
        assert all(each.get("type", name) == name for each in step)
        own.offset = "" if step and "control" in step[0]["headers"] else own.offset
        own.begun += not own.offset
        own.take(step, told["streamNextOffset"], told["token"], told.get("parts", ()))
        if self.rng.random() < 0.03:
            socket.say(unsubscribe=[name])


def text_of(view: str) -> str:
    return VIEWS.get(view) or SELECTS[view]


def counted(rows: list[dict[str, Any]]) -> Counter[Any]:
    return Counter(tuple(sorted(row.items())) for row in rows)


async def write(deployment: Serving, log: Log, sql: str, values: tuple[Any, ...]) -> None:
    _, clock = await deployment.execute(sql, values)
    log.writes.append((clock, sql, values))


class Writer:
    """Random writes of one row each, several on their way at once, none of which depends on another one's outcome."""

    def __init__(self, deployment: Serving, log: Log, rng: random.Random) -> None:
        self.deployment, self.log, self.rng = deployment, log, rng
        self.ids: dict[str, set[int]] = {name: set() for name in TABLES}
        self.latest: dict[str, int] = {}

    async def some(self) -> None:
        rng = self.rng
        taken: dict[tuple[str, int], tuple[str, tuple[Any, ...]]] = {}
        for _ in range(rng.choice((1, 1, 2, 5))):
            table, id = rng.choice(("stories", "stories", "votes", "members")), rng.randrange(12)
            if (table, id) not in taken:
                taken[table, id] = self._one(table, id)
        await asyncio.gather(*(write(self.deployment, self.log, sql, values) for sql, values in taken.values()))
        if rng.random() < 0.2:
            view, _, values = rng.choice(ASKED)
            await self.deployment.evict(view, [[list(values)] if view == "Several" else list(values)])

    def _one(self, table: str, id: int) -> tuple[str, tuple[Any, ...]]:
        rng, ids = self.rng, self.ids[table]
        if id not in ids:
            ids.add(id)
            if table == "stories":
                row = (id, rng.randrange(3), rng.randrange(10), rng.choice(("a", "b", "ab")))
                return "INSERT INTO stories VALUES (?, ?, ?, ?)", row
            count = 1 if table == "votes" else 2
            row = (id, *(rng.randrange(3) for _ in range(count)))
            return f"INSERT INTO {table} VALUES (?{', ?' * count})", row
        if table == "stories" and rng.random() < 0.6:
            column = rng.choice(("author", "score", "title"))
            highest = {"author": 3, "score": 10}
            value = rng.choice(("a", "b", "ab")) if column == "title" else rng.randrange(highest[column])
            return f"UPDATE stories SET {column} = ? WHERE id = ?", (value, id)
        ids.discard(id)
        return f"DELETE FROM {table} WHERE id = ?", (id,)


async def judged(
    deployment: Serving,
    rng: random.Random,
    writes: int = WRITES,
    short: bool = False,
    between: Callable[[int], Awaitable[None]] | None = None,
) -> list[Follower]:
    log = Log()
    app = create_app(deployment)
    for name, columns in TABLES.items():
        await deployment.execute(f"CREATE TABLE {name} ({columns})")
    for name, sql in VIEWS.items():
        await deployment.execute(f"CREATE EXT VIEW {name} AS {sql}")
    writer = Writer(deployment, log, rng)
    followed = FOLLOWED if isinstance(deployment, LocalDeployment) else FOLLOWED[1:]
    followers = [Follower(app, *asked, random.Random(rng.random()), short) for asked in (*ASKED * 3, *followed * 2)]
    alone, together = followers[: 2 * len(ASKED)], followers[2 * len(ASKED) :]
    sockets = [SharedSocket(app, together[at::3], random.Random(rng.random()), short) for at in range(3)]
    tasks = [asyncio.create_task(each.follow()) for each in (*alone, *sockets)]
    try:
        while len(log.writes) < writes:
            await writer.some()
            if between is not None:
                await between(len(log.writes))
            if rng.random() < 0.3:
                await asyncio.sleep(rng.random() * 0.02)
        final: dict[str, int] = {}
        for clock, _, _ in log.writes:
            final = tokens.merge(final, clock)
        async with asyncio.timeout(PATIENCE):
            while not all(_reaches(each.clock, final) for each in followers):
                for task in tasks:
                    if task.done():
                        task.result()
                await asyncio.sleep(0.01)
    except TimeoutError:
        late = [
            (each.view, each.values, each.clock, each.refused) for each in followers if not _reaches(each.clock, final)
        ]
        raise AssertionError(f"{late} do not reach {final}") from None
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await app.close()
    for each in followers:
        each.in_parts = each.judge(log, isinstance(deployment, LocalDeployment))
    return followers


def _reaches(clock: Mapping[str, int], final: Mapping[str, int]) -> bool:
    return bool(clock) and all(at >= final.get(base, 0) for base, at in clock.items())


@pytest.mark.parametrize(("domains", "shards", "memory"), [(1, 1, 64_000_000), (2, 3, 64_000_000), (2, 1, 40_000)])
async def test_events_fold_to_what_the_log_answers(tmp_path: Path, domains: int, shards: int, memory: int) -> None:
    seed = random.randrange(10**6)
    print("seed", seed)
    deployment = await LocalDeployment.open(tmp_path, memory_limit=memory, domains=domains, shards=shards)
    try:
        followers = await judged(deployment, random.Random(seed), short=memory < 10**6)
        print(deployment.live.status())
    finally:
        await deployment.close()
    assert sum(each.events for each in followers) > WRITES
    assert sum(each.resumed for each in followers) > len(followers)


async def test_the_same_through_a_cluster(tmp_path: Path) -> None:
    seed = random.randrange(10**6)
    print("seed", seed)
    deployment = await open_cluster(tmp_path, maps=True, read_timeout=30.0, plain=False)
    try:
        followers = await judged(deployment, random.Random(seed))
    finally:
        await deployment.close()
    assert sum(each.events for each in followers) > WRITES


async def test_the_same_while_shards_move_to_other_workers(tmp_path: Path) -> None:
    """The topics are opened anew at the new host, whose readers begin empty, and go on where they were. What follows a
    SELECT ends with each move, as its view does, and begins anew."""
    seed = random.randrange(10**6)
    print("seed", seed)
    rng = random.Random(seed)
    deployment = await open_cluster(tmp_path, maps=True, read_timeout=30.0, plain=False)
    moved: list[int] = []

    async def move(writes: int) -> None:
        if writes > 60 * (len(moved) + 1):
            moved.append(writes)
            domain = DomainIndex(rng.randrange(3))
            here = deployment.leading.leader.ledger.decided.placement[domain].worker
            await deployment.leading.move(domain, "w1" if here == "w0" else "w0")

    try:
        followers = await judged(deployment, rng, between=move)
    finally:
        await deployment.close()
    assert len(moved) >= 4
    assert sum(each.in_parts for each in followers) > 0
    assert sum(each.events for each in followers) > WRITES
    selects = [each for each in followers if each.view in SELECTS]
    assert sum(each.begun for each in selects) > len(selects)
