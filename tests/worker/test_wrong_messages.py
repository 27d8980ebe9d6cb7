"""Messages of a known sender that no process of ours makes: nothing is stored, and the worker goes on.

Rows of other types, expressions over columns that are not there, keys of another width, tables that nobody knows.
"""

from __future__ import annotations

import math
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pytest

from domains.errors import HeadraceError
from domains.language.expressions import Call, Constant, Field
from domains.language.types import BIGINT, BOOL, TEXT
from domains.plan.graph import DomainIndex, NodeIndex
from domains.plan.packets import Amend, Delete, Insert, InTransaction, Once, Operation, Update
from domains.plan.snapshots import DropSnapshot
from tests.kit.leading_workers import Led, leading
from tests.worker.wire.wire_objects import instance
from worker.protocol.cuts import EvaluateRequest
from worker.protocol.messages import (
    EvictRequest,
    ReadRequest,
    SamplesRequest,
    SnapshotsRequest,
    StreamsRequest,
    TouchRequest,
    WriteRequest,
    version_of,
)
from worker.protocol.operations import ArchivedShardRequest, HeldRequest, HoldRequest
from worker.reader_map import BoundLookup

SQL = """
CREATE TABLE notes (id INT PRIMARY KEY, place INT NOT NULL, body TEXT, day DATE, at DATETIME, price DECIMAL(8,2),
  weight DOUBLE, document JSON);
CREATE VIEW ByPlace AS SELECT place, COUNT(*) AS n, SUM(price) AS paid, MAX(YEAR(day)) AS year FROM notes
  WHERE place = ? GROUP BY place;
CREATE VIEW ByDay AS SELECT id, DAYNAME(day) AS name, document->>'$.a' AS a FROM notes WHERE place = ? ORDER BY id
"""
BASE = DomainIndex(0)
RIGHT = (1, 7, "a leaf", "2026-01-31", "2026-01-31 08:00:00", Decimal("1.50"), 2.5, '{"a": 1}')


def spoilt(at: int, value: object) -> Insert:
    row = (*RIGHT[:at], value, *RIGHT[at + 1 :])
    return Insert("notes", ((2, *row[1:]) if at else row,))  # type: ignore[arg-type]


def add(*arguments: Any) -> Call:
    return Call("add", arguments, BIGINT)


OPERATIONS: dict[str, Any] = {
    "bytes for text": spoilt(2, b"\xff"),
    "a float for a number": spoilt(1, 1.5),
    "a text for a key": spoilt(0, "x"),
    "bytes for a key": spoilt(0, b"\xff"),
    "NULL for a key": spoilt(0, None),
    "a number that is too large": spoilt(1, 2**31),
    "a number of a thousand bits": spoilt(1, 2**1000),
    "no day": spoilt(3, "yesterday"),
    "a day that is none": spoilt(3, "2026-02-30"),
    "no time": spoilt(4, "noon"),
    "no decimal": spoilt(5, "1.50"),
    "too many digits": spoilt(5, Decimal("1E+40")),
    "not a number": spoilt(6, math.nan),
    "infinite": spoilt(6, math.inf),
    "no document": spoilt(7, "{"),
    "a narrow row": Insert("notes", (RIGHT[:-1],)),
    "a wide row": Insert("notes", ((*RIGHT, 1),)),
    "an empty row": Insert("notes", ((),)),
    "a column that is none": Update("notes", None, ((99, Constant(1, BIGINT)),)),
    "a column before the first": Update("notes", None, ((-9, Constant(1, BIGINT)),)),
    "a field that is none": Update("notes", None, ((1, Field(99, BIGINT)),)),
    "a function that is none": Update("notes", None, ((1, Call("nonsense", (), BIGINT)),)),
    "a function without arguments": Update("notes", None, ((1, add()),)),
    "a function of other arguments": Update("notes", None, ((1, add(Constant("x", TEXT), Constant(b"\xff", BIGINT))),)),
    "a condition that is none": Delete("notes", Call("and", (Field(77, BOOL),), BOOL)),
    "a key of another type": Delete("notes", Constant(0, BOOL), access=(((0,), (("x",),)),)),
    "a key of a column that is none": Delete("notes", Constant(0, BOOL), access=(((44,), ((1,),)),)),
    "a stamp on a column that is none": Update("notes", None, ((1, Constant(9, BIGINT)),), stamps=((40, "x"),)),
    "rows that are narrow": Amend("notes", ((1,),), assignments=None),
    "beside what is missing": Amend("notes", (RIGHT,), assignments=((1, Field(50, BIGINT)),)),
    "also another table": Amend("notes", (RIGHT,), also=(Amend("nothing", ()),)),
}


async def rows(led: Led) -> list[Any]:
    return [led.own["a"].dataflow.stores[BASE].table("notes").find((), ())]


