"""All that a view's reader holds, as lines of JSON: what ``headrace verify`` compares with.

::

    {"view": …}                         what the view is: its query, what that reads, which columns are key and seek
    {"shard": 0, "clock": {…}}          the first shard of the reader, and exactly what its rows reflect
    {"key": [7], "rows": [{…}, {…}]}    a filled key; one that has no rows has an empty list. A key of many rows takes
    {"key": [8], "rows": []}            several lines; a key that is too long to be kept is {"digest": "…"}
    {"shard": 1, …} …
    {"end": {"keys": 2, "rows": 2}}     without this line the answer was broken off

The rows are the reader's own bytes. Where the reader seeks by further columns, a line has their values beside the rows.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import orjson

from controller.hosts import Hosts, ReaderShard
from controller.statements.listing import info_of, view_of
from domains.errors import BadRequest
from domains.language.encoding import decode_key
from domains.language.json_rows import json_value, schema_to_json
from domains.language.types import Row, TableSchema
from domains.plan.traits import is_reader
from migrations.catalog import ViewDefinition
from migrations.flow.plan import State
from migrations.parse.reading import faithful
from worker.reader_map import ReaderLayout
from worker.reader_map.layout import KEY_LIMIT
from worker.reader_map.merging import HeldRow

ROWS_A_LINE = 500
"""So that a line stays small whatever the key has; a full reader has one key."""


async def held_lines(state: State, view: str, shards: Sequence[ReaderShard], hosts: Hosts) -> AsyncIterator[bytes]:
    """Raises BadRequest for a view without a reader, and what the hosts raise."""
    if not shards:
        raise BadRequest(f'view "{view}" has no reader: it holds nothing', hint="read it once, or verify what reads it")
    yield orjson.dumps(head_of(state, view)) + b"\n"
    keys = rows = 0
    for number, shard in enumerate(shards):
        line = _Line(shard.layout)
        async for found in hosts.held(shard):
            if isinstance(found, dict):
                yield orjson.dumps({"shard": number, "clock": found}) + b"\n"
                continue
            if line.is_over(found):
                yield line.text()
            line.add(found)
        if line.key is not None:
            yield line.text()
        keys, rows = keys + line.keys_so_far, rows + line.rows_so_far
    yield orjson.dumps({"end": {"keys": keys, "rows": rows}}) + b"\n"


@dataclass(slots=True)
class _Line:
    """Rows of one key, on their way into a line."""

    layout: ReaderLayout
    key: bytes | None = None
    rows: list[bytes] = field(default_factory=list)
    seeks: list[Row] = field(default_factory=list)
    keys_so_far: int = 0
    rows_so_far: int = 0

    def is_over(self, found: HeldRow) -> bool:
        return self.key is not None and (found[0] != self.key or len(self.rows) >= ROWS_A_LINE)

    def add(self, found: HeldRow) -> None:
        key, json, suffix = found
        self.keys_so_far += key != self.key
        self.key = key
        if json is not None:
            self.rows_so_far += 1
            self.rows.append(json)
            self.seeks.append(self._seek(suffix))

    def _seek(self, suffix: bytes) -> Row:
        layout = self.layout
        return decode_key(suffix, [layout.types[at] for at in layout.reader.seek])

    def text(self) -> bytes:
        assert self.key is not None
        layout = self.layout
        if self.key[:1] == b"\xff":
            shown = b'"digest":' + orjson.dumps(self.key[1:].hex())
        else:
            shown = b'"key":' + _values(decode_key(self.key, [layout.types[at] for at in layout.reader.key]))
        rows = self.rows or ([layout.empty] if layout.empty is not None else [])
        text = b"{" + shown + b',"rows":[' + b",".join(rows) + b"]"
        if layout.reader.seek:
            text += b',"seek":[' + b",".join(map(_values, self.seeks)) + b"]"
        self.rows, self.seeks = [], []
        return text + b"}\n"


def _values(row: Row) -> bytes:
    return orjson.dumps([_plain(value) for value in row])


def _plain(value: Any) -> Any:
    """Integers beyond 64 bits, which JSON has and orjson has not, go as text."""
    return str(value) if isinstance(value, int) and not -(2**63) <= value < 2**64 else json_value(value)


def head_of(state: State, view: str) -> dict[str, Any]:
    """The view's definition: enough to compute it anew from the base tables."""
    planned, info = view_of(state, view), info_of(state, view.lower())
    definition = state.catalog.views[view.lower()]
    node = state.flow.node(state.flow.readers[view.lower()])
    assert is_reader(node.operator)
    views, tables = _read_by(state, definition)
    return {
        "view": definition.name,
        "materialization": info.materialization,
        "query": faithful(definition.relation),
        "names": definition.columns,
        "columns": [{"name": column.name, "type": asdict(column.type)} for column in node.columns],
        "visible": node.operator.visible,
        "late": planned.finish is not None,
        "policies": state.catalog.policed([view]),
        "key_columns": node.operator.key,
        "seek_columns": node.operator.seek,
        "parameters": [
            {"name": each.name, "kind": each.kind.value, "column": each.column} for each in planned.reader.parameters
        ],
        "views": [{"name": each.name, "query": faithful(each.relation), "names": each.columns} for each in views],
        "tables": [schema_to_json(schema) for schema in tables],
        "key_limit": KEY_LIMIT,
    }


def _read_by(state: State, definition: ViewDefinition) -> tuple[list[ViewDefinition], list[TableSchema]]:
    """The views and tables that a view reads, directly or through others."""
    views: dict[str, ViewDefinition] = {}
    tables: dict[str, TableSchema] = {}
    pending = sorted(definition.reads)
    while pending:
        name = pending.pop()
        inner = state.catalog.views.get(name)
        if inner is None:
            tables[name] = state.catalog.table(name)
        elif name not in views:
            views[name] = inner
            pending.extend(sorted(inner.reads))
    return list(views.values()), list(tables.values())
