"""The crud workload: reads by key, single inserts, changes and deletes, without joins.

It shows the price of a request apart from that of a query::

    70 get an item · 15 list an owner's items · 8 change one · 5 insert one · 2 delete one that the run inserted
"""

import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from importlib.resources import files
from random import Random
from typing import Any

from loadgen.pace.loop import Arrival, Workload
from loadgen.peers.store import (
    Change,
    DeleteRow,
    InsertRow,
    Lookup,
    PeerSession,
    Program,
    RequestFailed,
    Rows,
    UpdateRow,
    parse_queries,
)

ITEMS = 100_000
"""The number of items at a data scale of 1."""
ITEMS_OF_AN_OWNER = 10
MIX = {"Get": 70, "List": 15, "Change": 8, "Insert": 5, "Delete": 2}
_NOW = "2018-04-20 00:00:00"
_ROWS = 1000
_FRESH = 1_000_000_000
_RUNS_APART = 1_000_000


def program() -> Program:
    text = files("loadgen.workloads").joinpath("crud.sql").read_text(encoding="utf-8")
    tables, queries = text.split("CREATE EXT VIEW", 1)
    query_text = "CREATE EXT VIEW" + queries
    return Program("crud", "natural", tables, "", parse_queries(query_text), query_text, tables=("items",))


async def _get(lookup: Lookup, session: PeerSession) -> None:
    (answer,) = await session.read([lookup])
    if not answer.rows():
        raise RequestFailed("the item is not there")


async def _write(change: Change, session: PeerSession) -> None:
    if await session.write([change]) != 1:
        raise RequestFailed("the item is not there")


class CrudWorkload(Workload):
    name = "crud"

    def __init__(self, *, data_scale: float = 1.0, seed: int = 1) -> None:
        self.program = program()
        self._items = max(100, round(ITEMS * data_scale))
        self._random = Random(seed)
        self._fresh = _FRESH + int(time.time()) * _RUNS_APART
        self._inserted: deque[tuple[float, int]] = deque()
        self._revision = self._fresh
        """A title that the item has already, from an earlier run of the same seed, would change nothing."""

    def draw(self, at: float) -> Arrival:
        (kind,) = self._random.choices(tuple(MIX), tuple(MIX.values()))
        # What is deleted was inserted some seconds ago, so that the insert is done; there may be none yet.
        if kind == "Delete" and not (self._inserted and at - self._inserted[0][0] > 5.0):
            kind = "Insert"
        return Arrival(kind, self._act(kind, at))

    def _act(self, kind: str, at: float) -> Callable[[PeerSession], Awaitable[None]]:
        queries = self.program.queries
        item = 1 + self._random.randrange(self._items)
        match kind:
            case "Get":
                return partial(_get, Lookup(queries["item_by_id"], (item,)))
            case "List":
                return partial(_get, Lookup(queries["items_of_owner"], (item % (self._items // ITEMS_OF_AN_OWNER),)))
            case "Change":
                self._revision += 1
                return partial(_write, UpdateRow("items", {"id": item}, {"title": f"Revision {self._revision}"}))
            case "Insert":
                self._fresh += 1
                self._inserted.append((at, self._fresh))
                return partial(_write, InsertRow("items", [self._row(self._fresh)]))
        return partial(_write, DeleteRow("items", {"id": self._inserted.popleft()[1]}))

    def _row(self, item: int) -> dict[str, Any]:
        owner = item % (self._items // ITEMS_OF_AN_OWNER)
        return {"id": item, "owner": owner, "title": f"Item {item}", "body": "x" * 200, "updated_at": _NOW}

    def probe(self) -> Lookup:
        return Lookup(self.program.queries["item_by_id"], (self._items,))

    def rows(self) -> tuple[Rows, int]:
        def made() -> Iterator[tuple[str, list[dict[str, Any]]]]:
            for first in range(1, self._items + 1, _ROWS):
                yield "items", [self._row(item) for item in range(first, min(first + _ROWS, self._items + 1))]

        return made(), self._items
