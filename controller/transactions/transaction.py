"""One transaction of a client, as far as it is known outside of the shards that have its parts.

A commit in several shards has two phases, and one of the shards that it writes to decides::

              others                              decider                       the client
    Prepare ─► keep and hold it, durably
                                      Commit ──► its part, and the decision,
                                                 in one durable write
    Commit ──► their parts, durably                                          ─► "committed", and the token
                                      ForgetDecision ──► the decision, some time later

A transaction is committed if and only if the decider has written so. Whatever crashes, ``in_doubt.py`` brings to an end
what is left prepared: it asks the decider, which rolls back what it has not decided, so that nothing can be decided
otherwise later. (J. Gray and L. Lamport, *Consensus on Transaction Commit*, 2006, section 3; the decider is the *last
agent* of J. Gray, *Notes on Data Base Operating Systems*, 1978.)
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from time import monotonic, time
from typing import Any

from controller.deployment import WriteResult
from controller.hosts import LockWait, TableTarget
from controller.statements.sharded_write import joined, write_parts
from controller.transactions.deadlocks import Deadlocks
from controller.transactions.limits import LOCK_SECONDS, Isolation
from domains.engine.transactions.locks import HeldByLocks, deadlock
from domains.errors import BadRequest, HeadraceError, Locked, NotFound, OutcomeUnknown, TransactionEnded
from domains.plan.copies import kept_copies
from domains.plan.graph import DomainIndex
from domains.plan.packets import (
    AwaitLocks,
    Clock,
    Commit,
    ForgetDecision,
    InTransaction,
    Operation,
    Prepare,
    Release,
    RollBack,
    RollBackTo,
    Savepoint,
    StopWaiting,
    TransactionAct,
    Undo,
    Validate,
    Written,
)
from migrations.flow.routing import Split
from worker.adhoc.answer import Rows

Transacting = Callable[[TransactionAct, InTransaction, TableTarget | None], Awaitable[Written]]
"""Does what a transaction wants where its part is."""


class Transaction:
    """Open from construction to ``commit`` or ``roll_back``. Nothing is asked of a shard before its first statement."""

    def __init__(
        self,
        id: str,
        act: Transacting,
        most: int,
        *,
        read_only: bool = False,
        isolation: Isolation = Isolation.SERIALIZABLE,
        lock_wait: float = LOCK_SECONDS,
        on_doubt: Callable[[], None] = lambda: None,
        deadlocks: Deadlocks | None = None,
    ) -> None:
        """``most``: bytes that it may stage, and remember of its reads, in a shard. ``on_doubt`` is called where a
        shard may be left with a part that nobody has brought to an end. ``deadlocks`` are looked for where no shard
        sees all who wait."""
        self.id = id
        self.isolation = isolation
        self.lock_wait = lock_wait
        self.began = monotonic()
        self.read_only = read_only
        self.follows = False
        """It may write to tables that follow a database elsewhere."""
        self.statements = 0
        self.is_over = False
        """It was ended by what it met: others' changes, a limit, a shard's end."""
        self._why: HeadraceError | None = None
        self._act = act
        self._most = most
        self._on_doubt = on_doubt
        self._deadlocks = deadlocks
        self._asked: set[DomainIndex] = set()
        """Where it may have a part."""
        self._begun: set[DomainIndex] = set()
        """Where it has one."""
        self._written: set[DomainIndex] = set()
        self._locked: set[DomainIndex] = set()
        """Where it has read to write."""
        self._reads = ""
        """How the statement reads, if it reads to write."""
        self._has_snapshot = False
        self._savepoints: list[str] = []
        self._commits = self._doubted = False
        self._decider: DomainIndex | None = None
        """It was asked to commit."""
        self._decides = Commit()
        """With what."""

    @property
    def shards(self) -> tuple[DomainIndex, ...]:
        """Where it has a part."""
        return tuple(sorted(self._begun))

    # --- what is asked of one shard -----------------------------------------------------------------------------

    @property
    def takes_locks(self) -> bool:
        return self.isolation is not Isolation.SERIALIZABLE

    def _within(
        self, domain: DomainIndex, *, undoable: bool = False, reads: str = "", patience: float = 0.0
    ) -> InTransaction:
        """What goes with a question. Until something was answered it may not have begun there, and begins with the next
        thing that is asked."""
        self._asked.add(domain)
        begins, locks = domain not in self._begun, self.takes_locks
        savepoints = tuple(self._savepoints) if begins else ()
        return InTransaction(self.id, begins, self._most, savepoints, domain, undoable, locks, reads, patience)

    async def _ask(
        self,
        act: TransactionAct,
        domain: DomainIndex,
        table: TableTarget | None = None,
        *,
        undoable: bool = False,
        patience: float = 0.0,
    ) -> Written:
        try:
            written = await self._act(act, self._within(domain, undoable=undoable, patience=patience), table)
        except HeadraceError as error:
            if isinstance(error, OutcomeUnknown) and not isinstance(act, Commit):
                error = TransactionEnded(
                    f'transaction "{self.id}" was rolled back: {error.message}', hint="begin another one"
                )
            raise await self._met(error) from None
        self._begun.add(domain)
        return written

    async def _met(self, error: HeadraceError) -> HeadraceError:
        """Where an error has ended it in one shard, or it is not known what became of it there, end it in all. Whoever
        hears of that elsewhere hears why."""
        if self._why is not None and isinstance(error, TransactionEnded):
            return type(self._why)(self._why.message, hint=self._why.hint)
        if (error.ends_transaction or isinstance(error, OutcomeUnknown)) and not (self._commits or self.is_over):
            self.is_over, self._why = True, error
            await self._end_all()
        return error

    async def _end_all(self) -> None:
        ended = await asyncio.gather(*(self._end(domain) for domain in self._asked), return_exceptions=True)
        if any(isinstance(each, BaseException) for each in ended):
            self._on_doubt()

    async def _end(self, domain: DomainIndex) -> Written:
        return await self._act(RollBack(), self._within(domain), None)

    async def _each(self, act: TransactionAct, domains: Iterable[DomainIndex]) -> list[Written]:
        return list(await _all(self._ask(act, domain) for domain in domains))

    async def _unlocked(self, act: TransactionAct, domain: DomainIndex) -> Written:
        """Raises Locked."""
        return await unlocked(lambda: self._ask(act, domain), self._on_doubt)

    async def _in_line(
        self, act: TransactionAct, domain: DomainIndex, table: TableTarget | None = None, *, undoable: bool = False
    ) -> Written:
        """Ask what may wait for a lock there, for so long. Whoever leaves does not wait any more, and hears of it where
        it was done all the same.

        :raises Locked: it was in vain; the transaction is open. :raises Conflict: it was in a deadlock, and is over."""
        patience = self.lock_wait
        if patience <= 0:
            return await self._ask(act, domain, table, undoable=undoable)
        asked = asyncio.ensure_future(self._ask(act, domain, table, undoable=undoable, patience=patience))
        is_ring = False
        try:
            if self._deadlocks is None:
                await asyncio.wait([asked], timeout=patience)
            else:
                with self._deadlocks.watched(self.id) as ring:
                    either: list[asyncio.Future[Any]] = [asked, ring]
                    await asyncio.wait(either, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
                    is_ring = ring.done()
            if not asked.done():
                await self._stop_waiting(asked, domain)
        except asyncio.CancelledError:
            with suppress(HeadraceError):
                await self._stop_waiting(asked, domain)
            if asked.exception() is not None:
                raise
            return asked.result()
        try:
            return await asked
        except HeldByLocks as error:
            if is_ring:
                raise await self._met(deadlock(self.id, error.message)) from None
            raise

    async def _stop_waiting(self, asked: asyncio.Future[Written], domain: DomainIndex) -> None:
        """Return when what was asked is answered.

        :raises TransactionEnded: its shard is away."""
        try:
            await self._act(StopWaiting(), self._within(domain), None)
        except (HeadraceError, TimeoutError) as error:
            asked.cancel()
            ended = TransactionEnded(f'transaction "{self.id}" was rolled back: {error}', hint="begin another one")
            raise await self._met(ended) from error
        await asyncio.wait([asked])

    # --- statements ---------------------------------------------------------------------------------------------

    @contextmanager
    def reading_to_write(self, how: str | None) -> Iterator[None]:
        """What is read within, is read as a write reads: ``exclusive``, or ``shared``. None: it is a plain read."""
        before, self._reads = self._reads, how or ""
        try:
            yield
        finally:
            self._reads = before

    async def take_snapshot(
        self, bases: Sequence[DomainIndex], take: Callable[[Sequence[InTransaction]], Awaitable[None]]
    ) -> None:
        """Have plain reads be of now. ``take`` does so in all shards at one moment.

        :raises Conflict, TransactionEnded: it is over. :raises Locked: a shard is away."""
        if self.takes_locks:
            try:
                await take([self._within(domain, reads="snapshot") for domain in bases])
            except HeadraceError as error:
                raise await self._met(error) from None
            self._begun.update(bases)
            self._has_snapshot = True

    async def read(
        self,
        bases: Sequence[DomainIndex],
        evaluate: Callable[[Sequence[InTransaction]], Awaitable[tuple[Rows, Clock]]],
        take: Callable[[Sequence[InTransaction]], Awaitable[None]],
    ) -> tuple[Rows, Clock]:
        """``evaluate`` answers over the shards of these as the transaction sees them, and tells in which of them
        something was looked up, by their positions. What it has read is all of one moment. ``take``: as for a snapshot.

        :raises Conflict, TransactionEnded: it is over. :raises Locked: others hold it for long."""
        self.statements += 1
        how = self._reads or "snapshot" if self.takes_locks else ""
        if how == "snapshot" and not (self._has_snapshot and self.isolation is Isolation.REPEATABLE_READ):
            await self.take_snapshot(bases, take)
        before = set(self._asked)
        while True:
            try:
                rows, clock = await evaluate([self._within(domain, reads=how) for domain in bases])
                break
            except HeldByLocks as error:
                await self._in_line(AwaitLocks(), error.domain)
            except HeadraceError as error:
                raise await self._met(error) from None
        came = {bases[int(base.rpartition("@")[2]) if len(bases) > 1 else 0] for base in clock}
        self._locked |= came if self._reads else set()
        self._begun |= came
        self._asked = before | self._begun
        if len(self._begun) > 1 and not self.takes_locks:
            # Each read holds from when it was made until it is validated: all hold when the first of them is.
            await _all(self._unlocked(Validate(), domain) for domain in sorted(self._begun))
        return rows, clock

    async def write(self, divided: Split, table: TableTarget) -> WriteResult:
        """Stage a write. Its result has no token: nobody else sees it yet.

        :raises HeadraceError: it is refused; the transaction is as it was before. Conflict, TransactionEnded,
            LimitExceeded: it is over."""
        if self.read_only:
            raise BadRequest("the transaction is READ ONLY", hint="START TRANSACTION without these words")
        self.statements += 1
        self._written.update(table.domains[shard] for shard, _ in divided)
        if len(divided) > 1:
            result = await self._write_parts(divided, table)
        else:
            ((shard, operation),) = divided.parts
            ask = self._in_line if self.takes_locks else self._ask
            result = joined([await ask(operation, table.domains[shard], table)])
        return WriteResult(result.rows_affected, {}, result.first_id, returned=result.returned, matched=result.matched)

    async def _write_parts(self, divided: Split, table: TableTarget) -> WriteResult:
        done: list[DomainIndex] = []
        ask = self._in_line if self.takes_locks else self._ask

        async def write(shard: int, part: Operation) -> Written:
            written = await ask(part, table.domains[shard], table, undoable=True)
            done.append(table.domains[shard])
            return written

        try:
            # In the order of the shards, so that two that want the same do not wait for each other.
            return await write_parts(divided, write, apart=False, together=not self.takes_locks)
        except HeadraceError:
            if not self.is_over:
                await self._each(Undo(), done)
            raise

    async def write_alone(self, shard: int, operation: Operation, table: TableTarget) -> Written:
        """All of the transaction is this write, of one shard."""
        domain = table.domains[shard]
        self._written.add(domain)
        try:
            written = await self._in_line(operation, domain, table)
            _, clock = await self._commit_alone(domain)
        except BaseException:
            _beside(self.roll_back())
            raise
        return replace(written, clock=clock)

    async def savepoint(self, name: str) -> None:
        self._forget_savepoint(name)
        await self._each(Savepoint(name), sorted(self._asked))
        self._savepoints.append(name)

    async def roll_back_to(self, name: str) -> None:
        """Raises NotFound."""
        del self._savepoints[self._place_of(name) + 1 :]
        await self._each(RollBackTo(name), sorted(self._asked))

    async def release(self, name: str) -> None:
        """Raises NotFound."""
        del self._savepoints[self._place_of(name) :]
        await self._each(Release(name), sorted(self._begun))

    def _forget_savepoint(self, name: str) -> None:
        self._savepoints = [each for each in self._savepoints if each.lower() != name.lower()]

    def _place_of(self, name: str) -> int:
        for at, each in enumerate(self._savepoints):
            if each.lower() == name.lower():
                return at
        raise NotFound(f'savepoint "{name}" does not exist', hint="SAVEPOINT name makes one")

    # --- its end ------------------------------------------------------------------------------------------------

    async def roll_back(self) -> None:
        if not self._commits:
            self.is_over = True  # Also for a statement that has yet to ask: whoever rolls back may have left it.
            await self._end_all()

    async def commit(self) -> tuple[int, Clock]:
        """All of it is done, durable, and seen by views: how many rows were affected, and its token.

        :raises Conflict: others have changed what it has read; nothing of it was done. :raises TransactionEnded.
        :raises OutcomeUnknown: a shard is away. Asked for again, it goes on."""
        parts = (self._written | self._locked) & self._begun if self.takes_locks else self._asked
        match sorted(parts):
            case [] if not self._asked:
                return 0, {}
            case [domain] if self._written or not self.takes_locks:
                return await asyncio.shield(self._commit_alone(domain))
            case domains if not self._written & self._begun:
                # All that it has read was of one moment; if all that it has locked for that is locked still.
                if self.takes_locks:
                    await _all(self._unlocked(Validate(), domain) for domain in domains)
                self.is_over = True
                await self._end_all()
                return 0, {}
            case domains:
                # Whoever has asked may leave: it is decided all the same.
                return await asyncio.shield(self._commit_in(domains))

    async def _commit_alone(self, domain: DomainIndex) -> tuple[int, Clock]:
        try:
            written = await self._unlocked(Commit(), domain)
        except OutcomeUnknown:
            self._doubted = True
            raise
        except TransactionEnded as error:
            if self._doubted:  # A shard that begins anew knows neither of the commit nor of its failure.
                raise OutcomeUnknown(
                    f'it is not known whether transaction "{self.id}" was committed',
                    hint="look before it is done again",
                ) from error
            raise
        self.is_over = True
        await self._end_rest({domain})
        return written.rows_affected, written.clock

    async def _end_rest(self, parts: Collection[DomainIndex]) -> None:
        """It is committed; elsewhere it had a snapshot and nothing else."""
        if rest := self._asked.difference(parts):
            await asyncio.gather(*map(self._end, rest), return_exceptions=True)

    async def _commit_in(self, domains: Sequence[DomainIndex]) -> tuple[int, Clock]:
        decider = min(self._written & self._begun)  # One that surely has a part: it must not begin with the commit.
        others = tuple(domain for domain in domains if domain != decider)
        self._commits = True
        if self._decider is None:
            try:
                prepared = await _all(self._unlocked(Prepare(decider, time()), domain) for domain in others)
            except (HeadraceError, TimeoutError):
                self.is_over = True
                await self._end_all()
                raise
            self._decides = Commit(others, copies=kept_copies(copy for each in prepared for copy in each.copies))
        self._decider = decider
        written = [await self._decided(self._decides)]
        try:
            decided = Commit(decided=True, copies=written[0].copies)
            written += await _all(self._commit_part(decided, domain) for domain in others)
        except (HeadraceError, TimeoutError) as error:
            self._on_doubt()
            raise OutcomeUnknown(
                f'transaction "{self.id}" is committed, but a shard shows nothing of it yet: {error}',
                hint="that shard has its part, and goes on with it",
            ) from error
        self.is_over = True
        await self._end_rest(domains)
        _beside(self._forget(decider))
        result = joined(written)
        return result.rows_affected, result.clock

    async def _decided(self, commit: Commit) -> Written:
        """The decider has committed. Where it has not, the others are rolled back, and why is raised."""
        assert self._decider is not None
        try:
            return await self._unlocked(commit, self._decider)
        except (HeadraceError, TimeoutError) as error:
            try:
                ended = await self._end(self._decider)
            except (HeadraceError, TimeoutError):
                self._on_doubt()
                raise OutcomeUnknown(
                    f'it is not known whether transaction "{self.id}" was committed: {error}',
                    hint="look before it is done again",
                ) from error
            if ended.rows_affected:
                return await self._ask(commit, self._decider)
            self.is_over = True
            await self._end_all()
            raise

    async def _commit_part(self, decided: Commit, domain: DomainIndex) -> Written:
        """What is prepared can only be committed now, by whomever."""
        return await self._act(decided, self._within(domain), None)

    async def _forget(self, decider: DomainIndex) -> None:
        try:
            await self._act(ForgetDecision(), self._within(decider), None)
        except (HeadraceError, TimeoutError):
            self._on_doubt()


_BESIDE: set[asyncio.Task[None]] = set()


def _beside(work: Coroutine[Any, Any, None]) -> None:
    """Nobody waits for it."""
    task = asyncio.create_task(work)
    _BESIDE.add(task)
    task.add_done_callback(_BESIDE.discard)


async def _all(asked: Iterable[Coroutine[Any, Any, Written]]) -> list[Written]:
    """All answers, or the first error once all have ended."""
    ended = await asyncio.gather(*asked, return_exceptions=True)
    for each in ended:
        if isinstance(each, BaseException):
            raise each
    return [each for each in ended if isinstance(each, Written)]


async def unlocked(ask: Callable[[], Awaitable[Written]], on_doubt: Callable[[], None]) -> Written:
    """Ask until what others hold is free. Raises Locked."""
    wait: LockWait | None = None
    while True:
        try:
            return await ask()
        except Locked as error:
            if not isinstance(error, HeldByLocks):
                on_doubt()
            wait = wait or LockWait()
            await wait.again(error)
