"""Sessions: what one client's statements share from request to request, by a name or an id; and their ends."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from time import monotonic, time
from typing import Protocol
from weakref import WeakValueDictionary

from controller.transactions.deadlocks import Deadlocks
from controller.transactions.limits import Isolation, TransactionLimits
from controller.transactions.temporary import OwnTables, TemporaryTables
from controller.transactions.transaction import Transacting, Transaction
from domains.errors import BadRequest, Forbidden, HeadraceError, OutcomeUnknown, Overloaded, TransactionEnded
from domains.language.types import Value
from domains.plan.packets import Clock
from migrations.parse.reading import Parsed
from worker.protocol.operations import ForwardedAnswer, ForwardedRequest

_log = logging.getLogger("headrace.controller")

LONGEST_NAME = 128
"""Characters of a session's name."""
NAMES_REMEMBERED = 1_000
"""Transactions that have ended, whose end is remembered."""


@dataclass(frozen=True, slots=True)
class TransactionInfo:
    """One that is open here, or that some shard has a part of, for whoever asks for a list."""

    id: str
    account: str
    seconds: float
    idle: float
    statements: int
    read_only: bool
    state: str = "open"
    """``in doubt``: prepared, and not known to be committed. ``committed``: some shards have yet to hear of it."""
    shards: tuple[int, ...] = ()
    """Those that have a part of it."""
    holds: tuple[str, ...] = ()
    """What others wait for that it holds, or the first of it."""


class StatementSession:
    """See :class:`controller.access.session.InSession`, which it implements. It lives on one event loop."""

    def __init__(self, name: str, account: str, sessions: Sessions) -> None:
        self.name = name
        self.account = account
        self._transaction: Transaction | None = None
        self.autocommit = True
        self.number = 0
        """Of its connection, which its statements are listed under; 0: each has a number of its own."""
        self.variables: dict[str, Value] = {}
        """A connection's user variables."""
        self.seen = monotonic()
        self.temporary: OwnTables | None = None
        self._sessions = sessions
        self.isolation = sessions.limits.transaction_isolation
        self.next_isolation: Isolation | None = None
        """Of the next transaction alone."""
        self.read_only = False
        self.next_read_only: bool | None = None
        self.lock_wait = sessions.limits.lock_wait

    @property
    def transaction(self) -> Transaction | None:
        """The open one."""
        if self._transaction is not None and self._transaction.is_over:
            self._transaction = None
        return self._transaction

    def begin(self, *, read_only: bool | None = None, isolation: Isolation | None = None) -> Transaction:
        """Raises Overloaded."""
        if self.number:
            self._sessions.check_room()
        chosen = isolation or self.next_isolation or self.isolation
        if read_only is None:
            read_only = self.read_only if self.next_read_only is None else self.next_read_only
        self._transaction = self._sessions.transaction(chosen, self.lock_wait, read_only=read_only)
        self.next_isolation = self.next_read_only = None
        return self._transaction

    async def commit(self) -> tuple[int, Clock]:
        own = self.transaction
        try:
            return (0, {}) if own is None else await own.commit()
        except OutcomeUnknown:
            own = None  # It may be asked for again.
            raise
        finally:
            if own is not None and self._transaction is own:
                self._transaction = None

    async def roll_back(self) -> None:
        own, self._transaction = self.transaction, None
        if own is not None:
            await own.roll_back()


def process_of(id: str) -> int:
    """The incarnation of the process that has begun a transaction; 0 where there is only one."""
    process = id.partition("-")[2]
    try:
        return int(process, 16) if process else 0
    except ValueError:
        return 0


class ProcessesBeside(Protocol):
    """The other api processes of a cluster; see :class:`controller.cluster.serving.other_apis.OtherApis`."""

    answering: Callable[[ForwardedRequest], Awaitable[ForwardedAnswer]] | None

    async def forward(self, process: int, request: ForwardedRequest) -> ForwardedAnswer: ...


