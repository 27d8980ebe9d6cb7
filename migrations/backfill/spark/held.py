"""What a view's readers hold, read back from a dump (``controller/held_view.py``): what the view is, its rows by
shard."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from domains.errors import BadRequest
from domains.schema_json import schema_from_json
from domains.types import Kind, SqlType, TableSchema
from migrations.backfill.spark.canonical import digest_text, of_json, text_of_key, text_of_row
from migrations.catalog import Catalog, ViewDefinition
from migrations.parse import parse_select
from migrations.spark_sql import Judged, judged


@dataclass(frozen=True, slots=True)
class HeldShard:
    number: int
    clock: dict[str, int]
    keys: list[str]
    """The texts of the keys that are filled."""
    rows: list[tuple[str, str]]
    """(key, row) as texts."""


class HeldView:
    """One dump. ``shards`` reads the rows; what the view is, is there at once.

    :raises BadRequest: the dump was broken off.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with path.open(encoding="utf-8") as file:
            self.head: dict[str, Any] = json.loads(file.readline())
        head = self.head
        self.name: str = head["view"]
        self.types = [_type(column["type"]) for column in head["columns"]]
        self.visible = self.types[: head["visible"]]
        self.names = [column["name"] for column in head["columns"][: head["visible"]]]
        self.key: list[int] = list(head["key_columns"])
        self.seek: list[int] = list(head["seek_columns"])
        self.tables: list[TableSchema] = [schema_from_json(each) for each in head["tables"]]

    def judged(self, tables: dict[str, str]) -> Judged:
        """The view's query for Spark. Raises Unsupported."""
        schemas = {schema.name.lower(): schema for schema in self.tables}
        views = {each["name"].lower(): _definition(each) for each in self.head["views"]}
        return judged(Catalog(schemas, views), tables, parse_select(self.head["query"]))

    def places(self, columns: Sequence[int]) -> list[int]:
        """For each of the reader's columns, which of the judged query's parameters it is compared by."""
        parameters = [each for each in self.head["parameters"] if each["column"] is not None]
        return [next(i for i, each in enumerate(parameters) if each["column"] == column) for column in columns]

    def clocks(self) -> Iterator[dict[str, int]]:
        """Of each shard."""
        with self.path.open(encoding="utf-8") as file:
            for line in file:
                if line.startswith('{"shard"'):
                    yield json.loads(line)["clock"]

    def shards(self) -> Iterator[HeldShard]:
        shard: HeldShard | None = None
        ended = False
        for line in self._lines():
            if "clock" in line:
                if shard is not None:
                    yield shard
                shard = HeldShard(line["shard"], line["clock"], [], [])
            elif "end" in line:
                ended = True
            elif shard is not None:
                self._take(line, shard)
        if not ended:
            raise BadRequest(f'what view "{self.name}" holds was broken off', hint="verify again")
        if shard is not None:
            yield shard

    def _lines(self) -> Iterator[dict[str, Any]]:
        with self.path.open(encoding="utf-8") as file:
            file.readline()
            for line in file:
                yield json.loads(line)

    def _take(self, line: dict[str, Any], shard: HeldShard) -> None:
        if "digest" in line:
            key = digest_text(line["digest"])
        else:
            values = tuple(of_json(v, self.types[at]) for v, at in zip(line["key"], self.key, strict=True))
            key = text_of_key(values, self.head["key_limit"])
        if not shard.keys or shard.keys[-1] != key:
            shard.keys.append(key)
        seeks = line.get("seek") or [()] * len(line["rows"])
        for seek, row in zip(seeks, line["rows"], strict=True):
            further = [of_json(v, self.types[at]) for v, at in zip(seek, self.seek, strict=True)]
            shown = [of_json(v, t) for v, t in zip(row.values(), self.visible, strict=True)]
            shard.rows.append((key, text_of_row((*further, *shown))))


def _type(document: dict[str, Any]) -> SqlType:
    return SqlType(**{**document, "kind": Kind(document["kind"])})


def _definition(document: dict[str, Any]) -> ViewDefinition:
    text = document["query"]
    return ViewDefinition(document["name"], text, False, False, parse_select(text), tuple(document["names"]))
