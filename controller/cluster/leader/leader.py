"""A controller's term as leader, from its election until it is succeeded.

::

    elected ─► take over: epoch + 1 ─► workers ─► recover ─► calm: migrations, drains, moves ─► … ─► deposed
                                                     ▲          │ a worker is lost, or a change is to be taken back
                                                     └──────────┘

One task *steers*: it alone recovers and moves domains. Migrations run beside it, while there is calm
(``performing.py``); operators' decisions are carried out by the next round (``draining.py``,
``lost_shards/rebuilding.py``). Nothing here uses the time of day, randomness or threads: with virtual time, and with
handles and an authority in memory, the same leader runs in the seeded simulation.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from controller.cluster.leader.automatic import AutomaticViews
from controller.cluster.leader.building import BulkSettings, ClusterSource, builder_of, keep_clear
from controller.cluster.leader.fleet import Connect, Deposed, Fleet, Timing
from controller.cluster.leader.ledger import RETRY_SECONDS, StateLedger
from controller.cluster.leader.performing import ClusterBook, ClusterExecutor, StableEpoch
from controller.cluster.leader.placing import PlacementPolicy, rebalance
from controller.cluster.leader.reconcile import loads
from controller.cluster.leader.recovery import Recovery
from controller.cluster.lost_shards.rebuilding import RebuildOperations, RebuildOutcomes
from controller.cluster.lost_shards.refilling import Refill
from controller.cluster.state import ClusterState, Replica
from controller.migrating.bulk.job_files import JobFiles
from controller.migrating.executor import Interrupted
from controller.migrating.migrator import Migrator
from domains.errors import HeadraceError, NoLeader, Unavailable
from domains.language.collating.collation import BINARY
from domains.plan.graph import DomainIndex
from migrations.catalog import ad_hoc_views
from migrations.flow.plan import one_domain
from migrations.recipe import Recipe, RecipeEntry
from worker.protocol.messages import Report, WorkerReport
from zookeeper.authority import ClusterAuthority
from zookeeper.errors import AuthorityError, AuthorityUnavailable

ROUND_PAUSE = 0.02
"""Seconds after an interrupted round: perhaps a connection is just being made again."""
RETRY_MAX = 5.0
"""The longest pause in seconds between rounds if nobody can open a domain."""

_log = logging.getLogger("headrace.controller")


@dataclass(frozen=True, slots=True)
class LeaderSettings:
    """``shards`` and ``quorum`` count at the deployment's first start only; then they are part of the state."""

    name: str
    shards: int
    quorum: int
    timing: Timing = field(default_factory=Timing)
    process: int = 0
    """Greater than that of any earlier process of the name."""
    term: int = 1
    """The number of the process's term as leader."""
    bulk: BulkSettings = field(default_factory=BulkSettings)
    collation: str = BINARY
    """The collation of texts in new tables that name none. The recipe keeps it with each of them."""

    @property
    def writer(self) -> str:
        return f"{self.name}#{self.process}#{self.term}"


