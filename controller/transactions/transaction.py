"""One transaction of a client, as far as it is known outside of the shard that has it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from time import monotonic

from controller.deployment import WriteResult
from controller.hosts import TableTarget
from domains.errors import BadRequest, HeadraceError, Unsupported
from domains.plan.packets import (
    Clock,
    Commit,
    InTransaction,
    Operation,
    Release,
    RollBack,
    RollBackTo,
    Savepoint,
    TransactionAct,
    Written,
)

Transacting = Callable[[TransactionAct, InTransaction, TableTarget | None], Awaitable[Written]]
"""Does what a transaction wants where its shard is."""


class Transaction:
    """Open from construction to ``commit`` or ``roll_back``. Nothing is asked of a shard before its first statement."""

    def __init__(self, id: str, act: Transacting, most: int, *, read_only: bool = False) -> None:
        """``most``: bytes that it may stage, and remember of its reads."""
        self.id = id
        self.began = monotonic()
        self.read_only = read_only
        self.statements = 0
        self.is_over = False
        """It was ended by what it met: others' changes, a limit, its shard's end."""
        self._act = act
        self._most = most
        self._asked = self._begun = False

    @contextmanager
    def asking(self) -> Iterator[InTransaction]:
        """While something is asked of its shard: what goes with that. Until something was answered it may not have
        begun there, and begins with the next thing that is asked."""
        self.statements += 1
        self._asked = True
        try:
            yield InTransaction(self.id, not self._begun, self._most)
            self._begun = True
        except HeadraceError as error:
            self.is_over = self.is_over or error.ends_transaction
            raise

    async def _ask(self, act: TransactionAct, table: TableTarget | None = None) -> Written:
        with self.asking() as within:
            return await self._act(act, within, table)

    async def write(self, operation: Operation, table: TableTarget) -> WriteResult:
        """Stage a write. Its result has no token: nobody else sees it yet.

        :raises HeadraceError: it is refused; the transaction is as it was before. Conflict, TransactionEnded,
            LimitExceeded: it is over."""
        if self.read_only:
            raise BadRequest("the transaction is READ ONLY", hint="START TRANSACTION without these words")
        if len(table.domains) > 1:
            raise several_shards()
        written = await self._ask(operation, table)
        return WriteResult(
            written.rows_affected, {}, written.first_id, returned=written.returned, matched=written.matched
        )

    async def savepoint(self, name: str) -> None:
        await self._ask(Savepoint(name))

    async def roll_back_to(self, name: str) -> None:
        """Raises NotFound."""
        await self._ask(RollBackTo(name))

    async def release(self, name: str) -> None:
        """Raises NotFound."""
        await self._ask(Release(name))

    async def commit(self) -> tuple[int, Clock]:
        """All of it is done, durable, and seen by views: how many rows were affected, and its token.

        :raises Conflict: others have changed what it has read; nothing of it was done. :raises TransactionEnded."""
        if not self._asked:
            return 0, {}
        written = await self._ask(Commit())
        return written.rows_affected, written.clock

    async def roll_back(self) -> None:
        if self._asked:
            await self._ask(RollBack())


def several_shards() -> Unsupported:
    return Unsupported(
        "a transaction in a deployment of several shards, or a cluster",
        hint="it needs one shard: headrace serve without --shards; a statement is all or none in each shard",
    )
