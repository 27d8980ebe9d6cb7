"""The meaning of "as of" for a whole deployment: a recipe, and of each shard of its tables a position.

A *cut* is what one archiving has of all tables, with the recipe of then (``worker/archive/recipes.py``); an archiving
that failed for some of the tables is none.

* **A time**: the last cut that was recorded at or before it. The order of cuts is that of their numbers; a clock that
  was set back gives the next ones times right behind the last, until it has caught up.
* **A token**, as a write answers it: exactly that position of the shards that it names. The others are as of the first
  cut that has what it names, or of the last one where none has it yet.
* **Nothing**: the last cut. What the archive has of some tables beyond it is counted, and said.
* **``latest``**: all that there is of each table, whatever the others have.

But for ``latest``, each transaction is in it wholly, or not at all (``domains/archive/transactions.py``). So a shard
may be as of some writes before its cut, and have what a transaction changes added that it had prepared only.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from headrace_client import tokens

from domains.archive.manifest import (
    ArchiveError,
    ArchiveGap,
    NotArchivedYet,
    SegmentCorrupt,
    SegmentMissing,
    ShardManifest,
    opened,
    sealed,
)
from domains.archive.transactions import ArchivedPart
from domains.errors import NotFound
from domains.language.types import TableSchema
from domains.plan.packets import Clock
from domains.plan.sharding import base_shards
from migrations.flow.plan import State, one_domain
from migrations.recipe import Recipe
from migrations.replaying import replayed
from worker.archive.manifests import all_manifests
from worker.archive.place import Place, parse_time
from worker.archive.recipes import Cut, RecipeBook, record_at

# What a back-up says of itself. It is written last: a directory without it is no whole back-up.

FORMAT = 1
FILE = "backup.json"


@dataclass(frozen=True, slots=True)
class BackupContents:
    time: str
    """When it was begun."""
    positions: dict[str, int]
    """The last position that the back-up has of each base shard."""
    shards: int
    """The number of the deployment's shards."""
    files: dict[str, str]
    """The digest of every file."""

    def write(self, place: Place) -> None:
        place.replace(FILE, json.dumps(sealed({"format": FORMAT, **asdict(self)}), indent=1).encode())


def read_contents(place: Place, directory: str = "") -> BackupContents | None:
    """None where the place, or a directory of it, is no back-up. Raises ArchiveError where it is damaged."""
    file = f"{directory}/{FILE}" if directory else FILE
    data = place.read(file)
    if data is None:
        return None
    try:
        document = opened(json.loads(data))
        if document.pop("format") != FORMAT:
            raise ArchiveError(f'"{place.shown(file)}" is of another version of headrace')
        return BackupContents(**document)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ArchiveError(f'"{place.shown(file)}" is damaged: {error!r}') from error


LISTED_MOST = 100
"""Back-ups that are told, the last by their names: each has a file that names all of its files."""


def listed(url: str) -> list[dict[str, Any]]:
    """What each directory under a URL is as a back-up, the latest first; ``damage`` says why one is none.

    :raises ArchiveUnreachable: it cannot be read. :raises NotFound: there is nothing."""
    place = Place(url).there()
    found: list[dict[str, Any]] = []
    for name in place.directories()[-LISTED_MOST:]:
        told: dict[str, Any] = {"backup": name, "time": None, "shards": None, "files": None, "writes": None}
        try:
            contents, damage = read_contents(place, name), f"no whole back-up: it has no {FILE}"
        except ArchiveError as error:
            contents, damage = None, error.message
        if contents is not None:
            told |= {"time": contents.time, "shards": contents.shards, "files": len(contents.files)}
            told |= {"writes": sum(contents.positions.values())}
        found.append({**told, "damage": None if contents is not None else damage})
    return sorted(found, key=lambda each: each["time"] or "", reverse=True)


def damaged_files(place: Place, contents: BackupContents) -> Iterator[ArchiveError]:
    """Files that are missing, or differ from those that were backed up."""
    for file, digest in contents.files.items():
        if place.size(file) is None:
            yield SegmentMissing(f'"{place.shown(file)}" is missing from the back-up')
        elif place.digest(file) != digest:
            yield SegmentCorrupt(f'"{place.shown(file)}" differs from what was backed up: its digest does not match')


LATEST = "latest"


@dataclass(frozen=True, slots=True)
class ShardAsOf:
    """One shard of one table: what is to be folded, up to where, and as which table."""

    manifest: ShardManifest
    position: int
    schema: TableSchema
    lacking: tuple[ArchivedPart, ...] = ()
    """Transactions that were committed in other shards: what they change here is added."""


@dataclass(frozen=True, slots=True)
class AsOf:
    recipe: Recipe
    shards: int
    tables: tuple[ShardAsOf, ...]
    """One entry for each shard of each table; none for a table of which nothing had been archived."""
    names: tuple[str, ...]
    """The names of all tables."""
    recorded: str
    """When its recipe was recorded."""
    moment: str
    """When the cut was recorded that it is as of; else when the last of it was archived."""
    later: int = 0
    """Writes that the archive has beyond that cut, where none was asked for."""


