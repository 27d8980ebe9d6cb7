"""Table schemas and values as JSON: what the catalog of a store and the manifest of an archive are written in.

A Decimal is ``{"decimal": "1.50"}`` and bytes are ``{"bytes": base64}``; all else is JSON's own.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from dataclasses import asdict
from decimal import Decimal
from typing import Any

from domains.language.types import UNKNOWN_GENERATION, Kind, SqlType, TableColumn, TableSchema, Value


def schema_to_json(schema: TableSchema) -> dict[str, Any]:
    document = asdict(schema)
    for column, live in zip(document["columns"], schema.columns, strict=True):
        column["default"] = value_to_json(live.default)
    return document


def schema_from_json(document: dict[str, Any]) -> TableSchema:
    columns = tuple(
        TableColumn(
            **{
                **column,
                "type": SqlType(**{**column["type"], "kind": Kind(column["type"]["kind"])}),
                "default": value_from_json(column["default"]),
            }
        )
        for column in document["columns"]
    )
    return TableSchema(
        name=document["name"],
        columns=columns,
        primary_key=tuple(document["primary_key"]),
        unique=tuple(tuple(positions) for positions in document["unique"]),
        indexes=tuple(tuple(positions) for positions in document["indexes"]),
        # A catalog that an earlier version wrote may lack these.
        index_names=tuple(document.get("index_names", ())),
        shard_by=document.get("shard_by"),
        shards=document.get("shards", 0),
        generation=document.get("generation", UNKNOWN_GENERATION),
    )


def value_to_json(value: Value) -> Any:
    if isinstance(value, Decimal):
        return {"decimal": str(value)}
    if isinstance(value, bytes):
        return {"bytes": b64encode(value).decode()}
    return value


def value_from_json(document: Any) -> Value:
    if not isinstance(document, dict):
        return document  # type: ignore[no-any-return]
    if "decimal" in document:
        return Decimal(document["decimal"])
    return b64decode(document["bytes"])
