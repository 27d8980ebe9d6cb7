"""One simulation, from its seed to its verdict: a cluster, clients, faults, and in the end rest and the checks."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any
from unittest import mock

from domains.errors import HeadraceError
from domains.plan.graph import Reader
from domains.plan.packets import Clock, Insert
from migrations.recipe import RecipeEntry
from tests.cluster_simulation import checks
from tests.cluster_simulation.adhoc import AdHocSelects
from tests.cluster_simulation.altered import Alterer
from tests.cluster_simulation.any_views import AnyViews
from tests.cluster_simulation.archive import SimulatedArchive
from tests.cluster_simulation.automatic import INDEXES, AutomaticAsker, GivenNumbers, shown_by_leader
from tests.cluster_simulation.backups import Backups
from tests.cluster_simulation.bulk import simulated_files
from tests.cluster_simulation.client import Client, Ending, Known
from tests.cluster_simulation.cluster import Cluster
from tests.cluster_simulation.disk_faults import Operator
from tests.cluster_simulation.faults import Faults
from tests.cluster_simulation.loop import Process, Stuck, VirtualLoop
from tests.cluster_simulation.planning import planned_once
from tests.cluster_simulation.program import (
    BOXES,
    LEDGER_VIEWS,
    PEOPLE,
    SHELF,
    SHELF_VIEWS,
    LedgerView,
    ledger_tables,
    ledger_views,
)
from tests.cluster_simulation.size import Shape, Size
from tests.cluster_simulation.transacting import Transacting

REST_SECONDS = 90.0
"""Of the simulation's time, for the cluster to come to rest once nothing goes wrong any more."""
DDL_SECONDS = 20.0
ARCHIVED = 0.4
"""Of the clusters: they build in bulk, and can lose disks."""
BACKED_UP = 0.4
"""Of the clusters that have an archive."""
REPLACED = 0.3
"""Of the clusters: a view is replaced while others read it."""
AUTOMATIC = 0.3
"""Of the clusters: automatic views are asked for, and asked."""
ALTERED = 0.3
"""Of the clusters: a table is asked more of, while it is written to."""
TRANSACTING = 0.2
"""Of the clusters, where disks are not lost: transactions go over the shards. (Those with lost disks are in
``tests/controller/transactions``.)"""
AD_HOC = 0.3
"""Of the clusters: SELECTs that no view answers are asked."""
NUMBERED = 0.3
"""Of the inserts: under a number of their client's stream, and sent again until they are answered."""


class Found(AssertionError):
    """What a simulation has found to be wrong."""


