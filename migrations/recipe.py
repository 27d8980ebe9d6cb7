"""The recipe: every migration so far, in order, as SQL. It is all that a new leader needs.

Playing a recipe gives the same catalog and the same dataflow, node for node, because planning is a function of what
came before. It is kept as JSON, with a checksum: one bit makes ``score > 3`` into ``score > 2``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from zlib import crc32

from domains.errors import StorageFailure
from migrations.statements.adhoc.shapes_of_selects import ad_hoc_name

FORMAT = 2
"""From here on with a checksum. One of format 1 has none, and is read all the same."""


@dataclass(frozen=True, slots=True)
class RecipeEntry:
    """One migration: statements planned together, and views that were given a reader when they were first read."""

    statements: tuple[str, ...] = ()
    readers: tuple[str, ...] = ()
    ad_hoc: bool = False
    """The statement is an ad-hoc SELECT in its normal form; its view is named by the text."""
    forget: tuple[str, ...] = ()
    """Views of ad-hoc SELECTs that go."""


@dataclass(frozen=True, slots=True)
class Recipe:
    entries: tuple[RecipeEntry, ...] = ()

    def with_entry(self, entry: RecipeEntry) -> Recipe:
        return Recipe((*self.entries, entry))

    def to_json(self) -> bytes:
        """One line an entry."""
        lines = ",\n".join(map(_line, self.entries))
        return f'{{"format": {FORMAT}, "checksum": "{self._checksum()}", "entries": [\n{lines}\n]}}\n'.encode()

    def _checksum(self) -> str:
        """Of the entries, however they are spaced: in a cluster they are part of a larger document."""
        lines = "\n".join(map(_line, self.entries))
        return f"{crc32(lines.encode()):08x}"

    @classmethod
    def from_json(cls, data: bytes) -> Recipe:
        """:raises StorageFailure: it is damaged, or of a later version of Headrace."""
        try:
            document = json.loads(data)
            if document["format"] not in (1, FORMAT):
                raise StorageFailure(
                    f"the recipe has format {document['format']}, and this version reads {FORMAT}",
                    hint="use the version of Headrace that wrote it",
                )
            found = cls(tuple(_entry(entry) for entry in document["entries"]))
            if ("checksum" in document or document["format"] != 1) and document["checksum"] != found._checksum():
                raise ValueError("its checksum is another")
            return found
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise StorageFailure(f"the recipe is damaged: {error}", hint="restore it from a back-up") from error


@lru_cache(maxsize=4096)
def _line(entry: RecipeEntry) -> str:
    """Kept, since each change writes all entries again: 6 µs each. (With ``indent`` json has only its slow encoder.)"""
    return json.dumps(_without_defaults(entry), ensure_ascii=False)


def _entry(document: dict[str, Any]) -> RecipeEntry:
    def texts(values: Iterable[str]) -> tuple[str, ...]:
        return tuple(str(value) for value in values)

    return RecipeEntry(
        texts(document.get("statements", ())),
        texts(document.get("readers", ())),
        bool(document.get("ad_hoc")),
        texts(document.get("forget", ())),
    )


def _without_defaults(entry: RecipeEntry) -> dict[str, Any]:
    document: dict[str, Any] = {}
    if entry.statements:
        document["statements"] = list(entry.statements)
    if entry.readers:
        document["readers"] = list(entry.readers)
    if entry.ad_hoc:
        document["ad_hoc"] = True
    if entry.forget:
        document["forget"] = list(entry.forget)
    return document


# A recipe without what traffic has made: automatic views come and go, and are made again where they pay.
#
# Nodes have other numbers after it, so this is for a deployment that begins anew, and nobody follows its recipe.


def declared(recipe: Recipe) -> Recipe:
    """What people declared. A view of a SELECT that another entry names stays: something stands on it."""
    named = " ".join(text for entry in recipe.entries for text in (*entry.statements, *entry.readers)).lower()
    return Recipe(tuple(entry for entry in recipe.entries if _is_declared(entry, named)))


def _is_declared(entry: RecipeEntry, named: str) -> bool:
    if entry.ad_hoc:
        return any(ad_hoc_name(sql) in named for sql in entry.statements)
    return bool(entry.statements or entry.readers)
