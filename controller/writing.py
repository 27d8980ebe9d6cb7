"""The writes of a deployment: to one shard, to several, under a number, or staged in a transaction."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, TypeVar

from controller.access.session import OPEN, Caller
from controller.deployment import REFUSED, OnDuplicate, WriteResult, numbered_upsert
from controller.hosts import Hosts, SchemaChanged, TableTarget
from controller.statements.listing import stored_table, table_of
from controller.statements.sharded_write import write_numbered, write_parts
from domains.engine.transactions.locks import HeldByLocks
from domains.errors import Unsupported
from domains.language.types import FOLLOWS, TableSchema
from domains.plan.packets import Amend, Once, Operation, Written
from domains.store.storage import check_name
from migrations.flow.plan import State
from migrations.flow.routing import split, split_numbered
from migrations.statements.policies.writing import guarded
from migrations.statements.rows import SLICE_ROWS, delete_operation, insert_operation, inserting, update_operation
from worker.service.child_pool import in_turns

Answer = TypeVar("Answer")
GivenRows = Sequence[Mapping[str, Any]]


def _follows(title: str) -> Unsupported:
    hint = "write there: headrace follow brings it here. To have it for itself: headrace follow --leave-out"
    return Unsupported(f'writing to table "{title}", which follows a database elsewhere', hint=hint)


class Writing(ABC):
    """It lives on one event loop."""

    def __init__(self, hosts: Hosts, read_timeout: float) -> None:
        self.hosts = hosts
        self.read_timeout = read_timeout
        self._loop = asyncio.get_running_loop()
        self._targets: dict[tuple[Callable[[State, str], TableSchema], str], TableTarget] = {}
        """Keyed by table that was written to; emptied with each new state."""
        self._turn = 0
        """Number of writes so far: rows that may go to any shard go to the shards in turn."""

    @property
    @abstractmethod
    def state(self) -> State:
        """Catalog and dataflow as they are now."""

    async def write(self, operation: Operation, asker: Caller = OPEN) -> WriteResult:
        """Returns when the write is durable and the readers of its domain reflect it; a token waits for the others.

        :raises SchemaChanged: the table was altered since the operation was made. Then nothing was done."""
        table, shard = self._target(operation.table, stored_table), 0
        if table.policies and asker.policy_claims is not None:
            operation = guarded(operation, self.state.catalog, asker.policy_claims, self.now())
        if not asker.values.variables.get("foreign_key_checks", True):
            operation = replace(operation, unchecked=True)
        if isinstance(operation, Amend) and operation.also:
            table = table.beside([self._target(each.table, stored_table) for each in operation.also])
        follows = [schema.title for schema in (table.schema, *table.also) if schema.comment.startswith(FOLLOWS)]
        if follows and not (asker.follows or (asker.transaction and asker.transaction.follows)):
            raise _follows(follows[0])
        if asker.session is not None and asker.transaction is not None:
            self._turn += 1
            staged: WriteResult = await asker.transaction.write(
                split(operation, table.schema, table.shards, self._turn), table
            )
            return staged
        if len(table.domains) > 1:
            self._turn += 1
            divided = split(operation, table.schema, table.shards, self._turn)
            if len(divided) > 1:
                return await write_parts(divided, lambda shard, part: self._part(shard, part, table, asker))
            ((shard, operation),) = divided.parts
        try:
            written = await self.hosts.write(table.domains[shard], operation, table)
        except HeldByLocks:
            written = await self.in_line(shard, operation, table, asker)
        return WriteResult(
            written.rows_affected, written.clock, written.first_id, returned=written.returned, matched=written.matched
        )

    async def _part(self, shard: int, part: Operation, table: TableTarget, asker: Caller) -> Written:
        try:
            return await self.hosts.write(table.domains[shard], part, table)
        except HeldByLocks:
            return await self.in_line(shard, part, table, asker)

    @abstractmethod
    async def in_line(self, shard: int, operation: Operation, table: TableTarget, asker: Caller) -> Written:
        """A write that has met locks: as a transaction of its own, which waits for them."""

    def _target(self, name: str, find: Callable[[State, str], TableSchema] = table_of) -> TableTarget:
        """The table of SQL's name, or of the name that it is stored by. Raises NotFound."""
        found = self._targets.get((find, name))
        if found is None:
            catalog, schema = self.state.catalog, find(self.state, name)
            found = self._targets[find, name] = TableTarget.of(schema, catalog.shards, policies=bool(catalog.policies))
        return found

    @staticmethod
    def now() -> str:
        """CURRENT_TIMESTAMP, in UTC: ``2026-01-31 08:00:00``."""
        return datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S")

    async def made_anew(self, attempt: Callable[[], Awaitable[Answer]]) -> Answer:
        """The attempt's answer; it is repeated if a table was altered between the making of a write and its doing."""
        deadline = self._loop.time() + self.read_timeout
        while True:
            try:
                return await attempt()
            except SchemaChanged:
                self._targets.clear()
                if self._loop.time() >= deadline:
                    raise

    async def insert(
        self,
        table: str,
        rows: Sequence[Mapping[str, Any]],
        once: Once | None = None,
        duplicate: OnDuplicate = REFUSED,
        asker: Caller = OPEN,
    ) -> WriteResult:
        if once is not None:
            if duplicate.act != "error":
                raise numbered_upsert()
            if asker.transaction is not None:
                raise Unsupported(
                    "a numbered insert in a transaction", hint="a COMMIT may be asked for again by its id"
                )
            return await self.made_anew(lambda: self._insert_once(self._target(table), rows, once, asker))

        async def attempt() -> WriteResult:
            target = self._target(table)
            asked = target.schema, rows, self.now(), duplicate, target.shards
            made = await in_turns(inserting(*asked)) if len(rows) > SLICE_ROWS else insert_operation(*asked)
            return await self.write(made, asker)

        return await self.made_anew(attempt)

    async def _insert_once(self, table: TableTarget, rows: GivenRows, once: Once, asker: Caller) -> WriteResult:
        check_name(once.stream)
        if table.schema.comment.startswith(FOLLOWS):
            raise _follows(table.schema.title)
        operation = await in_turns(inserting(table.schema, rows, self.now()))
        if table.policies and asker.policy_claims is not None:
            operation = guarded(operation, self.state.catalog, asker.policy_claims, self.now())
        return await write_numbered(
            split_numbered(operation, table.schema, table.shards, once.number),
            lambda shard, part: self.hosts.write_once(table.domains[shard], part, table, once),
        )

    async def streams(self, table: str) -> dict[str, int]:
        target = self._target(table)
        found = await asyncio.gather(*(self.hosts.streams(base, target.schema.name) for base in target.domains))
        return {name: min(each.get(name, 0) for each in found) for name in sorted(set().union(*found))}

    async def forget_stream(self, table: str, stream: str) -> None:
        await self.insert(table, (), Once(stream, 0))

    async def update(
        self, table: str, key: Mapping[str, Any], changes: Mapping[str, Any], asker: Caller = OPEN
    ) -> WriteResult:
        return await self.made_anew(
            lambda: self.write(update_operation(self._target(table).schema, key, changes, self.now()), asker)
        )

    async def delete(self, table: str, key: Mapping[str, Any], asker: Caller = OPEN) -> WriteResult:
        return await self.made_anew(lambda: self.write(delete_operation(self._target(table).schema, key), asker))
