"""The columns of a PostgreSQL's table: what each becomes here, and its values, which come as PostgreSQL's texts."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from math import isfinite
from typing import Any

from headrace.upstream.columns import Stopped, quoted

KINDS = {
    "bool": "BOOL",
    "int2": "SMALLINT",
    "int4": "INT",
    "int8": "BIGINT",
    "float4": "DOUBLE",
    "float8": "DOUBLE",
    "numeric": "DECIMAL",
    "text": "LONGTEXT",
    "varchar": "VARCHAR",
    "bpchar": "CHAR",
    "uuid": "CHAR(36)",
    "json": "LONGTEXT",
    "jsonb": "LONGTEXT",
    "bytea": "LONGBLOB",
    "date": "DATE",
    "timestamp": "DATETIME",
    "timestamptz": "DATETIME",
    "time": "TIME",
}
NOT_IN_KEYS = frozenset(["float4", "float8", "json", "jsonb"])
LONGEST = 16_000
"""Characters of a VARCHAR; a longer one is a LONGTEXT."""
LABEL = 63
"""The longest label of an enum, in bytes."""

Convert = Callable[[str], Any]


@dataclass(frozen=True, slots=True)
class PostgresColumn:
    """A column as ``pg_attribute`` has it."""

    name: str
    kind: str
    """``varchar``."""
    spelled: str
    """``character varying(40)``."""
    modifier: int
    nullable: bool
    category: str
    """Of its type: ``b``, or ``e`` of an enum, ``d`` of a domain, ``c``, ``r``, ``m``."""
    deterministic: bool
    generated: bool

    @property
    def is_indexable(self) -> bool:
        return self.category == "e" or (self.kind not in NOT_IN_KEYS and self._type()[:4] != "LONG")

    def definition(self, in_key: bool, other_collation: str | None) -> str:
        return f"{quoted(self.name)} {self._type()} {'NULL' if self.nullable else 'NOT NULL'}"

    def _type(self) -> str:
        ours = KINDS.get(self.kind, "VARCHAR")
        length = self.modifier - 4
        if self.category == "e":
            return f"VARCHAR({LABEL})"
        if self.kind == "numeric":
            return f"DECIMAL({length >> 16},{_scale(length)})"
        if self.kind in ("varchar", "bpchar"):
            if self.modifier < 0 or length > LONGEST:
                return "LONGTEXT"
            return f"CHAR({length})" if self.kind == "bpchar" and length < 256 else f"VARCHAR({length})"
        return ours

    def problem(self, in_key: bool, other_collation: str | None) -> str | None:
        """Why it cannot be here."""
        if self.category != "e" and (self.category != "b" or self.kind not in KINDS):
            return f"type {self.spelled} has no equal"
        if self.kind == "numeric":
            length = self.modifier - 4
            if self.modifier < 0:
                return "numeric without a precision: its values may have more digits than a DECIMAL"
            if length >> 16 > 65 or not 0 <= _scale(length) <= min(30, length >> 16):
                return f"type {self.spelled} is wider than DECIMAL(65, 30)"
        if self.generated:
            return "it is generated"
        if in_key and self.kind in NOT_IN_KEYS:
            return f"type {self.spelled} in a PRIMARY KEY"
        if in_key and not self.deterministic:
            return "its collation takes different texts of a PRIMARY KEY for equal"
        return None

    def convert(self) -> Convert | None:
        """From PostgreSQL's text to our value; None: it is one already.

        :raises Stopped: (the converter) the value has no equal here."""
        made = _CONVERTS.get(self.kind)
        return None if made is None else lambda text: _converted(made, self.name, text)


def _scale(length: int) -> int:
    return ((length & 0x7FF) ^ 1024) - 1024


def _converted(convert: Convert, column: str, text: str) -> Any:
    try:
        return convert(text)
    except (ValueError, ArithmeticError, LookupError) as error:
        hint = "give these rows another value upstream, or leave the table out"
        raise Stopped(f'column "{column}" has {text[:40]!r}, which has no equal here', hint=hint) from error


def _boolean(text: str) -> int:
    return {"t": 1, "f": 0}[text]


def _finite(value: float) -> float:
    if not isfinite(value):
        raise ValueError(value)
    return value


def _float4(text: str) -> float:
    """All its digits: 1.1 is 1.100000023841858."""
    return float(struct.unpack("f", struct.pack("f", _finite(float(text))))[0])


def _numeric(text: str) -> Decimal:
    value = Decimal(text)
    if not value.is_finite():
        raise ValueError(text)
    return value


def _bytes(text: str) -> bytes:
    if not text.startswith("\\x"):
        raise ValueError(text)
    return bytes.fromhex(text[2:])


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text.removesuffix("+00"))


def _time(text: str) -> timedelta:
    hours, minutes, seconds = re.fullmatch(r"(\d\d):(\d\d):(\d\d(?:\.\d+)?)", text).groups()  # type: ignore[union-attr]
    return timedelta(hours=int(hours), minutes=int(minutes), microseconds=round(float(seconds) * 1e6))


_CONVERTS: dict[str, Convert] = {
    "bool": _boolean,
    "int2": int,
    "int4": int,
    "int8": int,
    "float4": _float4,
    "float8": lambda text: _finite(float(text)),
    "numeric": _numeric,
    "bpchar": lambda text: text.rstrip(" "),
    "bytea": _bytes,
    "date": date.fromisoformat,
    "timestamp": _moment,
    "timestamptz": _moment,
    "time": _time,
}