def choose(place: Place, as_of: str | None) -> AsOf:
    """``as_of`` is a time, a token, "latest", or None.

    :raises BadRequest: it is neither. :raises NotFound: nothing was archived by then.
    :raises ArchiveError: the back-up is damaged, or its history does not reach back so far.
    """
    contents = read_contents(place)
    if contents is not None:
        for problem in damaged_files(place, contents):
            raise problem
    clock = tokens.decode(as_of) if as_of is not None and as_of.startswith(tokens.PREFIX) else None
    time = parse_time(as_of) if as_of not in (None, LATEST) and clock is None else None
    book = RecipeBook(place)
    cut = book.cut_at(time) if clock is None else _cut_with(book, clock)
    if cut is None:
        raise NotFound(
            f'"{place.url}" has nothing as of {as_of}' if as_of else f'"{place.url}" has no recipe',
            hint="headrace archive status shows what there is",
        )
    if contents is None and as_of != LATEST and time != cut.time and not (clock and cut.has(clock)):
        book.check_behind(cut)  # The files of a back-up are named one by one.
    record = cut.record
    recipe = Recipe.from_json(record.recipe.encode())
    manifests = {(each.base, each.identity): each for each in all_manifests(place, former=True)}
    here = {base: manifests.get((base, identity)) for base, identity in record.identities.items()}
    for base in clock or ():
        if here.get(base) is None:
            raise NotFound(f'nothing is archived of "{base}", which the token names')
    where = "see --archive-retention" if contents is None else "a back-up has no dropped tables: restore the archive"
    chosen = []
    schemas = tables_of(recipe, record.shards)
    for schema in schemas:
        for base in base_shards(schema, record.shards):
            if base not in here:
                continue  # It was created with this recipe, and nothing had been archived of it.
            manifest = here[base]
            if manifest is None:
                raise ArchiveError(f'"{place.url}" has no archive of "{base}" any more', hint=where)
            wanted = (clock or {}).get(base)
            if wanted is None:
                wanted = manifest.position if as_of == LATEST else _position(manifest, cut, time)
            chosen.append(ShardAsOf(manifest, wanted, schema))
    if as_of != LATEST:
        chosen = _whole(chosen, book, cut, clock)
    folds = [each.manifest.fold_of(each.position) for each in chosen]
    moment = cut.time
    if as_of == LATEST or not cut.is_whole:
        moment = time or max([record.time, *(segment.closed for fold in folds for segment in fold[-1:])])
    later = sum(each.manifest.position - each.position for each in chosen) if as_of is None else 0
    return AsOf(recipe, record.shards, tuple(chosen), tuple(each.name for each in schemas), record.time, moment, later)


def _whole(chosen: list[ShardAsOf], book: RecipeBook, cut: Cut, clock: Clock | None) -> list[ShardAsOf]:
    """The same with each transaction wholly, or nothing of it.

    :raises NotArchivedYet: no cut has what a token names so, and is archived."""
    asked = {each.manifest.base: each.position for each in chosen}
    found = cut.closed_at(asked)
    if clock is not None and not _has(found.positions, clock):
        # The others were cut before a transaction that it names was prepared there: as of a later cut it was.
        later = [each for each in book.cuts() if each.record.order == cut.record.order and each.number > cut.number]
        known = {each.manifest.base: each.manifest.position for each in chosen}
        for each in later:
            taken = {
                base: clock.get(base, min(known[base], each.positions.get(base, at))) for base, at in asked.items()
            }
            found = each.closed_at(taken)
            if _has(found.positions, clock):
                break
        else:
            raise NotArchivedYet(
                "a transaction that the token names is not archived in all of its shards",
                hint="archive up to now, and try again, or restore as of a time",
            )
    parts = {
        each.manifest.base: tuple(
            part for part in found.lacking if each.manifest.base in {**part.changes, **(part.committed or {})}
        )
        for each in chosen
    }
    return [
        replace(each, position=found.positions[each.manifest.base], lacking=parts[each.manifest.base])
        for each in chosen
    ]


def _has(positions: Clock, clock: Clock) -> bool:
    return all(positions.get(base, at) >= at for base, at in clock.items())


def _position(manifest: ShardManifest, cut: Cut, time: str | None) -> int:
    if cut.is_whole:
        position = cut.positions.get(manifest.base, 0)
    else:  # Version 0.1 has kept no cuts: of each table, what was archived by then.
        position = manifest.position if time is None else manifest.position_at(time)
    if position < manifest.begin and (position or not cut.is_whole):
        # Not an empty table: what it was then has been folded into a later snapshot.
        since = min(segment.closed for segment in manifest.segments)
        raise ArchiveGap(
            f'the archive of "{manifest.base}" does not reach back to {time or cut.time}',
            hint=f"it goes back to {since}, position {manifest.begin}; --archive-retention keeps more",
        )
    return position


def _cut_with(book: RecipeBook, clock: Clock) -> Cut | None:
    """The first cut that has what a token names, under the recipe of then: the tables beside are as of whichever of the
    two is later."""
    record = record_at(book.records(), positions=clock)
    if record is None:
        return None
    latest: Clock = dict(record.positions) if record.is_cut else {}
    found = replace(record.cut(), positions=latest)
    for cut in book.cuts():
        if cut.record.order > record.order and not clock.keys() <= cut.positions.keys():
            break  # Its table was dropped before any cut had it.
        latest = {base: max(at, latest.get(base, 0)) for base, at in cut.positions.items()} | {
            base: at for base, at in latest.items() if base not in cut.positions
        }
        found = Cut(max(record.time, cut.time), latest, record, max(cut.number, 1), cut.told, cut.lost)
        if cut.has(clock):
            break
    return found


def tables_of(recipe: Recipe, shards: int) -> list[TableSchema]:
    state = State(shards=shards)
    for entry in recipe.entries:
        state = replayed(state, entry, one_domain)
    return list(state.catalog.tables.values())
