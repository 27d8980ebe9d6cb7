"""Rows into a deployment at the rate that it takes them: batches, some of them under way at once."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from itertools import islice
from typing import Any

from controller.deployment import WriteResult
from controller.local import LocalDeployment
from domains.packets import Insert
from domains.types import Row

ROWS_TOGETHER = 2_000
"""Rows to a write: a step of some 20 ms, after which others have their turn."""
UNDER_WAY = 8
"""Writes that wait for the same sync."""


async def load(deployment: LocalDeployment, table: str, rows: Iterable[Row]) -> None:
    rest = iter(rows)
    while True:
        writes: list[Coroutine[Any, Any, WriteResult]] = []
        while len(writes) < UNDER_WAY and (batch := tuple(islice(rest, ROWS_TOGETHER))):
            writes.append(deployment.write(Insert(table, batch)))
        if not writes:
            return
        await asyncio.gather(*writes)
