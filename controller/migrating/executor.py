"""The migration's view of the world: domains that perform commands, and a book for its entry.

The embedded deployment has both in its own process (below); in a cluster the domains are at workers and the book is the
cluster's state (``cluster/leader/performing.py``). The migration itself (``migrator.py``, ``execution.py``) is the
same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol

from domains.errors import StorageFailure, Unavailable
from domains.plan.commands import BuildIndex, CheckRows, Command, Feed, Progress
from domains.plan.graph import DomainIndex
from migrations.compacting import Compaction, compaction, removals, worth_compacting
from migrations.flow.dataflow import Placement
from migrations.flow.plan import PlanStep, State
from migrations.recipe import Recipe, declared
from worker.dataflow.thread import DataflowThread
from zookeeper.local_authority import LocalAuthority


class Interrupted(Unavailable):
    """What was begun was overtaken by events (a worker was lost, a recovery began) and may have been done or not. The
    graph is brought to what is decided, and then it may be tried again."""


class Executor(Protocol):
    async def ready(self) -> None:
        """Returns when a change may begin. Raises Unavailable where that will not be soon."""

    def command(self, domain: DomainIndex, command: Command) -> Awaitable[Progress]:
        """Begun at once: commands of one domain are performed in the order of these calls."""

    async def rows(self, domain: DomainIndex, command: Command) -> int:
        """About how many rows a sliced command will go through; 0 where that is not known."""

    async def table_rows(self, domain: DomainIndex) -> Mapping[str, int]:
        """How many rows the base tables of a domain have, by name; empty where that is not known."""

    def check(self) -> None:
        """Raises Interrupted where what was begun since ``ready`` cannot be gone on with."""

    @property
    def epoch(self) -> int:
        """Under which changes are made; 0 where there is one process."""

    async def arrived(self) -> None:
        """Returns when every consequence of what was performed has reached its domain."""

    async def take_back(self, steps: Sequence[PlanStep]) -> None:
        """Bring the graph back to what the book says, if need be by these steps, whatever became of the change."""


class Book(Protocol):
    """The recipe as it is decided, and what it comes to. Only a migration writes into it."""

    @property
    def recipe(self) -> Recipe: ...

    @property
    def state(self) -> State: ...

    async def enter(self, recipe: Recipe, state: State) -> None:
        """Decide: from here on it is true. Raises StorageFailure, Unavailable, and then it may be decided or not."""

    async def compact(self, placement: Placement, go_on: Callable[[], bool], *, full: bool = False) -> bool:
        """Make the recipe short where that is worth it, or there is no room (``full``), unless it is not to ``go_on``.
        What it comes to stays. Whether it is shorter."""


class LocalExecutor:
    """See :class:`Executor`: the dataflow thread of this process."""

    def __init__(self, dataflow: DataflowThread) -> None:
        self._dataflow = dataflow

    async def ready(self) -> None:
        """Always."""

    def command(self, domain: DomainIndex, command: Command) -> Awaitable[Progress]:
        return asyncio.wrap_future(self._dataflow.command(domain, command))

    async def rows(self, domain: DomainIndex, command: Command) -> int:
        store = self._dataflow.stores[domain]
        if isinstance(command, BuildIndex | CheckRows):
            return store.table(command.table).row_count
        if isinstance(command, Feed):
            return sum(store.table(schema.name).row_count for schema in store.tables())
        return 0

    async def table_rows(self, domain: DomainIndex) -> Mapping[str, int]:
        store = self._dataflow.stores[domain]
        return {schema.name: store.table(schema.name).row_count for schema in store.tables()}

    def check(self) -> None:
        """Nobody else changes anything."""

    @property
    def epoch(self) -> int:
        return 0

    async def arrived(self) -> None:
        """Links inside a process are drained with every step."""

    async def take_back(self, steps: Sequence[PlanStep]) -> None:
        for step in steps:
            await self.command(step.domain, step.command)


class LocalBook:
    """See :class:`Book`: the recipe in a file. ``changed`` is called with each new state: (before, after)."""

    def __init__(
        self,
        authority: LocalAuthority,
        version: int,
        recipe: Recipe,
        state: State,
        changed: Callable[[State, State], None],
    ) -> None:
        self.recipe = recipe
        self.state = state
        self._authority = authority
        self._version = version
        self._changed = changed
        self._left = 0
        """Removals that were needed the last time."""

    async def enter(self, recipe: Recipe, state: State) -> None:
        recipe = declared(recipe)
        if recipe != self.recipe:
            try:
                self._version = await self._authority.write(recipe.to_json(), self._version)
            except OSError as error:
                raise StorageFailure(f"cannot write the recipe: {error.strerror or error}") from error
        before, self.state, self.recipe = self.state, state, recipe
        self._changed(before, state)

    async def compact(self, placement: Placement, go_on: Callable[[], bool], *, full: bool = False) -> bool:
        """The state stays: it may have what the recipe has not, and a start begins with other numbers."""
        if full or not worth_compacting(self.recipe, self._left):  # A file has room.
            return False
        steps = compaction(self.recipe, State(partial=self.state.partial, shards=self.state.shards), placement)
        found = await asyncio.to_thread(_played, steps, go_on)
        if found is not None:
            await self.enter(found[0], self.state)
        self._left = removals(self.recipe)
        return found is not None


def _played(steps: Compaction, go_on: Callable[[], bool]) -> tuple[Recipe, State] | None:
    while go_on():
        try:
            next(steps)
        except StopIteration as ended:
            found: tuple[Recipe, State] | None = ended.value
            return found
    return None
