"""The recipes that were in force, and the cuts that were archived whole: a restore needs more than tables.

The first archiving with a new recipe writes a record, and each further one that archives all tables and finds something
new writes a cut::

    ROOT/recipes/2026-01-31T08:00:00.000Z.json      {"number", "time", "positions", "identities", "shards", "recipe"}
    ROOT/cuts/000000000003-000000000017-2026-01-31T08:01:00.000Z.json       {"number", "time", "positions", "recipe"}
    ROOT/cuts/last                                                          {"record": 3, "cut": 17}

Both have ``told`` where shards have told of transactions over several of them, whose parts may stand on both sides of
the cut (``domains/archive/transactions.py``).

A pass that failed for some of the tables writes neither: what it archived of the others is part of the next cut.

``positions`` are those of the base shards at the cut that had this recipe, ``identities`` their tables. So a deployment
can be restored as of a time or a position, with tables that were dropped later. The recipe was decided before the cut:
a restore as of a later time or position takes no shard at less than these ``positions``, since rows may have moved
from a table that the recipe no longer has to another.

**Records are ordered by their number, never by time.** A new one gets the next number. In a cluster, where several
controllers may write, a recipe of an earlier version (its epoch and its changes in the decided state) is refused, and
so is a cut that has less of a table than the last one. Cuts are ordered by their record's number, then by their own.
A time is always later than that of the cut before, whatever the clock says: it is for ``--as-of`` alone.
Records of version 0.1 have no number and no cuts: they come before all others, in the order of their times.

**A deleted cut is noticed.** Numbers have no gaps, a record names the last cut of the record before, and ``last`` the
last of all. So a restore as of a cut is refused if the cut after it is missing (``check_behind``).

Records that were in force only before the retention are deleted. **A restore as of any time or archived position since
then finds the same record as before; as of an older one it finds the same record or none, never another.** For the
record that was in force at that time stays, with all later ones; positions that were archived since are not before the
positions of that record; and the first record that stays says that there were others before it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from domains.archive.manifest import ArchiveFenced, ManifestDamaged, opened, sealed
from domains.archive.transactions import PartPlace, WholeCut, part_of, whole
from domains.plan.packets import Clock
from worker.archive.options import ArchivePass, wall_clock
from worker.archive.place import Place, after, time_text

DIRECTORY = "recipes"
CUTS = "cuts"
LAST = f"{CUTS}/last"
"""Replaced behind each cut: where a crash comes between, it names the one before, which is right too."""


@dataclass(frozen=True, slots=True)
class RecipeRecord:
    time: str
    positions: Clock
    identities: dict[str, str]
    """The identity of the table that each base shard was part of."""
    shards: int
    """The deployment's."""
    recipe: str
    """The recipe as ``migrations/recipe.py`` writes it."""
    others_before: bool = False
    """It is the first one that is kept; earlier ones were deleted."""
    number: int = 0
    """Its place in their order; 0: of version 0.1."""
    version: tuple[int, int] = (0, 0)
    """The version in a cluster: the epoch in which the recipe was read, and the number of changes that it stands
    for."""
    is_cut: bool = False
    """Its positions are a cut, and later cuts are recorded. False for version 0.1."""
    cuts_before: int = -1
    """The number of the last cut of the record before; -1: an earlier build wrote it."""
    told: Sequence[dict[str, Any]] = ()
    """What the shards had of transactions at its cut (``domains/archive/transactions.py``)."""
    lost: Sequence[PartPlace] = ()
    """What they had not any more."""

    @property
    def order(self) -> tuple[int, tuple[int, int], str]:
        """Two controllers that write at once may give the same number."""
        return self.number, self.version, self.time

    def cut(self) -> Cut:
        return Cut(self.time, self.positions, self, told=self.told, lost=self.lost)


@dataclass(frozen=True, slots=True)
class Cut:
    """The positions of all tables at one moment, archived whole; in a cluster, at one moment of each worker."""

    time: str
    positions: Clock
    record: RecipeRecord
    """The record with the recipe of that moment."""
    number: int = 0
    """Among the cuts of its record; 0: it was written with the record."""
    told: Sequence[dict[str, Any]] = ()
    lost: Sequence[PartPlace] = ()
    """As in the record."""

    def closed(self) -> WholeCut:
        """What it has of each transaction wholly. Raises ManifestDamaged."""
        return self.closed_at(self.positions)

    def closed_at(self, positions: Clock) -> WholeCut:
        """The same where some of its shards are as of other positions."""
        try:
            return whole(positions, map(part_of, self.told), self.lost)
        except (KeyError, TypeError, ValueError) as error:
            raise ManifestDamaged(f"what the cut of {self.time} has of transactions is damaged: {error!r}") from error

    @property
    def is_whole(self) -> bool:
        """False for a record of version 0.1, whose positions are not of one moment."""
        return self.number > 0 or self.record.is_cut

    def has(self, positions: Clock) -> bool:
        return all(self.positions.get(base, -1) >= at for base, at in positions.items())