class Leader:
    """One term: made when elected, thrown away when deposed. It is its fleet's ``Watcher``, and the ``LeaderPort`` of
    operators' decisions."""

    def __init__(
        self, authority: ClusterAuthority, connect: Connect, settings: LeaderSettings, replica: Replica | None = None
    ) -> None:
        """``replica`` is a candidate's plan so far, so that little is left to plan."""
        self.authority = authority
        self.settings = settings
        self.calm = StableEpoch()
        self.ledger = StateLedger(authority, settings.writer, self.deposed)
        self.fleet = Fleet(authority, connect, settings.timing, self)
        self.taking = PlacementPolicy(self.fleet, self.ledger, settings.timing.trust_after)
        self.migrator: Migrator | None = None
        """None until it has taken over."""
        self.automatic: AutomaticViews | None = None
        """Likewise."""
        self.recovery: Recovery | None = None
        self.closed: dict[DomainIndex, str] = {}
        """See :class:`LeaderPort`."""
        self.files = JobFiles()
        self.rebuilds = RebuildOutcomes()
        self.rebuild_operations = RebuildOperations(self, settings.bulk, self.files, self.rebuilds)
        self.trouble = "taking over"
        self._replica = replica
        self._clearing: asyncio.Task[None] | None = None
        self._over = asyncio.Event()
        self._news = asyncio.Event()
        """Set at whatever the steering task may be waiting for."""
        self._newcomers: dict[str, None] = {}
        self._broken: dict[DomainIndex, int] = {}
        self._moves: dict[DomainIndex, str] = {}
        self._fenced = 0
        """The value of ``fleet.again`` at the last raise of the epoch."""
        self._uneven = False
        """Whether domains may have to be moved to balance the load."""
        self._balance_at = 0.0

    async def lead(self, lost: asyncio.Event) -> None:
        """Lead until ``lost`` is set, or a later leader shows. Migrations that run then fail, or are done by it."""
        steering = asyncio.create_task(self._steer(), name="leader")
        ends = [asyncio.create_task(lost.wait()), asyncio.create_task(self._over.wait())]
        try:
            await asyncio.wait([steering, *ends], return_when=asyncio.FIRST_COMPLETED)
            if steering.done():
                steering.result()
        except Deposed as error:
            _log.warning("no longer leads: %s", error)
        finally:
            self.calm.end()
            begun = [steering, *ends, *([] if self._clearing is None else [self._clearing])]
            for task in begun:
                task.cancel()
            await asyncio.gather(*begun, return_exceptions=True)
            # The fleet first: then a migration's requests fail, and it ends.
            await self.fleet.close()
            await self.rebuild_operations.close()
            if self.automatic is not None:
                await self.automatic.close()
            if self.migrator is not None:
                await self.migrator.close()

    @property
    def recipe(self) -> Recipe | None:
        return None if self._replica is None else self._replica.recipe

    def serving(self) -> Migrator:
        """The migrator. Raises NoLeader before it has taken over; callers wait for that as for an election."""
        if self.migrator is None:
            raise NoLeader(f"the leader is not ready: {self.trouble}", hint="try again")
        return self.migrator

    def keeping(self) -> AutomaticViews:
        """The automatic views. Raises NoLeader as ``serving`` does."""
        self.serving()
        assert self.automatic is not None
        return self.automatic

    def ready(self) -> None:
        self.serving()
        if self.recovery is None:  # The migrator is there a moment earlier.
            raise NoLeader("the leader has only just taken over", hint="try again")

    def bases_of(self, domain: DomainIndex) -> list[str]:
        assert self.recovery is not None
        return self.recovery.bases_of(domain)

    async def decide(self, change: Callable[[ClusterState], ClusterState]) -> ClusterState:
        return await self.ledger.amend(change, patience=self.settings.timing.commit_patience)

    @property
    def is_calm(self) -> bool:
        return bool(self.calm)

    async def until_calm(self) -> None:
        async with asyncio.timeout(self.settings.timing.calm_patience):
            await self.calm.wait()

    # --- the fleet's watcher --------------------------------------------------------------------------------------

    @property
    def epoch(self) -> int:
        return 0 if self.ledger.state is None else self.ledger.state.epoch

    def joined(self, worker: str) -> None:
        self._newcomers[worker] = None
        self.taking.joined(worker)
        self._uneven = True
        self._balance_at = asyncio.get_running_loop().time() + self.settings.timing.rebalance_after
        self._news.set()

    def gone(self, worker: str) -> None:
        self._newcomers.pop(worker, None)
        self._moves.clear()
        self._news.set()
        if self.ledger.state is None or any(g.worker == worker for g in self.ledger.state.placement.values()):
            self.taking.lost(worker)
            self.disturb(f'worker "{worker}" is lost')
        else:
            self.taking.left(worker)

    def shaken(self, worker: str) -> None:
        self.disturb(f'the connection to worker "{worker}" was made again')

    def broken(self, worker: str, domains: Mapping[DomainIndex, int]) -> None:
        """Begins a recovery once for each incarnation; it opens the next one."""
        for domain, incarnation in domains.items():
            if self._broken.get(domain, 0) < incarnation:
                self._broken[domain] = incarnation
                self.disturb(f'domain {domain} at worker "{worker}" could not end a step')

    def short(self, worker: str) -> None:
        if self.automatic is not None:
            self.automatic.memory_is_short(worker)

    def deposed(self, reason: str) -> None:
        _log.warning("no longer leads: %s", reason)
        self._over.set()

    @property
    def is_over(self) -> bool:
        return self._over.is_set() or self.calm.ended

    def look_again(self) -> None:
        self._news.set()

    def disturb(self, why: str) -> None:
        self.trouble = why
        self.calm.disturb()
        if self.automatic is not None:
            self.automatic.forget()
        self._news.set()

    # --- taking over ----------------------------------------------------------------------------------------------

    async def _steer(self) -> None:
        await self._take_over()
        while True:
            if not self.calm:
                await self._recover()
            await self._greet()
            if self.calm:
                await self._balance()
            if self.calm and not self._newcomers:
                await self._until_news(self._next_look())

    async def _take_over(self) -> None:
        timing = self.settings.timing
        state = await self._persist(self.ledger.load)
        if state is None:
            self.fleet.start()
            await self._quorum()
        await self._persist(lambda: self.ledger.change(self._begin, patience=timing.commit_patience))
        decided = self.ledger.decided
        _log.info('controller "%s" leads in epoch %d', self.settings.name, decided.epoch)
        if state is not None:
            self.fleet.start()
        if self._replica is None or self._replica.shards != decided.shards:
            self._replica = Replica(decided.shards)
        await self._replica.follow(decided.recipe)
        executor = self._executor()
        book = ClusterBook(self.ledger, self._replica, executor, timing)
        numbers = itertools.count(1)
        # An epoch has one leader, so no other leader gives the same ids.
        self.migrator = Migrator(executor, book, one_domain, ids=lambda: f"{decided.epoch}-{next(numbers)}")
        self.migrator.threshold = self.settings.bulk.threshold
        self.migrator.collation = self.settings.collation
        self.migrator.builder = builder_of(self.settings.bulk, executor, self._source())
        self.automatic = AutomaticViews(self._executor(), book, self.migrator, self.disturb)
        executor.make_way = self.automatic.give_way_to_change
        if self.settings.bulk.archive is not None:
            clearing = keep_clear(self.files, self.settings.bulk.archive, decided.epoch, self.ledger)
            self._clearing = asyncio.create_task(clearing, name="clearing")
        forgotten = ad_hoc_views(self._replica.state.catalog)
        if forgotten:
            self.migrator.start(RecipeEntry(forget=forgotten), "leave out views of SELECTs")
        await self._muster()
        self.disturb("taking over")

    def _begin(self, before: ClusterState | None) -> ClusterState:
        """A new leader's first write: from then on its predecessor's writes and commands are refused."""
        if before is None:
            settings = self.settings
            return ClusterState(self.authority.deployment, settings.shards, settings.quorum, 1)
        return before.next_epoch()

    async def _persist(self, ask: Callable[[], Any]) -> Any:
        """Ask again until ZooKeeper answers."""
        while True:
            try:
                return await ask()
            except (AuthorityUnavailable, Unavailable) as error:
                self.trouble = str(error)
                await asyncio.sleep(RETRY_SECONDS)

    async def _quorum(self) -> None:
        """Wait for the first workers: at its first start a deployment waits for its workers, so that domains need not
        be moved soon after."""
        quorum = self.settings.quorum
        while len(self.fleet.members) < quorum:
            there = len(self.fleet.members)
            self.trouble = f"waiting for the first {quorum} workers; {there} {'is' if there == 1 else 'are'} there"
            await self._until_news(None)

    async def _muster(self) -> None:
        """Wait for the workers that have domains: one that is slow to answer would lose its domains needlessly.

        Workers that are known to be gone are not waited for, unless all are gone (everything was restarted): then they
        come one after another, and the first would be given everything.
        """
        loop = asyncio.get_running_loop()
        wanted = {given.worker for given in self.ledger.decided.placement.values()}
        deadline: float | None = None
        while missing := sorted(wanted - self.fleet.members.keys()):
            self.trouble = f"waiting for workers {', '.join(missing)}"
            if self.fleet.members:
                deadline = deadline or loop.time() + self.settings.timing.join_patience
                if loop.time() >= deadline:
                    return
                if await self._any_linked() and not any(self.fleet.may_come(name) for name in missing):
                    return
            await self._until_news(loop.time() + RETRY_SECONDS)

    async def _any_linked(self) -> bool:
        """Whether the workers that are there ran before this leader's term."""
        reports = await self._reports(self.fleet.names())
        return any(domain.linked for report in reports.values() for domain in report.domains.values())

    async def _reports(self, workers: Iterable[str]) -> dict[str, WorkerReport]:
        """The reports of the workers that answer."""
        found: dict[str, WorkerReport] = {}
        for name in workers:
            try:
                found[name] = await self.fleet.ask(name, Report(self.epoch))
            except Interrupted:
                continue
        return found

    def _executor(self, number: int = 0) -> ClusterExecutor:
        return ClusterExecutor(
            self.fleet, self.ledger, self.calm, self.settings.timing, self.disturb, lambda: self.trouble, number
        )

    def _source(self) -> ClusterSource | None:
        archive = self.settings.bulk.archive
        return None if archive is None else ClusterSource(archive, self.fleet, self.ledger, self.files)

    # --- recovering -----------------------------------------------------------------------------------------------

    async def _recover(self) -> None:
        assert self._replica is not None
        timing = self.settings.timing
        pause = timing.retry
        loop = asyncio.get_running_loop()
        while not self.calm:
            number = self.calm.number
            check = functools.partial(self.calm.check, number)
            self.recovery = Recovery(
                self.fleet,
                self.ledger,
                self._replica,
                timing,
                check,
                self.taking,
                self.rebuilds,
                Refill(self.rebuilds.refills, self.settings.bulk, self._executor(number), self._source()),
            )
            if not self.fleet.members:
                self.trouble = "no worker is there"
                await self._until_news(None)
                await self._muster()
                continue
            try:
                self._newcomers.clear()
                await self._fence()
                self.closed = await self.recovery.round(self._moves)
            except Interrupted as error:
                self.trouble = error.message
                await asyncio.sleep(ROUND_PAUSE)
                continue
            except (AuthorityError, HeadraceError) as error:
                if isinstance(error, Deposed):
                    raise
                _log.warning("the recovery cannot go on: %s", error)
                self.trouble = str(error)
            else:
                if not self.closed:
                    self._moves.clear()
                    self.trouble = ""
                    self.calm.begin(number)
                    return
                self.trouble = "; ".join(f"domain {d}: {why}" for d, why in sorted(self.closed.items()))
                pause = min(2 * pause, RETRY_MAX)
            await self._until_news(loop.time() + (pause if self.closed else timing.retry))

    async def _fence(self) -> None:
        """Raise the epoch if messages of given-up connections may still arrive, so that they are refused: see
        ``recovery.py``."""
        again = self.fleet.again
        if again != self._fenced:
            await self.ledger.amend(ClusterState.next_epoch, patience=0.0)
            self._fenced = again

    async def _greet(self) -> None:
        """A worker that was lost and came back may still host its former domains, which a recovery closes."""
        names, self._newcomers = list(self._newcomers), {}
        for report in (await self._reports(names)).values():
            if report.domains:
                self.disturb(f'worker "{report.worker}" came back')

    # --- moving ---------------------------------------------------------------------------------------------------

    def _next_look(self) -> float | None:
        """When to look again if nothing happens."""
        return self._balance_at if self._uneven else None

    async def _balance(self) -> None:
        """Move domains to workers that joined, once all are there and no migration is running."""
        assert self.migrator is not None
        now = asyncio.get_running_loop().time()
        if not self._uneven or now < self._balance_at:
            return
        if self.migrator.busy:
            self._balance_at = now + self.settings.timing.rebalance_after
            return
        self._uneven = False
        reports = await self._reports(self.fleet.names())
        workers, later = self.taking.trusted(reports), self.taking.next_trusted()
        if later is not None:
            self._balance_at = min(later, self._balance_at) if self._uneven else later
            self._uneven = True
        moves = self.taking.drained() or rebalance(workers, self.ledger.decided.placement, load=loads(reports))
        if moves and self.calm:
            self._moves = dict(moves)
            self.disturb("moving domains to workers that joined")

    def rebalance(self) -> None:
        self._uneven = True
        self._news.set()

    # --- waiting --------------------------------------------------------------------------------------------------

    async def _until_news(self, deadline: float | None) -> None:
        try:
            async with asyncio.timeout_at(deadline):
                await self._news.wait()
        except TimeoutError:
            return
        finally:
            self._news.clear()


