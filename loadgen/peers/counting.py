"""Redis by itself, for the vote workload: a number a story. The other module that knows the Redis client.

The most that a key-value store can be asked for: a batch of reads is one MGET, a batch of votes is as many INCRs in one
pipeline. There are no rows, no titles, and nothing is on disk.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import redis.asyncio
from redis.exceptions import RedisError

from loadgen.pace.errors import LoadRunError, RequestFailed
from loadgen.peers.sql import RowsAnswer
from loadgen.peers.store import Change, InsertRow, Lookup, PeerServer, Program, Progress

_PREFIX = "votes:"


class CountingTarget:
    name = "redis"

    def __init__(self, host: str, port: int) -> None:
        self.host, self.port = host, port
        self.servers = (PeerServer(host, port, "redis-server"),)

    async def describe(self) -> dict[str, str]:
        client = self.client()
        try:
            version = str((await client.info("server"))["redis_version"])
        except (RedisError, OSError) as error:
            raise LoadRunError(
                f"cannot reach Redis at {self.host}:{self.port}: {error}", hint="is it running?"
            ) from error
        finally:
            await client.aclose()
        return {"server": f"Redis {version}, MGET and INCR"}

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

    async def prime(
        self, program: Program, batches: Iterable[tuple[str, list[dict[str, Any]]]], total: int, tell: Progress
    ) -> None:
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

    async def close(self) -> None:
        return None

    def notes(self) -> dict[str, Any]:
        return {}

    def client(self) -> Any:
        return redis.asyncio.Redis(host=self.host, port=self.port, single_connection_client=True)


class CountingSession:
    def __init__(self, client: Any) -> None:
        self.client = client

    async def read(self, lookups: Sequence[Lookup]) -> Sequence[RowsAnswer]:
        try:
            answers = [await self.client.mget([f"{_PREFIX}{story}" for story in each.values[0]]) for each in lookups]
        except (RedisError, OSError) as error:
            raise RequestFailed(type(error).__name__) from error
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
        try:
            await pipeline.execute()
        except (RedisError, OSError) as error:
            raise RequestFailed(type(error).__name__) from error
        return count

    async def close(self) -> None:
        await self.client.aclose()
