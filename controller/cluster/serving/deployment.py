"""The deployment of a cluster, as an api process serves it: any of them answers any request.

::

    ClusterDeployment ─┬─ Directory ◄── watch ── ZooKeeper      the decided state, perhaps outdated; the workers
        (Serving)      ├─ ClusterHosts ─┬─ ReaderMaps           hits of workers on this host
                       │                └─ Connections ──► workers      misses, writes, all of other hosts
                       └─ LeaderDoor ──► the controller that leads      changes of the graph

Without a leader, or without ZooKeeper, everything goes on except changes of the graph, which are refused with an error
that says so, and moves of domains.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol, Self, TypeVar

from controller.cluster.serving.archiving import archive_cluster
from controller.cluster.serving.automatic import ShownViews
from controller.cluster.serving.cluster_hosts import ClusterHosts
from controller.cluster.serving.connections import Connections, ReaderMaps
from controller.cluster.serving.directory import Directory
from controller.cluster.serving.other_apis import OtherApis
from controller.cluster.serving.overview import PATIENCE, Overview, trouble_of, with_leaders_view
from controller.cluster.state import AutomaticList
from controller.deployment import KILLED, ArchivedPositions, MigrationStatus, Reason, ReasonKind, health_of
from controller.embedded.opening import Opening
from controller.lookups.view_lookup import ViewLookup
from controller.serving import BUDGET, Serving
from controller.statements.eager_choice import chosen_text
from controller.statements.shapes import AdHocMode
from controller.transactions.deadlocks import Deadlocks
from domains.errors import Cancelled, HeadraceError, LeaderLost, NoLeader, NotFound, Unavailable, UnknownName
from domains.plan.packets import Insert
from domains.plan.sharding import base_shards
from migrations.flow.plan import State
from migrations.parse.reading import Parsed
from migrations.recipe import RecipeEntry
from worker.adhoc.pool import Budget
from worker.protocol.messages import Hello
from zookeeper.authority import ClusterAuthority


class LeaderDoor(Protocol):
    """The leader, for changes of the graph and for its status. Methods raise what the leader answers, NoLeader, and
    LeaderLost, after which the request may have been done."""

    async def run(self, entry: RecipeEntry, sql: str, rows: Insert | None = None) -> None:
        """Run a migration to its end; raises the error that made it fail."""

    async def start(self, sql: str) -> MigrationStatus:
        """Queue a migration; raises errors of its planning."""

    async def migrations(self) -> list[MigrationStatus]:
        """The migrations that wait or run, and those that ended lately; the latest first."""

    async def migration(self, id: str) -> MigrationStatus: ...

    async def cancel(self, id: str) -> MigrationStatus: ...

    async def status(self) -> dict[str, Any]:
        """The status, JSON-ready."""

    async def keep(self, sql: str, lately: int) -> AutomaticList:
        """Have an automatic view of a SELECT that was asked so often lately; what there is then. Raises why there is
        none: Unavailable, where one may be made later."""

    async def automatic(self, used: Mapping[str, int], written: Mapping[str, int]) -> AutomaticList:
        """Tell how often automatic views were asked since, by name, and how often tables were written to so far; what
        there is."""

    async def close(self) -> None: ...


WRITE_TIMEOUT = 10.0
"""Seconds for a write to be done or refused; then the caller hears that its outcome is unknown. A recovery takes less
than half of it, and so does a sync of a busy disk."""
HEALTH_SECONDS = 1.0
"""Seconds for which the answer to a health check stands: a balancer asks each api process about as often."""
LEADER_PAUSE = 0.1
"""Seconds between two requests to a leader; an election takes some tens of these."""

Answer = TypeVar("Answer")


class ClusterDeployment(Serving):
    """See :class:`controller.deployment.Deployment`, which it implements. All its methods run on one event loop."""

    def __init__(
        self,
        directory: Directory,
        connections: Connections,
        hosts: ClusterHosts,
        overview: Overview,
        leader: LeaderDoor,
        read_timeout: float,
        ad_hoc: AdHocMode = AdHocMode.KEEP,
        budget: Budget = BUDGET,
    ) -> None:
        super().__init__(hosts, read_timeout, ad_hoc, budget)
        self.sessions.deadlocks = Deadlocks(hosts.waits, self._bases, self.in_doubt.look)
        self.temporary.are_there = False
        self.directory = directory
        self._connections = connections
        self._hosts = hosts
        self._overview = overview
        self._leader = leader
        self._started = time.monotonic()
        self._looked: tuple[asyncio.Future[tuple[Reason, ...]], float] | None = None
        """The last look at how the workers are, and when it began."""
        self._automatic = ShownViews(directory, leader, self._adopted, self.selects.shapes.uses, self._written)
        self.selects.keeper = self._automatic.keep
        self._others: OtherApis | None = None
        hosts.on_gone = self._automatic.gone
        directory.on_state.append(self._declared_anew)
        directory.on_moved.append(self._moved)

    @classmethod
    async def open(
        cls,
        authority: ClusterAuthority,
        hello: Hello,
        leader: Callable[[Directory], LeaderDoor],
        *,
        read_timeout: float = 5.0,
        write_timeout: float = WRITE_TIMEOUT,
        maps: ReaderMaps | None = None,
        opening: Opening | None = None,
        ad_hoc: AdHocMode = AdHocMode.KEEP,
        budget: Budget = BUDGET,
    ) -> Self:
        """Read the state and begin to serve; the authority is started, and stays the caller's. ``opening`` is told of
        the progress.

        Raises AuthorityUnavailable, StorageFailure (the state is damaged, or of a later version), Cancelled.
        """
        directory = Directory(authority)
        connections = Connections(hello, authority.secret)
        hosts = ClusterHosts(directory, connections, maps or ReaderMaps(), write_timeout=write_timeout)
        overview = Overview(directory, connections)
        self = cls(directory, connections, hosts, overview, leader(directory), read_timeout, ad_hoc, budget)
        await directory.start(opening)
        self.in_doubt.look_now_and_then()
        return self

    async def meet_others(self, hello: Hello, host: str, port: int, advertise: str | None) -> None:
        """Answer other api processes on a port, any free one if it is 0, and list what they are asked. Raises
        Unavailable: the port is taken."""
        self._others = OtherApis(self.directory.authority, hello, self.lists)
        await self._others.begin(host, port, advertise)
        self.lists.others = self._others
        self.sessions.process, self.sessions.others = hello.incarnation, self._others
        self.in_doubt.alive, self.in_doubt.has_left = self._others.alive, self.sessions.has_left

    @property
    def state(self) -> State:
        """What is declared, and the leader's automatic views."""
        return self._automatic.state

    def _written(self, table: str) -> int:
        """How often the table was written to, at least: a shard counts its writes in its positions."""
        schema, known = self.directory.state.catalog.tables.get(table), self._hosts.acknowledged.positions
        return 0 if schema is None else sum(known.get(base, 0) for base in base_shards(schema, self.state.shards))

    def _declared_anew(self, before: State, after: State) -> None:
        self._automatic.declared_anew(before, after)
        self.selects.shapes.try_again()
        self._hosts.acknowledged.forget(after)

    def _adopted(self, before: State, after: State) -> None:
        self.changed(before, after)
        self._hosts.forget(set(after.flow.readers.values()))
        views = self._automatic.views.values()
        self.selects.kept_by_leader({view.name: (view.definition.sql, view.tables) for view in views})

    def _moved(self) -> None:
        """Look-ups hold on to the maps that they read."""
        self.retire_all()

    # --- names that another process has just created --------------------------------------------------------------

    async def made_anew(self, attempt: Callable[[], Awaitable[Answer]]) -> Answer:
        return await self._known(lambda: super(ClusterDeployment, self).made_anew(attempt))

    async def ready(self, view: str) -> ViewLookup:
        return await self._known(lambda: super(ClusterDeployment, self).ready(view))

    async def _known(self, attempt: Callable[[], Awaitable[Answer]]) -> Answer:
        """The attempt's answer. If a name is unknown and this process was behind, it is repeated. (Names are looked up
        before anything is done.)"""
        before = self.state
        try:
            return await attempt()
        except (NotFound, UnknownName):
            await self.directory.catch_up()
            if self.state is before:
                raise
        return await attempt()

    # --- changes of the graph -----------------------------------------------------------------------------------

    async def run(
        self, entry: RecipeEntry, sql: str, parsed: Sequence[Parsed] | None = None, rows: Insert | None = None
    ) -> None:
        del parsed  # The leader plans.
        again = not entry.statements  # A reader may be asked for repeatedly.
        try:
            await self._asked(lambda: self._leader.run(entry, sql, rows), again=again)
        except asyncio.CancelledError as error:
            if KILLED in error.args:
                await self._cancel(sql)
            raise
        finally:
            # Also if it failed: perhaps another process has just made it.
            await self.directory.refresh()
        if not self.directory.connected:
            raise Unavailable(
                "the change was made, but ZooKeeper does not answer: this process does not know of it yet",
                hint="it will when ZooKeeper is back; other api processes may know already",
            )

    async def _cancel(self, sql: str) -> None:
        """The latest migration of this text, if it has not ended: that of whoever was stopped."""
        for each in await self.migrations():
            if each.sql == sql and each.state in ("queued", "running"):
                await self.cancel_migration(each.id)
                return

    async def migrate(self, sql: str) -> MigrationStatus:
        chosen = await chosen_text(self, sql)
        return await self._asked(lambda: self._leader.start(chosen), again=False)

    async def migrations(self) -> list[MigrationStatus]:
        return await self._asked(self._leader.migrations, again=True)

    async def migration(self, id: str) -> MigrationStatus:
        status = await self._asked(lambda: self._leader.migration(id), again=True)
        if status.state == "done":
            await self.directory.refresh()
        return status

    async def cancel_migration(self, id: str) -> MigrationStatus:
        return await self._asked(lambda: self._leader.cancel(id), again=True)

    async def _asked(self, ask: Callable[[], Awaitable[Answer]], *, again: bool) -> Answer:
        """The answer of this leader or, after an election, of the next one. A request that may have been begun is
        repeated only if it may be done ``again``."""
        deadline = self._loop.time() + self.read_timeout
        while True:
            try:
                return await ask()
            except (NoLeader, LeaderLost, Cancelled) as error:
                # A leader that resigns cancels its migrations; nobody else cancels those that may be repeated.
                over = not again and not isinstance(error, NoLeader)
                if over or self._loop.time() + LEADER_PAUSE >= deadline:
                    raise
            await asyncio.sleep(LEADER_PAUSE)
            await self.directory.refresh()

    # --- what there is ------------------------------------------------------------------------------------------

    async def unready(self) -> tuple[Reason, ...]:
        """What this process knows, or what the workers have told in the last second: whoever asks often is no load."""
        if self._looked is None or (self._looked[0].done() and self._loop.time() - self._looked[1] > HEALTH_SECONDS):
            self._looked = asyncio.ensure_future(self._whole()), self._loop.time()
        return await asyncio.shield(self._looked[0])

    async def _whole(self) -> tuple[Reason, ...]:
        return self._wrong(await self._overview.status(*self.counted(), len(self.sessions)))

    def _wrong(self, shown: dict[str, Any]) -> tuple[Reason, ...]:
        directory = self.directory
        found = [] if (why := directory.unled()) is None else [Reason(ReasonKind.LEADER, why)]
        if directory.damage is not None:
            found.append(Reason(ReasonKind.CHANGES, directory.damage.message))
        try:
            directory.state  # noqa: B018
        except HeadraceError as error:
            return (Reason(ReasonKind.STARTING, error.message), *found)
        return (*trouble_of(shown), *found)

    async def graph(self, view: str | None = None) -> dict[str, Any]:
        if view is None:
            return await self._overview.graph()
        part, told = await self._overview.graph_of_view(view)
        return {**part, "reader": next(iter(self.with_reads(told).values()), None)}

    async def status(self) -> dict[str, Any]:
        shown, led = await asyncio.gather(
            self._overview.status(*self.counted(), len(self.sessions)), self._told_by_leader()
        )
        shown["views"] = self.with_reads(shown.get("views", {}))
        shown["cluster"]["acknowledged"] = dict(sorted(self._hosts.acknowledged.positions.items()))
        shown = with_leaders_view(shown, led)
        return {"health": health_of(self._wrong(shown)), "uptime": round(time.monotonic() - self._started, 3), **shown}

    async def _told_by_leader(self) -> dict[str, Any]:
        """The leader's status; empty if it does not answer."""
        try:
            async with asyncio.timeout(PATIENCE):
                return await self._leader.status()
        except (HeadraceError, TimeoutError):
            return {}

    async def archive(self) -> ArchivedPositions:
        return await archive_cluster(self.directory, self._connections)

    def stopping(self) -> None:
        """The leader, which runs migrations, does not stop with this process."""
        self.live.stop()

    async def close(self) -> None:
        if self.accounts is not None:
            await self.accounts.close()
        await self.snapshots.close()
        await self.in_doubt.close()
        await self.sessions.close()
        await self.live.close()
        await self.selects.close()
        await self._automatic.close()
        if self._others is not None:
            await self._others.close()
        await self.directory.close()
        await self._leader.close()
        await self._hosts.close()
