"""Snapshots: all base shards as they were at one moment, kept to be read.

::

    take ─► StandStill: the first shard, so that one is taken at a time; then the others
         ─► what was decided is committed wherever it was prepared
         ─► KeepSnapshot: all
         ─► GoOn: the others; then the first, and with that it is there
    read ─► SELECTs and look-ups evaluated over what the shards keep, as in a transaction

Why it is of one moment: ``domains/engine/transactions/snapshots.py``. While it is being taken writes wait, for about as
long as three of them take. What a shard keeps is a view of its store, which is not copied: RocksDB keeps what is
written over meanwhile. It ends with the process that has it open; one that is held is a checkpoint on the shard's disk.

Nobody has a list of them but the first shard, and whoever takes one collects those before it. A shard that is left
standing still, since whoever asked has gone, is told to go on by whoever has waited for it (``in_doubt.py``).
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from secrets import token_hex
from time import time
from typing import Any

from controller.hosts import TableTarget
from controller.transactions.transaction import Transacting, unlocked
from domains.errors import (
    BadRequest,
    HeadraceError,
    LimitExceeded,
    Locked,
    NotFound,
    OutcomeUnknown,
    SnapshotGone,
    Unavailable,
)
from domains.language.types import TableSchema, Value
from domains.plan.graph import DomainIndex
from domains.plan.packets import Clock, InTransaction, Written
from domains.plan.snapshots import DropSnapshot, GoOn, InSnapshot, KeepSnapshot, SnapshotAct, StandStill
from domains.store.storage import NAME_MAX, SnapshotRecord, snapshot_gone
from migrations.flow.routing import Split
from worker.adhoc.answer import Rows
from worker.protocol.messages import KeptSnapshots, KnownTransaction
from worker.reader_map import BoundLookup

_log = logging.getLogger("headrace.controller")

STILL_SECONDS = 1.0
"""The longest that shards stand still for a snapshot; it is given up then."""
SETTLING_SECONDS = 0.002
"""Between two looks at what is being committed."""
SNAPSHOTS_MAX = 64
"""Kept at once. Each keeps files and memory tables from being removed."""
COLLECTED_SECONDS = 10.0
"""So old is one that nobody holds when it is collected, unless it is the latest: whoever has heard its name reads it
meanwhile."""
LATEST = "latest"


ANSWERS_BYTES = 32 * 2**20
"""Of answers of snapshots that a process keeps: some hundred thousand keys."""
ANSWER_COST = 500
"""Bytes of what is around one."""

AnswerKey = tuple[str, float, str, str]
"""The snapshot, when it was taken, the view, and the look-up in words: 1 and 1.0 are two."""


class SnapshotAnswers:
    """Answers of look-ups in snapshots, those that were asked for last. One never changes: it goes with its snapshot,
    and when tables or views are others, which then say by themselves whether the snapshot has them."""

    def __init__(self, most: int = ANSWERS_BYTES) -> None:
        self._most = most
        self._pages: OrderedDict[AnswerKey, bytes] = OrderedDict()
        self._state: object = None
        self._snapshots: set[tuple[str, float]] = set()
        self.bytes = 0

    def retain(self, state: object, snapshots: set[tuple[str, float]]) -> None:
        """Forget what is not of these, or was answered with other tables and views."""
        for key in [key for key in self._pages if state is not self._state or key[:2] not in snapshots]:
            self._forget(key)
        self._state, self._snapshots = state, snapshots

    def of(self, record: SnapshotRecord, state: object) -> AnswersOf:
        return AnswersOf(self, (record.name, record.at), state)

    def find(self, key: AnswerKey, state: object) -> bytes | None:
        if state is not self._state or key not in self._pages:
            return None
        self._pages.move_to_end(key)
        return self._pages[key]

    def keep(self, key: AnswerKey, page: bytes, state: object) -> None:
        size = _size(key, page)
        if state is not self._state or key[:2] not in self._snapshots or size > self._most or key in self._pages:
            return
        self._pages[key] = page
        self.bytes += size
        while self.bytes > self._most:
            self._forget(next(iter(self._pages)))

    def _forget(self, key: AnswerKey) -> None:
        self.bytes -= _size(key, self._pages.pop(key))


@dataclass(frozen=True, slots=True)
class AnswersOf:
    """Those of one snapshot, by the tables and views that a request has."""

    all: SnapshotAnswers
    snapshot: tuple[str, float]
    state: object

    def find(self, view: str, lookup: BoundLookup) -> bytes | None:
        return self.all.find((*self.snapshot, view.lower(), repr(lookup)), self.state)

    def keep(self, view: str, lookup: BoundLookup, page: bytes) -> None:
        self.all.keep((*self.snapshot, view.lower(), repr(lookup)), page, self.state)


def _size(key: AnswerKey, page: bytes) -> int:
    return ANSWER_COST + len(key[3]) + len(page)


class Snapshots:
    def __init__(
        self,
        act: Transacting,
        known: Callable[[DomainIndex], Awaitable[Sequence[KnownTransaction]]],
        kept: Callable[..., Awaitable[KeptSnapshots]],
        bases: Callable[[], Sequence[DomainIndex]],
        on_doubt: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time,
    ) -> None:
        """``known``, ``kept``: what a base shard knows of transactions, and keeps; see
        :class:`controller.hosts.Hosts`."""
        self._transact = act
        self._known = known
        self._kept = kept
        self._bases = bases
        self._on_doubt = on_doubt
        self._clock = clock
        self._task: asyncio.Task[None] | None = None
        self.answers = SnapshotAnswers()

    async def take(self, name: str = "", *, hold: bool = False) -> SnapshotRecord:
        """All shards as they are at a moment between now and the answer. ``hold``: until it is dropped by name.

        :raises AlreadyExists, LimitExceeded, BadRequest. :raises Unavailable: a shard is away, or what is being
            committed is not over in time; nothing is kept. :raises OutcomeUnknown: the first shard has gone away in
            the middle of it."""
        if name == LATEST or len(name) > NAME_MAX or not name.isprintable() or "/" in name:
            raise BadRequest(
                f'the name of a snapshot has at most {NAME_MAX} printable characters, no /, and is not "{LATEST}"'
            )
        name = name or f"{int(self._clock() * 1000)}-{token_hex(3)}"
        return await asyncio.shield(self._take(name, hold))  # Whoever has asked may leave: shards stand still.

    async def _take(self, name: str, hold: bool) -> SnapshotRecord:
        first, *others = sorted(self._bases())
        if len(await self.list()) >= SNAPSHOTS_MAX:
            raise LimitExceeded(f"{SNAPSHOTS_MAX} snapshots are kept", hint="drop one: DELETE /v1/snapshots/{name}")
        await unlocked(lambda: self._act(StandStill(), name, first), self._on_doubt)  # One is taken at a time.
        try:
            async with asyncio.timeout(STILL_SECONDS):
                await self._each(StandStill(), name, others)
                await self._settled([first, *others])
                keep = KeepSnapshot(self._clock(), hold)
                await self._each(keep, name, [first, *others])
                await self._each(GoOn(), name, others)
                await self._each(GoOn(), name, [first])
        except (HeadraceError, TimeoutError) as error:
            if isinstance((await self._drop(name))[0], BaseException):
                raise OutcomeUnknown(
                    f'snapshot "{name}" may be there or not: {error}',
                    hint="GET /v1/snapshots tells, and DELETE /v1/snapshots/{name} drops it",
                ) from error
            why = str(error) or f"a shard is away, or what is being committed is not over within {STILL_SECONDS:g} s"
            raise Unavailable(f"no snapshot was taken: {why}", hint="try again") from error
        try:
            await self._collect(keep.at - COLLECTED_SECONDS)
        except (HeadraceError, TimeoutError) as error:  # The next one does it. This one is there.
            _log.info("old snapshots were not collected: %s", error)
        return SnapshotRecord(name, keep.at, hold)

    @asynccontextmanager
    async def standing_still(self, name: str) -> AsyncIterator[None]:
        """Nothing is committed within but what was decided before, for :data:`STILL_SECONDS` at most.

        :raises Locked: a shard is away."""
        first, *others = sorted(self._bases())
        await unlocked(lambda: self._act(StandStill(), name, first), self._on_doubt)
        try:
            async with asyncio.timeout(STILL_SECONDS):
                await self._each(StandStill(), name, others)
                yield
        except TimeoutError as error:
            raise Locked("no snapshot was taken: a shard is away", hint="try again") from error
        finally:
            await asyncio.shield(self._drop(name))

    async def _collect(self, before: float) -> None:
        """Drop what nobody holds and is so old, and what is left of those that were not taken."""
        first, *others = [(await self._kept(base)).kept for base in sorted(self._bases())]
        taken = {each.name for each in first}
        old = {each.name for each in first if each.at < before and not each.held}
        old |= {each.name for kept in others for each in kept if each.at < before and each.name not in taken}
        for name in sorted(old):
            await self._drop(name)

    async def _settled(self, bases: Sequence[DomainIndex]) -> None:
        """All stand still, so what is decided becomes no more, and what is prepared only less."""
        while len(bases) > 1:
            known = [each for of_base in await asyncio.gather(*map(self._known, bases)) for each in of_base]
            decided = {each.id for each in known if each.others}
            if not any(each.id in decided and not each.others for each in known):
                return
            await asyncio.sleep(SETTLING_SECONDS)

    async def list(self) -> list[SnapshotRecord]:
        """Those that are kept, the oldest first."""
        kept = await self._kept(min(self._bases()))
        return sorted(kept.kept, key=lambda each: (each.at, each.name))

    async def cut(self, name: str) -> tuple[SnapshotRecord, Clock, Sequence[TableSchema]]:
        """One that is kept: the position of each base shard in it, and its tables as they were.

        :raises SnapshotGone: a shard does not keep it."""
        name = (await self.record(name)).name
        found = await asyncio.gather(*(self._kept(base, name) for base in sorted(self._bases())))
        record = next((each for each in found[0].kept if each.name == name), None)
        if record is None:
            raise snapshot_gone(name)
        shards = [each for kept in found for each in kept.tables if not each[2].filling]
        tables = {schema.name: schema for _, _, schema in shards}
        positions = {base: at for base, at, _ in shards}
        return record, positions, list(tables.values())

    async def record(self, name: str, state: object = None) -> SnapshotRecord:
        """The one that is kept by this name, or the latest. ``state``: the tables and views of whoever reads it.

        :raises SnapshotGone: there is none."""
        kept = await self.list()
        if state is not None:
            self.answers.retain(state, {(each.name, each.at) for each in kept})
        if name != LATEST:
            kept = [each for each in kept if each.name == name]
        if not kept and name != LATEST:
            raise snapshot_gone(name)
        if not kept:
            raise SnapshotGone(
                "no snapshot is kept", hint="POST /v1/snapshots takes one, snapshot_every some every second"
            )
        return kept[-1]

    async def drop(self, name: str) -> None:
        """:raises NotFound. :raises HeadraceError: the first shard keeps it, and tells of it, still."""
        if name not in {each.name for each in await self.list()}:
            raise NotFound(f'no snapshot "{name}"', hint="GET /v1/snapshots lists them")
        if isinstance(of_first := (await self._drop(name))[0], BaseException):
            raise of_first

    async def _drop(self, name: str) -> Sequence[Written | BaseException]:
        """From all shards that answer; of one that does not it is collected."""
        dropping = (self._act(DropSnapshot(), name, base) for base in sorted(self._bases()))
        done = await asyncio.gather(*dropping, return_exceptions=True)
        if any(isinstance(each, BaseException) for each in done):
            self._on_doubt()
        return done

    async def _each(self, act: SnapshotAct, name: str, bases: Sequence[DomainIndex]) -> None:
        await asyncio.gather(*(self._act(act, name, base) for base in bases))

    async def _act(self, act: SnapshotAct, name: str, base: DomainIndex) -> Written:
        return await self._transact(act, InTransaction(name, domain=base), None)

    # --- one after another ----------------------------------------------------------------------------------------

    def take_every(self, seconds: float) -> None:
        """Have one taken every so many seconds, by whichever of several processes comes first. 0: none."""
        if seconds:
            self._task = asyncio.create_task(self._take_every(seconds))

    async def _take_every(self, seconds: float) -> None:
        while True:
            try:
                kept = await self.list()
                age = self._clock() - kept[-1].at if kept else seconds
                if age >= seconds:
                    await self.take()
                    age = 0.0
                await asyncio.sleep(seconds - age)
            except (HeadraceError, TimeoutError) as error:
                _log.info("a snapshot was not taken: %s", error)
                await asyncio.sleep(seconds)

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    # --- reading --------------------------------------------------------------------------------------------------

    def session(self, name: str) -> SnapshotSession:
        """What a request reads in, of the snapshot that is named, or of the latest."""
        return SnapshotSession(SnapshotReads(name, self))


class SnapshotReads:
    """A snapshot in the place of a transaction: what is read, is read of it, and nothing is written."""

    read_only = True
    is_over = takes_locks = False

    def __init__(self, name: str, snapshots: Snapshots) -> None:
        self.id = name
        self._snapshots = snapshots
        self._found: asyncio.Task[SnapshotRecord] | None = None

    async def read(
        self,
        bases: Sequence[DomainIndex],
        evaluate: Callable[[Sequence[InSnapshot]], Awaitable[tuple[Rows, Clock]]],
        take: object,
    ) -> tuple[Rows, Clock]:
        """:raises SnapshotGone: it is not kept, or has not a table as it is now."""
        name = self.id if self._found is None and self.id != LATEST else (await self._record(None)).name
        return await evaluate([InSnapshot(name, base) for base in bases])

    async def answers(self, state: object) -> AnswersOf:
        """Those to look-ups that were answered before. ``state``: the tables and views of whoever asks.

        :raises SnapshotGone: it is not kept."""
        return self._snapshots.answers.of(await self._record(state), state)

    async def _record(self, state: object) -> SnapshotRecord:
        if self._found is None:
            self._found = asyncio.create_task(self._snapshots.record(self.id, state))
        return await self._found

    async def write(self, divided: Split, table: TableTarget) -> None:
        """:raises BadRequest"""
        raise only_read()


class SnapshotSession:
    """See :class:`controller.access.session.InSession`, which it implements, for one request."""

    name = "snapshot"
    autocommit = True
    number = 0
    seen = lock_wait = 0.0
    read_only = True

    def __init__(self, transaction: SnapshotReads) -> None:
        self.transaction: Any = transaction
        self.variables: dict[str, Value] = {}
        self.isolation: Any = None
        self.next_isolation: Any = None
        self.next_read_only: bool | None = None
        self.temporary: Any = None

    def begin(self, *, read_only: bool | None = None, isolation: Any = None) -> Any:
        raise only_read()

    async def commit(self) -> tuple[int, Clock]:
        raise only_read()

    async def roll_back(self) -> None:
        """Nothing was done."""


def only_read() -> BadRequest:
    return BadRequest("a snapshot is only read", hint="send what changes something without Headrace-Snapshot")
