"""BEGIN, COMMIT and their like: what they do to the session that a text belongs to."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from typing import assert_never

from controller.access.session import Caller, InSession
from controller.deployment import StatementResult
from controller.transactions.in_doubt import InDoubt
from controller.transactions.limits import Isolation
from controller.transactions.sessions import Sessions
from controller.transactions.snapshots import SnapshotSession, only_read
from domains.engine.transactions.locks import HeldByLocks
from domains.errors import BadRequest, HeadraceError, LockNotFree, Unsupported
from domains.language.types import TEXT, Column, Value
from domains.plan.packets import SKIPPING, Clock
from migrations.access.rights import Privilege
from migrations.parse.temporary import plainly
from migrations.parse.transactions import TransactionDeed, TransactionStatement
from migrations.statements.prepared import PreparedStatement
from migrations.statements.sessions.setting import ISOLATION, LOCK_WAIT, READ_ONLY

_ENDS = (TransactionDeed.COMMIT, TransactionDeed.ROLLBACK)
_COLUMNS = ("Id", "Account", "Seconds", "Idle", "Statements", "ReadOnly", "State", "Shards", "Holds")


@asynccontextmanager
async def in_session(
    sessions: Sessions, statements: Sequence[PreparedStatement], caller: Caller, *, atomic: bool
) -> AsyncIterator[Caller]:
    """The caller in the session that its text belongs to: one of its own where it says BEGIN, or is ``atomic``.

    What is open at the end of such a text, since a statement failed, is rolled back.

    :raises BadRequest: the text leaves a transaction open that nobody could end."""
    deeds = [each.parsed.transaction.deed for each in statements if each.parsed.transaction is not None]
    if isinstance(caller.session, SnapshotSession) and (deeds or atomic):
        raise only_read()
    is_whole = atomic or (caller.session is not None and not caller.session.name)
    if is_whole and (deeds or any(each.defines or each.fills for each in statements)):
        raise BadRequest(
            "an atomic text with definitions, or statements about transactions",
            hint='send these by themselves, or without "atomic"',
        )
    if caller.session is not None or not (deeds or atomic):
        if atomic and caller.transaction is not None:
            raise BadRequest("an atomic text in a transaction", hint="it is all or none with the transaction")
        yield caller
        return
    is_open = False
    for deed in deeds:
        is_open = deed is TransactionDeed.BEGIN or (is_open and deed not in _ENDS)
    if is_open or TransactionDeed.AUTOCOMMIT in deeds:
        raise BadRequest(
            "the text begins a transaction and does not end it; nothing was done",
            hint="end it with COMMIT, or send the header Headrace-Session with each request of the session",
        )
    own = sessions.alone(caller.account)
    try:
        yield replace(caller, session=own)
    finally:
        await own.roll_back()


async def transact(
    sessions: Sessions, in_doubt: InDoubt, statement: TransactionStatement, caller: Caller
) -> tuple[StatementResult, Clock]:
    """What the statement comes to, and the positions that it has moved.

    :raises Conflict: a COMMIT came too late. :raises NotFound: there is no such savepoint.
    """
    session, clock = caller.session, Clock()
    if statement.deed is TransactionDeed.SHOW:
        return await _shown(sessions, in_doubt, caller), clock
    if session is None:
        return StatementResult(), clock  # As in MySQL: nothing is open.
    match statement.deed:
        case TransactionDeed.BEGIN:
            _, clock = await session.commit()
            begun = session.begin(read_only=statement.read_only)
            if statement.snapshot:
                await sessions.take_snapshot(begun)
        case TransactionDeed.COMMIT:
            _, clock = await session.commit()
        case TransactionDeed.ROLLBACK:
            await session.roll_back()
        case TransactionDeed.SAVEPOINT | TransactionDeed.ROLLBACK_TO | TransactionDeed.RELEASE:
            await _at_savepoint(session, statement)
        case TransactionDeed.AUTOCOMMIT:
            if statement.on:
                _, clock = await session.commit()
            session.autocommit = statement.on
        case TransactionDeed.ISOLATION:
            _characterise(sessions, session, statement, caller)
        case _:
            assert_never(statement.deed)
    return StatementResult(), clock


def _characterise(sessions: Sessions, session: InSession, statement: TransactionStatement, caller: Caller) -> None:
    """SET TRANSACTION.

    :raises BadRequest: one is open, and it would be of that."""
    level = Isolation.named(statement.level) if statement.level else None
    if statement.scope == "GLOBAL":
        caller.check(Privilege.PROCESS)
        sessions.of_connections = level or sessions.of_connections
    elif statement.scope:
        words = {} if level is None else dict.fromkeys(ISOLATION, level.shown)
        given = {} if statement.read_only is None else dict.fromkeys(READ_ONLY, statement.read_only)
        choose(sessions, caller, {**words, **given})
    elif session.transaction is not None:
        raise BadRequest("a transaction is open, whose characteristics are what they are", hint="COMMIT, or ROLLBACK")
    else:
        session.next_isolation, session.next_read_only = level, statement.read_only


def choose(sessions: Sessions, caller: Caller, variables: Mapping[str, Value | bool]) -> None:
    """Have a session's transactions be as its system variables say that were set."""
    session, shown = caller.session, caller.values
    if session is None:
        return
    for name, value in variables.items():
        if name in ISOLATION:
            session.isolation = Isolation.named(str(value))
            if session.number:
                shown.variables.update(dict.fromkeys(ISOLATION, session.isolation.shown))
        elif name in READ_ONLY:
            session.read_only = bool(value)
            if session.number:
                shown.variables.update(dict.fromkeys(READ_ONLY, bool(value)))
        elif name == LOCK_WAIT and isinstance(value, int):
            session.lock_wait = float(max(1, value))
            if session.transaction is not None:
                session.transaction.lock_wait = session.lock_wait


