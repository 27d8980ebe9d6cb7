"""The columns of an upstream's table: what each becomes here, and its values, from the binlog and from a SELECT."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

from headrace.upstream.columns import Stopped, quoted

AS_THEY_ARE = frozenset(
    [
        "tinyint",
        "smallint",
        "mediumint",
        "int",
        "bigint",
        "decimal",
        "double",
        "date",
        "year",
        "bit",
        "enum",
        "set",
        "time",
        "char",
        "varchar",
        "tinytext",
        "text",
        "mediumtext",
        "longtext",
        "binary",
        "varbinary",
        "tinyblob",
        "blob",
        "mediumblob",
        "longblob",
    ]
)
"""Types that are spelled here as they are there, with their lengths and members."""
OTHERS = {"float": "DOUBLE", "datetime": "DATETIME", "timestamp": "DATETIME"}
COMPARED = frozenset(["char", "varchar", "tinytext", "text", "mediumtext", "longtext"])
"""Types with a collation here."""
KEYS = frozenset(
    [
        "tinyint",
        "smallint",
        "mediumint",
        "int",
        "bigint",
        "decimal",
        "char",
        "varchar",
        "binary",
        "varbinary",
        "date",
        "datetime",
        "timestamp",
        "year",
    ]
)
"""Types by which a table can be read in chunks: ``>`` on their values is the order of their index."""
ZERO = datetime(1970, 1, 1)
"""A TIMESTAMP of all zeros is this in the binlog, and no other one is."""

Convert = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class MariaColumn:
    """A column as ``information_schema`` has it."""

    name: str
    kind: str
    """``varchar``."""
    spelled: str
    """``varchar(40)``."""
    nullable: bool
    collation: str | None
    generated: bool
    default: str | None
    """As SQL; None: it has none, or is not a constant, whose value each event has."""

    @property
    def is_indexable(self) -> bool:
        return self.kind in KEYS

    def selected(self) -> str:
        """It in a SELECT. A FLOAT is shown with six digits there, unless it is made a DOUBLE."""
        return f"{quoted(self.name)} + 0e0" if self.kind == "float" else quoted(self.name)

    def definition(self, in_key: bool, other_collation: str | None) -> str:
        spelled = OTHERS.get(self.kind) or re.sub(r"\s*(zerofill|/\*.*?\*/)", "", self.spelled, flags=re.IGNORECASE)
        collation = self.here(other_collation, in_key) if self.kind in COMPARED else None
        words = [quoted(self.name), spelled, f"COLLATE {collation}" if collation else ""]
        words += ["NULL" if self.nullable else "NOT NULL", f"DEFAULT {self.default}" if self.default else ""]
        return " ".join(filter(None, words))

    def here(self, other: str | None, in_key: bool) -> str | None:
        """The collation that stands for its own; None: there is none. In a key it is no coarser: each row stays one."""
        theirs = self.collation or "utf8mb4_bin"
        if theirs.endswith("_bin"):
            return "utf8mb4_bin"
        if re.fullmatch(r"utf8(mb[34])?_general_ci", theirs):
            return "utf8mb4_general_ci"
        return "utf8mb4_bin" if in_key else other

    def problem(self, in_key: bool, other_collation: str | None) -> str | None:
        """Why it cannot be here."""
        if self.kind not in AS_THEY_ARE and self.kind not in OTHERS:
            return f"type {self.spelled} has no equal"
        if self.generated:
            return "it is generated"
        if in_key and self.kind not in KEYS:
            return f"type {self.spelled} in a PRIMARY KEY"
        if "uca1400" in (self.collation or "") and not str(self.collation).startswith("utf8"):
            return f"the binlog does not tell the character set of collation {self.collation}"
        if self.kind in COMPARED and self.here(other_collation, in_key) is None:
            return f"collation {self.collation} has no equal (--collation NAME takes another one)"
        return None

    def convert(self) -> Convert | None:
        """From what PyMySQL makes of it to our value; None: that is one already."""
        if self.kind == "bit":
            return lambda value: None if value is None else int.from_bytes(value, "big")
        if self.kind in ("date", "datetime", "timestamp"):
            return self._moment
        return None

    def _moment(self, value: Any) -> Any:
        if value is None or isinstance(value, date):
            return value
        raise Stopped(f'column "{self.name}" has {value!r}, which is no date here', hint="give these rows a date first")
