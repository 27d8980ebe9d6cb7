"""SELECTs that no view answers, over base shards that workers host: each shard is read at exactly one position.

Where one worker has all shards that are read, it answers few rows by itself. Else, and for many rows, each worker keeps
views of its shards while they are read from here::

    evaluator process ◄─► thread ─ ranges ─► RemoteShard ─► loop ─ ReadCut ─► worker's view of the shard

What becomes of a view (its worker dies, its shard moves, it is closed as nobody reads it) ends the evaluation, and it
is begun again over another cut: entries of two positions of a shard never meet in one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from controller.cluster.serving.connections import Connections
from controller.cluster.serving.directory import Directory
from controller.cluster.serving.domain_router import FIRST_PAUSE, LONGEST_PAUSE, DomainRouter
from controller.cluster.state import Assignment
from controller.hosts import SchemaChanged
from domains.errors import HeadraceError, NotServed, StorageFailure, Unavailable, Unsupported
from domains.language.types import Delta, TableSchema
from domains.plan.graph import DomainIndex
from domains.plan.packets import SKIPPING, Clock, InTransaction
from worker.adhoc.answer import Question, Rows
from worker.adhoc.cut import Asking, EvaluationCut, Shards, shards_of
from worker.adhoc.pushing import divided
from worker.adhoc.shard_view import Piece
from worker.protocol.cuts import (
    CloseCut,
    ContinuePart,
    CutEntries,
    CutRead,
    CutTaken,
    Evaluated,
    EvaluatePart,
    EvaluateRequest,
    MisreadCut,
    PartRows,
    ReadCut,
    ReadSnapshotTaken,
    TakeLocks,
    TakeReadSnapshot,
)
from worker.protocol.messages import ConnectionLost, NotHere
from worker.rocks.iterating import FoundEntries, KeyRange
from worker.rocks.stored_table import ViewedTable
from zookeeper.registration import WorkerDescriptor

READ_SECONDS = 10.0
"""Seconds for one read of a view, which takes a millisecond: past it whoever has it hangs."""

PART_SECONDS = 3600.0
"""Seconds for what a part of a question comes to. The statement has a time of its own, and a worker that hangs is
noticed."""

ROUNDS_MAX = 8
"""Rounds in which a moment is looked for at which nothing was committed."""

AWAY = "a worker is away or being replaced; try again, GET /v1/status shows how far it is"

Evaluate = Callable[[Question, EvaluationCut], Awaitable[Rows]]
"""Answers a question over a cut, and closes that."""


@dataclass(eq=False)
class RemoteCut:
    """The views that one worker keeps. Lives on the event loop; its shards are read by a thread."""

    router: DomainRouter
    owner: WorkerDescriptor
    places: Sequence[tuple[DomainIndex, Assignment | None]]
    """Its domains, and where they were when it was taken."""
    taken: CutTaken
    tell: Callable[[CloseCut], None]
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)
    lost: HeadraceError | None = None
    """Why nothing can be read of it any more."""
    closed: bool = False
    reading: set[Future[Any]] = field(default_factory=set)

    def read(self, message: CutRead) -> Any:
        """Called by another thread than the loop's."""
        future = asyncio.run_coroutine_threadsafe(self.asked(message), self.loop)
        self.reading.add(future)
        try:
            if self.closed:
                future.cancel()
            return future.result()
        except CancelledError:
            raise Unavailable("the cut was closed meanwhile") from None
        finally:
            self.reading.discard(future)

    async def asked(self, message: CutRead) -> Any:
        domain, place = self.places[message.shard]
        is_read = isinstance(message, ReadCut | MisreadCut)
        deadline = self.loop.time() + (READ_SECONDS if is_read else PART_SECONDS)
        try:
            return await self.router.once(domain, place, self.owner, lambda _: message, deadline)
        except (NotHere, ConnectionLost, NotServed) as error:
            self.lost = error
            raise
        except TimeoutError as error:
            self.lost = NotServed(f'worker "{self.owner.name}" does not answer', hint="try again")
            raise self.lost from error

    def close(self) -> None:
        """Close it. Call this on the loop."""
        if self.closed:
            return
        self.closed = True
        for future in list(self.reading):
            future.cancel()
        self.tell(CloseCut(self.taken.number))