@contextmanager
def reading_to_write(caller: Caller, lock: tuple[str, bool, bool] | None) -> Iterator[None]:
    """SELECTs within are read as ``lock`` says (``lock_of``), where the caller's transaction takes locks.

    :raises LockNotFree: with NOWAIT, others hold something. :raises Unsupported: SKIP LOCKED with NOWAIT."""
    own = caller.transaction
    if own is None or lock is None or not own.takes_locks:
        yield
        return
    how, is_short, skips = lock
    if skips and is_short:
        raise Unsupported("NOWAIT and SKIP LOCKED in one SELECT", hint="say one of them")
    before, own.lock_wait = own.lock_wait, 0.0 if is_short else own.lock_wait
    try:
        with own.reading_to_write(f"{how}{SKIPPING}" if skips else how):
            yield
    except HeldByLocks as error:
        if not is_short:
            raise
        raise LockNotFree(error.message, hint="the statement does not wait for it, as NOWAIT says") from None
    finally:
        own.lock_wait = before


async def _at_savepoint(session: InSession, statement: TransactionStatement) -> None:
    if (own := session.transaction) is None:
        if session.autocommit:
            raise BadRequest("no transaction is open", hint=f"BEGIN, and then {statement.deed.value}")
        own = session.begin()
    if statement.deed is TransactionDeed.SAVEPOINT:
        await own.savepoint(statement.name)
    elif statement.deed is TransactionDeed.ROLLBACK_TO:
        await own.roll_back_to(statement.name)
    else:
        await own.release(statement.name)


async def _shown(sessions: Sessions, in_doubt: InDoubt, caller: Caller) -> StatementResult:
    """Those of the account; all for who has PROCESS, with those in doubt, which may be of processes that are gone."""
    listed, missing = await in_doubt.listed(sessions.list())
    sees_all = caller.may(Privilege.PROCESS)
    rows: list[tuple[Value, ...]] = [
        (
            each.id,
            each.account,
            each.seconds,
            each.idle,
            each.statements,
            int(each.read_only),
            each.state,
            ", ".join(map(str, each.shards)),
            "; ".join(each.holds),
        )
        for each in listed
        if sees_all or (each.account and each.account == caller.account)
    ]
    if sees_all:
        rows += [(f"-- missing: what shard {each} knows", *[None] * 6, str(each), None) for each in missing]
    return StatementResult(tuple(Column(name, TEXT) for name in _COLUMNS), tuple(rows))


def said_of_transaction(error: HeadraceError, caller: Caller) -> None:
    """Into the error of a statement, what became of the transaction that it was in; and temporary tables are called in
    it what the session calls them."""
    session = caller.session
    if session is not None and session.temporary is not None:
        error.message = plainly(error.message)
    if session is None or error.ends_transaction or isinstance(session, SnapshotSession):
        return
    if session.transaction is not None:
        kept = "the transaction is open, as it was before" if session.name else "nothing of the transaction was done"
        error.hint = f"{error.hint}; {kept}" if error.hint else kept