class RecipeBook:
    """Raises ArchiveError."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._last: Cut | None = None

    def records(self) -> list[RecipeRecord]:
        """The records in their order."""
        read = [self._read(_file(time)) for time in self._times()]
        return sorted((record for record in read if record is not None), key=lambda record: record.order)

    def cuts(self) -> Iterator[Cut]:
        """The cuts that are whole, in their order."""
        names = self._cut_names()
        for record in self.records():
            if record.is_cut:
                yield record.cut()
            for name in names:
                if _number_of(name) == record.number and (cut := self._read_cut(name, record)) is not None:
                    yield cut

    def cut_at(self, time: str | None = None) -> Cut | None:
        """The last one at or before a time, or of all. If it is of version 0.1 it may not be whole."""
        record = record_at(self.records(), time=time)
        if record is None:
            return None
        for name in reversed(self._cut_names()):
            if _number_of(name) == record.number and (time is None or _time_of(name) <= time):
                cut = self._read_cut(name, record)
                if cut is not None:
                    return cut
        return record.cut()

    def check_behind(self, cut: Cut) -> None:
        """:raises ManifestDamaged: the one that was recorded behind this cut is gone."""
        number, later = cut.record.number, self.records()
        if not number or sum(record.number == number for record in later) > 1:
            return  # Of version 0.1; or two controllers have counted at once.
        cuts = [_cut_number_of(name) for name in self._cut_names() if _number_of(name) == number]
        behind = [each for each in cuts if each > cut.number]
        later = [record for record in later if record.number > number]
        if behind:
            gone = behind[0] > cut.number + 1
        elif later:
            gone = later[0].number > number + 1 or later[0].cuts_before > cut.number
        else:
            gone = self._last_kept() > (number, cut.number)
        if gone:
            raise ManifestDamaged(
                f'the cut behind that of {cut.time} is missing from "{self._place.shown(CUTS)}"',
                hint=f"it was deleted, or let go by the retention; --as-of {cut.time} restores the one before it",
            )

    def _last_kept(self) -> tuple[int, int]:
        """The numbers of the last cut and its record; (0, 0) where nobody has noted any."""
        data = self._place.read(LAST)
        if data is None:
            return 0, 0
        try:
            document = opened(json.loads(data))
            return int(document["record"]), int(document["cut"])
        except (ValueError, KeyError, TypeError) as error:
            raise ManifestDamaged(
                f'"{self._place.shown(LAST)}" is damaged: {error!r}', hint="delete it: the next archiving writes it"
            ) from error

    def reach(self, before: str) -> str:
        """``before``, or the time of the last cut if that is earlier: the last cut can always be restored."""
        last = [*map(_time_of, self._cut_names()[-1:]), *self._times()[-1:]]
        return min(before, max(last, default=before))

    def _times(self) -> list[str]:
        """The times of all cuts that are there, in order."""
        names = self._place.files(DIRECTORY)
        return sorted(name.removesuffix(".json") for name in names if name.endswith(".json"))

    def _cut_names(self) -> list[str]:
        """The names of the cuts in their order."""
        return sorted(name for name in self._place.files(CUTS) if name.endswith(".json"))

    def keep(self, record: RecipeRecord) -> Cut:
        """``_kept``, and note which is the last: a cut that is deleted is to be missed."""
        before = self._last
        kept = self._kept(record)
        if kept is not before:
            document = {"record": kept.record.number, "cut": kept.number}
            self._place.replace(LAST, json.dumps(sealed(document)).encode())
        return kept

    def _kept(self, record: RecipeRecord) -> Cut:
        """Add a cut, with its recipe if that or the tables have changed; answers the last cut that there is then.

        :raises ArchiveFenced: a later version of the recipe has been recorded, or a later cut.
        """
        if self._last is None:
            self._last = self.cut_at()
        last = self._last
        if last is None:
            return self.write(replace(record, number=1, is_cut=True))
        ids, others = record.identities, last.record.identities
        less = [base for base, at in record.positions.items() if at < last.positions.get(base, 0)]
        if last.record.version > record.version > (0, 0):
            raise ArchiveFenced("a later recipe has been archived meanwhile", hint="try again")
        if last.is_whole and any(ids.get(base) == others.get(base) for base in less):
            raise ArchiveFenced("a later cut has been archived meanwhile", hint="try again")
        time = after(record.time, last.time)
        if (last.record.recipe, last.record.identities) != (record.recipe, record.identities):
            number = last.record.number + 1
            return self.write(replace(record, number=number, time=time, is_cut=True, cuts_before=last.number))
        if last.positions == record.positions and last.is_whole:
            return last
        number = last.number + 1
        return self.write_cut(Cut(time, record.positions, last.record, number, record.told, record.lost))

    def write(self, record: RecipeRecord) -> Cut:
        self._replace(record)
        self._last = record.cut()
        return self._last

    def write_cut(self, cut: Cut) -> Cut:
        document = {"number": cut.number, "time": cut.time, "positions": cut.positions, "recipe": cut.record.time}
        document |= {"told": list(cut.told), "lost": list(cut.lost)} if cut.told else {}
        name = f"{cut.record.number:012}-{cut.number:012}-{cut.time}.json"
        self._place.replace(f"{CUTS}/{name}", json.dumps(sealed(document), indent=1).encode())
        self._last = cut
        return cut

    def expire(self, before: str) -> None:
        """Delete what was in force only before a time. For the process that has just kept a cut."""
        for name in [name for name in self._cut_names() if _time_of(name) <= before][:-1]:
            self._place.delete(f"{CUTS}/{name}")
        *gone, first = [time for time in self._times() if time <= before] or [""]
        if not gone:
            return
        record = self._read(_file(first))
        if record is None:
            return  # Another process deletes them.
        # Before the deletion: if that fails, a record that says too early that others were deleted does no harm.
        self._replace(replace(record, others_before=True))
        for each in gone:
            self._place.delete(_file(each))

    def _replace(self, record: RecipeRecord) -> None:
        self._place.replace(_file(record.time), json.dumps(sealed(asdict(record)), indent=1).encode())

    def _read(self, file: str) -> RecipeRecord | None:
        """None if it was deleted meanwhile."""
        data = self._place.read(file)
        if data is None:
            return None
        try:
            document = opened(json.loads(data))
            epoch, entries = document.pop("version", (0, 0))
            return RecipeRecord(**document, version=(epoch, entries))
        except (ValueError, TypeError) as error:
            raise ManifestDamaged(f'the recipe record "{self._place.shown(file)}" is damaged: {error}') from error

    def _read_cut(self, name: str, record: RecipeRecord) -> Cut | None:
        """None if it was deleted meanwhile, or is of another record of that number."""
        data = self._place.read(f"{CUTS}/{name}")
        if data is None:
            return None
        try:
            document = opened(json.loads(data))
            number, time, positions, recipe = (document[each] for each in ("number", "time", "positions", "recipe"))
        except (ValueError, KeyError) as error:
            shown = self._place.shown(f"{CUTS}/{name}")
            raise ManifestDamaged(
                f'the record of a cut "{shown}" is damaged: {error}',
                hint="delete it: as of its time, the one before counts",
            ) from error
        told, lost = document.get("told", ()), document.get("lost", ())
        return Cut(time, positions, record, number, told, lost) if recipe == record.time else None


def _number_of(name: str) -> int:
    """The number of the record that a cut's file belongs to."""
    return int(name.partition("-")[0])


