"""Giving up a lost shard's disk: an operator's decision, and how a leader carries it out.

A shard is *lost* when no present worker has the data directory that it was placed in. It waits for that directory, for
ever if need be, since rows that were not archived are on that disk only. Giving up the disk loses them, so only an
operator does that. A shard that a worker has and cannot open, since it is damaged, is given up if the operator names
it::

    POST /v1/rebuild ─► lost? archived? fence: which positions are known? ─► the state: another worker, ``Rebuild``
        ─► every round: RebuildShard ─► under way: stays closed │ made: opened like any other, ``Rebuild`` removed

If there is much to fold, Spark does it before anything is decided (``rebuild_way.py``).

The *tail*, which is lost with the disk, is everything after the last archived position, up to the greatest position
that is known to have existed: by the links of surviving domains, or by the operator (from a token). The shard goes on
there. ``fencing.py`` sees to it that no greater one turns up afterwards, which would be given again.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from controller.cluster.leader.building import BulkSettings
from controller.cluster.leader.fleet import Deposed, together
from controller.cluster.leader.placing import place
from controller.cluster.leader.port import LeaderPort
from controller.cluster.lost_shards import fencing
from controller.cluster.lost_shards.fencing import heard_at_last
from controller.cluster.lost_shards.rebuild_way import (
    WORKER,
    Rebuilding,
    RebuildMethod,
    RebuildStage,
    choose_way,
    fold_lost,
    runs_of,
    turn,
)
from controller.cluster.lost_shards.refilling import Refills
from controller.cluster.state import Assignment, ClusterState, Rebuild
from controller.migrating.bulk.job_files import JobFiles
from controller.migrating.executor import Interrupted
from domains.engine.clock import latest
from domains.errors import BadRequest, HeadraceError, NoLeader, NotFound, Unavailable
from domains.language.types import TableSchema
from domains.plan.graph import DomainIndex
from domains.plan.packets import Clock
from migrations.backfill.job import JobProgress
from migrations.backfill.spark.settings import By
from worker.protocol.messages import NotHere
from worker.protocol.operations import (
    ArchivedShard,
    ArchivedShardRequest,
    LeaveCopies,
    RebuildShard,
    RebuiltTable,
    ShardRebuilt,
)

LOOK_FIRST = 0.1
LOOK_MAX = 2.0
"""Seconds between two looks at the progress; doubled each time, since every look is a round of recovery."""

Ask = Callable[[str, Any], Awaitable[Any]]


class RebuildOutcomes:
    """The results of decided rebuilds, for a leader's term."""

    def __init__(self) -> None:
        self.made: dict[DomainIndex, ShardRebuilt] = {}
        self.failed: dict[DomainIndex, HeadraceError] = {}
        self.rows: dict[DomainIndex, int] = {}
        """Loaded so far, by the workers' reports."""
        self.folding: set[str] = set()
        """The rebuild that is having the archive folded, if any: see ``rebuild_way.turn``."""
        self.refills = Refills()
        self._copies: dict[DomainIndex, tuple[int, tuple[DomainIndex, ...]]] = {}
        """For which decision which other shards have left what they keep of its transactions."""

    def forget(self, domains: Iterable[DomainIndex]) -> None:
        """Drop the results of earlier decisions."""
        for domain in domains:
            self.made.pop(domain, None)
            self.failed.pop(domain, None)
            self.rows.pop(domain, None)

    async def round(
        self,
        ask: Ask,
        state: ClusterState,
        takers: Mapping[str, str],
        tables: Callable[[DomainIndex], Iterable[TableSchema]],
        there: Collection[str],
        is_shut: Callable[[DomainIndex], bool],
    ) -> dict[DomainIndex, str]:
        """Have the decided rebuilds done, by the workers that are ``there``. Answers those that are not done yet, and
        why: they must not be opened. ``is_shut``: its worker cannot open it."""
        wanted = [domain for domain, given in sorted(state.placement.items()) if given.rebuild is not None]
        waiting: dict[DomainIndex, str] = {}
        for domain in wanted:  # One after the other, since each is answered at once.
            others = [
                other
                for other, given in sorted(state.placement.items())
                if other < state.shards and other != domain and given.rebuild is None and not is_shut(other)
            ]
            why = await self._one(ask, state, domain, takers, tuple(tables(domain)), others, there)
            if why is not None:
                waiting[domain] = why
        return waiting

    async def _one(
        self,
        ask: Ask,
        state: ClusterState,
        domain: DomainIndex,
        takers: Mapping[str, str],
        tables: tuple[TableSchema, ...],
        others: Sequence[DomainIndex],
        there: Collection[str],
    ) -> str | None:
        given = state.placement[domain]
        assert given.rebuild is not None
        able = sorted((name for name, data in takers.items() if data == given.data), key=lambda n: n != given.worker)
        if not able:
            return f'it is to be rebuilt in the data directory "{given.data}", which no worker has that can take it'
        due = given.rebuild
        try:
            copies = await self._left(ask, state, domain, others, there)
            message = RebuildShard(state.epoch, domain, state.shards, due.decided, tables, due.known, due.runs, copies)
            answer = await ask(able[0], message)
        except (Interrupted, Deposed):
            raise
        except NotHere as error:
            return f"another shard, which may keep transactions of it, is not open yet: {error}"
        except HeadraceError as error:
            self.failed[domain] = error
            return f'worker "{able[0]}" cannot rebuild it: {error}'
        if not isinstance(answer, ShardRebuilt):
            self.rows[domain] = answer.rows
            self.failed.pop(domain, None)
            return f'worker "{able[0]}" rebuilds it from the archive: {answer.rows:,} rows so far'
        self.made[domain] = answer
        self.failed.pop(domain, None)
        self.rows[domain] = sum(each.rows for each in answer.tables)
        return None

    async def _left(
        self, ask: Ask, state: ClusterState, domain: DomainIndex, others: Sequence[DomainIndex], there: Collection[str]
    ) -> tuple[DomainIndex, ...]:
        """The shards that have left what they keep of its transactions, once each has.

        :raises NotHere: one is not open yet. :raises Unavailable: it is away. :raises ArchiveError"""
        given = state.placement[domain]
        assert given.rebuild is not None
        decided = given.rebuild.decided
        if self._copies.get(domain, (0,))[0] != decided:
            for other in others:
                if state.placement[other].worker not in there:
                    raise Unavailable(
                        f"shard {other}, which may keep transactions of it, is away",
                        hint=f"bring it back; or, if its disk is gone as well, headrace rebuild {other}",
                    )
            await together(
                ask(
                    state.placement[other].worker,
                    LeaveCopies(state.epoch, other, domain, given.incarnation, decided),
                )
                for other in others
            )
            self._copies[domain] = decided, tuple(others)
        return self._copies[domain][1]


