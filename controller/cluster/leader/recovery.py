"""Bringing the actual state to the decided one: one *round* after another, until a round finds nothing left to do.

A round decides before it acts, and all its acts may be done twice. So it may be broken off anywhere, by another loss or
by the end of this leader: the next round, perhaps another leader's, begins with the workers' reports::

    report ─► homeless and moving domains ─► decide (state, greater epoch) ─► close, open, tables ─► nodes of opened
        domains ─► Reconfigure of the others: removals, resets, links ─► Reconfigure of their hosts ─► what was sent
        before has arrived ─► nodes again ─► backfill (or ``refilling.py``) ─► all consequences have arrived ─► activate

Each race, and what excludes it:

* *A late packet of a lost domain.* The new incarnation is the new epoch, so packets of the old one are stale.
* *A late packet for a node that is built again.* The old node and its egress are removed in the step that resets the
  links, and a node of that number is added only when everything sent before has arrived
  (``performing.everything_sent``). Every round waits for that, even without removals: an earlier round that was broken
  off may have removed nodes that this one, or a later migration, adds.
* *A worker that comes back with a domain that nobody could take over.* Packets to a domain that is left out are
  dropped. So it gets a new incarnation before it is left out: the one that comes back is outdated, and the domain
  begins anew.
* *Rows twice, or not at all.* Nothing is fed before all nodes are there; an egress that feeds again feeds only new
  ingresses (``reconcile.py``).
* *A survivor that does not know of a new link.* Hosts of opened domains are told when all others have answered. If the
  round is broken off before, these domains are still homeless, so the next round opens them again and rebuilds the full
  state below them.
* *A domain that broke.* One that could not end a step is no longer linked (``DomainHost.broken``): it is homeless, and
  survivors treat its next incarnation like that of any lost domain.
* *An answer from a half-built node.* Reads and upqueries of such nodes are held until ``Activate``, which comes when
  all rows have arrived everywhere (``performing.all_lanes``).
* *A reset before the removal of what it makes void.* Only workers that have reported in this round are told of the
  links: so each of their domains is a decided one, and the same message removes its void full state. A worker that
  joins later may have former domains; no link of this round leads to it, and a later round closes them.
* *A command of this leader's own past.* A report reflects the commands that were sent before it over the same
  connection. A command over an earlier connection may arrive at any time. So if a process was connected again, the
  epoch is raised before the reports are asked for, and workers refuse commands of older epochs.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from controller.cluster.leader import performing
from controller.cluster.leader.fleet import Deposed, Fleet, Member, Timing, together
from controller.cluster.leader.ledger import StateLedger
from controller.cluster.leader.performing import look
from controller.cluster.leader.placing import PlacementPolicy
from controller.cluster.leader.reconcile import (
    Repair,
    Reports,
    by_domain,
    drop_steps,
    homeless,
    loads,
    repair,
    reported,
    strange_tables,
    superfluous,
    table_steps,
    tables_of,
)
from controller.cluster.lost_shards.rebuilding import RebuildOutcomes
from controller.cluster.lost_shards.refilling import Refill
from controller.cluster.state import Assignment, ClusterState, Replica
from controller.migrating.executor import Interrupted
from domains.errors import HeadraceError
from domains.language.types import TableSchema
from domains.plan.commands import Progress
from domains.plan.graph import DomainIndex, NodeIndex
from domains.plan.sharding import base_shard
from migrations.flow.plan import PlanStep, State
from worker.protocol.messages import CloseDomain, OpenDomain, Perform, Placed, Reconfigure, Report, WorkerReport
from worker.protocol.operations import FlushDomain


def links(
    state: ClusterState,
    members: Mapping[str, Member],
    todo: Repair,
    closed: Collection[DomainIndex],
    workers: Iterable[str],
) -> list[tuple[str, Reconfigure]]:
    """The messages that link all domains and remove nodes. ``closed`` domains, and those of lost workers, have no
    place."""
    placement = {
        domain: _placed(given, members)
        for domain, given in sorted(state.placement.items())
        if given.worker in members and domain not in closed
    }

    def removals(worker: str) -> dict[DomainIndex, tuple[NodeIndex, ...]]:
        return {d: gone for d, gone in todo.removals.items() if state.placement[d].worker == worker}

    return [(worker, Reconfigure(state.epoch, placement, removals(worker))) for worker in workers]


def _placed(given: Assignment, members: Mapping[str, Member]) -> Placed:
    worker = members[given.worker].descriptor
    return Placed(given.worker, worker.host, worker.port, given.incarnation, worker.incarnation)


FLUSH_SECONDS = 1.0
"""A full memtable takes a fifth of that on a busy disk. A loss that comes meanwhile waits no longer than this."""


async def flush_domains(
    ask: Callable[[str, Any], Awaitable[Any]], state: ClusterState, domains: Iterable[DomainIndex]
) -> None:
    """Flush the stores of domains that will move, while they still serve. A domain is away while it moves, and closing
    it writes what RocksDB has in memory, up to 8 MB, to a file; afterwards there is little left to write.

    Nothing depends on it: it may fail, take too long, be done twice or for a domain that has gone. It is left out if a
    domain is homeless, since a loss is more urgent than a move. Raises Interrupted and Deposed only.
    """
    try:
        async with asyncio.timeout(FLUSH_SECONDS):
            await together(ask(state.placement[d].worker, FlushDomain(state.epoch, d)) for d in domains)
    except (Interrupted, Deposed):
        raise
    except HeadraceError as error:
        _log.info("what moves could not be written out first: %s", error.message)
    except TimeoutError:
        _log.info("what moves was not written out within %g s", FLUSH_SECONDS)


_log = logging.getLogger("headrace.controller")


@dataclass(slots=True)
class Recovery:
    """The rounds until there is calm. ``check`` raises Interrupted if the present round is outdated; ``taking`` and
    ``rebuilds`` outlive the round."""

    _fleet: Fleet
    _ledger: StateLedger
    _replica: Replica
    _timing: Timing
    _check: Callable[[], None]
    _taking: PlacementPolicy
    _rebuilds: RebuildOutcomes
    _refill: Refill
    step: str = ""
    """The present step, for status."""
    _rebuilding: dict[DomainIndex, str] = field(default_factory=dict)
    """Domains whose shards are not rebuilt yet, and why."""

    async def round(self, moves: Mapping[DomainIndex, str]) -> dict[DomainIndex, str]:
        """One round. Answers the domains that nobody hosts, and why; nothing else is wrong if there are none. ``moves``
        are healthy domains that should go to another worker.

        :raises Interrupted: something changed meanwhile: begin again.
        :raises AuthorityUnavailable, Unavailable: ZooKeeper is away. Lost domains stay lost until it is back.
        """
        self.step = "asking the workers what is there"
        await self._ledger.settle()
        await self._replica.follow(self._ledger.decided.recipe)
        reports = await self._reports(self._fleet.names())
        decided, takers = self._ledger.decided, self._taking.takers(reports)
        self._rebuilds.refills.notice(decided)
        self._rebuilding = await self._rebuilds.round(
            self._ask, decided, takers, self._tables_of, reports, self._taking.is_shut
        )
        await self._flush(reports, moves)
        opened = await self._decide(reports, moves)
        await self._close(reports)
        closed, later = await self._open(opened)
        reports |= later
        closed |= await self._tables(reports, opened)
        missing = {d: self._why(d) for d in self._ledger.decided.domains if self._reported(reports, d) is None}
        closed = {**missing, **closed}
        await self._mend(reports, [d for d in opened if d not in closed], closed)
        self.step = ""
        return closed

    # --- asking ---------------------------------------------------------------------------------------------------

    async def _ask(self, worker: str, message: Any) -> Any:
        self._check()
        answer = await self._fleet.ask(worker, message)
        self._check()
        return answer

    async def _reports(self, workers: Iterable[str]) -> dict[str, WorkerReport]:
        names = list(workers)
        message = Report(self._ledger.decided.epoch)
        return dict(zip(names, await together(self._ask(name, message) for name in names), strict=True))

    def _host(self, domain: DomainIndex) -> str:
        return self._ledger.decided.placement[domain].worker

    def _reported(self, reports: Reports, domain: DomainIndex) -> Any:
        return reported(self._ledger.decided, reports, domain)

    # --- deciding -------------------------------------------------------------------------------------------------

    async def _flush(self, reports: Reports, moves: Mapping[DomainIndex, str]) -> None:
        moving = self._taking.moving(moves)
        if moving and not homeless(self._ledger.decided, reports):
            self.step = f"preparing {_names(moving)} to move"
            await flush_domains(self._ask, self._ledger.decided, moving)

    async def _decide(self, reports: Reports, moves: Mapping[DomainIndex, str]) -> list[DomainIndex]:
        """Give homeless and moving domains to workers; written, with a new epoch, before anything is done."""
        state = self._ledger.decided
        moving = {d: worker for d, worker in self._taking.moving(moves).items() if d not in self._rebuilding}
        lost = [d for d in homeless(state, reports) if d not in moving and d not in self._rebuilding]
        hosts = self._taking.homes(lost, reports, loads(reports)) | moving
        stranded = [d for d in lost if d not in hosts and self._taking.may_be_open(d)]
        if not hosts and not stranded:
            return []
        self.step = f"giving {_names([*hosts, *stranded])} to workers"
        _log.info("epoch %d: %s", state.epoch + 1, ", ".join(f"domain {d} to {w}" for d, w in sorted(hosts.items())))

        def decide(before: ClusterState) -> ClusterState:
            self._check()
            epoch = before.epoch + 1
            given = {d: Assignment(w, epoch, self._fleet.members[w].descriptor.data) for d, w in hosts.items()}
            given |= {d: replace(before.placement[d], incarnation=epoch) for d in stranded}
            return replace(before, epoch=epoch, placement={**before.placement, **given})

        decided = await self._ledger.amend(decide, patience=0.0)
        self._taking.left_out(stranded, decided.epoch)
        self._check()
        return sorted(hosts)

    def _tables_of(self, domain: DomainIndex) -> Iterable[TableSchema]:
        """The tables that a domain has a shard of, as decided."""
        return tables_of(self._replica.state, domain).values()

    def bases_of(self, domain: DomainIndex) -> list[str]:
        """The base shards of a domain, as decided."""
        shards = self._replica.state.shards
        return sorted(base_shard(each.name, each.generation, domain, shards) for each in self._tables_of(domain))

    def _why(self, domain: DomainIndex) -> str:
        if domain in self._rebuilding:
            return self._rebuilding[domain]
        given = self._ledger.decided.placement.get(domain)
        if given is None or not given.data:
            return "no worker can take it"
        return f'no worker that can take it has the data directory "{given.data}"'

    # --- domains --------------------------------------------------------------------------------------------------

    async def _close(self, reports: Reports) -> None:
        """A domain that moves is flushed and closed at its old host before its new host opens it."""
        state = self._ledger.decided
        gone = superfluous(state, reports)
        if gone:
            self.step = f"closing {_names(domain for _, domain in gone)} where they were"
        await together(self._ask(worker, CloseDomain(state.epoch, domain)) for worker, domain in gone)

    async def _open(self, opened: Sequence[DomainIndex]) -> tuple[dict[DomainIndex, str], Reports]:
        """Open them all at once. Answers those that could not be opened, and why, and their hosts' reports afterwards.

        The reports are asked for at once, behind the openings: a worker reports when these have ended.
        """
        if not opened:
            return {}, {}
        self.step = f"opening {_names(opened)}"
        hosts, report = sorted({self._host(domain) for domain in opened}), Report(self._ledger.decided.epoch)
        answers = await together(
            [*(self._open_one(domain) for domain in opened), *(self._ask(name, report) for name in hosts)]
        )
        why, reports = answers[: len(opened)], answers[len(opened) :]
        closed = {domain: reason for domain, reason in zip(opened, why, strict=True) if reason is not None}
        return closed, dict(zip(hosts, reports, strict=True))

    async def _open_one(self, domain: DomainIndex) -> str | None:
        state = self._ledger.decided
        given = state.placement[domain]
        # Tables change only while there is calm: all shards existed when the first table was made.
        kept = bool(state.recipe.entries)
        message = OpenDomain(state.epoch, domain, given.incarnation, domain, state.shards, kept)
        try:
            await self._ask(given.worker, message)
        except (Interrupted, Deposed):
            raise
        except HeadraceError as error:
            return self._refuse(given.worker, domain, error)
        self._taking.opened(given.worker, domain)
        return None

    def _refuse(self, worker: str, domain: DomainIndex, error: HeadraceError) -> str:
        reason = f'worker "{worker}" cannot open it: {error}'
        _log.error("domain %d: %s", domain, reason)
        self._taking.refused(worker, domain)
        return reason

    # --- tables ---------------------------------------------------------------------------------------------------

    async def _tables(self, reports: Reports, opened: Sequence[DomainIndex]) -> dict[DomainIndex, str]:
        """Create, alter and drop tables as the catalog has them; a domain for which that fails is closed again."""
        self.step = "bringing tables to what they are to be"
        there = {d: r for d in self._ledger.decided.domains if (r := self._reported(reports, d)) is not None}
        closed: dict[DomainIndex, str] = {}
        work: list[tuple[DomainIndex, list[PlanStep]]] = []
        for domain, report in there.items():
            strange = strange_tables(self._replica.tables, report)
            if strange:
                error = HeadraceError(
                    f'it has the table "{strange[0]}", which was never in the recipe: restore a back-up'
                )
                closed[domain] = self._refuse(self._host(domain), domain, error)
            else:
                work.append((domain, table_steps(self._replica.state, domain, report)))
        reasons = await together(self._alter(d, steps, serves=d not in opened) for d, steps in work)
        closed |= {domain: why for (domain, _), why in zip(work, reasons, strict=True) if why is not None}
        state = self._ledger.decided
        await together(self._ask(self._host(d), CloseDomain(state.epoch, d)) for d in closed)
        return closed

    async def _alter(self, domain: DomainIndex, steps: Sequence[PlanStep], *, serves: bool) -> str | None:
        try:
            await self._perform_all(steps)
        except (Interrupted, Deposed):
            raise
        except HeadraceError as error:
            if serves:
                raise  # The domain serves on with its table, and the change is tried again.
            return self._refuse(self._host(domain), domain, error)
        return None

    # --- the graph ------------------------------------------------------------------------------------------------

    async def _mend(self, reports: Reports, opened: Sequence[DomainIndex], closed: Mapping[DomainIndex, str]) -> None:
        state, planned = self._ledger.decided, self._replica.state
        there = {d: r for d in state.domains if d not in closed and (r := self._reported(reports, d)) is not None}
        survivors = {domain: report for domain, report in there.items() if domain not in opened}
        todo = repair(planned, survivors, [*opened, *closed])
        todo = todo if closed else await self._refill.planned(planned, todo)
        fresh = [step for step in todo.fresh if step.domain not in closed]
        await self._link(reports, todo, fresh, opened, closed)
        await self._drops(planned, there)
        if closed:
            # Full state would lack the rows of closed domains: it is built when all are open.
            return
        self.step = "waiting for what is on its way"
        await performing.everything_sent(self._links, self._timing.poll)
        self.step = "building again what is full"
        await together(self._perform_all(steps) for steps in by_domain([*todo.again, *todo.indexes]))
        if self._refill.way:
            self.step = f"building full states in bulk ({self._refill.way})"
            await self._refill.fill()
        else:
            await together(self._perform_all(steps) for steps in by_domain(todo.feeds))
        if todo.feeds:
            await performing.all_lanes(self._links, self._timing.poll)
        await together(self._perform_all(steps) for steps in by_domain(todo.activations))
        self._rebuilds.refills.done()

    async def _link(
        self,
        reports: Reports,
        todo: Repair,
        fresh: Sequence[PlanStep],
        opened: Sequence[DomainIndex],
        closed: Mapping[DomainIndex, str],
    ) -> None:
        """Hosts of opened domains are told last, when the others have linked them and removed void nodes. Only workers
        that have reported are told."""
        self.step = f"adding the nodes of {_names(opened)} and linking them" if opened else "linking the domains"
        hosts = {self._host(domain) for domain in opened}
        others = [name for name in self._fleet.names() if name in reports and name not in hosts]
        state, members = self._ledger.decided, self._fleet.members
        first, last = (links(state, members, todo, closed, names) for names in (others, sorted(hosts)))
        await together(self._perform_all(steps) for steps in by_domain(fresh))
        await together(self._ask(*each) for each in first)
        await together(self._ask(*each) for each in last)

    async def _drops(self, planned: State, there: Mapping[DomainIndex, Any]) -> None:
        await together(self._perform_all(drop_steps(planned, domain, report)) for domain, report in there.items())

    async def _links(self) -> performing.Reached:
        self._check()
        return await look(self._fleet, self._ledger.decided)

    async def _perform_all(self, steps: Sequence[PlanStep]) -> None:
        """One domain's steps, in order. All steps, and of sliced ones the first slices, are sent without waiting for
        answers, since a worker carries out a leader's commands in their order.
        """
        begun = await together(self._perform(step) for step in steps)
        for step, progress in zip(steps, begun, strict=True):
            while step.sliced and not progress.finished:
                progress = await self._perform(step)

    async def _perform(self, step: PlanStep) -> Progress:
        message = Perform(self._ledger.decided.epoch, step.domain, step.command)
        progress: Progress = await self._ask(self._host(step.domain), message)
        return progress


def _names(domains: Iterable[DomainIndex]) -> str:
    named = ", ".join(str(domain) for domain in sorted(set(domains)))
    return f"domain {named}" if "," not in named else f"domains {named}"