class Sessions:
    """The sessions of one process."""

    def __init__(
        self,
        act: Transacting,
        on_doubt: Callable[[], None],
        take_snapshot: Callable[[Transaction], Awaitable[None]],
        temporary: TemporaryTables,
    ) -> None:
        """``on_doubt`` hears that a shard may be left with a part that nobody brings to an end."""
        self.take_snapshot = take_snapshot
        self.temporary = temporary
        self.limits = TransactionLimits()
        self.deadlocks: Deadlocks | None = None
        """Of shards that are elsewhere, and do not see each other's."""
        self.of_connections = Isolation.REPEATABLE_READ
        """The level that a connection begins with."""
        self.process = 0
        """In a cluster, this process's incarnation, by which others find it."""
        self.others: ProcessesBeside | None = None
        self._act = act
        self._on_doubt = on_doubt
        self._begun = 0
        """The microsecond of the latest transaction's beginning."""
        self._known: dict[str, StatementSession] = {}
        """By their names."""
        self._single: dict[str, StatementSession] = {}
        """By the id of the transaction that is all of one."""
        self._connected: dict[int, StatementSession] = {}
        """By the number of a connection, whose door ends them."""
        self._ended: dict[str, tuple[str, str, tuple[int, Clock] | None]] = {}
        """By id, whose it was, how it ended, and a commit's result: it may be asked for again."""
        self._transactions = WeakValueDictionary[str, Transaction]()
        """Those that somebody goes on with, and perhaps some that are over."""
        self._commits: dict[tuple[str, str], asyncio.Task[tuple[int, Clock]]] = {}
        """Those under way, by id and account."""
        self._watching: asyncio.Task[None] | None = None
        self._ending: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._known) + len(self._single)

    def _open(self) -> int:
        return len(self) + sum(each.transaction is not None for each in self._connected.values())

    def transaction(self, isolation: Isolation, lock_wait: float, *, read_only: bool = False) -> Transaction:
        # Where two commits over several shards meet, or two wait for each other, the one that began later gives way.
        self._begun = max(self._begun + 1, int(time() * 1_000_000))
        id = f"{self._begun:013x}{secrets.token_hex(4)}"
        id = f"{id}-{self.process:x}" if self.process else id
        most = self.limits.max_transaction_size
        own = self._transactions[id] = Transaction(
            id,
            self._act,
            most,
            read_only=read_only,
            isolation=isolation,
            lock_wait=lock_wait,
            on_doubt=self._on_doubt,
            deadlocks=self.deadlocks,
        )
        return own

    def has_left(self, id: str) -> bool:
        """Whether this process, of several, has begun a transaction, and goes on with it no more."""
        if not self.process or process_of(id) != self.process:
            return False
        own = self._transactions.get(id)
        return own is None or own.is_over

    def alone(self, account: str) -> StatementSession:
        """A session for one request."""
        return StatementSession("", account, self)

    # --- of connections -------------------------------------------------------------------------------------------

    def connected(self, number: int, account: str) -> StatementSession:
        """A new session of a connection, which lasts as long as that: it has no end of its own."""
        if (before := self._connected.get(number)) is not None:
            self.temporary.leave(before.temporary)
        session = self._connected[number] = StatementSession(f"connection {number}", account, self)
        session.number, session.isolation = number, self.of_connections
        return session

    def disconnected(self, number: int) -> None:
        """What is open in it is rolled back."""
        session = self._connected.pop(number, None)
        if session is not None and (session.transaction is not None or session.temporary is not None):
            task = asyncio.create_task(self._give_up(session))
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)

    # --- by name --------------------------------------------------------------------------------------------------

    def named(self, name: str, account: str) -> StatementSession:
        """The client's session of this name, which is made where there is none.

        :raises BadRequest: that is no name. :raises Forbidden: it is another account's."""
        if not 0 < len(name) <= LONGEST_NAME or not name.isprintable():
            raise BadRequest(f"the name of a session has 1 to {LONGEST_NAME} printable characters")
        found = self._known.get(name)
        if found is None:
            self.check_room()
            found = self._known[name] = StatementSession(name, account, self)
            self._watch()
        if found.account != account:
            raise Forbidden(f'session "{name}" is another account\'s', hint="take another name")
        found.seen = monotonic()
        return found

    # --- transactions by id -----------------------------------------------------------------------------------------

    def open(
        self, account: str, *, read_only: bool = False, isolation: Isolation | None = None, follows: bool = False
    ) -> str:
        """The id of a new transaction. Raises Overloaded."""
        self.check_room()
        session = StatementSession("", account, self)
        begun = session.begin(read_only=read_only, isolation=isolation)
        id, begun.follows = begun.id, follows
        session.name = id
        self._single[id] = session
        self._watch()
        return id

    def found(self, id: str, account: str) -> StatementSession:
        """:raises TransactionEnded: it is not open (any more). :raises Forbidden: it is another account's."""
        session = self._single.get(id)
        if session is None or session.transaction is None:
            self._single.pop(id, None)
            whose, how, _ = self._ended.get(id, (account, "is not open here", None))
            raise TransactionEnded(
                f'transaction "{id}" {how if whose == account else "is not open here"}', hint="begin another one"
            )
        if session.account != account:
            raise Forbidden(f'transaction "{id}" is another account\'s')
        session.seen = monotonic()
        return session

    async def commit(self, id: str, account: str) -> tuple[int, Clock]:
        """Once it is done, it is answered the same again: whoever did not hear of it may ask, and may leave.

        :raises Conflict, TransactionEnded: nothing of it was done. :raises OutcomeUnknown: ask again."""
        whose, _, done = self._ended.get(id, ("", "", None))
        if done is not None and whose == account:
            return done
        task = self._commits.get((id, account))
        if task is None:
            task = self._commits[id, account] = asyncio.create_task(self._commit(id, account))
            task.add_done_callback(lambda _: self._commits.pop((id, account)))
        return await asyncio.shield(task)

    async def _commit(self, id: str, account: str) -> tuple[int, Clock]:
        session = self.found(id, account)
        try:
            done = await session.commit()
        except OutcomeUnknown:
            raise
        except BaseException:
            self._end(id, "was rolled back")
            raise
        self._end(id, "was committed", done)
        return done

    async def roll_back(self, id: str, account: str) -> None:
        session = self.found(id, account)
        self._end(id, "was rolled back")
        await session.roll_back()

    def elsewhere(self, id: str) -> int:
        """The process that has begun a transaction, where that is another one; else 0."""
        process = process_of(id)
        return process if self.others is not None and process != self.process else 0

    def list(self) -> list[TransactionInfo]:
        """Those that are open, the oldest first."""
        now = monotonic()
        found = [
            TransactionInfo(
                own.id,
                session.account,
                round(now - own.began, 3),
                round(now - session.seen, 3),
                own.statements,
                own.read_only,
                shards=own.shards,
            )
            for session in (*self._known.values(), *self._single.values(), *self._connected.values())
            if (own := session.transaction) is not None
        ]
        return sorted(found, key=lambda each: -each.seconds)

    # --- their ends -------------------------------------------------------------------------------------------------

    def check_room(self) -> None:
        """Raises Overloaded."""
        limit = self.limits.max_transactions
        if self._open() >= limit:
            raise Overloaded(
                f'"max_transactions", {limit} sessions and transactions, are open',
                hint="COMMIT or ROLLBACK others, try again later, or start the server with a greater max_transactions",
            )

    def check_temporary(self, definitions: Iterable[Parsed]) -> None:
        """:raises Unsupported, LimitExceeded: no temporary table can be made, as some of these would."""
        self.temporary.check(definitions, self.limits.max_temporary_tables)

    def _end(self, id: str, how: str, done: tuple[int, Clock] | None = None) -> None:
        session = self._single.pop(id)
        self._ended[id] = session.account, how, done
        if len(self._ended) > NAMES_REMEMBERED:
            del self._ended[next(iter(self._ended))]

    def _watch(self) -> None:
        if self._watching is None or self._watching.done():
            self._watching = asyncio.create_task(self._end_idle())

    async def _end_idle(self) -> None:
        """While there are sessions: those without a statement for so long are rolled back."""
        while len(self):
            idle = self.limits.transaction_idle
            oldest = min(each.seen for each in (*self._known.values(), *self._single.values()))
            await asyncio.sleep(max(0.01, oldest + idle - monotonic()))
            ending = monotonic() - idle
            gone = [each for each in self._known.values() if each.seen <= ending]
            for session in gone:
                del self._known[session.name]
            for id, session in list(self._single.items()):
                if session.seen <= ending:
                    self._end(id, f'was rolled back after "transaction_idle", {idle:g} s, without a statement')
                    gone.append(session)
            for session in gone:
                await self._give_up(session)

    async def _give_up(self, session: StatementSession) -> None:
        try:
            await session.roll_back()
        except HeadraceError as error:
            _log.info("an idle transaction was given up: %s", error.message)
        self.temporary.leave(session.temporary)

    async def close(self) -> None:
        if self._ending:
            await asyncio.wait(self._ending)
        if self.deadlocks is not None:
            await self.deadlocks.close()
        await self.temporary.close()
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