@dataclass(frozen=True, slots=True)
class RemoteShard:
    """See :class:`worker.adhoc.shard_view.RemoteView`."""

    of: RemoteCut
    place: int

    @property
    def tables(self) -> tuple[ViewedTable, ...]:
        return self.of.taken.shards[self.place]

    def ranges(self, ranges: Sequence[KeyRange], most: int) -> FoundEntries:
        found: CutEntries = self.of.read(ReadCut(self.of.taken.number, self.place, tuple(ranges), most))
        return FoundEntries(found.found, found.cut)

    def misread(self, what: str) -> StorageFailure:
        try:
            self.of.read(MisreadCut(self.of.taken.number, self.place, what))
        except StorageFailure as failure:
            return failure
        raise AssertionError("what cannot be read is answered with a failure")

    def begin(self, part: Question) -> Piece:
        return self._piece(EvaluatePart(self.of.taken.number, self.place, part))

    def next(self, stream: int) -> Piece:
        return self._piece(ContinuePart(self.of.taken.number, self.place, stream))

    def _piece(self, message: EvaluatePart | ContinuePart) -> Piece:
        found: PartRows = self.of.read(message)
        return Piece(found.deltas, found.stream)

    @property
    def is_closed(self) -> bool:
        return self.of.closed

    def close(self) -> None:
        self.of.close()


