"""CREATE TABLE … AS SELECT: a table that is there with all of its rows, or not at all.

Whoever answers the SELECT has its rows, and the recipe's entry is a CREATE TABLE with the columns that they have. The
rows are stored *before* the entry is written::

    CreateTable (filling) ──► FillTable … ──► the entry is decided ──► AlterTable (no longer filling)
            └──────────── Relent ────────────┘

    *The recipe has the table exactly if all of its rows are durable.* A command is answered when what it wrote is, and
    the entry waits for all of them. A table that is being filled is in no catalog, no clock, no archive and no back-up:
    nobody reads it, and its place is free. Whoever opens a store drops it, unless the recipe has the entry that filled
    it, by its name (``TableSchema.filled``): a kill in between leaves the table with all rows, or no table.

A change that is interrupted begins again, and ``CreateTable`` drops what the last attempt has left.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from domains.errors import BadRequest
from domains.language.json_rows import value_from_json, value_to_json
from domains.language.types import TableSchema
from domains.plan import commands
from domains.plan.packets import Insert
from domains.plan.sharding import physical
from migrations.change import BASES, Change, at_table
from migrations.flow.plan import PlanStep
from migrations.flow.routing import split

ROWS_TOGETHER = 1_000
"""Rows of a step, during which a shard answers nobody: some milliseconds."""


def filled(change: Change, rows: Insert) -> Change:
    """The change, which creates the table of these rows, with the rows before it is decided."""
    state = change.state
    schema = state.catalog.table(rows.table)
    if not any(_creates(step, schema) for step in change.tables):
        return change  # IF NOT EXISTS, and it does.
    rows = replace(rows, table=schema.name)
    name, shards = schema.name, state.shards
    made = commands.CreateTable(replace(schema, filling=True))
    checks = at_table(schema, shards, made, f"create table {name}")
    checks += _fills(rows, schema, shards)
    relents = at_table(schema, shards, commands.Relent(name), f"leave table {name} as it is")
    shown = commands.AlterTable(schema)
    tables = [
        replace(step, command=shown, text=f"show table {name}") if _creates(step, schema) else step
        for step in change.tables
    ]
    return replace(change, checks=[*change.checks, *checks], relents=[*change.relents, *relents], tables=tables)


def _creates(step: PlanStep, schema: TableSchema) -> bool:
    return isinstance(step.command, commands.CreateTable) and step.command.schema == schema


def _fills(rows: Insert, schema: TableSchema, shards: int) -> Iterator[PlanStep]:
    for shard, part in split(rows, schema, shards):
        assert isinstance(part, Insert)
        domain = BASES if shards == 1 else physical(BASES, shard, shards)
        for start in range(0, len(part.rows), ROWS_TOGETHER):
            some = replace(part, rows=part.rows[start : start + ROWS_TOGETHER])
            yield PlanStep(domain, commands.FillTable(some), f"domain {domain}: fill table {schema.name}")


def fill_to_json(rows: Insert) -> dict[str, Any]:
    """For the way to the leader."""
    return {
        "table": rows.table,
        "on_conflict": rows.on_conflict,
        "rows": [list(map(value_to_json, row)) for row in rows.rows],
    }


def fill_from_json(document: dict[str, Any]) -> Insert:
    """:raises BadRequest: it is something else."""
    try:
        rows = tuple(tuple(map(value_from_json, row)) for row in document["rows"])
        return Insert(str(document["table"]), rows, document["on_conflict"])
    except (KeyError, TypeError, ValueError) as error:
        raise BadRequest(f"these are no rows of a table: {error!r}") from None
