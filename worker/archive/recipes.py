"""Which recipe was in force, kept beside the segments: tables alone are no deployment.

A record is written with the archiving that first finds another recipe than before::

    ROOT/recipes/2026-01-31T08:00:00.000Z.json      {"time", "positions", "identities", "shards", "recipe"}

``positions`` says of each base shard where it was then, ``identities`` which table it was. So a deployment can be had
as of a time or a position, tables that were dropped later included.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from typing import Any

from domains.archive import ManifestDamaged
from domains.packets import Clock
from worker.archive.manifests import all_manifests
from worker.archive.place import Place
from worker.archive.times import time_text

DIRECTORY = "recipes"


@dataclass(frozen=True, slots=True)
class RecipeRecord:
    time: str
    positions: Clock
    identities: dict[str, str]
    """Of the table that each base shard was part of."""
    shards: int
    """Of the deployment."""
    recipe: str
    """As ``migrations/recipe.py`` writes it."""


class RecipeBook:
    """Raises ArchiveUnreachable, ManifestDamaged."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._last: RecipeRecord | None = None

    def records(self) -> list[RecipeRecord]:
        """In the order of their times."""
        names = [name for name in self._place.files(DIRECTORY) if name.endswith(".json")]
        return [self._read(f"{DIRECTORY}/{name}") for name in sorted(names)]

    def keep(self, record: RecipeRecord) -> bool:
        """Write it if recipe or tables are others than in the last one; answers whether it was written."""
        if self._last is None:
            self._last = max(self.records(), key=lambda each: each.time, default=None)
        last = self._last
        if last is not None and (last.recipe, last.identities) == (record.recipe, record.identities):
            return False
        self.write(record)
        return True

    def write(self, record: RecipeRecord) -> None:
        self._place.replace(f"{DIRECTORY}/{record.time}.json", json.dumps(asdict(record), indent=1).encode())
        self._last = record

    def _read(self, file: str) -> RecipeRecord:
        data = self._place.read(file)
        try:
            document: dict[str, Any] = json.loads(data or b"")
            return RecipeRecord(**document)
        except (ValueError, TypeError) as error:
            raise ManifestDamaged(f'the recipe record "{self._place.shown(file)}" is damaged: {error}') from error


def record_at(
    records: list[RecipeRecord], *, time: str | None = None, positions: Clock | None = None
) -> RecipeRecord | None:
    """The last one that was in force at a time, or at a position; the last of all where neither is given.

    Of a position from before the first archiving, the first one: its tables are those that the position is of. Where
    one of these was dropped later, what was in force then is of no interest.
    """
    found = records[0] if records and positions is not None else None
    for record in records:
        if time is not None and record.time > time:
            continue
        if positions is not None and any(at > positions.get(base, at) for base, at in record.positions.items()):
            continue
        if found is not None and any(b in found.identities and b not in record.identities for b in positions or ()):
            continue
        found = record
    return found


def keep_recipe(url: str, shards: int, recipe: str, positions: Clock | None = None) -> frozenset[str]:
    """Record what is in force for all that is archived there, now or at some positions; answers for which base shards.

    Raises ArchiveError.
    """
    place = Place(url)
    manifests = [each for each in all_manifests(place) if positions is None or each.base in positions]
    identities = {manifest.base: manifest.identity for manifest in manifests}
    reached = positions or {manifest.base: manifest.position for manifest in manifests}
    RecipeBook(place).keep(RecipeRecord(time_text(time.time()), reached, identities, shards, recipe))
    return frozenset(identities)
