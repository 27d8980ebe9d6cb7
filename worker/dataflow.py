"""The dataflow thread: one thread of control for all domains of a process.

It takes inputs from an inbox, runs them and the links between its domains until nothing is on its way, and hands the
effects over to the flusher as one batch. Since links are drained within a batch, every reader reflects the same clock
when the batch is published.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from threading import Condition, Thread
from typing import Any, TypeVar, assert_never

from domains.commands import AddNodes, Command, Progress, RemoveNodes
from domains.control import perform
from domains.domain import Domain
from domains.errors import HeadraceError, LimitExceeded, Unavailable
from domains.graph import DomainIndex, NodeIndex, Reader
from domains.memory_store import MemoryStore
from domains.packets import (
    Clock,
    Effect,
    EvictKeys,
    EvictMemory,
    Failed,
    LinkUpdate,
    Operation,
    Outcome,
    Packet,
    Publish,
    Read,
    Reply,
    RequestId,
    Send,
    Touch,
    Upquery,
    Write,
    receiver_of,
    sender_of,
)
from domains.storage import Store
from domains.types import Row
from worker.batch import Answerer, Batch, Look
from worker.flusher import Flusher
from worker.reader_map import ReaderClient, ReaderLayout, ReaderMap
from worker.rocks.store import RocksStore

INBOX_MAX = 10_000
"""Inputs that may wait. At some 50 µs each this is half a second: past it a client had better hear that it is too
fast."""
BATCH_INPUTS = 128
"""Inputs to one batch: enough that one sync and one publish are shared, few enough that the first is not held long."""
EVICTION_ROUNDS = 64
"""Evictions tried in one go. Accounted and true sizes differ somewhat; what is left over is for the next batch."""

_log = logging.getLogger("headrace.worker")

Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class Input:
    """A packet, a command or a question for the dataflow thread, and who wants the answer."""

    run: Callable[[Batch, Answerer], None]
    future: Future[Any]


class Dataflow:
    """Hosts ``domains`` domains over one data directory. All public methods may be called from any thread."""

    def __init__(self, path: Path, *, domains: int, memory_limit: int) -> None:
        self.store = RocksStore(path / "base")  # First, since its lock keeps two servers from one directory.
        try:
            self.reader_map = ReaderMap(path / "readers")
        except BaseException:
            self.store.close()
            raise
        self.layouts: dict[NodeIndex, ReaderLayout] = {}
        stores: list[Store] = [self.store, *(MemoryStore() for _ in range(domains - 1))]
        self.domains = [Domain(DomainIndex(index), store) for index, store in enumerate(stores)]
        for schema in self.store.tables():
            self.domains[0].clocks.local[schema.name] = self.store.position(schema.name)
        self.memory_limit = memory_limit
        self.failed: HeadraceError | None = None
        self._links: deque[tuple[DomainIndex, LinkUpdate | Upquery]] = deque()
        self._inbox: deque[Input] = deque()
        self._arrived = Condition()
        self._stopping = False
        self._requests = 0
        self._pending: dict[RequestId, Answerer] = {}
        self._looks: dict[RequestId, Look] = {}
        self.listeners: list[Callable[[], None]] = []
        """Called from the flusher after each run of batches."""
        self.flusher = Flusher(self.store.sync, self.reader_map, self.layouts, self._progressed)
        self._thread = Thread(target=self._run, name="headrace-dataflow", daemon=True)

    def start(self) -> None:
        self.flusher.published = dict(self.domains[0].clocks.local)
        self.flusher.start()
        self._thread.start()

    def close(self) -> None:
        """Process what has arrived, flush it, and close the storage. May be called once."""
        with self._arrived:
            self._stopping = True
            self._arrived.notify_all()
        if self._thread.ident is not None:
            self._thread.join()
            self.flusher.stop()
        self.reader_map.close()
        self.store.close()

    # --- what others ask ----------------------------------------------------------------------------------------

    def client(self) -> ReaderClient:
        return self.reader_map.client()

    @property
    def published(self) -> Clock:
        """What every reader reflects."""
        return self.flusher.published

    def write(self, operation: Operation) -> Future[Outcome]:
        return self._ask(DomainIndex(0), lambda request: Write(request, operation))

    def read(
        self, domain: DomainIndex, reader: NodeIndex, keys: tuple[Row, ...], look: Callable[[], Found]
    ) -> Future[Found]:
        """Have the keys filled, and answer what ``look`` finds while they are; the flusher's thread calls it.

        The keys are holes for it only where the reader is no longer there.
        """
        future: Future[Found] = Future()

        def run(batch: Batch, _: Answerer) -> None:
            reading = Look(look)
            request = self._request(_looker(future, reading))
            self._looks[request] = reading
            self._handle(domain, Read(request, reader, keys), batch)

        self._put(run, future)
        return future

    def evict(self, domain: DomainIndex, node: NodeIndex, keys: tuple[Row, ...]) -> Future[Outcome]:
        return self._ask(domain, lambda request: EvictKeys(request, node, keys))

    def touch(self, domain: DomainIndex, reader: NodeIndex, keys: tuple[Row, ...]) -> None:
        """Tell of keys that were read. A full inbox drops it: it is only a sample."""
        if len(self._inbox) < INBOX_MAX // 2:
            self._put(lambda batch, _: self._handle(domain, Touch(reader, keys), batch), Future())

    def command(self, domain: DomainIndex, command: Command) -> Future[Progress]:
        """Perform a command; the future has its progress when its effects are visible.

        A full inbox takes it all the same: a migration that is committed, or is being undone, is not to fail by load.
        """
        future: Future[Progress] = Future()

        def run(batch: Batch, _: Answerer) -> None:
            batch.answers.append((_answerer(future), self._perform_command(domain, command, batch)))

        self._put(run, future, limited=False)
        return future

    def call(self, question: Callable[[], Any]) -> Future[Any]:
        """Ask something of the domains between two steps."""
        future: Future[Any] = Future()
        self._put(lambda _batch, _answer: future.set_result(question()), future, limited=False)
        return future

    def _ask(self, domain: DomainIndex, packet: Callable[[RequestId], Packet]) -> Future[Outcome]:
        future: Future[Outcome] = Future()

        def run(batch: Batch, answer: Answerer) -> None:
            self._handle(domain, packet(self._request(answer)), batch)

        self._put(run, future)
        return future

    def _request(self, answer: Answerer) -> RequestId:
        self._requests += 1
        request = RequestId(self._requests)
        self._pending[request] = answer
        return request

    def _put(self, run: Callable[[Batch, Answerer], None], future: Future[Any], *, limited: bool = True) -> None:
        # Whoever waits may go away, but what was begun is carried through: from here on nobody can cancel the future,
        # and setting its result cannot fail.
        future.set_running_or_notify_cancel()
        with self._arrived:
            failed = self.failed or self.flusher.failed
            if failed is not None:
                raise failed
            if self._stopping:
                raise Unavailable("headrace is stopping")
            if limited and len(self._inbox) >= INBOX_MAX:
                raise LimitExceeded(f"{INBOX_MAX} requests are waiting already", hint="send fewer at once, or later")
            self._inbox.append(Input(run, future))
            self._arrived.notify()

    # --- the thread ---------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            with self._arrived:
                while not self._inbox and not self._stopping:
                    self._arrived.wait()
                inputs = [self._inbox.popleft() for _ in range(min(len(self._inbox), BATCH_INPUTS))]
            if not inputs:
                return
            batch = Batch()
            try:
                for one in inputs:
                    self._take(one, batch)
                self._relieve(batch)
            except Exception as error:
                self._fail(error, inputs)
                return
            batch.clock = dict(self.domains[0].clocks.local)
            if batch:
                self.flusher.hand(batch)

    def _take(self, one: Input, batch: Batch) -> None:
        try:
            one.run(batch, _answerer(one.future))
            self._drain(batch)
        except HeadraceError as error:
            one.future.set_exception(error)

    def _fail(self, error: Exception, inputs: list[Input]) -> None:
        """What cannot happen has happened: this batch's effects are not performed, and nothing more is taken."""
        _log.exception("the worker stops: a step failed")
        with self._arrived:
            self.failed = Unavailable(f"the worker stopped on an internal error: {error}", hint="see its log; restart")
            inputs.extend(self._inbox)
            self._inbox.clear()
        for one in inputs:
            if not one.future.done():
                one.future.set_exception(self.failed)
        for answer in self._pending.values():
            answer(Failed(self.failed))

    def _handle(self, domain: DomainIndex, packet: Packet, batch: Batch) -> None:
        if isinstance(packet, Write):
            batch.writes += 1
        self._perform(self.domains[domain].handle(packet), batch)

    def _perform_command(self, domain: DomainIndex, command: Command, batch: Batch) -> Progress:
        if isinstance(command, AddNodes):
            for node in command.nodes:
                if isinstance(node.operator, Reader):
                    self.layouts[node.index] = ReaderLayout(node.index, node.operator, node.columns)
        progress, effects = perform(self.domains[domain], command)
        self._perform(effects, batch)
        if isinstance(command, RemoveNodes):
            batch.dropped.extend(self.layouts[index] for index in command.nodes if index in self.layouts)
        return progress

    def _perform(self, effects: list[Effect], batch: Batch) -> None:
        for effect in effects:
            match effect:
                case Publish():
                    batch.publishes.append(effect)
                case Reply(request=request, outcome=outcome):
                    if request in self._looks:
                        batch.publishes.append(self._looks.pop(request))
                    batch.answers.append((self._pending.pop(request), outcome))
                case Send(link=link, packet=packet):
                    upwards = isinstance(packet, Upquery)
                    self._links.append((sender_of(link) if upwards else receiver_of(link), packet))
                case _:
                    assert_never(effect)

    def _drain(self, batch: Batch) -> None:
        """Deliver what is on the links between this process's domains, in order."""
        while self._links:
            domain, packet = self._links.popleft()
            self._handle(domain, packet, batch)

    def _relieve(self, batch: Batch) -> None:
        """Obey the memory limit: evict, least recently used first, until the accounted bytes are within it."""
        for _ in range(EVICTION_ROUNDS):
            held = [domain.accounted_bytes() for domain in self.domains]
            excess = sum(held) - self.memory_limit
            if excess <= 0:
                return
            domain = DomainIndex(held.index(max(held)))
            before = self.domains[domain].counters.evictions
            self._handle(domain, EvictMemory(excess), batch)
            self._drain(batch)
            if self.domains[domain].counters.evictions == before:
                return  # what is left is full state, which is not evicted

    def _progressed(self) -> None:
        for listener in self.listeners:
            listener()


def _looker(future: Future[Any], reading: Look) -> Answerer:
    def answer(outcome: Outcome | Progress) -> None:
        if future.done():
            return
        if isinstance(outcome, Failed):
            future.set_exception(outcome.error)
        elif reading.error is not None:
            future.set_exception(reading.error)
        else:
            future.set_result(reading.found)

    return answer


def _answerer(future: Future[Any]) -> Answerer:
    def answer(outcome: Outcome | Progress) -> None:
        if future.done():
            return
        if isinstance(outcome, Failed):
            future.set_exception(outcome.error)
        else:
            future.set_result(outcome)

    return answer
