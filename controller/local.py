"""The deployment in one process: the default, and the first thing that a new user runs. No ZooKeeper, no JVM."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from controller.binding import Binding, BoundLookup
from controller.deployment import MigrationStatus, StatementResult, ViewInfo, WriteResult
from controller.migrator import Migrator
from controller.selects import Selects
from controller.statements import Statements
from controller.status import graph_of, status_of
from controller.view_lookup import ViewLookup
from domains.commands import AlterTable, CreateTable, DropTable
from domains.errors import BadRequest, HeadraceError, NotFound, ReadTimeout, StorageFailure
from domains.graph import DomainIndex, NodeIndex, Reader
from domains.packets import Clock, Evicted, Operation, Written
from domains.types import TableSchema
from migrations.change import build_index, change_of
from migrations.dataflow import Placement
from migrations.explain import explain
from migrations.plan import State, one_domain, plan_start, spread_over
from migrations.recipe import Entry, Recipe
from migrations.statements.rows import delete_operation, insert_operation, update_operation
from worker.dataflow import Dataflow
from zookeeper.authority import LocalAuthority

DEFAULT_MEMORY_LIMIT = 512 * 2**20


class LocalDeployment:
    """See :class:`controller.deployment.Deployment`, which it implements. All its methods run on one event loop."""

    def __init__(self, path: Path, dataflow: Dataflow, read_timeout: float) -> None:
        self.path = path
        self.dataflow = dataflow
        self.read_timeout = read_timeout
        self.started = time.monotonic()
        self.migrator: Migrator
        self._client = dataflow.client()
        self._lookups: dict[str, ViewLookup] = {}
        self._retired = [0, 0]
        """Hits and misses of look-ups that are no longer in use."""
        self._loop = asyncio.get_running_loop()
        self._progress = asyncio.Event()
        self._selects = Selects(self)
        self._statements = Statements(self, self._selects)

    @classmethod
    async def open(
        cls,
        path: str | Path,
        *,
        memory_limit: int = DEFAULT_MEMORY_LIMIT,
        domains: int = 1,
        read_timeout: float = 5.0,
        partial: bool = True,
    ) -> LocalDeployment:
        """Open or make a data directory, bring back its dataflow, and begin to serve.

        ``partial=False`` keeps every view full, to compare with.

        :raises StorageFailure: the directory is in use by another process, damaged, or cannot be written.
        """
        path = Path(path)
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StorageFailure(f'cannot make the data directory "{path}": {error.strerror}') from error
        dataflow = await asyncio.to_thread(Dataflow, path, domains=domains, memory_limit=memory_limit)
        try:
            self = cls(path, dataflow, read_timeout)
            await self._recover(one_domain if domains == 1 else spread_over(domains), partial)
        except BaseException:
            await asyncio.to_thread(dataflow.close)
            raise
        return self

    async def _recover(self, placement: Placement, partial: bool) -> None:
        """Bring tables to what the recipe says, and the dataflow beside them; full views are backfilled."""
        authority = LocalAuthority(self.path / "recipe.json")
        data, _ = authority.read()
        recipe = Recipe() if data is None else Recipe.from_json(data)
        stored = {schema.name: schema for schema in self.dataflow.store.tables()}
        state = _played(recipe, placement, partial, stored)
        self.dataflow.start()
        wanted = {schema.name: schema for schema in state.catalog.tables.values()}
        for name in stored.keys() - wanted.keys():
            await self._command(DropTable(name))
        for name, schema in wanted.items():
            if name not in stored:
                await self._command(CreateTable(schema))
            elif stored[name] != schema:
                await self._command(AlterTable(schema))
        # An index that a crash left half built is built now.
        indexes = [build_index(schema, columns) for schema in wanted.values() for columns in schema.indexes]
        for step in (*indexes, *plan_start(state.flow).steps):
            while True:
                progress = await asyncio.wrap_future(self.dataflow.command(step.domain, step.command))
                if progress.finished or not step.sliced:
                    break
        self.dataflow.listeners.append(self._progressed)
        self.migrator = Migrator(self.dataflow, authority, state, recipe, placement, self._changed)

    async def _command(self, command: CreateTable | AlterTable | DropTable) -> None:
        await asyncio.wrap_future(self.dataflow.command(DomainIndex(0), command))

    @property
    def state(self) -> State:
        return self.migrator.state

    # --- SQL ------------------------------------------------------------------------------------------------

    async def execute(
        self, sql: str, params: Sequence[Any] = (), *, token: Clock | None = None
    ) -> tuple[list[StatementResult], Clock]:
        return await self._statements.execute(sql, params, token)

    async def migrate(self, sql: str) -> MigrationStatus:
        return self.migrator.start(Entry((sql,)), sql).status()

    def migration(self, id: str) -> MigrationStatus:
        return self.migrator.status(id)

    async def cancel_migration(self, id: str) -> MigrationStatus:
        return self.migrator.cancel(id)

    def _changed(self, before: State, after: State) -> None:
        """Look-ups of views that went, or that were given a reader, are to be prepared anew."""
        for name, lookup in list(self._lookups.items()):
            if after.planned.get(name) is not before.planned.get(name) or lookup.node != after.flow.readers.get(
                name, NodeIndex(-1)
            ):
                lookup.stale = True
                self._retired[0] += lookup.hits
                self._retired[1] += lookup.misses
                del self._lookups[name]

    # --- reads ----------------------------------------------------------------------------------------------

    def prepare(self, view: str) -> ViewLookup:
        lower = view.lower()
        known = self._lookups.get(lower)
        if known is not None:
            return known
        state = self.state
        planned = state.planned.get(lower)
        if planned is None:
            names = [each.name for each in state.catalog.views.values() if not each.ad_hoc]
            raise NotFound(f'no view "{view}"', hint=_nearest(view, names))
        index = state.flow.readers.get(lower)
        reader, layout, domain = planned.reader, None, DomainIndex(0)
        if index is not None:
            node = state.flow.node(index)
            assert isinstance(node.operator, Reader)
            reader, layout, domain = node.operator, self.dataflow.layouts[index], node.domain
        binding = Binding(planned.name, reader, planned.parameters)
        lookup = ViewLookup(
            self._info(lower),
            binding,
            layout,
            NodeIndex(-1) if index is None else index,
            domain,
            self._client,
            self.dataflow.touch,
        )
        self._lookups[lower] = lookup
        return lookup

    async def page(self, view: str, text: Mapping[str, Sequence[str]], *, token: Clock | None = None) -> bytes:
        return await self.read(view, lambda binding: binding.from_text(text), token)

    async def pages(self, view: str, keys: Sequence[Any], *, token: Clock | None = None) -> list[bytes]:
        lookup = await self._ready(view)
        await self.reached(lookup, token)
        found = lookup.try_pages(keys)
        if None in found:
            missed = [key for key, page in zip(keys, found, strict=True) if page is None]
            filled = iter(await self._filled(view, lambda binding: [binding.from_json(key) for key in missed]))
            found = [next(filled) if page is None else page for page in found]
        return [page for page in found if page is not None]

    async def read(self, view: str, bind: Callable[[Binding], BoundLookup], token: Clock | None = None) -> bytes:
        """One look-up: waits for the token, fills holes. Raises ReadTimeout after ``read_timeout``."""
        lookup = await self._ready(view)
        bound = bind(lookup.binding)
        await self.reached(lookup, token)
        page = lookup.read(bound)
        if page is None:
            (page,) = await self._filled(view, lambda binding: [bind(binding)])
        return page

    async def _ready(self, view: str) -> ViewLookup:
        """A view's look-up; a view without a reader is given one first."""
        lookup = self.prepare(view)
        if lookup.layout is None:
            await self.migrator.run(Entry(readers=(view.lower(),)), f"reader of {lookup.info.name}")
            lookup = self.prepare(view)
        return lookup

    async def _filled(self, view: str, bind: Callable[[Binding], Sequence[BoundLookup]]) -> list[bytes]:
        """Have the keys filled, and what they hold then. Tried again only where the reader was replaced meanwhile."""
        deadline = self._loop.time() + self.read_timeout
        while True:
            lookup = await self._ready(view)
            pages = await self._fill(lookup, bind(lookup.binding), deadline)
            if None not in pages:
                return [page for page in pages if page is not None]
            self._check(deadline, f'view "{lookup.info.name}" could not be filled')

    async def _fill(self, lookup: ViewLookup, bound: Sequence[BoundLookup], deadline: float) -> list[bytes | None]:
        """All keys are named, not only the holes: what is a hit now may be evicted before the others are filled."""
        keys = tuple(dict.fromkeys(key for each in bound for key in each.keys))
        future = self.dataflow.read(lookup.domain, lookup.node, keys, lambda: [lookup.look(each) for each in bound])
        try:
            return await asyncio.wait_for(asyncio.wrap_future(future), max(0.0, deadline - self._loop.time()))
        except TimeoutError:
            self._check(0.0, f'view "{lookup.info.name}" could not be filled')
            raise

    def _check(self, deadline: float, what: str) -> None:
        if self._loop.time() >= deadline:
            raise ReadTimeout(f"{what} within {self.read_timeout:g} s", hint="try again, or raise --read-timeout")

    async def reached(self, lookup: ViewLookup, token: Clock | None) -> None:
        """Wait until the view reflects the token."""
        if not token:
            return
        tables = self.state.planned[lookup.info.name.lower()].tables
        wanted = {table: position for table, position in token.items() if table in tables}
        deadline = self._loop.time() + self.read_timeout
        while not all(self.dataflow.published.get(table, 0) >= position for table, position in wanted.items()):
            self._check(deadline, f'view "{lookup.info.name}" did not reach the token')
            self._progress.clear()
            try:
                await asyncio.wait_for(self._progress.wait(), deadline - self._loop.time())
            except TimeoutError:
                continue

    def _progressed(self) -> None:
        """Called by the flusher's thread."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._progress.set)

    # --- writes ---------------------------------------------------------------------------------------------

    async def write(self, operation: Operation) -> WriteResult:
        """Answered when the write is durable and every reader reflects it."""
        outcome = await asyncio.wrap_future(self.dataflow.write(operation))
        assert isinstance(outcome, Written)
        return WriteResult(outcome.rows_affected, outcome.clock, outcome.first_id)

    async def insert(self, table: str, rows: Sequence[Mapping[str, Any]]) -> WriteResult:
        return await self.write(insert_operation(self._table(table), rows, now()))

    async def update(self, table: str, key: Mapping[str, Any], changes: Mapping[str, Any]) -> WriteResult:
        return await self.write(update_operation(self._table(table), key, changes))

    async def delete(self, table: str, key: Mapping[str, Any]) -> WriteResult:
        return await self.write(delete_operation(self._table(table), key))

    async def evict(self, view: str, keys: Sequence[Any]) -> int:
        lookup = self.prepare(view)
        if lookup.layout is None:
            return 0
        if not lookup.binding.reader.key:
            raise BadRequest(
                f'view "{lookup.info.name}" is full and has nothing to evict', hint="EXPLAIN says why it is full"
            )
        wanted = tuple({key: None for each in keys for key in lookup.binding.from_json(each).keys})
        outcome = await asyncio.wrap_future(self.dataflow.evict(lookup.domain, lookup.node, wanted))
        assert isinstance(outcome, Evicted)
        return outcome.count

    def _table(self, name: str) -> TableSchema:
        schema = self.state.catalog.tables.get(name.lower())
        if schema is None:
            names = [each.name for each in self.state.catalog.tables.values()]
            raise NotFound(f'no table "{name}"', hint=_nearest(name, names))
        return schema

    # --- what there is --------------------------------------------------------------------------------------

    def tables(self) -> list[TableSchema]:
        return list(self.state.catalog.tables.values())

    def views(self) -> list[ViewInfo]:
        return [self._info(name) for name in self.state.catalog.views]

    def _info(self, lower: str) -> ViewInfo:
        state = self.state
        definition, planned = state.catalog.views[lower], state.planned[lower]
        index = state.flow.readers.get(lower)
        kept = "none" if index is None else state.flow.node(index).materialization.value
        return ViewInfo(
            definition.name,
            definition.sql,
            planned.columns,
            planned.parameters,
            definition.external or bool(planned.parameters) or definition.ad_hoc,
            definition.ad_hoc,
            kept,
        )

    def explain(self, view: str) -> str:
        lookup = self.prepare(view)
        if lookup.layout is None:
            return f'view "{lookup.info.name}" is internal: its reader is built when it is first read'
        return explain(self.state.flow, lookup.node)

    def graph(self) -> dict[str, Any]:
        return graph_of(self.state.flow, self.dataflow)

    def status(self) -> dict[str, Any]:
        hits = self._retired[0] + sum(lookup.hits for lookup in self._lookups.values())
        misses = self._retired[1] + sum(lookup.misses for lookup in self._lookups.values())
        return status_of(self.dataflow, self.state, time.monotonic() - self.started, hits, misses)

    async def close(self) -> None:
        await self.migrator.close()
        await asyncio.to_thread(self.dataflow.close)


def _played(recipe: Recipe, placement: Placement, partial: bool, stored: Iterable[str]) -> State:
    """The state that the recipe comes to.

    A table is created by its recipe entry first, so one that is stored and that no entry ever had means that the recipe
    is not the one of these tables. To drop them, as tables that were dropped are, would lose them.
    """
    state, known = State(partial=partial), set[str]()
    try:
        for entry in recipe.entries:
            state = change_of(state, entry, placement).state
            known |= {schema.name for schema in state.catalog.tables.values()}
    except HeadraceError as error:
        raise StorageFailure(f"the recipe cannot be played again: {error}", hint=_RESTORE) from error
    unknown = sorted(set(stored) - known)
    if unknown:
        raise StorageFailure(f'the recipe does not have the stored table "{unknown[0]}"', hint=_RESTORE)
    return state


_RESTORE = "restore recipe.json from a back-up"


def _nearest(name: str, known: Sequence[str]) -> str | None:
    lower = {each.lower(): each for each in known}
    near = get_close_matches(name.lower(), list(lower), n=1)
    return f'did you mean "{lower[near[0]]}"?' if near else None


def now() -> str:
    """The time that CURRENT_TIMESTAMP stands for, in UTC."""
    return datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S")