class RemoteCuts:
    """Takes cuts, and has questions answered over them."""

    def __init__(self, directory: Directory, connections: Connections, router: DomainRouter) -> None:
        self._directory = directory
        self._connections = connections
        self._router = router
        self._left: set[asyncio.Task[Evaluated | RemoteCut]] = set()
        """Requests whose caller has gone."""

    async def answer(
        self,
        bases: Sequence[DomainIndex],
        question: Question,
        evaluate: Evaluate,
        patience: float,
        within: Asking = (),
    ) -> tuple[Rows, Clock]:
        """``patience``: seconds that a shard may be away. While it is served again and again, it is begun again.
        ``within``: the transaction that asks; what is read of it here is told by whole tables.

        :raises SchemaChanged: a table is another by now. :raises NotServed: a shard was away for that long.
        """
        loop = asyncio.get_running_loop()
        pause, away = FIRST_PAUSE, None
        while True:
            failure: HeadraceError | TimeoutError
            try:
                taken = await self._taken(bases, question, loop.time() + patience, within)
            except (NotHere, ConnectionLost, NotServed, TimeoutError) as error:
                failure, away = error, away or loop.time()
            else:
                if isinstance(taken, Evaluated):
                    return list(taken.rows), taken.clock
                try:
                    return await evaluate(taken.question, taken.cut), taken.cut.clock
                except HeadraceError:
                    lost = next((remote.lost for remote in taken.remotes if remote.lost is not None), None)
                    if lost is None:
                        raise
                    failure, pause, away = lost, FIRST_PAUSE, None
            await self._directory.catch_up()
            self._check(question.plan.tables)
            if away is not None and loop.time() + pause >= away + patience:
                raise NotServed(
                    f"the tables are not served now: {failure}",
                    hint=AWAY,
                ) from failure
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    def _check(self, tables: Sequence[TableSchema]) -> None:
        """Raise SchemaChanged where a table is not what is known here; if a worker is behind, the question waits for
        it."""
        known = self._directory.state.catalog.tables
        altered = [schema.name for schema in tables if known.get(schema.name.lower()) != schema]
        if altered:
            raise SchemaChanged(", ".join(altered))

    async def _taken(
        self, bases: Sequence[DomainIndex], question: Question, deadline: float, within: Asking
    ) -> Evaluated | _Taken:
        shards = shards_of(question.plan.tables, len(bases))
        by_owner = self._by_owner(bases[: len(shards)])
        alone = question if len(by_owner) == 1 else None
        asked = [
            asyncio.create_task(self._ask(owner, bases, numbers, shards, alone, deadline, within))
            for owner, numbers in by_owner.items()
        ]
        try:
            if asked:
                await asyncio.wait(asked)
        except asyncio.CancelledError:
            for task in asked:
                self._leave(task)
            raise
        failures = [failure for task in asked if (failure := task.exception()) is not None]
        if failures:
            for task in asked:
                self._leave(task)
            raise failures[0]
        found = [task.result() for task in asked]
        if alone is not None and isinstance(found[0], Evaluated):
            return found[0]
        remotes = [each for each in found if isinstance(each, RemoteCut)]
        assert len(remotes) == len(found), "nobody has answered a part"
        views: dict[int, RemoteShard] = {}
        clock: Clock = {}
        for numbers, remote in zip(by_owner.values(), remotes, strict=True):
            views |= {number: RemoteShard(remote, place) for place, number in enumerate(numbers)}
            clock |= remote.taken.clock
        shown = [views[number] for number in sorted(views)]
        if within and isinstance(within[0], InTransaction):
            changes: dict[str, list[Delta]] = {}
            for table, deltas in (one for remote in remotes for one in remote.taken.changes):
                changes.setdefault(table, []).extend(deltas)
            return _Taken(question, EvaluationCut(shown, clock, changes=changes), remotes)
        division = divided(question)
        return _Taken(division.rest, EvaluationCut(shown, clock, division.parts), remotes)

    # --- of transactions that take locks ----------------------------------------------------------------------------

    async def take_snapshot(self, within: Sequence[InTransaction], patience: float) -> bool:
        """See :class:`controller.hosts.Hosts`: *no shard has changed between two rounds, so all stood as they stand now
        when the first of them began.* What one shard has decided by then, the others count as done."""
        loop = asyncio.get_running_loop()
        deadline, decided = loop.time() + patience, frozenset[str]()
        for _ in range(ROUNDS_MAX):
            told = await self._each(within, decided, deadline)
            found = frozenset(id for each in told for id in each.decided)
            if len(told) == 1 or (all(each.unchanged for each in told) and found <= decided):
                return True
            decided = found
        return False

    async def _each(
        self, within: Sequence[InTransaction], decided: frozenset[str], deadline: float
    ) -> list[ReadSnapshotTaken]:
        """One message to each worker; where a shard is away, until it is there."""
        pause = FIRST_PAUSE
        while True:
            try:
                by_owner = self._by_owner([each.domain for each in within])
                asked = [
                    self._router.once(
                        within[numbers[0]].domain,
                        self._directory.assignment(within[numbers[0]].domain),
                        owner,
                        partial(_taking, tuple(within[number] for number in numbers), decided),
                        deadline,
                    )
                    for owner, numbers in by_owner.items()
                ]
                return list(await asyncio.gather(*asked))
            except (NotHere, ConnectionLost, NotServed) as error:
                if asyncio.get_running_loop().time() + pause >= deadline:
                    raise NotServed(f"the tables are not served now: {error.message}", hint=AWAY) from error
            await self._directory.catch_up()
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    def _by_owner(self, domains: Sequence[DomainIndex]) -> dict[WorkerDescriptor, list[int]]:
        """The places of the domains that each worker has. Raises NotServed."""
        found: dict[WorkerDescriptor, list[int]] = {}
        for number, domain in enumerate(domains):
            owner = self._directory.owner(domain)
            if owner is None:
                raise NotServed(f"no worker has domain {domain} now")
            found.setdefault(owner, []).append(number)
        return found

    async def lock(
        self, bases: Sequence[DomainIndex], question: Question, within: Sequence[InTransaction], deadline: float
    ) -> bool:
        """Take the locks of all that a read looks up in shards of several workers, one after the other, so that two
        that want the same do not wait for each other. False: they are of one worker, which takes them as it answers.

        :raises HeldByLocks: others have some."""
        shards = shards_of(question.plan.tables, len(bases))
        if len(self._by_owner(bases[: len(shards)])) < 2:
            return False
        if within[0].reads.endswith(SKIPPING):
            raise Unsupported(
                "SKIP LOCKED over shards of several workers", hint="NOWAIT, or a table SHARD BY one column"
            )
        parts = divided(question).parts.values()
        for base, tables, asking in zip(bases, shards, within, strict=False):
            names = {schema.name for schema in tables}
            own = tuple(part for part in parts if part.plan.tables[0].name in names)
            await self._router.ask(base, partial(_locking, asking, own), deadline, repeatable=True)
        return True

    async def _ask(
        self,
        owner: WorkerDescriptor,
        bases: Sequence[DomainIndex],
        numbers: Sequence[int],
        shards: Shards,
        question: Question | None,
        deadline: float,
        within: Asking,
    ) -> Evaluated | RemoteCut:
        domains = tuple(bases[number] for number in numbers)
        asking = tuple(within[number] for number in numbers) if within else ()
        message = EvaluateRequest(domains, tuple(shards[number] for number in numbers), question, asking)
        places = [(domain, self._directory.assignment(domain)) for domain in domains]
        found = await self._router.once(*places[0], owner, lambda _: message, deadline)
        if isinstance(found, Evaluated):
            return found
        assert isinstance(found, CutTaken)
        return RemoteCut(self._router, owner, places, found, lambda close: self._tell(owner, close))

    def _tell(self, owner: WorkerDescriptor, close: CloseCut) -> None:
        connection = self._connections.known(owner)
        if connection is not None:
            connection.tell(close)

    def _leave(self, task: asyncio.Task[Evaluated | RemoteCut]) -> None:
        """Nobody waits for it any more: what it takes is closed."""
        self._left.add(task)
        task.add_done_callback(self._left_alone)

    def _left_alone(self, task: asyncio.Task[Evaluated | RemoteCut]) -> None:
        self._left.discard(task)
        if not task.cancelled() and task.exception() is None and isinstance(taken := task.result(), RemoteCut):
            taken.close()


def _taking(within: tuple[InTransaction, ...], decided: frozenset[str], _: float) -> TakeReadSnapshot:
    return TakeReadSnapshot(within, tuple(decided))


def _locking(within: InTransaction, parts: tuple[Question, ...], _: float) -> TakeLocks:
    return TakeLocks(within, parts)


@dataclass(frozen=True, slots=True)
class _Taken:
    question: Question
    """What is left of it."""
    cut: EvaluationCut
    remotes: Sequence[RemoteCut]
