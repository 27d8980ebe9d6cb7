"""The dataflow that a recipe comes to, kept up as the recipe grows.

Planning is a function of the recipe, so everybody who plays it has the same nodes under the same numbers: the leader,
a controller that stands by (which then takes over without planning everything first), and every api process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from migrations.flow.plan import State, one_domain
from migrations.recipe import Recipe
from migrations.replaying import replayed


class Replica:
    """``state`` is what ``recipe`` comes to, in a deployment of so many shards."""

    def __init__(self, shards: int) -> None:
        self.shards = shards
        self.recipe = Recipe()
        self.state = State(shards=shards)
        self.tables: set[str] = set()
        """The names of all tables that there ever were."""

    async def follow(self, recipe: Recipe, went: Callable[[int], None] = lambda played: None) -> State:
        """Play what is new. An entry is some 10 ms of planning, so others have their turn between two of them, and
        ``went`` is told of each.

        :raises StorageFailure: an entry cannot be planned (by this version).
        """
        mine = self.recipe.entries
        if recipe.entries[: len(mine)] != mine:
            mine, state = (), State(shards=self.shards)
            self.tables.clear()
        else:
            state = self.state
        for played, entry in enumerate(recipe.entries[len(mine) :], len(mine) + 1):
            state = replayed(state, entry, one_domain)
            self._remember(state)
            went(played)
            await asyncio.sleep(0)
        self.adopt(recipe, state)
        return state

    def adopt(self, recipe: Recipe, state: State) -> None:
        """Take over what was planned elsewhere."""
        self.recipe, self.state = recipe, state
        self._remember(state)

    def _remember(self, state: State) -> None:
        self.tables |= {schema.name for schema in state.catalog.tables.values()}