def lost_shards(leader: LeaderPort, named: Collection[int] = ()) -> list[DomainIndex]:
    """The shards whose disk no present worker has, those that were given up and are not rebuilt yet, and those of
    ``named`` that a worker has and cannot open."""
    directories = {member.descriptor.data for member in leader.fleet.members.values()}
    placement = leader.ledger.decided.placement
    shut = {d for d in leader.closed if d in named and leader.taking.is_shut(d)}
    return [d for d, given in sorted(placement.items()) if d in shut or _is_lost(given, directories)]


def _is_lost(given: Assignment, directories: Collection[str]) -> bool:
    return given.rebuild is not None or bool(given.data and given.data not in directories)


def _shown(each: RebuiltTable) -> dict[str, Any]:
    return {
        "base": each.base,
        "by": "spark" if each.run else WORKER,
        "position": each.position,
        "rows": each.rows,
        "known": each.known,
        "lost": each.lost,
    }


REMEMBERED = 100
"""Rebuilds that have ended."""


class RebuildOperations:
    """The rebuilds that operators have asked one leader for, each a task with an id and a state. They end with the
    leader's term; what was not decided by then is not done."""

    def __init__(self, leader: LeaderPort, bulk: BulkSettings, files: JobFiles, outcomes: RebuildOutcomes) -> None:
        self._leader = leader
        self._bulk = bulk
        self._files = files
        self._outcomes = outcomes
        self._numbers = itertools.count(1)
        self._all: dict[str, Rebuilding] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, shards: Sequence[int], known: Clock, by: By) -> Rebuilding:
        """Begin a rebuild: see ``_rebuild``, whose error, if any, is shown at its end."""
        self._leader.ready()
        if self._leader.is_over:  # Nobody would end a task that begins after ``close``.
            raise NoLeader("the leader is succeeded", hint="try again")
        named = ", ".join(map(str, shards)) or "all that are lost"
        # An epoch has one leader, so no other leader gives the same ids.
        one = Rebuilding(f"{self._leader.epoch}-r{next(self._numbers)}", f"rebuild shards: {named}", "running")
        self._all[one.id] = one
        for id in list(self._all)[:-REMEMBERED]:
            if self._all[id].ended.is_set():
                del self._all[id]
        task = asyncio.create_task(self._run(one, shards, known, by))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return one

    def get(self, id: str) -> Rebuilding:
        if id not in self._all:
            raise NotFound(f'no rebuild "{id}"', hint="its id is in the answer to POST /v1/rebuild")
        return self._all[id]

    def cancel(self, id: str) -> Rebuilding:
        """Cancel a rebuild. One that is decided goes on, but feeds full states in slices."""
        one = self.get(id)
        one.cancelled = True
        if one.filling is not None:
            one.filling.cancelled = True
        return one

    @property
    def running(self) -> list[str]:
        return [id for id, one in self._all.items() if not one.ended.is_set()]

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _run(self, one: Rebuilding, shards: Sequence[int], known: Clock, by: By) -> None:
        with one.ending():
            one.rebuilt = await self._rebuild(shards, known, by, one)

    async def _rebuild(self, shards: Sequence[int], known: Clock, by: By, shown: Rebuilding) -> list[dict[str, Any]]:
        """Give up the disks of shards, and have them rebuilt; () is all lost ones. ``known`` are positions that the
        operator knows. ``shown`` shows the progress, and says whether to go on.

        Answers for each base shard, as JSON: the worker; the ``position`` as of which it was rebuilt; its ``rows``; the
        greatest position that was ``known``; how many writes are ``lost``, as far as is known; ``by`` whom it was
        folded.

        :raises BadRequest: a shard is not lost, or not in the archive. Nothing is decided then.
        :raises BulkFailed, Cancelled, ArchiveError: the archive was not folded. Nothing is decided then.
        :raises Unavailable: it is decided, but could not be done (yet); the message says why.
        """
        wanted = self._chosen(shards)
        hosts = self._hosts(wanted)
        archived = await self._archived(hosts)
        heard = latest([known, await fencing.heard_so_far(self._leader)])
        way = await choose_way(self._bulk, by, archived)
        shown.check()
        shown.begin(way)
        if way.folder is None:
            await self._give_up(hosts, heard, "", shown)
            return await self._rebuilt(wanted, shown)
        assert self._bulk.archive is not None, "there is nothing to fold"
        async with runs_of(self._bulk.archive, self._files, self._leader.ledger, shown) as runs:
            with turn(self._outcomes.folding, shown.id):
                await self._fold(way, runs, archived, shown)
                shown.folded()
                hosts = self._hosts(wanted)  # That took long: there may be other workers now, and other positions.
                await self._archived(hosts)
                await self._give_up(hosts, heard, runs, shown)
            return await self._rebuilt(wanted, shown)

    async def _fold(
        self, way: RebuildMethod, runs: str, archived: Mapping[DomainIndex, ArchivedShard], shown: Rebuilding
    ) -> None:
        positions = {
            domain: {base: each.positions[base] for base in self._leader.bases_of(domain) if base in each.positions}
            for domain, each in archived.items()
        }
        check = functools.partial(self._check_wanted, list(archived), shown)
        assert self._bulk.archive is not None
        await fold_lost(self._bulk.archive, self._leader.ledger.decided.shards, way, runs, positions, check, shown)

    async def _archived(self, hosts: Mapping[DomainIndex, str]) -> dict[DomainIndex, ArchivedShard]:
        """The archived positions that the shards' new workers find. Raises BadRequest if there are none, or no
        archive."""
        found: dict[DomainIndex, ArchivedShard] = {}
        for domain, worker in hosts.items():
            found[domain] = await self._leader.fleet.ask(worker, ArchivedShardRequest(domain))
            if not found[domain].positions and self._leader.bases_of(domain):
                raise BadRequest(
                    f'nothing of shard {domain} is archived where worker "{worker}" looks for it',
                    hint="bring the data directory back from a snapshot (docs/operations.md)",
                )
        return found

    async def _heard(self, hosts: Mapping[DomainIndex, str]) -> Clock:
        return await heard_at_last(self._leader, hosts, functools.partial(self._check_still_lost, hosts))

    def _check_wanted(self, wanted: Sequence[DomainIndex], shown: Rebuilding) -> None:
        """Raises if the job for these shards must end."""
        shown.check()
        if self._leader.is_over:
            raise Unavailable("the leader is succeeded: nothing is given up", hint="ask again")
        back = set(wanted) - set(lost_shards(self._leader, wanted))
        if back:
            raise Unavailable(f"shard {min(back)} is not lost any more: nothing is given up", hint="look again")

    async def _rebuilt(self, wanted: Sequence[DomainIndex], shown: Rebuilding) -> list[dict[str, Any]]:
        await self._until_made(wanted, shown)
        return [
            {
                "shard": domain,
                "worker": self._leader.ledger.decided.placement[domain].worker,
                **_shown(each),
                "transactions": made.transactions,
                "halves": made.halves,
            }
            for domain in wanted
            if (made := self._outcomes.made.get(domain)) is not None
            for each in made.tables
        ]

    def _chosen(self, shards: Sequence[int]) -> list[DomainIndex]:
        lost = lost_shards(self._leader, shards)
        known = f"lost: {', '.join(map(str, lost))}" if lost else "none is lost"
        for shard in shards:
            if shard not in lost:
                raise BadRequest(
                    f"shard {shard} is not lost, and is not given up", hint=f"{known}; a worker has its data directory"
                )
        if not lost:
            hint = "a shard is lost when no worker that is there has its data directory"
            for shut in sorted(d for d in self._leader.closed if self._leader.taking.is_shut(d))[:1]:
                hint += f"; to give shard {shut} up, which cannot be opened, name it: headrace rebuild {shut}"
            raise BadRequest("no shard is lost", hint=hint)
        return [domain for domain in lost if not shards or domain in shards]

    def _hosts(self, wanted: Sequence[DomainIndex]) -> dict[DomainIndex, str]:
        """A worker for each, by the usual rule, but in any data directory."""
        placement = self._leader.ledger.decided.placement
        hosts = place(
            wanted,
            self._leader.taking.takers(self._leader.fleet.names()),
            {domain: replace(given, data="") if domain in wanted else given for domain, given in placement.items()},
        )
        if len(hosts) < len(wanted):
            raise Unavailable(
                "no worker is there that could take them", hint="start one, with a data directory of its own"
            )
        return hosts

    def _check_still_lost(self, hosts: Mapping[DomainIndex, str]) -> None:
        """Raises Unavailable if a worker has come back, or one has gone, since."""
        lost = lost_shards(self._leader, hosts)
        for domain, worker in hosts.items():
            if domain not in lost or worker not in self._leader.fleet.members:
                raise Unavailable("workers came or went meanwhile: nothing is decided", hint="look again")

    async def _give_up(self, hosts: Mapping[DomainIndex, str], earlier: Clock, runs: str, shown: Rebuilding) -> None:
        """Decide it, at the positions that all workers know behind the fence; ``earlier`` were known before."""
        shown.check()
        heard = latest([earlier, await self._heard(hosts)])
        members = self._leader.fleet.members

        def decide(before: ClusterState) -> ClusterState:
            # Checked here, since the write may have waited for ZooKeeper.
            self._check_still_lost(hosts)
            shown.check()
            shown.to(RebuildStage.LOADING)
            epoch = before.epoch + 1
            given = {}
            for domain, worker in hosts.items():
                bases = self._leader.bases_of(domain)
                former = before.placement[domain].rebuild
                # Positions of an earlier giving up may have been forgotten by those who knew them.
                known = latest([{b: heard[b] for b in bases if b in heard}, former.known if former is not None else {}])
                given[domain] = Assignment(worker, epoch, members[worker].descriptor.data, Rebuild(epoch, known, runs))
            return before.next_epoch({**before.placement, **given})

        try:
            await self._leader.decide(decide)
        except Unavailable as error:
            if shown.decided:
                error.hint = "it may be decided all the same: look at the status when ZooKeeper is back"
            raise
        self._outcomes.forget(hosts)
        if runs:
            self._outcomes.refills.ask(shown)
        self._leader.disturb(f"rebuilding shard {', '.join(map(str, hosts))} from the archive")

    async def _until_made(self, wanted: Sequence[DomainIndex], shown: Rebuilding) -> None:
        """Returns when they serve. Raises the reason why one cannot be rebuilt; the leader tries it again and again."""
        pause = LOOK_FIRST
        began, total = asyncio.get_running_loop().time(), shown.backfill.rows_total if shown.backfill is not None else 0
        while True:
            await asyncio.sleep(pause)
            rows = sum(self._outcomes.rows.get(domain, 0) for domain in wanted)
            left = (asyncio.get_running_loop().time() - began) * max(0, total - rows) / rows if rows else None
            if shown.stage is RebuildStage.LOADING:
                shown.show(JobProgress(rows, total, seconds_left=left))
            for domain in wanted:
                if domain in self._outcomes.failed:
                    error = self._outcomes.failed[domain]
                    raise Unavailable(
                        f"shard {domain} is given up, and cannot be rebuilt yet: {error.message}",
                        hint=error.hint or "it is tried again until it can be; look at the status",
                    ) from error
            if self._leader.is_calm:
                return
            if self._leader.is_over:
                raise Unavailable("the leader is succeeded: the next one goes on with it", hint="look at the status")
            made = [domain for domain in wanted if domain in self._outcomes.made]
            if len(made) == len(wanted) and not self._leader.closed.keys() & set(wanted):
                return  # Other domains may still be closed.
            self._leader.look_again()
            pause = min(2 * pause, LOOK_MAX)
