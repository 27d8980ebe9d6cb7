"""Tables of an upstream, whichever database it is: what they become here, and the words for it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Protocol

from domains.language.types import FOLLOWS
from headrace.errors import HeadraceError


class Stopped(HeadraceError):
    """Following cannot go on without somebody's decision: nothing is skipped, and the position stays where it is."""

    code = "upstream_stopped"


class UpstreamColumn(Protocol):
    """A column as the upstream's catalog has it."""

    @property
    def name(self) -> str: ...

    @property
    def is_indexable(self) -> bool:
        """Whether an index here may have it."""

    def problem(self, in_key: bool, other_collation: str | None) -> str | None:
        """Why it cannot be here."""

    def definition(self, in_key: bool, other_collation: str | None) -> str: ...


@dataclass(frozen=True, slots=True)
class UpstreamTable:
    name: str
    columns: Sequence[UpstreamColumn]
    key: tuple[str, ...]
    indexes: tuple[tuple[str, ...], ...]
    """All but the key, UNIQUE or not, of whole columns."""
    rows: int
    """About."""
    problems: tuple[str, ...] = ()
    """What is wrong with the table as a whole."""
    layout: str | None = None
    """Its columns as the stream tells them, where no definition is told."""

    def misfits(self, other_collation: str | None) -> list[str]:
        """All that cannot be here, by name."""
        found = [f"{self.name}: {problem}" for problem in self.problems]
        told = ((column, column.problem(column.name in self.key, other_collation)) for column in self.columns)
        return [*found, *(f"{self.name}.{column.name}: {problem}" for column, problem in told if problem)]

    def definition(self, other_collation: str | None, source: str) -> str:
        """Our CREATE TABLE."""
        lines = [column.definition(column.name in self.key, other_collation) for column in self.columns]
        lines.append(f"PRIMARY KEY ({names(self.key)})")
        indexable = {column.name for column in self.columns if column.is_indexable}
        lines += [f"KEY ({names(each)})" for each in self.indexes if indexable.issuperset(each)]
        return f"CREATE TABLE IF NOT EXISTS {quoted(self.name)} ({', '.join(lines)}){comment_of(source)}"


@dataclass(frozen=True, slots=True)
class Chunk:
    """The next rows by key, as of a position."""

    table: UpstreamTable
    rows: list[dict[str, Any]]
    position: Any
    limit: int
    end: Sequence[Any]
    """The key of its last row, to go on behind it."""

    @property
    def is_last(self) -> bool:
        return len(self.rows) < self.limit


def comment_of(source: str) -> str:
    """What makes a table follow: nobody else writes to it then."""
    return f" COMMENT = '{FOLLOWS}{source}'"


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def names(columns: Iterable[str]) -> str:
    return ", ".join(map(quoted, columns))


# The values of a key in JSON, to go on behind it.


def to_cursor(key: Iterable[Any]) -> list[Any]:
    def told(value: Any) -> Any:
        if isinstance(value, int | str):
            return value
        if isinstance(value, bytes):
            return {"bytes": value.hex()}
        return {"number": str(value)} if isinstance(value, Decimal) else str(value)

    return list(map(told, key))


def from_cursor(cursor: Iterable[Any]) -> list[Any]:
    def read(told: Any) -> Any:
        if not isinstance(told, dict):
            return told
        return bytes.fromhex(told["bytes"]) if "bytes" in told else Decimal(told["number"])

    return list(map(read, cursor))