def directory_of(leader: Leader) -> dict[str, Any]:
    """Each domain's worker, and the workers' addresses. As JSON."""
    state = leader.ledger.decided
    return {
        "epoch": state.epoch,
        "domains": {
            str(domain): {"worker": given.worker, "incarnation": given.incarnation}
            for domain, given in sorted(state.placement.items())
        },
        "workers": {
            name: {"host": member.descriptor.host, "port": member.descriptor.port}
            for name, member in sorted(leader.fleet.members.items())
        },
    }


def status_of(leader: Leader) -> dict[str, Any]:
    """The cluster as the leader sees it, times in seconds. As JSON."""
    now = asyncio.get_running_loop().time()
    state = leader.ledger.state
    placement = {} if state is None else state.placement
    return {
        "epoch": leader.epoch,
        "calm": bool(leader.calm),
        "trouble": leader.trouble or None,
        "doing": (leader.recovery.step if leader.recovery is not None and not leader.calm else "") or None,
        "shards": None if state is None else state.shards,
        "quorum": None if state is None else state.quorum,
        "closed": {str(domain): why for domain, why in sorted(leader.closed.items())},
        "rebuilding": leader.rebuild_operations.running,
        "migrating": leader.migrator is not None and leader.migrator.busy,
        "automatic": 0 if leader.automatic is None else len(leader.automatic.views),
        "workers": [
            {
                "name": name,
                "host": member.descriptor.host,
                "port": member.descriptor.port,
                "heard": round(now - member.heard, 3),
                "draining": state is not None and state.draining.get(name) == member.descriptor.incarnation,
                "domains": sorted(domain for domain, given in placement.items() if given.worker == name),
            }
            for name, member in sorted(leader.fleet.members.items())
        ],
    }
