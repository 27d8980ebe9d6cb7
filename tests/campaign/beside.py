"""``python -m tests.campaign.beside``: nested SELECTs beside MariaDB, or DuckDB where it has no such construct. Where
only MariaDB differs (it loses rows of IN with a window function inside), DuckDB decides.

Each query is asked as a full view, as a view by one of its columns, and without a view, through random writes,
evictions and crashes, in 1 to 3 domains of 1 or 2 shards. It runs where MariaDB is installed.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import re
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import asyncmy
import duckdb

from domains.errors import LimitExceeded, Unsupported
from loadgen.bench import servers
from tests.campaign.nested import (
    DEFINITIONS,
    FOR_DUCKDB,
    TABLES,
    VALUE_FOR_MARIADB,
    Bag,
    Nested,
    Nester,
    Writes,
    bag,
)
from tests.campaign.simulated import simulated
from tests.campaign.subject import Setting, Subject

QUERIES, WRITES = 6, 5


def _for_duckdb(text: str) -> str:
    for ours, theirs in FOR_DUCKDB.items():
        text = text.replace(ours, theirs)
    return text


def _column_of_table(value: re.Match[str]) -> str:
    document, path, on = value.groups()
    return f"(SELECT jv.v FROM JSON_TABLE({document}, '$' COLUMNS (v BIGINT PATH '{path}'{on})) jv)"


class Judges:
    """Both servers with the same rows."""

    def __init__(self, connection: Any) -> None:
        self._cursor = connection.cursor()
        self._duck = duckdb.connect()
        self._duck.execute("SET default_null_order = 'nulls_first_on_asc_last_on_desc'; SET threads = 1")

    async def begin(self) -> None:
        for statement in ("CREATE OR REPLACE DATABASE nested", "USE nested", *DEFINITIONS):
            await self._cursor.execute(statement)
        for table in TABLES:
            self._duck.execute(f"DROP TABLE IF EXISTS {table}")
        for statement in DEFINITIONS:
            self._duck.execute(statement)

    async def write(self, statement: str) -> None:
        await self._cursor.execute(statement)
        self._duck.execute(statement)

    def duck_answers(self, query: Nested, text: str) -> Bag | None:
        """DuckDB's answer; None where it has none."""
        try:
            return None if query.is_beyond_duckdb else bag(self._duck.execute(_for_duckdb(text)).fetchall())
        except duckdb.Error:
            return None

    async def answer(self, query: Nested, text: str) -> Bag:
        if query.is_beyond_mariadb:
            return bag(self._duck.execute(_for_duckdb(text)).fetchall())
        await self._cursor.execute(VALUE_FOR_MARIADB.sub(_column_of_table, text))
        return bag(await self._cursor.fetchall())


class Round:
    """One subject and some queries, from one seed."""

    def __init__(self, seed: int, judges: Judges, counts: Counter[str]) -> None:
        self.random, self.judges, self.counts = Random(seed), judges, counts
        setting = Setting(seed, self.random.random() < 0.8, self.random.randint(1, 3), self.random.randint(1, 2))
        self.subject: Subject = simulated(setting)
        self.views: dict[str, Nested] = {}
        self._writes = Writes(self.random)

    async def run(self) -> None:
        await self.judges.begin()
        for statement in DEFINITIONS:
            self.subject.execute(statement)
        await self._write(12)
        nester = Nester(self.random)
        for number in range(QUERIES):
            query = nester.query()
            if not (query.is_beyond_mariadb and query.is_beyond_duckdb):
                self._create(f"Full{number}", query, query.whole)
                self._create(f"By{number}", query, query.of("?"))
            asked = Nested(nester.asked(), "", "1")
            if not (asked.is_beyond_mariadb and asked.is_beyond_duckdb):
                self._create(f"Asked{number}", asked, asked.whole)
        for _ in range(3):
            await self._compare()
            await self._write(WRITES)
            self._disturb()
        self.subject.settle()
        self.subject.check()
        await self._compare()

    def _create(self, name: str, query: Nested, text: str) -> None:
        try:
            self.subject.execute(f"CREATE EXT VIEW {name} AS {text}")
            self.views[name] = query
        except (Unsupported, LimitExceeded) as error:
            self.counts[f"refused: {str(error)[:90]}"] += 1
        except Exception as error:
            raise AssertionError(f"{text}\n{error!r}") from error

    def _disturb(self) -> None:
        draw = self.random.random()
        if draw < 0.5:
            self.subject.evict_some(self.random)
        elif draw < 0.6:
            self.subject.restart()

    async def _write(self, count: int) -> None:
        for _ in range(count):
            statement = self._writes.statement()
            self.subject.execute(statement)
            await self.judges.write(statement)
            if self.random.random() < 0.5:
                self.subject.step(self.random)

    def _asked_for(self, name: str, query: Nested) -> tuple[list[int], str]:
        """What a view is read with, and the query with these values in its text."""
        text = query.of("?") if name.startswith("By") else query.whole
        first, *others = text.split("?")
        values = [self.random.randint(0, 4) for _ in others]
        return values, first + "".join(f"{value}{part}" for value, part in zip(values, others, strict=True))

    async def _compare(self) -> None:
        for name, query in self.views.items():
            values, text = self._asked_for(name, query)
            try:
                expected = await self.judges.answer(query, text)
            except (duckdb.Error, asyncmy.errors.Error) as error:
                self.counts[f"the judge refused: {str(error)[:60]}"] += 1
                continue
            self.subject.settle()
            try:
                answers = {"the view": self.subject.lookup(name, values)}
                answers["without one"] = await asyncio.to_thread(self.subject.select_evaluated, text) or []
            except Unsupported as error:
                self.counts[f"refused: {str(error)[:90]}"] += 1
                continue
            except Exception as error:
                raise AssertionError(f"{text}\n{error!r}") from error
            for way, rows in answers.items():
                self.counts["answers"] += 1
                if bag(rows) == expected:
                    continue
                if self.judges.duck_answers(query, text) == bag(rows):
                    self.counts["MariaDB stands alone, DuckDB answers as we do"] += 1
                else:
                    raise AssertionError(f"{text}\n{way} ({name}): {bag(rows)}\nexpected: {expected}")


async def campaign(port: int, seed: int, seconds: float, most: int) -> int:
    connection = await asyncmy.connect(host="127.0.0.1", port=port, user="root", password="", autocommit=True)
    judges, counts, found, until = Judges(connection), Counter[str](), 0, time.monotonic() + seconds
    while time.monotonic() < until and found < most:
        try:
            await Round(seed, judges, counts).run()
        except AssertionError as error:
            found += 1
            print(f"seed {seed}: {error}\n  again: python -m tests.campaign.beside --seed {seed} --seconds 0.01\n")
        seed += 1
        counts["rounds"] += 1
    for what, count in counts.most_common(25):
        print(f"{count:8,} {what}")
    connection.close()
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.campaign.beside", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="how long")
    parser.add_argument("--seed", type=int, help="the first round's seed; drawn and printed without it")
    parser.add_argument("--failures", type=int, default=1, help="stop after so many findings")
    options = parser.parse_args()
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(1_000_000_000)
    print(f"nested SELECTs beside MariaDB and DuckDB from seed {seed} for {options.seconds:.0f} s")
    with tempfile.TemporaryDirectory() as folder, servers.mariadb(Path(folder), durable=False) as url:
        port = int(url.rstrip("/").rsplit(":", 1)[1])
        return 1 if asyncio.run(campaign(port, seed, options.seconds, options.failures)) else 0


if __name__ == "__main__":
    sys.exit(main())