async def asked(led: Led, message: Any) -> HeadraceError | None:
    try:
        await led.apis["a"].ask(message)
    except HeadraceError as error:
        return error
    return None


async def test_a_write_that_fits_no_table_is_refused_before_anything_is_stored(tmp_path: Path) -> None:
    async with leading(tmp_path, SQL, names=("a",), shards=1, groups=1) as led:
        await led.write(Insert("notes", (RIGHT,)))
        before = await led.page("ByPlace", (7,)), await led.page("ByDay", (7,))
        stored = await rows(led)
        version = version_of(led.state.catalog.table("notes"))
        for name, operation in OPERATIONS.items():
            error = await asked(led, WriteRequest(BASE, operation, version))
            assert error is not None or name.startswith("a key of"), name
            assert error is None or error.code != "remote_fault", (name, error)
            assert led.own["a"].dataflow.failure is None, name
            assert await rows(led) == stored, name
        once = Once("s" * 10, 2**70)
        assert await asked(led, WriteRequest(BASE, Insert("notes", ((3, *RIGHT[1:]),)), version, once)) is not None
        assert await rows(led) == stored
        await led.write(Insert("notes", ((5, *RIGHT[1:]),)))
        assert await led.page("ByPlace", (7,)) == before[0].replace(b'"n":1', b'"n":2').replace(b"1.50", b"3.00")


async def test_a_look_that_fits_nothing_is_refused(tmp_path: Path) -> None:
    async with leading(tmp_path, SQL, names=("a",), shards=1, groups=1) as led:
        await led.write(Insert("notes", (RIGHT,)))
        before = await led.page("ByPlace", (7,))
        domain, reader = led.reader("ByPlace", (7,))
        keys: list[Any] = [(), (1, 2), ("x",), (b"\xff",), (None,), (2**1000,), (1.5,), (Decimal("1E+900"),)]
        nodes = [reader, *map(NodeIndex, range(8)), NodeIndex(99), NodeIndex(-1)]
        for node in nodes:
            for key in keys:
                lookup = BoundLookup((key,))
                await asked(led, ReadRequest(domain, node, (lookup,), {}, 0.2))
                await asked(led, ReadRequest(domain, node, (replace(lookup, limit=-1, offset=-5),), {}, 0.2, True))
                await asked(led, ReadRequest(domain, node, (replace(lookup, seeks=(key, (1, "x"))),), {"x": 3}, 0.1))
                await asked(led, EvictRequest(domain, node, (key,)))
                led.apis["a"].tell(TouchRequest(domain, node, (key,)))
            await asked(led, HoldRequest(domain, node))
        schema = led.state.catalog.table("notes")
        for table in (schema, replace(schema, name="nothing"), replace(schema, indexes=((99,),), unique=((77, 1),))):
            await asked(led, SamplesRequest(domain, (table,)))
        await asked(led, StreamsRequest(domain, "nothing"))
        await asked(led, HeldRequest(10**30))
        await asked(led, ArchivedShardRequest(-1))
        for seed in range(40):
            await asked(led, instance(Random(seed), EvaluateRequest))
        assert led.own["a"].dataflow.failure is None
        assert await led.page("ByPlace", (7,)) == before
        await led.write(Insert("notes", ((5, *RIGHT[1:]),)))


@pytest.mark.parametrize("seed", range(4))
async def test_messages_of_random_content_end_no_worker(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    async with leading(tmp_path, SQL, names=("a",), shards=1, groups=1) as led:
        await led.write(Insert("notes", (RIGHT,)))
        version = version_of(led.state.catalog.table("notes"))
        for _ in range(150):
            kind = random.choice((WriteRequest, ReadRequest, EvictRequest, SamplesRequest, StreamsRequest, HoldRequest))
            message = instance(random, kind)
            message = replace(message, **{"domain": BASE} if hasattr(message, "domain") else {})
            if isinstance(message, WriteRequest):
                own: dict[str, Any] = {"table": "notes"} if isinstance(message.operation, Operation) else {}
                schema = random.choice((version, None)) if not own or random.random() < 0.1 else version
                message = replace(message, operation=replace(message.operation, **own), schema=schema)
            if isinstance(message, ReadRequest):
                message = replace(message, reader=led.reader("ByPlace", (7,))[1], within=0.1, token={})
            await asked(led, message)
            assert led.own["a"].dataflow.failure is None, message
        if still := (await led.apis["a"].ask(SnapshotsRequest(BASE))).still:  # Whoever waits for it ends it so.
            await led.apis["a"].ask(WriteRequest(BASE, DropSnapshot(), None, InTransaction(still)))
        await led.write(Insert("notes", ((0, 8, *RIGHT[2:]),), on_conflict="replace"))
        assert b'"place":8' in await led.page("ByPlace", (8,))
