"""A deployment over the rows of TPC-H, in this process or in one of its own, and the time that its views take."""

from __future__ import annotations

import asyncio
import gc
import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import psutil

from controller.embedded.local import LocalDeployment
from domains.plan.packets import Clock
from headrace.errors import HeadraceError
from loadgen.bench.program import load
from loadgen.bench.tpch.data import TABLES, Recomputed, parameterised, queries, table_definitions
from loadgen.bench.tpch.refresh import Refresh
from worker.service.system import expect_long_lives, give_back_early

UNLIMITED = 2**40
READ_SECONDS = 3600.0
KEYS_TOGETHER = 1_000
"""Orders that one DELETE names."""


async def fill(path: Path, shards: int | None, loaded: Recomputed) -> None:
    """Make a data directory with the base tables and their rows."""
    deployment = await LocalDeployment.open(path, memory_limit=UNLIMITED, shards=shards)
    await deployment.execute(table_definitions())
    for table in TABLES:
        await load(deployment, table, (row for rows in loaded.stored(table) for row in rows))
    await deployment.close()


@dataclass(frozen=True, slots=True)
class Installed:
    """What a view took; bytes but ``seconds``."""

    seconds: float
    accounted: int
    resident: int
    plan: str


Answer = list[list[Any]]
"""An answer's rows as JSON values."""


class KeptQueries:
    """Views over such a directory."""

    def __init__(self, deployment: LocalDeployment, *, asked: bool = False) -> None:
        """``asked``: views have the substitution parameters as ``?``, and are read by those of the validation run."""
        self._deployment = deployment
        self._asked = asked

    @classmethod
    async def open(cls, path: Path, *, asked: bool = False) -> KeptQueries:
        deployment = await LocalDeployment.open(path, memory_limit=UNLIMITED, read_timeout=READ_SECONDS)
        return cls(deployment, asked=asked)

    async def close(self) -> None:
        await self._deployment.close()

    async def install(self, number: int) -> Installed:
        """:raises HeadraceError: the query is refused."""
        before, begun = _resident(), time.perf_counter()
        text, values = parameterised(number) if self._asked else (queries()[number], [])
        await self._deployment.execute(f"CREATE EXT VIEW {_view(number)} AS {text}")
        await self._deployment.pages(_view(number), [values])
        seconds = time.perf_counter() - begun
        accounted = sum(domain.accounted_bytes() for domain in self._deployment.dataflow.domains.values())
        plan = self._deployment.explain(_view(number))
        return Installed(seconds, accounted, _resident() - before, plan)

    async def refresh(self, refresh: Refresh) -> tuple[float, Clock]:
        """Seconds until all of it is durable, and the token that reads it."""
        begun = time.perf_counter()
        token: Clock = {}
        await load(self._deployment, "orders", refresh.orders)
        await load(self._deployment, "lineitem", refresh.lineitems)
        for at in range(0, len(refresh.deleted), KEYS_TOGETHER):
            gone = refresh.deleted[at : at + KEYS_TOGETHER]
            keys = ", ".join("?" * len(gone))  # As a driver prepares it: the text is known the next time.
            for table, column in (("lineitem", "l_orderkey"), ("orders", "o_orderkey")):
                _, read = await self._deployment.execute(f"DELETE FROM {table} WHERE {column} IN ({keys})", gone)
                token |= read
        return time.perf_counter() - begun, token

    async def answer(self, number: int, token: Clock, values: Sequence[Any] | None = None) -> tuple[float, Answer]:
        """Seconds of a read with a token, and its rows; ``values`` are those of the parameters, if they are others."""
        begun = time.perf_counter()
        values = values or (parameterised(number)[1] if self._asked else [])
        (page,) = await self._deployment.pages(_view(number), [values], token=token)
        seconds = time.perf_counter() - begun
        return seconds, [list(row.values()) for row in json.loads(b"[%s]" % page, parse_float=Decimal)]


def _view(number: int) -> str:
    return f"tpch_{number}"


def _resident() -> int:
    gc.collect()
    held: int = psutil.Process().memory_info().rss
    return held


@dataclass(frozen=True, slots=True)
class Refreshed:
    """One refresh as the process saw it: seconds until the writes were durable and until all answers were read."""

    written: float
    fresh: float
    answers: dict[int, Answer]


def serve(connection: Connection, path: Path, numbers: Sequence[int], asked: bool) -> None:
    """The process of its own: it installs the queries, tells of each, and answers refreshes until the other end
    closes.

    A query that is refused is told as the error's text.
    """
    give_back_early()  # As ``headrace serve`` does.
    expect_long_lives()
    asyncio.run(_serve(connection, path, numbers, asked))


async def _serve(connection: Connection, path: Path, numbers: Iterable[int], asked: bool) -> None:
    kept = await KeptQueries.open(path, asked=asked)
    standing = []
    for number in numbers:
        try:
            connection.send(await kept.install(number))
            standing.append(number)
        except HeadraceError as error:
            connection.send(str(error))
    while (refresh := await asyncio.to_thread(_received, connection)) is not None:
        begun = time.perf_counter()
        written, token = await kept.refresh(refresh)
        answers = {number: (await kept.answer(number, token))[1] for number in standing}
        connection.send(Refreshed(written, time.perf_counter() - begun, answers))
    await kept.close()


def _received(connection: Connection) -> Refresh | None:
    try:
        refresh: Refresh = connection.recv()
    except EOFError:
        return None
    return refresh
