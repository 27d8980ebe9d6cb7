"""A table whose rows are asked more of while clients write to it: UNIQUE and CHECK come, are refused and go; so do keys
on what is computed of rows, and a column is of one type and another.

At any time the rows of each shard are as its own schema says, and in the end all are as the decided one says.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

from domains.language.types import Delta, Kind, Row, TableSchema
from tests.cluster_simulation.client import Client
from tests.cluster_simulation.cluster import Cluster

LOTS = "CREATE TABLE lots (k INT, v INT)"
CHANGES = (
    "ALTER TABLE lots ADD UNIQUE once (k)",
    "ALTER TABLE lots ADD PRIMARY KEY (k, v)",
    "ALTER TABLE lots ADD UNIQUE once (k), ADD CONSTRAINT small CHECK (v < 90)",
    "ALTER TABLE lots ADD CONSTRAINT small CHECK (v < 90)",
    "ALTER TABLE lots ADD UNIQUE tens (k, (v DIV 10))",
    "ALTER TABLE lots DROP INDEX tens",
    "ALTER TABLE lots MODIFY v VARCHAR(9)",
    "ALTER TABLE lots MODIFY v INT",
    "ALTER TABLE lots DROP INDEX once",
    "ALTER TABLE lots DROP PRIMARY KEY",
    "ALTER TABLE lots DROP CONSTRAINT small",
    "RENAME TABLE lots TO spare, spare TO lots",  # In the end nothing; each shard has had another name.
)
KEYS = 20

Change = Callable[[str], Awaitable[Exception | None]]


class Alterer:
    def __init__(self, seed: int, seconds: float, pace: float) -> None:
        self.random = Random(f"altered {seed}")
        self._seconds = seconds
        self._pace = pace
        self.counts: dict[str, int] = {}

    def _count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1

    async def write_on(self, client: Client) -> None:
        end = asyncio.get_running_loop().time() + self._seconds
        while asyncio.get_running_loop().time() < end:
            k, v = self.random.randrange(KEYS), self.random.randrange(95)
            if self.random.random() < 0.6:
                operation = client.operation(f"INSERT INTO lots (k, v) VALUES ({k}, {v})")
                written = await client.perform(operation) if operation is not None else None
            else:  # Makes room, so that a change has a chance.
                text = f"DELETE FROM lots WHERE k = {k}" if self.random.random() < 0.7 else "DELETE FROM lots"
                operation = client.operation(text)
                written = await client.perform(operation) if operation is not None else None
            self._count(f"writes of what is altered: {'none' if written is None else written[0].value}")
            await asyncio.sleep(self.random.random() * self._pace * 0.1)

    async def change_on(self, change: Change) -> None:
        end = asyncio.get_running_loop().time() + self._seconds
        while await change(LOTS) is not None and asyncio.get_running_loop().time() < end:
            await asyncio.sleep(0.3)
        while asyncio.get_running_loop().time() < end:
            error = await change(self.random.choice(CHANGES))
            self._count("tables altered" if error is None else "tables not altered")
            await asyncio.sleep(self.random.random() * 0.3)

    def check(self, cluster: Cluster) -> None:
        """Of every shard that is hosted, at any time: its rows are as its own schema says."""
        for worker in cluster.workers.values():
            for domain, host in worker.dataflow.hosted.hosts.items() if worker.is_up else ():
                store = host.domain.store
                if any(schema.name == "lots" for schema in store.tables()):
                    table = store.table("lots")
                    self._judge(table.schema, table.find((), ()), f"domain {domain}")

    def judge(self, schema: TableSchema | None, rows: list[Row]) -> None:
        """Of all that is stored at the end, by what is decided."""
        if schema is not None:
            self._count(f"tables with {len(schema.unique)} keys and {len(schema.checks)} checks")
            self._judge(schema, [(row, 1) for row in rows], "all shards")

    def _judge(self, schema: TableSchema, rows: list[Delta], where: str) -> None:
        for key in schema.unique:
            counts = Counter[Any]()
            for row, weight in rows:
                counts[tuple(row[at] for at in key)] += weight
            doubled = {value: count for value, count in counts.items() if count > 1 and None not in value}
            assert not doubled, f"{where}: key {key} of lots is unique, and there are {doubled}"
        at = schema.position("v")
        assert at is not None, f"{where}: lots has no column v"
        is_text = schema.columns[at].type.kind is Kind.TEXT
        strange = [row for row, _ in rows if not isinstance(row[at], str if is_text else int)]
        assert not strange, f"{where}: rows of lots have no value of {schema.columns[at].type}: {strange}"
        for place, column in enumerate(schema.columns):
            if column.hidden and not column.dropped:
                other = [row for row, _ in rows if row[place] != int(str(row[at])) // 10]
                assert not other, f"{where}: {column.name} of rows of lots is something else: {other}"
        if schema.checks:
            broken = [row for row, _ in rows if int(str(row[at])) >= 90]
            assert not broken, f"{where}: rows of lots break its check: {broken}"