class Scenario:
    def __init__(self, seed: int, *, calm: bool = False, only: Sequence[str] = (), shape: Shape | None = None) -> None:
        self.only = only
        self.seed = seed
        self.random = Random(f"cluster {seed}")
        self.size = replace(Size.of(self.random), **shape or {})
        if calm:
            self.size = replace(self.size, faults=0)
        self.loop = VirtualLoop()
        chance = Random(f"archive {seed}")  # Its own: seeds without an archive are what they were.
        archived = bool({"lose_disk", "late_loss"} & set(only)) if only else chance.random() < ARCHIVED
        if archived and not only and "backups" not in (shape or {}):
            self.size = replace(self.size, backups=Random(f"back-up {seed}").random() < BACKED_UP)
        archived = archived or self.size.backups
        if not only and not shape:
            self.size = replace(self.size, replaced=Random(f"shelf {seed}").random() < REPLACED)
            self.size = replace(self.size, altered=Random(f"altered at all {seed}").random() < ALTERED)
            self.size = replace(self.size, ad_hoc=Random(f"asked ad hoc {seed}").random() < AD_HOC)
            self.size = replace(self.size, automatic=Random(f"automatic {seed}").random() < AUTOMATIC)
            self.size = replace(self.size, transacting=Random(f"transacting {seed}").random() < TRANSACTING)
        archive = SimulatedArchive(chance) if archived else None
        self.cluster = Cluster(
            self.loop,
            self.random,
            shards=self.size.shards,
            quorum=self.random.randint(1, self.size.workers),
            archive=archive,
        )
        if self.random.random() < 0.2:
            self.cluster.directories = ("/data", "/other")
        if archive is not None and chance.random() < 0.8:  # Where not all is lost at once, others have heard of it.
            self.cluster.directories = ("/data", "/other", "/third")
        self.ledger = checks.Ledger()
        self.views: dict[str, LedgerView] = {}
        """Those that were ever asked for."""
        self.clients: list[Client] = []
        self._ids = 0
        self.counts: dict[str, int] = {}
        self.any: AnyViews | None = None
        self.ad_hoc = AdHocSelects(seed, self.size.seconds, self.size.pace)
        self.automatic = AutomaticAsker(seed, self.size.seconds, self.size.pace, self.ledger)
        self.alterer = Alterer(seed, self.size.seconds, self.size.pace)
        self.given = GivenNumbers()
        self.transacting: Transacting | None = None
        self.backups: Backups | None = None
        self.cluster.check_share = self.random.choice((0.0, 0.02, 0.02, 0.2))

    def count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1

    def run(self) -> None:
        """Raises what breaks first, an AssertionError above all."""
        asyncio.set_event_loop(self.loop)
        try:
            with ExitStack() as simulated:
                simulated.enter_context(simulated_files(self.cluster))
                simulated.enter_context(planned_once(self.random.choice((1, 3, 10, 2000))))
                worth = Random(f"made short {self.seed}").choice((1, 4, 16))
                simulated.enter_context(mock.patch("migrations.compacting.WORTH", worth))
                if self.size.backups:
                    self.backups = Backups(self.cluster, self.seed, self.clients, self._try_change)
                    simulated.enter_context(self.backups.simulated())
                self.loop.run_until_complete(self.loop.create_task(self._watched()))
        finally:
            asyncio.set_event_loop(None)
            self.loop.close()

    async def _watched(self) -> None:
        life = asyncio.ensure_future(self._life())
        while not life.done():
            await asyncio.wait([life], timeout=0.25)
            self._raise_faults()
        life.result()

    def _raise_faults(self) -> None:
        if self.loop.faults:
            context = self.loop.faults[0]
            error = context.get("exception")
            raise Found(f"{context.get('message')}: {error!r}") from error
        for worker in self.cluster.workers.values():
            if worker.is_up and worker.dataflow.failed is not None:
                raise Found(f"{worker.process} failed: {worker.dataflow.failed}")
        checks.check_calm(self.cluster)
        self.given.note(self.cluster)
        self.alterer.check(self.cluster)

    # --- a life ---------------------------------------------------------------------------------------------------

    async def _life(self) -> None:
        cluster, size = self.cluster, self.size
        for number in range(size.controllers):
            cluster.start_controller(f"c{number}")
        for number in range(size.workers):
            cluster.start_worker(f"w{number}")
        calls = Random(f"failing calls {self.seed}")
        faults = Faults(cluster, self.random, calls, size.faults, size.seconds, self.only)
        early = self.random.random() < 0.3
        tasks = [asyncio.ensure_future(faults.run())] if early else []
        for number in range(size.clients):
            process = Process(self.loop, f"client{number}")
            client = process.context.copy().run(Client, cluster, process)
            self.clients.append(client)
            await cluster.at(process, client.start, REST_SECONDS)
        await self._define()
        if self.size.transacting and cluster.archive is None:
            self.transacting = Transacting(cluster, self.seed, size.seconds, size.pace, self._try_change)
            await self.transacting.define()
        if not early:
            tasks.append(asyncio.ensure_future(faults.run()))
        tasks += [asyncio.ensure_future(self._at(client, self._write_on)) for client in self.clients]
        tasks += [asyncio.ensure_future(self._at(client, self._read_on)) for client in self.clients]
        tasks += [asyncio.ensure_future(self._at(self.clients[0], self._change_on))]
        if self.size.ad_hoc:
            tasks.append(asyncio.ensure_future(self._at(self.clients[-1], self.ad_hoc.ask_on)))
        if self.size.automatic:
            tasks.append(asyncio.ensure_future(self._at(self.clients[-1], self.automatic.ask_on)))
        if self.size.altered:
            tasks.append(asyncio.ensure_future(self.alterer.change_on(self._try_change)))
            tasks += [asyncio.ensure_future(self._at(each, self.alterer.write_on)) for each in self.clients]
        if self.size.replaced:
            tasks.append(asyncio.ensure_future(self._replace_on()))
        if self.transacting is not None:
            tasks.append(asyncio.ensure_future(self.transacting.run()))
        if self.backups is not None:
            tasks += self._backed_up(self.backups)
        operator = Operator(cluster, self.clients, self.ledger)
        rebuilding = None if cluster.archive is None else asyncio.ensure_future(operator.run())
        if rebuilding is not None:
            rebuilding.add_done_callback(lambda task: task.cancelled() or task.result())  # What fails is a fault.
        if size.any_views:
            self.any = AnyViews(self.seed, self.random, size.shards, size.seconds, self._try_change)
            tasks.append(asyncio.ensure_future(self.any.run(self.clients, self._of)))
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        for task in done:
            task.result()
        faults.heal()
        await self._rest()
        if rebuilding is not None:
            rebuilding.cancel()
        await self._verdict()

    async def _of(self, client: Client, act: Callable[[], Awaitable[Any]]) -> Any:
        return await self.cluster.at(client.process, act, 600.0)

    async def _at(self, client: Client, act: Callable[[Client], Awaitable[None]]) -> None:
        await self.cluster.at(client.process, lambda: act(client), 600.0)

    def _backed_up(self, backups: Backups) -> list[asyncio.Task[None]]:
        client, seconds, rows = self.clients[0], self.size.seconds, self.ledger.rows
        writing = self._at(client, lambda client: backups.write_on(client, seconds))
        judge = partial(backups.judge, intended=rows)
        return [asyncio.ensure_future(each) for each in (writing, *(backups.take_on(seconds, judge) for _ in range(2)))]

    async def _define(self) -> None:
        for sql in ledger_tables(self.random, self.size.shards):
            while not await self._change(RecipeEntry((sql,)), sql):
                await asyncio.sleep(0.5)
        for sql in INDEXES if self.size.automatic else ():
            while not await self._change(RecipeEntry((sql,)), sql):
                await asyncio.sleep(0.5)
        for view in ledger_views(self.random, self.size.views):
            self.views[view.name] = view
            await self._change(RecipeEntry((view.create(),)), view.create())
        for view in SHELF_VIEWS if self.size.replaced else ():
            while not (await self._change(RecipeEntry((SHELF[0],)), SHELF[0]) and await self._change_to(view)):
                await asyncio.sleep(0.5)

    async def _change_to(self, view: LedgerView) -> bool:
        self.views[view.name] = view
        return await self._change(RecipeEntry((view.create(),)), view.create())

    async def _change(self, entry: RecipeEntry, sql: str) -> bool:
        """Whether the leader says that it is done, or it is so already."""
        error = await self._try_change(sql, entry)
        return error is None or "exists" in str(error)

    async def _try_change(self, sql: str, entry: RecipeEntry | None = None) -> Exception | None:
        entry = entry or RecipeEntry((sql,))
        self.count("changes")
        controller = self.cluster.leader()
        if controller is None:
            return TimeoutError("no leader")
        self.cluster.say(f"{controller.process}: {sql}")
        try:
            await self.cluster.at(controller.process, lambda: controller.change(entry, sql), DDL_SECONDS)
        except (HeadraceError, TimeoutError) as error:
            self.cluster.say(f"  {sql[:30]} … ends: {error or 'no answer'}")
            if "internal error" in str(error):
                raise Found(f"{sql} fails in a way that it should not: {error}") from error
            return error
        self.count("changes done")
        self.cluster.say(f"  {sql[:30]} … is done")
        return None

    # --- what clients do ------------------------------------------------------------------------------------------

    def _seconds(self) -> float:
        return self.random.random() * self.size.pace * self.random.choice((0.2, 1.0, 2.0))

    async def _write_on(self, client: Client) -> None:
        end = self.loop.time() + self.size.seconds
        while self.loop.time() < end:
            await self._write(client)
            await asyncio.sleep(self._seconds())

    async def _write(self, client: Client) -> None:
        if client.unheard is not None:
            await self._write_once(client, client.unheard)
            return
        random = self.random
        table = random.choice(("marks", "tags"))
        rows: list[tuple[int, ...]] = []
        for _ in range(random.choice((1, 1, 1, 3))):
            self._ids += 1
            row: tuple[int, ...] = (self._ids, random.randrange(PEOPLE), random.randrange(BOXES))
            rows.append(row if table == "marks" else row[:2])
            self.ledger.rows[table][self._ids] = rows[-1]
        insert = Insert(table, tuple(rows))
        if random.random() < NUMBERED:
            await self._write_once(client, insert)
        else:
            ending, token = await client.perform(insert)
            self.count(f"writes {ending.value}")
            self._wrote(client, insert, ending, token)

    async def _write_once(self, client: Client, insert: Insert) -> None:
        """Numbered: what has no answer is sent again, and must be there once when it has one."""
        ending, token = await client.perform_once(insert)
        self.count(f"numbered writes {ending.value}")
        self._wrote(client, insert, ending, token)

    def _wrote(self, client: Client, insert: Insert, ending: Ending, token: Clock) -> None:
        for row in insert.rows:
            self.ledger.endings[insert.table, int(row[0])] = ending  # type: ignore[arg-type]
        if ending is Ending.DONE:
            for base, at in token.items():
                client.token[base] = max(at, client.token.get(base, 0))
            client.acknowledged.setdefault(insert.table, []).extend(insert.rows)

    async def _read_on(self, client: Client) -> None:
        end = self.loop.time() + self.size.seconds
        while self.loop.time() < end:
            names = [name for name in self.views if name in client.directory.state.flow.readers]
            if names:
                if self.random.random() < 0.1:
                    await self._evict(client, self.random.choice(names))
                else:
                    await self._read(client, self.views[self.random.choice(names)])
            await asyncio.sleep(self._seconds())

    async def _read(self, client: Client, view: LedgerView, before: Known | None = None) -> None:
        arguments = view.arguments(self.random)
        token = dict(client.token) if self.random.random() < 0.5 else {}
        known = client.known() if token else before or {}
        shown = client.shown.get((view.name, arguments), frozenset())
        rows = await client.read(view.name, arguments, token)
        self.count("reads" if rows is not None else "reads without an answer")
        if rows is None or view.shows is None:
            return
        table, columns = view.shows
        where = dict(zip(columns, arguments, strict=True))
        covered = {row[0] for row in known.get(table, ()) if all(row[c] == v for c, v in where.items())}
        counts = Counter(int(row[0]) for row in rows)
        ids, doubled = frozenset(counts), frozenset(id for id, count in counts.items() if count > 1)
        client.shown[view.name, arguments] = ids | shown
        self.ledger.seen.append(checks.Seen(view.name, table, where, ids, shown | covered, doubled))

    async def _evict(self, client: Client, name: str) -> None:
        state = client.directory.state
        node = state.flow.node(state.flow.readers[name])
        assert isinstance(node.operator, Reader)
        keys = tuple({tuple(self.random.randrange(PEOPLE) for _ in node.operator.key): None for _ in range(2)})
        if keys != ((),):
            self.count("evictions")
            await client.evict(self.random.choice(state.flow.places(node.index)), node.index, keys)

    async def _change_on(self, client: Client) -> None:
        """Views come and go, and tables change, as long as others write and read."""
        random = self.random
        end = self.loop.time() + self.size.seconds
        while self.loop.time() < end:
            await asyncio.sleep(random.random() * 2.0)
            state = client.directory.state
            present = sorted(name for name in self.views if name in state.catalog.views)
            if random.random() < 0.15:
                self._cancel_soon()
            if present and random.random() < 0.4:
                name = random.choice(present)
                await self._change(RecipeEntry((f"DROP VIEW {name}",)), f"DROP VIEW {name}")
            elif random.random() < 0.15:
                self._ids += 1
                sql = f"CREATE TABLE extra{self._ids} (id INT PRIMARY KEY, n INT)"
                await self._change(RecipeEntry((sql,)), sql)
            else:
                (view,) = ledger_views(random, 1)
                if random.random() < 0.3:
                    view = LedgerView("all_tags", LEDGER_VIEWS["all_tags"])
                if view.name not in present:
                    self.views[view.name] = view
                    before = client.known()
                    if await self._change(RecipeEntry((view.create(),)), view.create()):
                        await self._read_at_once(client, view, before)

    async def _replace_on(self) -> None:
        """What others read is replaced by what has the same rows: their answers are right all along."""
        random = Random(f"replaced {self.seed}")
        end = self.loop.time() + self.size.seconds
        while self.loop.time() < end:
            await asyncio.sleep(random.random())
            sql = random.choice(SHELF)
            if await self._change(RecipeEntry((sql,)), sql):
                self.count("views replaced")

    async def _read_at_once(self, client: Client, view: LedgerView, before: Known) -> None:
        """What is said to be there must be whole from the first answer on: ``before`` was written before it came.

        A partial view may be a mere reader of state that was there, which has what was written once it has arrived: as
        any other view does, to whom asks without a token.
        """
        await self._of(client, client.directory.refresh)
        for _ in range(3):
            await self._of(client, partial(self._read, client, view, {} if view.parameters else before))

    def _cancel_soon(self) -> None:
        """What is changed next is given up again, perhaps."""
        controller = self.cluster.leader()

        def cancel() -> None:
            if controller is not None and controller.leader is not None and controller.leader.migrator is not None:
                controller.cancel_all()

        later = self.random.choice((0.0, 0.002, 0.01, 0.05)) + self.random.random() * 0.02
        if controller is not None:
            self.loop.call_later(later, cancel, context=controller.process.context.copy())

    # --- the end --------------------------------------------------------------------------------------------------

    async def _rest(self) -> None:
        """Returns when all is quiet. Beats may go on for a while after everything has arrived."""
        self.cluster.say("nothing goes wrong from here on")
        client = self.clients[0]
        deadline = self.loop.time() + REST_SECONDS
        quiet, why = 0, ""
        while quiet < 2:
            if self.loop.time() > deadline:
                raise Found(f"the cluster does not come to rest: {why}")
            await asyncio.sleep(0.3)
            await self.cluster.at(client.process, client.directory.refresh, REST_SECONDS)
            controller = self.cluster.leader()
            why = "there is no leader" if controller is None else controller.busy()
            state = shown_by_leader(self.cluster, client.directory.state)
            why = why or checks.restless(self.cluster, client.directory.cluster, state)
            why = why or self.cluster.files_left()
            quiet = 0 if why else quiet + 1

    async def _verdict(self) -> None:
        client, cluster = self.clients[0], self.cluster
        if self.transacting is not None:
            await self.transacting.over()
        decided, state = client.directory.cluster, client.directory.state
        assert decided is not None
        checks.check_engine(cluster, decided)
        stored = checks.stored_rows(cluster, decided, state)
        self.ledger.lost = cluster.losses.rows
        self.counts |= {f"failed {call}": times for call, times in cluster.disks.fuse.burnt.items()}
        self.counts["steps broken off"] = sum("broke off a step" in line for _, line in cluster.trace)
        self.counts["shards rebuilt"] = cluster.losses.rebuilt
        self.counts["tables loaded from runs"] = cluster.losses.by_runs
        leads = [each.leader for each in cluster.controllers.values() if each.leader is not None]
        self.counts["full states built again in bulk"] = cluster.losses.refilled + sum(
            leader.rebuilds.refills.built for leader in leads
        )
        for ended, jobs in (cluster.archive.jobs if cluster.archive is not None else {}).items():
            self.counts[f"bulk jobs {ended}"] = jobs
        if self.backups is not None:
            await self.backups.last(self.ledger.rows, stored)
            self.counts |= self.backups.counts
        self.counts["changes left out"] = decided.recipe.left_out
        order = checks.log_order(cluster, decided, state, ("marks", "tags"))
        self.ledger.judge(stored, order)
        if self.transacting is not None:
            await self.transacting.judge(client, stored.get("lists", []))
            self.counts |= self.transacting.counts
        self.alterer.judge(state.catalog.tables.get("lots"), stored.get("lots", []))
        self.counts |= self.alterer.counts
        self.ad_hoc.judge(state, order, self.ledger.twice, cluster.losses)
        self.counts["ad-hoc answers"], self.counts["ad-hoc refusals"] = len(self.ad_hoc.shown), self.ad_hoc.refused
        oracle = checks.LedgerOracle(stored)
        try:
            for view in self.views.values():
                if view.name in state.flow.readers:
                    await self._compare(client, view, oracle)
            if self.size.automatic:
                asker = self.clients[-1]
                await self.cluster.at(asker.process, lambda: self.automatic.compare(asker, oracle), REST_SECONDS)
        finally:
            oracle.close()
        if self.any is not None:
            await self._compare_any(client, self.any, stored)
        self.counts |= self.automatic.counts
        await self._rest()
        await self.automatic.close()
        assert client.directory.cluster is not None
        checks.check_engine(cluster, client.directory.cluster)

    async def _compare_any(self, client: Client, any_views: AnyViews, stored: dict[str, list[Any]]) -> None:
        for what, count in any_views.counts.items():
            self.counts[what] = self.counts.get(what, 0) + count
        state = client.directory.state
        judge = any_views.judge(state, stored)
        try:
            for name in any_views.views:
                await self.cluster.at(
                    client.process, lambda name=name: any_views.compare(client, state, judge, name), REST_SECONDS
                )
        finally:
            judge.close()

    async def _compare(self, client: Client, view: LedgerView, oracle: checks.LedgerOracle) -> None:
        for arguments, wanted in oracle.answers(view):
            found: Any = await self.cluster.at(
                client.process, lambda arguments=arguments: client.read(view.name, arguments, {}, 5.0), REST_SECONDS
            )
            assert found is not None, f"{view.name} {arguments} has no answer, and all is quiet"
            ordered = "ORDER BY" in view.sql
            assert not checks.differ(found, wanted, ordered=ordered), (
                f"{view.name} {arguments} answers {sorted(found)}, not {sorted(wanted)}"
            )


__all__ = ["Found", "Scenario", "Stuck"]
