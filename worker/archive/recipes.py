"""Which recipe was in force, kept beside the segments: tables alone are no deployment.

A record is written with the archiving that first finds another recipe than before::

    ROOT/recipes/2026-01-31T08:00:00.000Z.json      {"number", "time", "positions", "identities", "shards", "recipe"}

``positions`` says of each base shard where it was at the cut that had this recipe, ``identities`` which table it was.
So a deployment can be had as of a time or a position, tables that were dropped later included. Whatever stands in the
recipe was decided before the cut: as of a later time or position no shard is had at less than these ``positions``,
since rows may have gone from a table that the recipe no longer has into another one.

**Records are ordered by their number, never by time.** Whoever writes one gives it the next number; in a cluster, where
several may, a recipe of an earlier version (the epoch and length that compare-and-set has given it) than the last one's
is refused. A time is at least that of the record before, whatever the clock says: it is for ``--as-of`` alone. Records
that version 0.1 wrote have no number: they come before all others, in the order of their times.

What was in force only before the time that the retention reaches back to is let go. **As of any time since then, and of
any position that was archived since then, the record is the same that it was before; as of anything older it is the
same or none, and never another one.** For the record that was in force at that time stays, and with it all later ones;
a position that was archived since is not before the positions of that record; and the first record that stays says that
others were there, so that it is not taken for those.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace

from domains.archive import ArchiveFenced, ManifestDamaged
from domains.packets import Clock
from domains.sealed import opened, sealed
from worker.archive.place import Place
from worker.archive.times import after, time_text
from worker.archiving import Taken

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
    number: int = 0
    """Its place among them; 0: version 0.1 wrote it."""
    version: tuple[int, int] = (0, 0)
    """Of a cluster's recipe: the epoch it was read in, and how many entries it has."""

    @property
    def order(self) -> tuple[int, tuple[int, int], str]:
        """Two that several controllers write at once may have the same number."""
        return self.number, self.version, self.time


class RecipeBook:
    """Raises ArchiveError."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._last: RecipeRecord | None = None

    def records(self) -> list[RecipeRecord]:
        """In their order."""
        read = [self._read(_file(time)) for time in self._times()]
        return sorted((record for record in read if record is not None), key=lambda record: record.order)

    def _times(self) -> list[str]:
        """Of all that are there, in order."""
        names = self._place.files(DIRECTORY)
        return sorted(name.removesuffix(".json") for name in names if name.endswith(".json"))

    def keep(self, record: RecipeRecord) -> RecipeRecord:
        """Write it behind the last one if recipe or tables are others than there; answers the one that is in force.

        :raises ArchiveFenced: a later version of the recipe has been recorded.
        """
        if self._last is None:
            self._last = max(self.records(), key=lambda each: each.order, default=None)
        last = self._last
        if last is not None:
            if last.version > record.version > (0, 0):
                raise ArchiveFenced("a later recipe has been archived meanwhile", hint="try again")
            if (last.recipe, last.identities) == (record.recipe, record.identities):
                return last
            record = replace(record, number=last.number + 1, time=after(record.time, last.time))
        else:
            record = replace(record, number=1)
        self.write(record)
        return record

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
        self._place.replace(_file(record.time), json.dumps(sealed(asdict(record)), indent=1).encode())

    def _read(self, file: str) -> RecipeRecord | None:
        """None where it has been let go meanwhile."""
        data = self._place.read(file)
        if data is None:
            return None
        try:
            document = opened(json.loads(data))
            epoch, entries = document.pop("version", (0, 0))
            return RecipeRecord(**document, version=(epoch, entries))
        except (ValueError, TypeError) as error:
            raise ManifestDamaged(f'the recipe record "{self._place.shown(file)}" is damaged: {error}') from error


def _file(time: str) -> str:
    return f"{DIRECTORY}/{time}.json"


def record_at(
    records: list[RecipeRecord], *, time: str | None = None, positions: Clock | None = None
) -> RecipeRecord | None:
    """The last one that was in force at a time, or at a position; the last of all where neither is given. Of records in
    their order.

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
    url: str,
    taken: Taken,
    shards: int,
    recipe: str,
    version: tuple[int, int],
    *,
    now: Callable[[], float] = time.time,
    retention: float | None = None,
) -> Taken:
    """Record what was in force for a cut of a whole cluster. With a ``retention`` (seconds), what was in force only
    before that is let go.

    Raises ArchiveError.
    """
    book, moment = RecipeBook(Place(url)), now()
    record = RecipeRecord(time_text(moment), taken.positions, taken.identities, shards, recipe, version=version)
    kept = book.keep(record)
    if retention is not None:
        book.expire(time_text(moment - retention))
    return replace(taken, number=kept.number, time=max(record.time, kept.time), recipe=recipe)
