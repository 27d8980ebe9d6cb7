"""What "as of" means for a whole deployment: a recipe, and of each shard of its tables a position.

* **A time**: the last recipe, in the order of their numbers, that was recorded at or before it, and the positions that
  were archived by then: never less than those of its own cut. In one process an archiving cuts all tables at the same
  moment; the interval between two is the resolution.
* **A token**, as a write answers it: exactly that position of the shards that it names. The others are as of the
  archiving that first had what it names.
* **Nothing**: all that the back-up or the archive has.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headrace_client import tokens

from domains.archive import ArchiveError, ArchiveGap, ShardManifest
from domains.errors import NotFound
from domains.packets import Clock
from domains.sharding import base_shard
from domains.types import TableSchema
from headrace.backup.contents import damaged_files, read_contents
from migrations.change import change_of
from migrations.plan import State, one_domain
from migrations.recipe import Recipe
from worker.archive.manifests import all_manifests
from worker.archive.place import Place
from worker.archive.recipes import RecipeBook, record_at
from worker.archive.times import parse_time


@dataclass(frozen=True, slots=True)
class ShardAsOf:
    """One shard of one table: what is to be folded, up to where, and as which table."""

    manifest: ShardManifest
    position: int
    schema: TableSchema


@dataclass(frozen=True, slots=True)
class AsOf:
    recipe: Recipe
    shards: int
    tables: tuple[ShardAsOf, ...]
    """One entry for each shard of each table; none for a table of which nothing had been archived."""
    names: tuple[str, ...]
    """Of all tables."""
    recorded: str
    """When its recipe was recorded."""
    moment: str
    """The time that was asked for; else when the last of it was archived."""


def choose(place: Place, as_of: str | None) -> AsOf:
    """``as_of`` is a time, a token, or None.

    :raises BadRequest: it is neither. :raises NotFound: nothing was archived by then.
    :raises ArchiveError: the back-up is damaged, or its history does not reach back so far.
    """
    contents = read_contents(place)
    if contents is not None:
        for problem in damaged_files(place, contents):
            raise problem
    clock = tokens.decode(as_of) if as_of is not None and as_of.startswith(tokens.PREFIX) else None
    time = parse_time(as_of) if as_of is not None and clock is None else None
    record = record_at(RecipeBook(place).records(), time=time, positions=clock)
    if record is None:
        raise NotFound(
            f'"{place.url}" has nothing as of {as_of}' if as_of else f'"{place.url}" has no recipe',
            hint="headrace archive status shows what there is",
        )
    recipe = Recipe.from_json(record.recipe.encode())
    manifests = {(each.base, each.identity): each for each in all_manifests(place, former=True)}
    here = {base: manifests.get((base, identity)) for base, identity in record.identities.items()}
    moment = time if clock is None else _moment(here, clock)
    where = "see --archive-retention" if contents is None else "a back-up has no dropped tables: restore the archive"
    chosen = []
    schemas = _tables(recipe, record.shards)
    for schema in schemas:
        for shard in range(schema.shards or record.shards):
            base = base_shard(schema.name, schema.generation, shard, record.shards)
            if base not in here:
                continue  # It was created with this recipe, and nothing had been archived of it.
            manifest = here[base]
            if manifest is None:
                raise ArchiveError(f'"{place.url}" has no archive of "{base}" any more', hint=where)
            least = record.positions.get(base, 0) if moment is not None and record.number else 0
            chosen.append(ShardAsOf(manifest, _position(manifest, clock, moment, least), schema))
    folds = [each.manifest.fold_of(each.position) for each in chosen]
    if moment is None:
        moment = max([record.time, *(segment.closed for fold in folds for segment in fold[-1:])])
    return AsOf(recipe, record.shards, tuple(chosen), tuple(each.name for each in schemas), record.time, moment)


def _position(manifest: ShardManifest, clock: Clock | None, moment: str | None, least: int) -> int:
    """``least`` is where the recipe found it. (A record of version 0.1 does not say that of its recipe.)"""
    if clock is not None and manifest.base in clock:
        return clock[manifest.base]
    if moment is None:
        return manifest.position
    position = max(least, manifest.position_at(moment))
    if position < manifest.begin:
        # Not an empty table: what it was then has been folded into a later snapshot.
        since = min(segment.closed for segment in manifest.segments)
        raise ArchiveGap(
            f'the archive of "{manifest.base}" does not reach back to {moment}',
            hint=f"it can be had from {since} on, position {manifest.begin}; --archive-retention keeps more",
        )
    return position


def _moment(manifests: Mapping[str, ShardManifest | None], clock: Clock) -> str | None:
    """When all that the clock names was first archived."""
    moments = []
    for base, position in clock.items():
        manifest = manifests.get(base)
        if manifest is None:
            raise NotFound(f'nothing is archived of "{base}", which the token names')
        moments += [segment.closed for segment in manifest.fold_of(position)[-1:]]
    return max(moments, default=None)


def _tables(recipe: Recipe, shards: int) -> list[TableSchema]:
    state = State(shards=shards)
    for entry in recipe.entries:
        state = change_of(state, entry, one_domain).state
    return list(state.catalog.tables.values())
