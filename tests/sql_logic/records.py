"""The text format of ``README.md``, read into records."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from domains.language.durations import parsed

_TOKEN = re.compile(r"\s*(\[|\]|,|(?:TIME)?'(?:[^']|'')*'|[^\s,\[\]]+)")


@dataclass(frozen=True, slots=True)
class Expect:
    """Rows, as values; ``lines`` keeps their text for messages."""

    rows: tuple[tuple[Any, ...], ...]
    ordered: bool


@dataclass(frozen=True, slots=True)
class Statement:
    line: int
    sql: str
    error: str | None
    skip: frozenset[str]


@dataclass(frozen=True, slots=True)
class Query:
    line: int
    sql: str
    expect: Expect
    skip: frozenset[str]


@dataclass(frozen=True, slots=True)
class LookUp:
    line: int
    view: str
    values: tuple[Any, ...]
    expect: Expect
    skip: frozenset[str]


@dataclass(frozen=True, slots=True)
class Restart:
    line: int
    skip: frozenset[str]


Record = Statement | Query | LookUp | Restart


def read_records(path: Path) -> list[Record]:
    """:raises ValueError: with file and line."""
    records: list[Record] = []
    for line, block in _blocks(path):
        try:
            records.append(_record(line, block))
        except (ValueError, IndexError) as error:
            raise ValueError(f"{path.name}:{line}: {error}") from error
    return records


def _blocks(path: Path) -> Iterator[tuple[int, list[str]]]:
    block: list[str] = []
    start = 0
    for number, line in enumerate([*path.read_text().splitlines(), ""], 1):
        if line.startswith("#"):
            continue
        if line.strip():
            if not block:
                start = number
            block.append(line)
        elif block:
            yield start, block
            block = []


def _record(line: int, block: list[str]) -> Record:
    skip = frozenset(text.split()[1] for text in block if text.startswith("skipif "))
    block = [text for text in block if not text.startswith("skipif ")]
    words = block[0].split()
    match words[0]:
        case "statement":
            return Statement(line, "\n".join(block[1:]), words[2] if words[1] == "error" else None, skip)
        case "query":
            end = block.index("----")
            return Query(line, "\n".join(block[1:end]), _expect(words[1], block[end + 1 :]), skip)
        case "lookup":
            values = parse_values(block[0].split(None, 3)[3] if len(words) > 3 else "")
            return LookUp(line, words[2], tuple(values), _expect(words[1], block[2:]), skip)
        case "restart":
            return Restart(line, skip)
    raise ValueError(f"unknown record {words[0]!r}")


def _expect(kind: str, lines: list[str]) -> Expect:
    if kind not in ("ordered", "bag"):
        raise ValueError(f"{kind!r} is neither ordered nor bag")
    return Expect(tuple(_row(line) for line in lines), kind == "ordered")


def _row(line: str) -> tuple[Any, ...]:
    """``1 | 'a | b' | NULL``"""
    cells = re.findall(r"'(?:[^']|'')*'|[^|]+", line)
    return tuple(parse_value(cell.strip()) for cell in cells if cell.strip())


def parse_value(text: str) -> Any:
    if text == "NULL":
        return None
    if text.startswith("'"):
        return text[1:-1].replace("''", "'")
    if text.startswith("TIME'"):
        return parsed(text[5:-1])
    if "e" in text:
        return float(text)
    return Decimal(text) if "." in text else int(text)


def parse_values(text: str) -> list[Any]:
    """Values separated by spaces; a list in brackets."""
    values: list[Any] = []
    inside: list[Any] | None = None
    for token in _TOKEN.findall(text):
        if token == "[":
            inside = []
        elif token == "]":
            values.append(inside)
            inside = None
        elif token != ",":
            (values if inside is None else inside).append(parse_value(token))
    return values
