"""Rows as JSON: INTEGER and DOUBLE are numbers, DECIMAL a string that keeps its digits, BLOB base64, JSON the value it
is, and the rest text, as TIME shows it."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from datetime import timedelta
from decimal import Decimal
from typing import Any

import orjson

from domains.language.collating.collation import Collation
from domains.language.compiled import compiled
from domains.language.durations import micros_of, of_micros, text_of_time
from domains.language.expressions import Call, Constant, Expression, Field
from domains.language.types import (
    UNKNOWN_GENERATION,
    Check,
    Column,
    ForeignKey,
    Kind,
    Reaction,
    Row,
    SqlType,
    StoredExpression,
    TableColumn,
    TableSchema,
    Value,
)

# Table schemas and values as JSON: what the catalog of a store and the manifest of an archive are written in.
#
# A Decimal is ``{"decimal": "1.50"}``, bytes are ``{"bytes": base64}``, a TIME is ``{"microseconds": 5}``; all else is
# JSON's own.


def schema_to_json(schema: TableSchema) -> dict[str, Any]:
    document = asdict(schema)
    for column, live in zip(document["columns"], schema.columns, strict=True):
        column["default"] = value_to_json(live.default)
        column["initial"] = value_to_json(live.initial)
    return document


def _collation(name: str | None) -> Collation | None:
    return None if name is None else Collation(name)


def type_from_json(document: dict[str, Any]) -> SqlType:
    return SqlType(
        **{
            **document,
            "kind": Kind(document["kind"]),
            "members": tuple(document.get("members", ())),
            "collation": _collation(document.get("collation")),
        }
    )


def schema_from_json(document: dict[str, Any]) -> TableSchema:
    columns = tuple(
        TableColumn(
            **{
                **column,
                "type": type_from_json(column["type"]),
                "default": value_from_json(column["default"]),
                "initial": value_from_json(column.get("initial")),
                "generated": StoredExpression(**column["generated"]) if column.get("generated") else None,
                "initial_of": StoredExpression(**column["initial_of"]) if column.get("initial_of") else None,
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
        checks=tuple(
            Check(check["name"], StoredExpression(**check["condition"])) for check in document.get("checks", ())
        ),
        foreign_keys=tuple(map(_foreign_key, document.get("foreign_keys", ()))),
        order=tuple(document.get("order", ())),
        unique_names=tuple(document.get("unique_names", ())),
        late_primary=document.get("late_primary", False),
        collation=_collation(document.get("collation")),
        filled=document.get("filled", ""),
        filling=document.get("filling", False),
        shown=document.get("shown", ""),
        policies=document.get("policies", 0),
        comment=document.get("comment", ""),
    )


def _foreign_key(document: dict[str, Any]) -> ForeignKey:
    reactions = {way: Reaction(document[way]) for way in ("on_delete", "on_update")}
    return ForeignKey(**{**document, "columns": tuple(document["columns"]), "key": tuple(document["key"]), **reactions})


def stored_expression(sql: str, expression: Expression) -> StoredExpression:
    return StoredExpression(sql, json.dumps(_expression_to_json(expression), separators=(",", ":")))


def decoded_expression(stored: StoredExpression) -> Expression:
    return _expression_from_json(json.loads(stored.encoded))


def _expression_to_json(e: Expression) -> list[Any]:
    if isinstance(e, Field):
        return ["field", e.position, asdict(e.type)]
    if isinstance(e, Constant):
        return ["constant", value_to_json(e.value), asdict(e.type)]
    return ["call", e.function, [_expression_to_json(each) for each in e.arguments], asdict(e.type)]


def _expression_from_json(document: list[Any]) -> Expression:
    type = type_from_json(document[-1])
    if document[0] == "field":
        return Field(document[1], type)
    if document[0] == "constant":
        return Constant(value_from_json(document[1]), type)
    return Call(document[1], tuple(_expression_from_json(each) for each in document[2]), type)


def value_to_json(value: Value) -> Any:
    if isinstance(value, Decimal):
        return {"decimal": str(value)}
    if isinstance(value, bytes):
        return {"bytes": b64encode(value).decode()}
    if isinstance(value, timedelta):
        return {"microseconds": micros_of(value)}
    return value


def value_from_json(document: Any) -> Value:
    if not isinstance(document, dict):
        return document  # type: ignore[no-any-return]
    if "decimal" in document:
        return Decimal(document["decimal"])
    if "microseconds" in document:
        return of_micros(document["microseconds"])
    return b64decode(document["bytes"])


NOT_OF_JSON = frozenset((Kind.DECIMAL, Kind.BLOB, Kind.TIME))
"""Kinds whose values the ``json`` module does not take; :func:`json_value` makes texts of them."""


def json_value(value: Value) -> Any:
    """The value as the standard ``json`` module takes it."""
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, bytes):
        return b64encode(value).decode("ascii")
    return text_of_time(value) if isinstance(value, timedelta) else value


def json_encoder(columns: Sequence[Column]) -> Callable[[Row], bytes]:
    """A function that renders a row as a JSON object, keys in column order. Column names must differ.

    It is generated: a dict display with constant keys, given to orjson, takes about 0.3 µs for four columns; a
    template filled with separately escaped texts takes a third more.
    """
    names: dict[str, object] = {"dumps": orjson.dumps, "json_value": json_value, "nested": nested, "slowly": _slowly}
    items = []
    for position, column in enumerate(columns):
        names[f"k{position}"] = column.name
        value = f"r[{position}]"
        if column.type.kind in NOT_OF_JSON:
            value = f"json_value({value})"
        elif column.type.kind is Kind.JSON:
            value = f"nested({value})"
        items.append(f"k{position}: {value}")
    display = f"{{{', '.join(items)}}}"
    # orjson refuses what is rare and allowed here: integers beyond 64 bits and unpaired surrogates.
    lines = [
        "def encode(r):",
        "    try:",
        f"        return dumps({display})",
        "    except TypeError:",
        f"        return slowly({display})",
    ]
    exec(compiled("\n".join(lines), "<json encoder>"), names)
    encode: Callable[[Row], bytes] = names["encode"]  # type: ignore[assignment]
    return encode


def nested(document: str | None) -> orjson.Fragment | None:
    """A document as a part of other JSON. JSON's ``null`` has a space before it, by which :func:`page_values` tells it
    from NULL; to everybody else the two are one."""
    return None if document is None else orjson.Fragment(document if document != "null" else _JSON_NULL)


_JSON_NULL = " null"


def page_reader(columns: Sequence[Column]) -> Callable[[bytes], Sequence[Sequence[Any]]]:
    """:func:`page_values` of many pages with these columns: 1 µs for one of a row, where that takes 4. orjson reads it
    where no column has a whole number beyond 64 bits, and no document."""
    ranges = [(column.type.low or 0, column.type.high) for column in columns if column.type.kind is Kind.INTEGER]
    fits = all(high is not None and low >= -(2**63) and high < 2**64 for low, high in ranges)
    if not fits or any(column.type.kind is Kind.JSON for column in columns):
        return lambda page: page_values(page, columns)

    def read(page: bytes) -> Sequence[Sequence[Any]]:
        try:
            return [tuple(row.values()) for row in orjson.loads(b"[" + page + b"]")]
        except orjson.JSONDecodeError:  # Half of a surrogate pair, which JSON may have, and orjson does not take.
            return page_values(page)

    return read


def page_values(page: bytes, columns: Sequence[Column] = ()) -> list[tuple[Any, ...]]:
    """Each row's values in column order, as JSON has them, out of a reader's page: JSON objects with commas between
    them, as :func:`json_encoder` writes them. The standard module reads it, since orjson makes a float of 2^64.

    A document is its text, where the page's ``columns`` say that it is one."""
    if any(column.type.kind is Kind.JSON for column in columns):
        return list(_values_with_documents(page.decode(), [column.type.kind is Kind.JSON for column in columns]))
    rows: list[dict[str, Any]] = json.loads(b"[" + page + b"]")
    return [tuple(row.values()) for row in rows]


def _values_with_documents(page: str, are_documents: Sequence[bool]) -> Iterator[tuple[Any, ...]]:
    """The texts of documents as they stand in the page: to parse them would lose a DECIMAL's digits."""
    at = 0
    while at < len(page):
        values: list[Any] = []
        for is_document in are_documents:
            _, start = _DECODER.raw_decode(page, at + 1)  # Behind { or a comma: the name.
            is_null = page.startswith(_JSON_NULL, start + 1)
            value, at = _DECODER.raw_decode(page, start + 1 + is_null)
            is_text = is_document and (is_null or value is not None)
            values.append(page[start + 1 + is_null : at] if is_text else value)
        at += 2  # The } and the comma behind it.
        yield tuple(values)


_DECODER = json.JSONDecoder()


def _slowly(row: dict[str, Any]) -> bytes:
    parts = (f"{json.dumps(name)}:{_slow_text(value)}" for name, value in row.items())
    return f"{{{','.join(parts)}}}".encode()


def _slow_text(value: Any) -> str:
    return orjson.dumps(value).decode() if isinstance(value, orjson.Fragment) else json.dumps(value)
