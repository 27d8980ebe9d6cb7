"""A recipe without what was forgotten again: views of SELECTs that came, were used, and made room for others.

A recipe only grows, and each such view is two entries of it. An application whose SELECTs have made-up texts would in
the end spend minutes on planning views at each start of which nothing is left.

Nodes have other numbers after it, so this is for a deployment that begins anew, and nobody follows its recipe.
"""

from __future__ import annotations

from dataclasses import replace

from migrations.recipe import Entry, Recipe
from migrations.statements.adhoc import ad_hoc_name


def without_forgotten(recipe: Recipe) -> Recipe:
    """The same tables and views come of it. A view that any other entry names stays: something may stand on it."""
    named = " ".join(text for entry in recipe.entries for text in (*entry.statements, *entry.readers)).lower()
    kept: dict[int, Entry] = {}
    made: dict[str, int] = {}
    for number, entry in enumerate(recipe.entries):
        forget = tuple(name for name in entry.forget if name not in made)
        for name in set(entry.forget) & made.keys():
            del kept[made.pop(name)]
        if entry.ad_hoc and len(entry.statements) == 1 and (name := ad_hoc_name(entry.statements[0])) not in named:
            made[name] = number
        if forget == entry.forget or replace(entry, forget=forget) != Entry():
            kept[number] = replace(entry, forget=forget)
    return Recipe(tuple(kept.values()))
