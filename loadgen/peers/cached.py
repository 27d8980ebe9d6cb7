"""Redis as a cache-aside in front of a database: what one would build instead of Headrace. The one
module that knows the Redis client.

A look-up is split into *entries*: one for its values, or, where it has an IN list, one for each element. A round asks
for all entries of all its look-ups with one MGET; what is missing is asked of the database and set. Whoever writes
deletes the entries that the application knows to be touched (``Program.touched``), after the transaction. What it does
not know, and what another page set between the two, is stale until it expires::

    page ─► MGET ─► all there? ─► done
              └─ the missing ones ─► database ─► SET … EX 60

One hit in so many is compared with the database on the spot, and counted as stale if the cache says another thing and
goes on saying it.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Awaitable, Sequence
from random import Random
from typing import Any
from urllib.parse import SplitResult

import orjson
import redis.asyncio
from redis.exceptions import RedisError

from loadgen.peers.store import (
    Answer,
    Change,
    InsertRow,
    LoadRunError,
    Lookup,
    PeerServer,
    PeerSession,
    Program,
    Progress,
    Query,
    RequestFailed,
    Rows,
    RowsAnswer,
    Target,
)

# Redis by itself, for the vote workload, keeps one number a story. It is the upper bound of a key-value store: a batch
# of reads is one MGET, a batch of votes is as many INCRs in one pipeline. There are no rows, no titles, and nothing is
# on disk.

_PREFIX = "votes:"


class RedisTarget(Target):
    """A Redis, and sessions that each have a connection of their own."""

    name = "redis"

    def __init__(self, parts: SplitResult, port: int) -> None:
        self.host, self.port = parts.hostname or "127.0.0.1", port
        self.servers = (PeerServer(self.host, port, "redis-server"),)

    async def version(self) -> str:
        client = self.client()
        try:
            return str((await client.info("server"))["redis_version"])
        except (RedisError, OSError) as error:
            raise LoadRunError(
                f"cannot reach Redis at {self.host}:{self.port}: {error}", hint="is it running?"
            ) from error
        finally:
            await client.aclose()

    def client(self) -> Any:
        return redis.asyncio.Redis(host=self.host, port=self.port, single_connection_client=True)


async def _done(command: Awaitable[Any]) -> Any:
    """Its result. Raises RequestFailed."""
    try:
        return await command
    except (RedisError, OSError) as error:
        raise RequestFailed(type(error).__name__) from error


class CountingTarget(RedisTarget):
    async def describe(self) -> dict[str, str]:
        return {"server": f"Redis {await self.version()}, MGET and INCR"}

    async def check(self, program: Program, probe: Lookup | None) -> None:
        if program.name != "vote":
            raise LoadRunError(
                f"Redis alone has no queries for {program.name}", hint="redis://host:port?behind=mysql://… is a cache"
            )
        session = await self.session()
        found = None if probe is None else (await session.read([probe]))[0].rows()
        await session.close()
        if found == [{"votes": None}]:
            raise LoadRunError("Redis holds less data than the run would ask for", hint="load it with --prime")

    async def prime(self, program: Program, batches: Rows, total: int, tell: Progress) -> None:
        session = await self.session()
        done = 0
        for table, rows in batches:
            if table == "stories":
                await session.client.mset({f"{_PREFIX}{row['id']}": 0 for row in rows})
            else:
                await session.write([InsertRow(table, rows)])
            done += len(rows)
            tell(table, done, total)
        await session.close()

    async def session(self) -> CountingSession:
        return CountingSession(self.client())


class CountingSession(PeerSession):
    def __init__(self, client: Any) -> None:
        self.client = client

    async def ask(self, lookups: Sequence[Lookup]) -> Sequence[Answer]:
        answers = [await _done(self.client.mget([f"{_PREFIX}{story}" for story in each.values[0]])) for each in lookups]
        return [RowsAnswer([{"votes": value} for value in answer]) for answer in answers]

    async def write(self, changes: Sequence[Change]) -> int:
        pipeline = self.client.pipeline(transaction=False)
        count = 0
        for change in changes:
            assert isinstance(change, InsertRow)
            count += len(change.rows)
            # Votes for one story in a batch are one command, as an application that gathers them would.
            for story, votes in Counter(row["story_id"] for row in change.rows).items():
                pipeline.incr(f"{_PREFIX}{story}", votes)
        await _done(pipeline.execute())
        return count

    async def close(self) -> None:
        await self.client.aclose()


EXPIRES_S = 60
"""Seconds an entry lives: what the application does not invalidate is wrong for so long at most."""
CHECKED_PART = 1 / 200
"""Share of the hits that are compared with the database. Each costs the database a query, so not more."""
_LIST = re.compile(r"(\w+)\s+IN\s*\(\s*\?", re.IGNORECASE)


def list_column(query: Query) -> str | None:
    """The column that the query's IN list is about."""
    found = _LIST.search(query.sql)
    return found[1] if found else None


def entries_of(lookup: Lookup) -> list[str]:
    """Names of the entries that hold its rows."""
    query, values = lookup
    fixed = ":".join(str(value) for value, is_list in zip(values, query.lists, strict=True) if not is_list)
    start = f"{query.name}:{fixed}"
    for value, is_list in zip(values, query.lists, strict=True):
        if is_list:
            return [f"{start}:{each}" for each in value]
    return [start]


