"""A recipe, played from its beginning: the state that a deployment comes to."""

from __future__ import annotations

from migrations.change import Placement, State, change_of
from migrations.recipe import Recipe


def play(recipe: Recipe, placement: Placement, *, partial: bool = True, shards: int = 1) -> State:
    """The state that a recipe comes to in a deployment of so many shards."""
    state = State(partial=partial, shards=shards)
    for entry in recipe.entries:
        state = change_of(state, entry, placement).state
    return state
