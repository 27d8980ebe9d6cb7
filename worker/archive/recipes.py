"""Which recipe was in force, kept beside the segments: tables alone are no deployment.

A record is written with the archiving that first finds another recipe than before::

    ROOT/recipes/2026-01-31T08:00:00.000Z.json      {"time", "positions", "identities", "shards", "recipe"}

``positions`` says of each base shard where it was then, ``identities`` which table it was. So a deployment can be had
as of a time or a position, tables that were dropped later included.

What was in force only before the time that the retention reaches back to is let go. **As of any time since then, and of
any position that was archived since then, the record is the same that it was before; as of anything older it is the
same or none, and never another one.** For the record that was in force at that time stays, and with it all later ones;
a position that was archived since is not before the positions of that record; and the first record that stays says that
others were there, so that it is not taken for those.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass, replace
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
    others_before: bool = False
    """It is the first that is kept; those before it were let go."""


class RecipeBook:
    """Raises ArchiveUnreachable, ManifestDamaged."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._last: RecipeRecord | None = None

    def records(self) -> list[RecipeRecord]:
        """In the order of their times."""
        read = [self._read(_file(time)) for time in self._times()]
        return [record for record in read if record is not None]

    def _times(self) -> list[str]:
        """Of all that are there, in order."""
        names = self._place.files(DIRECTORY)
        return sorted(name.removesuffix(".json") for name in names if name.endswith(".json"))

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
        self._replace(record)
        self._last = record

    def expire(self, before: str) -> None:
        """Let go what was in force only before a time. To be called where a recipe was kept: no other adds to them."""
        *gone, first = [time for time in self._times() if time <= before] or [""]
        if not gone:
            return
        record = self._read(_file(first))
        if record is None:
            return  # Somebody else lets them go.
        # Before they go: a record that says too early that others were there costs less than one that denies it.
        self._replace(replace(record, others_before=True))
        for each in gone:
            self._place.delete(_file(each))

    def _replace(self, record: RecipeRecord) -> None:
        self._place.replace(_file(record.time), json.dumps(asdict(record), indent=1).encode())

    def _read(self, file: str) -> RecipeRecord | None:
        """None where it has been let go meanwhile."""
        data = self._place.read(file)
        if data is None:
            return None
        try:
            document: dict[str, Any] = json.loads(data)
            return RecipeRecord(**document)
        except (ValueError, TypeError) as error:
            raise ManifestDamaged(f'the recipe record "{self._place.shown(file)}" is damaged: {error}') from error


def _file(time: str) -> str:
    return f"{DIRECTORY}/{time}.json"


def record_at(
    records: list[RecipeRecord], *, time: str | None = None, positions: Clock | None = None
) -> RecipeRecord | None:
    """The last one that was in force at a time, or at a position; the last of all where neither is given.

    Of a position from before the first archiving, the first one: its tables are those that the position is of. Where
    one of these was dropped later, what was in force then is of no interest.
    """
    all_there = bool(records) and not records[0].others_before
    found = records[0] if all_there and positions is not None else None
    for record in records:
        if time is not None and record.time > time:
            continue
        if positions is not None and any(at > positions.get(base, at) for base, at in record.positions.items()):
            continue
        if not all_there and any(base not in record.identities for base in positions or ()):
            continue  # Of a table that was there before, perhaps only in what is not known any more.
        if found is not None and any(b in found.identities and b not in record.identities for b in positions or ()):
            continue
        found = record
    return found


def keep_recipe(
    url: str, shards: int, recipe: str, positions: Clock | None = None, *, retention: float | None = None
) -> frozenset[str]:
    """Record what is in force for all that is archived there, now or at some positions; answers for which base shards.
    With a ``retention`` (seconds), what was in force only before that is let go.

    Raises ArchiveError.
    """
    place = Place(url)
    manifests = [each for each in all_manifests(place) if positions is None or each.base in positions]
    identities = {manifest.base: manifest.identity for manifest in manifests}
    reached = positions or {manifest.base: manifest.position for manifest in manifests}
    book, now = RecipeBook(place), time.time()
    book.keep(RecipeRecord(time_text(now), reached, identities, shards, recipe))
    if retention is not None:
        book.expire(time_text(now - retention))
    return frozenset(identities)
