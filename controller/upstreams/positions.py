"""Places in what a database elsewhere tells of its changes: MariaDB's GTIDs, PostgreSQL's LSNs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, Self

from domains.errors import BadRequest


class Position(Protocol):
    def covers(self, other: Any) -> bool:
        """Whether all up to the other one, of the same kind, is before it."""

    def past(self, end: Any) -> Self:
        """Behind a transaction that ends there."""

    def is_before(self, begins: int | None) -> bool:
        """Whether a transaction of there is known to be behind it."""


@dataclass(frozen=True, slots=True)
class GtidPosition:
    """A place in MariaDB's binlog: the last number of each domain, with the server that gave it."""

    last: Mapping[int, tuple[int, int]] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> Self:
        parts = [each.strip().split("-") for each in text.split(",") if each.strip()]
        return cls({int(domain): (int(server), int(number)) for domain, server, number in parts})

    def __str__(self) -> str:
        return ",".join(f"{domain}-{server}-{number}" for domain, (server, number) in sorted(self.last.items()))

    def covers(self, other: GtidPosition) -> bool:
        return all(self.number(domain) >= number for domain, (_, number) in other.last.items())

    def number(self, domain: int) -> int:
        return self.last.get(domain, (0, 0))[1]

    def past(self, end: tuple[int, int, int]) -> GtidPosition:
        domain, server, number = end
        return GtidPosition({**self.last, domain: (server, number)})

    def is_before(self, begins: int | None) -> bool:
        return False  # It is just behind a transaction, and never between two.


@dataclass(frozen=True, slots=True)
class LsnPosition:
    """A place in PostgreSQL's log: all that was committed before it. ``cluster``: the system identifier and the
    timeline that it is of; "": not told."""

    lsn: int = 0
    cluster: str = ""

    @classmethod
    def parse(cls, text: str) -> Self:
        told, _, cluster = text.partition("@")
        high, low = told.split("/")
        return cls((int(high, 16) << 32) + int(low, 16), cluster)

    @property
    def text(self) -> str:
        return f"{self.lsn >> 32:X}/{self.lsn & 0xFFFFFFFF:X}"

    def __str__(self) -> str:
        return f"{self.text}@{self.cluster}" if self.cluster else self.text

    def covers(self, other: LsnPosition) -> bool:
        return self.lsn >= other.lsn

    def past(self, end: int) -> LsnPosition:
        return LsnPosition(max(self.lsn, end), self.cluster)

    def is_before(self, begins: int | None) -> bool:
        """Whether a transaction whose commit is there is behind it."""
        return begins is not None and begins >= self.lsn


_GTIDS = re.compile(r"\d{1,10}-\d{1,10}-\d{1,20}(\s*,\s*\d{1,10}-\d{1,10}-\d{1,20})*")
_LSN = re.compile(r"[0-9A-Fa-f]{1,8}/[0-9A-Fa-f]{1,8}(@[\d/]+)?")


def position_of(text: str) -> Position:
    """:raises BadRequest: it is none."""
    told = text.strip()
    if _GTIDS.fullmatch(told):
        return GtidPosition.parse(told)
    if _LSN.fullmatch(told):
        return LsnPosition.parse(told)
    hint = "a GTID of MariaDB, 0-1-42 (@@last_gtid), or an LSN of PostgreSQL, 0/16B3748 (pg_current_wal_insert_lsn())"
    raise BadRequest(f'"{text[:100]}" is no position', hint=hint)