class CachedTarget(RedisTarget):
    def __init__(self, parts: SplitResult, port: int, behind: Target) -> None:
        super().__init__(parts, port)
        self.behind = behind
        self.servers = (*self.servers, *behind.servers)
        self.program: Program | None = None
        self.random = Random(0)
        self.checked = self.stale = self.hits = self.misses = 0

    async def describe(self) -> dict[str, str]:
        version, behind = await self.version(), await self.behind.describe()
        return {**behind, "server": f"Redis {version} before {behind['server']}", "expires_s": str(EXPIRES_S)}

    async def check(self, program: Program, probe: Lookup | None) -> None:
        if program.touched is None:
            raise LoadRunError(
                f"the {program.variant} variant of {program.name} does not say what its writes touch",
                hint="a cache needs --variant hand-optimised",
            )
        self.program = program
        await self.behind.check(program, probe)

    async def prime(self, program: Program, batches: Rows, total: int, tell: Progress) -> None:
        await self.behind.prime(program, batches, total, tell)

    async def session(self) -> CachedSession:
        return CachedSession(self, self.client(), await self.behind.session())

    async def close(self) -> None:
        await self.behind.close()

    def notes(self) -> dict[str, Any]:
        told = {
            "cache_hits": self.hits,
            "cache_misses": self.misses,
            "reads_checked": self.checked,
            "stale_reads": self.stale,
            "stale_part": round(self.stale / self.checked, 5) if self.checked else None,
        }
        self.checked = self.stale = self.hits = self.misses = 0
        return told


class CachedSession(PeerSession):
    def __init__(self, target: CachedTarget, client: Any, behind: PeerSession) -> None:
        self._target, self._client, self._behind = target, client, behind

    async def ask(self, lookups: Sequence[Lookup]) -> Sequence[Answer]:
        names = [entries_of(lookup) for lookup in lookups]
        flat = [name for each in names for name in each]
        found = dict(zip(flat, await _done(self._client.mget(flat)), strict=True)) if flat else {}
        missing = [
            (lookup, lacking)
            for lookup, own in zip(lookups, names, strict=True)
            if (lacking := [name for name in own if found[name] is None])
        ]
        self._target.misses += len(missing)
        self._target.hits += len(lookups) - len(missing)
        if missing:
            found.update(await self._fill(missing))
        answers = [RowsAnswer([row for name in own for row in orjson.loads(found[name])]) for own in names]
        await self._maybe_check(lookups, names, found, {id(lookup) for lookup, _ in missing})
        return answers

    async def write(self, changes: Sequence[Change]) -> int:
        affected = await self._behind.write(changes)
        program = self._target.program
        assert program is not None
        assert program.touched is not None
        touched = [name for change in changes for name in program.touched(change)]
        if touched:
            await _done(self._client.delete(*touched))
        return affected

    async def close(self) -> None:
        await self._client.aclose()
        await self._behind.close()

    async def _fill(self, missing: Sequence[tuple[Lookup, list[str]]]) -> dict[str, bytes]:
        """Ask the database for what is missing, and set it."""
        asked = [_narrowed(lookup, lacking) for lookup, lacking in missing]
        answers = await self._behind.read(asked)
        filled: dict[str, bytes] = {}
        for lookup, (_, lacking), answer in zip(asked, missing, answers, strict=True):
            filled.update(_split(lookup, lacking, answer.rows()))
        pipeline = self._client.pipeline(transaction=False)
        for name, value in filled.items():
            pipeline.set(name, value, ex=EXPIRES_S)
        await _done(pipeline.execute())
        return filled

    async def _maybe_check(
        self, lookups: Sequence[Lookup], names: Sequence[list[str]], found: dict[str, bytes], filled: set[int]
    ) -> None:
        target = self._target
        for lookup, own in zip(lookups, names, strict=True):
            if id(lookup) in filled or target.random.random() >= CHECKED_PART:
                continue
            (answer,) = await self._behind.read([lookup])
            fresh = _split(lookup, own, answer.rows())
            target.checked += 1
            if any(_different(found[name], fresh[name]) for name in own):
                # A write may have come between the two; then the cache was told, or has another value by now.
                again = await _done(self._client.mget(own))
                target.stale += any(
                    value is not None and _different(value, fresh[name]) for name, value in zip(own, again, strict=True)
                )


def _narrowed(lookup: Lookup, lacking: Sequence[str]) -> Lookup:
    """The look-up with only those elements of its list that are missing."""
    if not any(lookup.query.lists):
        return lookup
    place = lookup.query.lists.index(True)
    wanted = set(lacking)
    kept = [value for value, name in zip(lookup.values[place], entries_of(lookup), strict=True) if name in wanted]
    return Lookup(lookup.query, (*lookup.values[:place], kept, *lookup.values[place + 1 :]))


def _split(lookup: Lookup, names: Sequence[str], rows: Sequence[dict[str, Any]]) -> dict[str, bytes]:
    """Rows by entry; one without rows is kept, too, as that."""
    column = list_column(lookup.query)
    if column is None:
        return {names[0]: _encoded(rows)}
    by_value: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        by_value[str(row[column])].append(row)
    return {name: _encoded(by_value[name.rpartition(":")[2]]) for name in names}


def _encoded(rows: Sequence[dict[str, Any]]) -> bytes:
    return orjson.dumps(list(rows), default=str)


def _different(cached: bytes, fresh: bytes) -> bool:
    return sorted(map(repr, orjson.loads(cached))) != sorted(map(repr, orjson.loads(fresh)))
