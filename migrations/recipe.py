"""The recipe: every migration so far, in order, as SQL. It is all that a new leader needs.

Playing a recipe gives the same catalog and the same dataflow, node for node, because planning is a function of what
came before. It is kept as JSON, with a checksum: one bit makes ``score > 3`` into ``score > 2``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any
from zlib import crc32

from domains.errors import StorageFailure
from migrations.statements.adhoc.shapes_of_selects import ad_hoc_name

FORMAT = 2
"""The first format with a checksum. One of format 1 has none, and is read all the same."""
COMPACTED = 3
"""The format of a recipe that was made short, which an earlier version of Headrace would play to other numbers."""


@dataclass(frozen=True, slots=True)
class RecipeEntry:
    """One migration: statements planned together, and views that were given a reader when they were first read."""

    statements: tuple[str, ...] = ()
    readers: tuple[str, ...] = ()
    ad_hoc: bool = False
    """The statement is an ad-hoc SELECT in its normal form; its view is named by the text."""
    forget: tuple[str, ...] = ()
    """Views of ad-hoc SELECTs that go."""
    first: int = 0
    """The number of its first node is at least this: entries before it were left out (``compacting.py``)."""
    dropped: tuple[tuple[str, int], ...] = ()
    """Number of tables that such entries dropped, by lower-case name."""
    gathers: tuple[int, ...] = ()
    """The shards in which it gathers rows: which has the least depends on what there was."""
    ignored_keys: bool = False
    """An earlier version wrote it, which read over foreign keys: they are NOT ENFORCED."""
    collation: str = ""
    """The collation of texts in its tables that name none. Without it, its tables are of before there were collations:
    whatever they name was read over, and texts are compared by code point."""
    whole_keys: bool = False
    """An earlier version wrote it, to which a UNIQUE key on the beginning of a column was on the whole column."""
    now: str = ""
    """The time of an ALTER TABLE, which rows get that are stored already, and of CREATE VIEW; "" in one of before."""
    filled: str = ""
    """Of a table that was made of a SELECT: it is decided when its rows are stored (``filling.py``)."""

    def document(self) -> dict[str, Any]:
        """The entry as a JSON object, without empty members."""
        document: dict[str, Any] = {}
        if self.statements:
            document["statements"] = list(self.statements)
        if self.readers:
            document["readers"] = list(self.readers)
        if self.ad_hoc:
            document["ad_hoc"] = True
        if self.forget:
            document["forget"] = list(self.forget)
        if self.first:
            document["first"] = self.first
        if self.dropped:
            document["dropped"] = dict(self.dropped)
        if self.gathers:
            document["gathers"] = list(self.gathers)
        if self.collation:
            document["collation"] = self.collation
        if self.now:
            document["now"] = self.now
        if self.filled:
            document["filled"] = self.filled
        return document

    @property
    def only_drops(self) -> bool:
        words = [sql[:100].upper().split() for sql in self.statements]
        drops = all(each[:1] == ["DROP"] and each[1:2] != ["POLICY"] for each in words)
        drops = drops and not any(";" in sql for sql in self.statements)
        return drops and not self.readers and not self.ad_hoc and bool(self.statements or self.forget)


@dataclass(frozen=True, slots=True)
class Recipe:
    entries: tuple[RecipeEntry, ...] = ()
    left_out: int = 0
    """Number of changes whose entries were removed."""

    @property
    def changes(self) -> int:
        """Number of changes so far; the later of two recipes of a deployment has more."""
        return len(self.entries) + self.left_out

    def with_entry(self, entry: RecipeEntry) -> Recipe:
        return replace(self, entries=(*self.entries, entry))

    def to_json(self) -> bytes:
        """One line an entry."""
        lines = ",\n".join(map(_line, self.entries))
        head = f'"format": {COMPACTED}, "left_out": {self.left_out}' if self.left_out else f'"format": {FORMAT}'
        return f'{{{head}, "checksum": "{self._checksum()}", "entries": [\n{lines}\n]}}\n'.encode()

    def _checksum(self) -> str:
        """The checksum of the entries, however they are spaced: in a cluster they are part of a larger document."""
        lines = "\n".join([*map(_line, self.entries), *([str(self.left_out)] if self.left_out else [])])
        return f"{crc32(lines.encode()):08x}"

    @classmethod
    def from_json(cls, data: bytes) -> Recipe:
        """:raises StorageFailure: it is damaged, or of a later version of Headrace."""
        try:
            document = json.loads(data)
            if document["format"] not in (1, FORMAT, COMPACTED):
                raise StorageFailure(
                    f"the recipe has format {document['format']}, and this version reads {COMPACTED}",
                    hint="use the version of Headrace that wrote it",
                )
            found = cls(tuple(_entry(entry) for entry in document["entries"]), int(document.get("left_out", 0)))
            if ("checksum" in document or document["format"] != 1) and document["checksum"] != found._checksum():
                raise ValueError("its checksum is another")
            return found
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise StorageFailure(f"the recipe is damaged: {error}", hint="restore it from a back-up") from error


def largest(recipe: Recipe, many: int = 3) -> str:
    """The beginnings and sizes in bytes of the largest entries, for a message."""
    sizes = sorted(((len(_line(entry).encode()), entry) for entry in recipe.entries), key=lambda each: -each[0])
    return ", ".join(
        f'"{" ".join(sql[:100].split())[:50]}…" ({size:,} bytes)'
        for size, sql in ((size, next(iter(entry.statements), "")) for size, entry in sizes[:many])
    )


@lru_cache(maxsize=4096)
def _line(entry: RecipeEntry) -> str:
    """Kept, since each change writes all entries again: 6 µs each. (With ``indent`` json has only its slow encoder.)"""
    document = entry.document()
    if not entry.ignored_keys and any(map(_KEYS.search, entry.statements)):
        document["foreign_keys"] = True
    if not entry.whole_keys and any(map(_PREFIXED.search, entry.statements)):
        document["key_parts"] = True
    return json.dumps(document, ensure_ascii=False)


_KEYS = re.compile(r"\b(REFERENCES|FOREIGN|CONSTRAINT)\b", re.IGNORECASE)
"""Statements that may be about foreign keys. An entry with one says that this version has read it."""


_PREFIXED = re.compile(r"\bUNIQUE\b[^()]*\([^()]*[\w`]\s*\(\s*\d+\s*\)", re.IGNORECASE)
"""Statements with a UNIQUE key on the beginning of a column. An entry with one says that this version has read it."""


def _entry(document: dict[str, Any]) -> RecipeEntry:
    def texts(values: Iterable[str]) -> tuple[str, ...]:
        return tuple(str(value) for value in values)

    statements = texts(document.get("statements", ()))
    return RecipeEntry(
        statements,
        texts(document.get("readers", ())),
        bool(document.get("ad_hoc")),
        texts(document.get("forget", ())),
        int(document.get("first", 0)),
        tuple((str(name), int(count)) for name, count in document.get("dropped", {}).items()),
        tuple(map(int, document.get("gathers", ()))),
        "foreign_keys" not in document and any(map(_KEYS.search, statements)),
        str(document.get("collation", "")),
        "key_parts" not in document and any(map(_PREFIXED.search, statements)),
        str(document.get("now", "")),
        str(document.get("filled", "")),
    )


# A recipe without what traffic has made: automatic views come and go, and are made again where they pay.
#
# Nodes have other numbers after it, so this is for a deployment that begins anew, and nobody follows its recipe.


def declared(recipe: Recipe) -> Recipe:
    """What people declared. A view of a SELECT that another entry names stays: something stands on it."""
    named = " ".join(text for entry in recipe.entries for text in (*entry.statements, *entry.readers)).lower()
    return replace(recipe, entries=tuple(entry for entry in recipe.entries if _is_declared(entry, named)))


def _is_declared(entry: RecipeEntry, named: str) -> bool:
    if entry.ad_hoc:
        return any(ad_hoc_name(sql) in named for sql in entry.statements)
    return entry != RecipeEntry(forget=entry.forget)
