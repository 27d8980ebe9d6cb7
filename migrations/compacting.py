"""A recipe made short: what was created and dropped again goes, and everything else stays what it is, with its numbers.

::

    CREATE a (0-3)   CREATE b (4-7)   DROP b   CREATE c (8-9)   ►   CREATE a   from 8: CREATE c

What the whole recipe does is worked out entry by entry. An entry is *needed* if something that is there stands on it (a
table, a view, a node that it made or gave an index), if a needed entry reads what it made, or if it drops what a needed
entry makes: a node that views share stays when the first of them goes, and so do the entries that tell of it.

**Invariant.** The short recipe comes to the same state: tables with their columns' places and generations, views, nodes
under their numbers, the next number, and how often a table of each name was dropped. So no number and no name of a
table ever comes to mean something else to a worker, log, archive or back-up that still has it. It is held by playing
the short recipe: one that comes to anything else is not taken.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from dataclasses import dataclass, field, replace

from domains.errors import HeadraceError
from domains.plan.graph import NodeIndex
from migrations.catalog import Catalog
from migrations.flow.dataflow import Placement
from migrations.flow.plan import State
from migrations.recipe import Recipe, RecipeEntry
from migrations.replaying import replayed
from migrations.statements.adhoc.shapes_of_selects import ad_hoc_name

WORTH = 16
"""So many things that were dropped or replaced, or a quarter of the recipe, are worth the playing of it twice."""


def worth_compacting(recipe: Recipe, left: int) -> bool:
    """``left``: the removals that were needed the last time."""
    return removals(recipe) - left >= max(WORTH, len(recipe.entries) // 4)


def removals(recipe: Recipe) -> int:
    """How many things its entries drop or replace, as far as their texts tell."""
    return sum(len(entry.forget) + any(map(_removes, entry.statements)) for entry in recipe.entries)


def _removes(sql: str) -> bool:
    return " ".join(sql[:100].split()).upper().startswith(("DROP ", "CREATE OR REPLACE "))


Compaction = Generator[None, None, tuple[Recipe, State] | None]
"""In steps of one entry, which take some milliseconds. Returns the recipe and what it comes to; None: it is short."""


@dataclass(slots=True)
class _Effect:
    """What an entry does where it stands."""

    nodes: set[NodeIndex]
    """The nodes that it makes, or gives an index."""
    first: int
    then: int
    """The next number before and after it."""
    gathered: tuple[int, ...]
    needs: set[int] = field(default_factory=set)
    """Entries that make what this one reads, alters or drops."""
    dropped: Counter[str] = field(default_factory=Counter)
    """Tables, by name."""
    gone: set[str] = field(default_factory=set)
    """Tables and views that it drops."""
    names: set[str] = field(default_factory=set)
    """The names that an entry reads, makes or changes."""
    alters: bool = False
    """A table."""
    ended: dict[str, tuple[int, bool]] = field(default_factory=dict)
    """What it makes, by name: the entry that drops it, or (True) puts another in its place."""


def compaction(recipe: Recipe, empty: State, placement: Placement) -> Compaction:
    """``empty``: the state of an empty deployment. :raises StorageFailure: the recipe cannot be played."""
    state, effects, owners = empty, list[_Effect](), dict[str, list[int]]()
    for number, entry in enumerate(recipe.entries):
        before, state = state, replayed(state, entry, placement)
        effects.append(_effect(before, state, number, entry, owners, effects))
        yield
    needed = _needed(state, effects, owners)
    for late in (True, False) if len(needed) < len(effects) else ():
        entries = _short(recipe, state, effects, needed, late=late)
        if len(entries) >= len(recipe.entries):
            continue
        played = empty
        try:
            for entry in entries:
                played = replayed(played, entry, placement)
                yield
        except HeadraceError:
            continue
        if _same(played, state):
            return Recipe(entries, recipe.changes + 1 - len(entries)), played
    return None


def _effect(
    before: State, after: State, number: int, entry: RecipeEntry, owners: dict[str, list[int]], effects: list[_Effect]
) -> _Effect:
    """``owners``: the entries that what is there now stands on, by name; brought up to date."""
    changed = {index for index, node in after.flow.nodes.items() if before.flow.nodes.get(index) is not node}
    effect = _Effect(changed, max(before.flow.next_index, entry.first), after.flow.next_index, after.flow.gathered)
    effect.dropped = Counter(after.catalog.dropped) - Counter(before.catalog.dropped)
    there, now = map(_named, (before.catalog, after.catalog))
    effect.alters = any(name in now and now[name] is not table for name, table in before.catalog.tables.items())
    for name in dict.fromkeys((*there, *now)):
        if there.get(name) is now.get(name):
            continue
        effect.names.add(name)
        table = after.catalog.tables.get(name)
        for key in table.foreign_keys if table is not None else ():
            effect.needs.update(owners.get(key.parent.lower(), ()) if key.enforced else ())
        if table is not None and name not in there and table.shown:  # It is stored so because others were in its place.
            base = table.shown.lower()
            effect.needs.update(
                each for other in there if other == base or other.startswith(f"{base}~") for each in owners[other]
            )
        title = name if table is None else table.title.lower()
        effect.needs.update(owners.get(_database(title), ()) if name != _database(title) else ())
        own = owners.get(name, [])
        if effect.alters and name in there and name in now:
            # A view has only another text by it: what it stands on is needed if the view is, and not by this entry.
            effect.needs.update(own if name in before.catalog.tables else ())
            owners[name] = [*own, number]
            continue
        for each in own:
            effects[each].ended[name] = (number, name in now)
        if name not in now:
            effect.gone.add(name)
            made = owners.pop(name)
            if not (name in before.catalog.views and before.catalog.views[name].ad_hoc):  # These need not be there.
                effect.needs.update(made)
            continue
        if name in there:
            effect.needs.update(each for view in before.catalog.dependents(name) for each in owners[view.lower()])
        owners[name] = [number]
    _note_policies(before, after, number, owners, effect)
    new = [view for name, view in after.catalog.views.items() if before.catalog.views.get(name) is not view]
    titles = after.catalog.titles
    read = {titles.get(name, name) for view in new for name in view.reads} | {name.lower() for name in entry.readers}
    effect.needs.update(each for name in read for each in owners.get(name, ()) if each != number)
    return effect


def _named(catalog: Catalog) -> dict[str, object]:
    """All that has a name. That of a database ends in a dot."""
    return {**catalog.tables, **catalog.views, **{f"{name}.": each for name, each in catalog.namespaces.items()}}


def _database(name: str) -> str:
    """The database of a table or view, as it is named here."""
    return f"{name.partition('.')[0]}."


def _note_policies(before: State, after: State, number: int, owners: dict[str, list[int]], effect: _Effect) -> None:
    """Entries about policies stay as long as their table: each says how views that are there are built from then on."""
    for name in before.catalog.tables.keys() - after.catalog.tables.keys():
        owners.pop(f"\0{name}", None)
    for name, table in after.catalog.tables.items():
        if before.catalog.policies.get(name) == after.catalog.policies.get(name):
            continue
        own = owners.setdefault(f"\0{name}", [])
        read = [name, *(view.lower() for view in before.catalog.dependents(table.title))]
        effect.needs.update(own, *(owners[each] for each in read if each in owners))
        own.append(number)


def _needed(state: State, effects: list[_Effect], owners: dict[str, list[int]]) -> set[int]:
    there = state.flow.nodes.keys()
    pending = [number for number, effect in enumerate(effects) if effect.nodes & there]
    pending += [number for own in owners.values() for number in own]
    needed: set[int] = set()
    while pending:
        number = pending.pop()
        if number in needed:
            continue
        needed.add(number)
        pending += effects[number].needs
        for name, (at, replaced) in effects[number].ended.items():
            # Of those that replace one another the last does. Where it is dropped in the end, that must be.
            while replaced and at not in needed and name in effects[at].ended:
                at, replaced = effects[at].ended[name]
            pending.append(at)
    return needed


def _short(
    recipe: Recipe, state: State, effects: list[_Effect], needed: set[int], *, late: bool
) -> tuple[RecipeEntry, ...]:
    """``late``: drop only when it must be, as a node is kept that one view has made and others have read since."""
    entries: list[RecipeEntry] = []
    waiting: list[int] = []
    reached = 0
    for number in sorted(needed):
        effect = effects[number]
        if late and effect.gone and effect.names == effect.gone and not effect.nodes:
            waiting.append(number)
            continue
        if effect.alters or any(effects[each].gone & effect.names for each in waiting):
            entries += [recipe.entries[each] for each in waiting]
            waiting.clear()
        first = effect.first if effect.first != reached else 0
        entries.append(replace(recipe.entries[number], first=first, gathers=effect.gathered))
        reached = effect.then
    entries += [recipe.entries[each] for each in waiting]
    made = {ad_hoc_name(sql) for entry in entries if entry.ad_hoc for sql in entry.statements}
    entries = [replace(entry, forget=tuple(name for name in entry.forget if name in made)) for entry in entries]
    dropped = sum((effects[number].dropped for number in needed), Counter[str]())
    if counts := tuple(sorted((Counter(state.catalog.dropped) - dropped).items())):
        entries.insert(0, RecipeEntry(dropped=counts))
    if reached != state.flow.next_index:
        entries.append(RecipeEntry(first=state.flow.next_index))
    return tuple(entries)


def _same(one: State, other: State) -> bool:
    def parts(state: State) -> tuple[object, ...]:
        catalog, flow = state.catalog, state.flow
        return (
            list(catalog.tables.items()),
            list(catalog.views.items()),
            dict(catalog.dropped),
            dict(catalog.policies),
            list(catalog.namespaces.items()),
            # Numbers in the joint graph are seen nowhere else.
            replace(flow, variants={}),
            sorted(flow.variants.values()),
            list(flow.readers.items()),
            {name: replace(planned, root=NodeIndex(0)) for name, planned in state.planned.items()},
        )

    return parts(one) == parts(other)
