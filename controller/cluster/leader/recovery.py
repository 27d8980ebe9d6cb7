"""Bringing what is there to what is decided: one *round* after another, until a round finds nothing left to do.

A round decides first and does then, and everything it does may be done twice. So it may be broken off anywhere, by
another loss, by the end of this leader: the next round, be it another leader's, begins with what the workers report::

    report ─► who is homeless, what moves ─► decide (state, greater epoch) ─► close, open, tables ─► nodes of what was
        opened ─► Reconfigure of the others: removals, resets, links ─► Reconfigure of its hosts ─► what was sent before
        has arrived ─► nodes again ─► backfill (or ``refilling.py``) ─► every consequence has arrived ─► activate

What excludes each race:

* *A late packet of what was lost.* The domain's new incarnation is the new epoch, so what the old one sent is stale.
* *A late packet for a node that is built again.* The old node is removed, and its egress with it, in the step that
  resets the links. Only when everything sent before has arrived (``barrier.everything_sent``) is there a node of that
  number again. Every round waits for it, be there anything to remove or not: an earlier one that was broken off, or
  another leader's, may have removed what this one, or a migration after it, adds.
* *A worker that comes back with what nobody could take over.* While a domain is left out, what is sent to it is
  dropped. So it is given a new incarnation before it is left out: what comes back is another one, and begins anew.
* *Rows twice, or not at all.* Nothing is fed before all nodes are there; an egress that feeds again feeds only
  ingresses that are new (``reconcile.py``).
* *A survivor that was told nothing of what is linked.* Hosts of what was opened are told when all others have answered:
  what is broken off before that is homeless yet, so the next round opens it again, and rebuilds what is full below it.
* *A domain that broke.* One that could not end a step is not linked any more (``Hosted.broken``): it is homeless, and
  survivors meet its next incarnation as that of any other that was lost.
* *An answer from what is half built.* Reads and upqueries of such nodes are held until ``Activate``, which comes when
  all rows have arrived everywhere (``barrier.all_lanes``).
* *A reset before what it makes void is removed.* Only who has reported in this round is told of the links: so each
  domain it has is one that is decided, and what is full there and is to go is in the same message. Who joins later may
  have domains of before; no link of this round leads to it, and the round that closes them or gives it others tells it.
* *A command of this leader's own past.* Over one connection it comes before the report that is asked later, which
  reflects it. One that was sent over a connection before (the network had it for a while) may come at any time: so
  where a process was connected to again, the epoch grows before the reports are asked, and workers refuse the older.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from controller.cluster.leader import performing
from controller.cluster.leader.fleet import Fleet, Member, Timing
from controller.cluster.leader.handles import Deposed, together
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
from controller.cluster.replica import Replica
from controller.cluster.state import Assignment, ClusterState
from controller.migrating.executor import Interrupted
from domains.errors import HeadraceError
from domains.language.types import TableSchema
from domains.plan.commands import Progress
from domains.plan.graph import DomainIndex, NodeIndex
from domains.plan.sharding import base_shard
from migrations.flow.plan import PlanStep, State
from worker.protocol.messages import CloseDomain, OpenDomain, Perform, Placed, Reconfigure, Report, WorkerReport
from worker.protocol.operations import FlushDomain

# The messages to each worker when domains are linked: where all domains are, and which of its nodes to remove. Pure.


def links(
    state: ClusterState,
    members: Mapping[str, Member],
    todo: Repair,
    closed: Collection[DomainIndex],
    workers: Iterable[str],
) -> list[tuple[str, Reconfigure]]:
    """A message to each of the workers. What is ``closed``, or on a worker that is no member, is nowhere."""
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


# Domains that are to go to another worker though nothing is wrong: what is done for them while they serve yet.
#
# A domain that moves is away from its closing here until it is linked there. Closing its shard sorts what RocksDB has
# in memory to a file, up to 8 MB of it; that is done beforehand, so that there is little left.
#
# It is done before anything is decided, and nothing depends on it. What its answer says was true when it was given
# and is no fact that anybody goes on with: whoever decides afterwards looks at what is there as if it had not been
# done. So it may fail, take too long, be done twice or for a domain that has gone. But it takes time, so it is left
# out where a domain is homeless: nobody is to wait longer for what is lost, so that others wait less for what is not.

FLUSH_SECONDS = 1.0
"""A full memory takes a fifth of that on a busy disk. A loss that comes meanwhile is waited for no longer than this."""


async def flush_domains(
    ask: Callable[[str, Any], Awaitable[Any]], state: ClusterState, domains: Iterable[DomainIndex]
) -> None:
    """Have domains written to files where they are. Raises Interrupted and Deposed, and nothing else."""
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


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a round."""

    closed: Mapping[DomainIndex, str]
    """Domains that nobody hosts, and why. Nothing else is wrong where this is empty."""


class Recovery:
    """One time of recovery. ``check`` raises Interrupted where the present round has been overtaken by events."""

    def __init__(
        self,
        fleet: Fleet,
        ledger: StateLedger,
        replica: Replica,
        timing: Timing,
        check: Callable[[], None],
        taking: PlacementPolicy,
        rebuilds: RebuildOutcomes,
        refill: Refill,
    ) -> None:
        """``taking`` and ``rebuilds`` outlive the round."""
        self.step = ""
        """The present step, for status."""
        self._fleet = fleet
        self._ledger = ledger
        self._replica = replica
        self._timing = timing
        self._check = check
        self._taking = taking
        self._rebuilds = rebuilds
        self._refill = refill
        self._rebuilding: dict[DomainIndex, str] = {}
        """Domains whose shards are not made yet, and why."""

    async def round(self, moves: Mapping[DomainIndex, str]) -> Outcome:
        """One round; ``moves`` are domains that are to go to another worker though nothing is wrong.

        :raises Interrupted: something changed meanwhile: begin again.
        :raises AuthorityUnavailable, Unavailable: ZooKeeper is away. What is lost stays lost until it is back.
        """
        self.step = "asking the workers what is there"
        await self._ledger.settle()
        await self._replica.follow(self._ledger.decided.recipe)
        reports = await self._reports(self._fleet.names())
        decided, takers = self._ledger.decided, self._taking.takers(reports)
        self._rebuilds.refills.notice(decided)
        self._rebuilding = await self._rebuilds.round(self._ask, decided, takers, self._tables_of)
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
        return Outcome(closed)

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
        """Give what is homeless, or is to move, to workers: written, with a new epoch, before anything is done."""
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
        """The tables of which a domain is to have a shard."""
        return tables_of(self._replica.state, domain).values()

    def bases_of(self, domain: DomainIndex) -> list[str]:
        """The base shards that a domain is to have."""
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
        """Open them all at once; those that cannot be, and why, and what their hosts report then.

        The reports are asked for behind the openings, not after them: a worker waits with one for what was begun.
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
        # Changes of tables come in times of calm only: all shards were there when the first was made.
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
        """Bring tables to what the catalog says. What was opened and cannot be brought to it is closed again."""
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
                raise  # What it has it goes on serving; the change of the table is tried again.
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
            # What is full lacks the rows of what is closed. It stays removed, and is built when all is there.
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
        """What survived is told while nodes are added, and what it sends there at once is held. Hosts of what was
        opened are told last: then others have room for what they send, and have removed what is to go. Only those that
        have reported are told."""
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
        """One domain's steps, in order: what is not sliced, and the first slices of each step, are sent without waiting
        for the answers. A worker does what one leader wants in the order in which it came.
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
