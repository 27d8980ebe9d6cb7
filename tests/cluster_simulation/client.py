"""A process that serves: it knows the cluster as api processes do, and asks the workers over the simulated network."""

from __future__ import annotations

import asyncio
import marshal
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from decimal import Decimal
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from controller.cluster.serving.connections import Connections
from controller.cluster.serving.directory import Directory
from controller.cluster.serving.domain_router import DomainRouter
from domains.errors import HeadraceError, OutcomeUnknown, OutOfOrder
from domains.language.types import Row
from domains.plan.graph import DomainIndex, NodeIndex, Reader
from domains.plan.packets import Clock, Insert, Once, Operation, Written
from migrations.flow.plan import State
from migrations.flow.routing import NumberedPart, split, split_numbered
from migrations.statements.interpret import interpret_one
from migrations.statements.interpret import split as split_text
from migrations.statements.statement import WriteStatement
from tests.campaign.planned import NOW, Planned
from tests.campaign.simulated import keyed_arguments, keys_of, rows_of
from tests.cluster_simulation.loop import Process
from tests.shard_of_key import shard_of_key
from worker.protocol.messages import EvictRequest, Pages, ReadRequest, Role, WriteRequest, version_of
from worker.reader_map import BoundLookup
from worker.wire.connection import greeting
from zookeeper.errors import AuthorityError

if TYPE_CHECKING:
    from tests.cluster_simulation.cluster import Cluster

TRIES_FOR = 4.0
"""Seconds for which a request is tried again where nothing was done."""
AGAIN = 0.05


Known = dict[str, tuple[Row, ...]]
"""Table → rows that were acknowledged."""


class Ending(StrEnum):
    """How a write ended, as far as its author can tell."""

    DONE = "done"
    REFUSED = "refused"
    """Nothing was done."""
    UNKNOWN = "unknown"