def _cut_number_of(name: str) -> int:
    return int(name.split("-", 2)[1])


def _time_of(name: str) -> str:
    return name.removesuffix(".json").split("-", 2)[-1]


def _file(time: str) -> str:
    return f"{DIRECTORY}/{time}.json"


def record_at(
    records: list[RecipeRecord], *, time: str | None = None, positions: Clock | None = None
) -> RecipeRecord | None:
    """The last record, of these in their order, that was in force at a time or at a position, or the last of all.

    For a position from before the first archiving it is the first record, whose tables the position is of. A record
    without one of the position's tables is skipped if an earlier one has it.
    """
    all_there = bool(records) and not records[0].others_before
    found = records[0] if all_there and positions is not None else None
    for record in records:
        if time is not None and record.time > time:
            continue
        if positions is not None and any(at > positions.get(base, at) for base, at in record.positions.items()):
            continue
        if not all_there and any(base not in record.identities for base in positions or ()):
            continue  # A deleted record may have had the table.
        if found is not None and any(b in found.identities and b not in record.identities for b in positions or ()):
            continue
        found = record
    return found


def keep_recipe(
    url: str,
    taken: ArchivePass,
    shards: int,
    recipe: str,
    version: tuple[int, int],
    *,
    now: Callable[[], float] = wall_clock,
    retention: float | None = None,
) -> ArchivePass:
    """Record a cut of a whole cluster, and its recipe. With a ``retention`` (seconds), delete what was in force only
    before. Raises ArchiveError."""
    book, moment = RecipeBook(Place(url)), now()
    record = RecipeRecord(time_text(moment), taken.positions, taken.identities, shards, recipe, version=version)
    kept = book.keep(replace(record, told=taken.told, lost=taken.lost))
    if retention is not None:
        book.expire(time_text(moment - retention))
    settled = kept.closed().settled
    return replace(taken, number=kept.record.number, time=max(record.time, kept.time), recipe=recipe, settled=settled)