class Client:
    def __init__(self, cluster: Cluster, process: Process) -> None:
        self.cluster, self.process = cluster, process
        self.directory: Directory
        self.connections: Connections
        self.asking: DomainRouter
        self.turn = 0
        self.token: Clock = {}
        """What it has written."""
        self.acknowledged: dict[str, list[Row]] = {}
        self.numbers: dict[str, int] = {}
        """By table the last number of its stream of inserts that was acknowledged."""
        self.streams = 1
        """How many streams it has begun."""
        self.unheard: Insert | None = None
        """What it has sent under the next one, and has no answer to."""
        self.shown: dict[tuple[str, Row], frozenset[int]] = {}
        """View and arguments → the numbers of the rows that an answer has shown. What was shown once stays."""

    @property
    def stream(self) -> str:
        return f"{self.process.name}.{self.streams}"

    def begin_stream(self) -> Insert | None:
        """Numbers are forgotten with the disk of a shard, so it begins anew. Answers what is given up with that."""
        given_up, self.unheard = self.unheard, None
        self.streams += 1
        self.numbers.clear()
        return given_up

    def known(self) -> Known:
        """What it has been told is written, up to now."""
        return {table: tuple(rows) for table, rows in self.acknowledged.items()}

    async def start(self) -> None:
        """Returns when the cluster has started."""
        self.directory = Directory(await self.cluster.joined(self.process))
        hello = greeting(self.cluster.name, Role.API, self.process.name, 1)
        self.connections = Connections(hello, self.cluster.zookeeper.secret)
        self.asking = DomainRouter(self.directory, self.connections)
        while True:
            try:
                await self.directory.start()
                break
            except (HeadraceError, AuthorityError):
                await asyncio.sleep(0.2)
        while self.directory.cluster is None or not self.directory.cluster.placement:
            await asyncio.sleep(0.05)
            await self.directory.refresh()

    # --- writes ---------------------------------------------------------------------------------------------------

    async def write(self, sql: str) -> tuple[Ending, Clock]:
        operation = self.operation(sql)
        return (Ending.REFUSED, {}) if operation is None else await self.perform(operation)

    async def perform(self, operation: Operation) -> tuple[Ending, Clock]:
        """How it ended, and the token of what was done. Where parts in several shards end differently it is unknown."""
        self.turn += 1
        schema = self.directory.state.catalog.tables.get(operation.table)
        if schema is None:
            return Ending.REFUSED, {}  # It has not heard of the table yet.
        divided = split(operation, schema, self.cluster.shards, self.turn)
        parts = [divided.limited(n, 0) if divided.limit is not None else part for n, part in enumerate(divided)]
        version = version_of(schema)
        ends = await asyncio.gather(*(self._part(version, *part) for part in parts if part is not None))
        token = {base: at for _, clock in ends for base, at in clock.items()}
        endings = {ending for ending, _ in ends}
        if len(endings) > 1:
            return Ending.UNKNOWN, token
        return next(iter(endings)), token

    def operation(self, sql: str) -> Operation | None:
        """None where the statement does not fit the tables as they are known now."""
        catalog = self.directory.state.catalog
        try:
            (parsed,) = split_text(sql)
            statement = interpret_one(parsed, catalog, (), NOW)
        except HeadraceError:
            return None
        return statement.operation if isinstance(statement, WriteStatement) else None

    async def _part(self, version: int, shard: int, operation: Operation) -> tuple[Ending, Clock]:
        request = WriteRequest(DomainIndex(shard), operation, version)
        try:
            deadline = asyncio.get_running_loop().time() + TRIES_FOR
            written = await self.asking.ask(DomainIndex(shard), lambda _: request, deadline, repeatable=False)
        except OutcomeUnknown:
            return Ending.UNKNOWN, {}
        except HeadraceError:
            return Ending.REFUSED, {}
        assert isinstance(written, Written), written
        return Ending.DONE, written.clock

    async def perform_once(self, insert: Insert) -> tuple[Ending, Clock]:
        """Under the next number of its own stream. Where the end is unknown it is sent again, before any other."""
        schema = self.directory.state.catalog.tables.get(insert.table)
        if schema is None:
            return Ending.REFUSED, {}
        self.unheard = insert
        once, version = Once(self.stream, self.numbers.get(insert.table, 0) + 1), version_of(schema)
        parts = split_numbered(insert, schema, self.cluster.shards, once.number)
        ends = await asyncio.gather(*(self._numbered(version, part, once) for part in parts))
        if None in ends or once.stream != self.stream:
            return Ending.UNKNOWN, {}
        self.numbers[insert.table], self.unheard = once.number, None
        return Ending.DONE, {base: at for clock in ends if clock is not None for base, at in clock.items()}

    async def _numbered(self, version: int, part: NumberedPart, once: Once) -> Clock | None:
        domain = DomainIndex(part.shard)
        request = WriteRequest(domain, part.operation, version, once)
        deadline = asyncio.get_running_loop().time() + TRIES_FOR
        try:
            written = await self.asking.ask(domain, lambda _: request, deadline, repeatable=True)
        except OutOfOrder as error:
            if once.stream != self.stream:
                return None
            raise AssertionError(f"a number that was acknowledged is lost: {error}") from error
        except (HeadraceError, TimeoutError):
            return None
        assert isinstance(written, Written), written
        return written.clock

    # --- reads ----------------------------------------------------------------------------------------------------

    async def read(
        self,
        view: str,
        arguments: Sequence[Any],
        token: Clock,
        within: float = 2.0,
        *,
        state: State | None = None,
        outdated: Callable[[], HeadraceError | None] = lambda: None,
    ) -> list[Row] | None:
        """The view's rows; None where it is not there (any more), or cannot answer now. ``state`` may have views that
        no recipe has, and ``outdated`` is what the router asks."""
        state = state or self.directory.state
        if view not in state.flow.readers:
            return None
        node = state.flow.node(state.flow.readers[view])
        reader = node.operator
        assert isinstance(reader, Reader)
        keys = keys_of(reader, keyed_arguments(node, arguments))
        by_domain: dict[DomainIndex, list[Row]] = {}
        for key in keys:
            by_domain.setdefault(DomainIndex(shard_of_key(state.flow, node.index, key)), []).append(key)
        found = await asyncio.gather(
            *(self._rows(domain, node.index, tuple(own), token, within, outdated) for domain, own in by_domain.items())
        )
        if any(rows is None for rows in found):
            return None
        total: Counter[Row] = Counter()
        for rows in found:
            total.update(rows or {})
        return rows_of(node, total, arguments, state.planned[view.lower()].finish)

    def arguments(self, view: str, values: Sequence[Any]) -> tuple[Any, ...]:
        """One argument a parameter, from one value a ``?`` of a view that is known here, and what follows from the
        time."""
        planned = self.directory.state.planned[view]
        given: list[Any] = [None] * len(planned.parameters)
        for index, value in zip(planned.placeholders, values, strict=True):
            given[index] = tuple(value) if isinstance(value, list) else value
        return Planned.whole(planned, given)

    async def evict_arguments(self, view: str, arguments: Sequence[Any]) -> None:
        state = self.directory.state
        if view in state.flow.readers:
            node = state.flow.node(state.flow.readers[view])
            assert isinstance(node.operator, Reader)
            for key in keys_of(node.operator, arguments):
                await self.evict(DomainIndex(shard_of_key(state.flow, node.index, key)), node.index, (key,))

    async def _rows(
        self,
        domain: DomainIndex,
        node: NodeIndex,
        keys: tuple[Row, ...],
        token: Clock,
        within: float,
        outdated: Callable[[], HeadraceError | None],
    ) -> dict[Row, int] | None:
        request = ReadRequest(domain, node, (BoundLookup(keys),), token, within)
        pages = await self._tried(domain, lambda: request, within, outdated)
        if not isinstance(pages, Pages):
            return None
        return {tuple(map(_value, row)): weight for row, weight in marshal.loads(pages.pages[0])}

    async def evict(self, domain: DomainIndex, node: NodeIndex, keys: tuple[Row, ...]) -> None:
        await self._tried(domain, lambda: EvictRequest(domain, node, keys), 1.0)

    async def _tried(
        self,
        domain: DomainIndex,
        make: Callable[[], Any],
        patience: float,
        outdated: Callable[[], HeadraceError | None] = lambda: None,
    ) -> Any:
        """What may be asked as often as one likes; None where there is no answer in time."""
        deadline = asyncio.get_running_loop().time() + patience
        try:
            return await self.asking.ask(domain, lambda _: make(), deadline, repeatable=True, outdated=outdated)
        except (HeadraceError, TimeoutError):
            return None

    async def until(self, holds: Callable[[], Awaitable[bool]], seconds: float) -> bool:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while not await holds():
            if loop.time() > deadline:
                return False
            await asyncio.sleep(AGAIN)
        return True


def _value(value: Any) -> Any:
    match value:
        case ("time", microseconds):
            return timedelta(microseconds=microseconds)
        case ("decimal", text):
            return Decimal(text)
        case _:
            return value
