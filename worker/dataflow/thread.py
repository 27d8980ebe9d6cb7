"""The dataflow thread: one thread of control for all domains of a process, and how others hand it their inputs.

It takes inputs from an inbox, has them run by :class:`~worker.dataflow.domain_host.DomainHost`, and hands the effects
over to the flusher as one batch. Since the links between the domains of a process are drained within a batch, every
reader reflects the same clock when the batch is published.

What comes over links from other workers is always taken, and so is what a cluster's leader wants. Only what comes from
outside waits while much is on its way to other workers (``inbox.py``). So a worker that is slow slows down who writes,
and two workers that are both full still take from each other: nobody ever waits for a send.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from pathlib import Path
from threading import Lock, Thread
from typing import Any, TypeVar

from domains.engine.domain import Domain
from domains.errors import HeadraceError, Unavailable
from domains.language.types import Row
from domains.plan.commands import Command, Feed, Follow, Progress
from domains.plan.graph import DomainIndex, NodeIndex
from domains.plan.packets import Clock, Failed, Filled, Insert, Outcome, Publish, TransactionAct, Within
from domains.store.storage import Store, unknown_outcome
from worker.dataflow.batch import Answerer, Batch, LinkPacket, Look
from worker.dataflow.crowding import Reader
from worker.dataflow.domain_host import DomainHost, StepBroken
from worker.dataflow.group_commit import Deliver, GroupCommit
from worker.dataflow.hosted_domain import TokenWait
from worker.dataflow.inbox import INPUT_BYTES, Inbox, Input, Run
from worker.dataflow.link_checks import Refused, told
from worker.dataflow.pacing import Paces, Sliced, Stretch
from worker.dataflow.reading_together import JointRead, WantedKeys
from worker.dataflow.watches import Watches
from worker.reader_map import ReaderClient, ReaderLayout, ReaderMap, ReaderSnapshot
from worker.rocks.store import RocksStore

VALUE_BYTES = 64
"""Bytes of a value in a row that waits to be written, with its share of the tuple: a short text, or a number."""
BATCH_SECONDS = 0.05
"""After so long a batch takes no further input. While a server is cold one page may fill for as long as that, and all
that have come meanwhile would be answered together: when the last of them is filled."""

OPENED_AGAIN = "see its log; it is opened again by itself"

_log = logging.getLogger("headrace.worker")

Found = TypeVar("Found")


def nowhere(sends: Sequence[tuple[DomainIndex, LinkPacket]]) -> None:
    """Send nothing: where a process hosts every domain, nothing leaves it."""
    raise AssertionError(f"packets for domains that nobody hosts: {sends}")


class DataflowThread:
    """Hosts domains, with their readers in a new reader map at ``readers``. Any thread may call its public methods.

    ``deliver`` takes what is for domains of other workers, on the flusher's thread; ``outbound_waiting`` says how many
    bytes of it are still on their way. ``reserve`` bytes of partial state stay whatever the memory limit is.
    """

    def __init__(
        self,
        readers: Path,
        *,
        memory_limit: int,
        deliver: Deliver = nowhere,
        outbound_waiting: Callable[[], int] | None = None,
        reserve: int = 0,
    ) -> None:
        led = deliver is not nowhere
        self.hosted = DomainHost(memory_limit=memory_limit, reserve=reserve, led=led)
        self.hosted.opened = self._watch
        self.reader_map = ReaderMap(readers)
        self._client = self.reader_map.client()
        self.failed: HeadraceError | None = None
        self.listeners: list[Callable[[], None]] = []  # Called after each run of batches, and when a step has failed.
        self.failure_listeners: list[Callable[[], None]] = []  # Called where there is a ``failure`` then.
        self._ended = False
        self._suspects = False  # Something has failed, and ``_lost`` is to say whether it is over.
        self._alone = not led  # No other worker waits for what this thread has to say while it would flush itself.
        self._paces = Paces()
        self._inbox = Inbox(outbound_waiting)
        self._turn = Lock()
        """Whoever is at the domains has it: this thread for a batch with its flush, or another between two of them."""
        self._wanted = 0  # How many times a leader has wanted something that is not sliced.
        self.flusher = GroupCommit(self.reader_map, deliver, self.listeners, self._flush_failed)
        crowding = self.flusher.crowding
        crowding.readers, crowding.evict = lambda: self.hosted.layouts.copy(), self._evict_crowded
        self.watches = self.flusher.watches = Watches(self._client, self)
        self._thread = Thread(target=self._run, name="headrace-dataflow", daemon=True)

    def start(self) -> None:
        self.flusher.published = {index: host.domain.clocks.local.copy() for index, host in self.hosted.hosts.items()}
        self.flusher.start()
        self._thread.start()

    def end(self) -> None:
        """Process what has arrived, flush it, and close the storage, once. Hits go on until ``close``."""
        self._inbox.stop()
        if self._thread.ident is not None:
            self._thread.join()
            self.flusher.stop()
        with self._turn:
            ended, self._ended = self._ended, True
        with ExitStack() as closing:
            for host in self.hosted.hosts.values():
                if host.close is not None and not ended:
                    closing.callback(host.close)

    def close(self) -> None:
        """``end``, and no hits any more."""
        try:
            self.end()
        finally:
            self.reader_map.close()

    # --- what there is ------------------------------------------------------------------------------------------

    def client(self) -> ReaderClient:
        return self.reader_map.client()

    @property
    def domains(self) -> dict[DomainIndex, Domain]:
        return {index: host.domain for index, host in self.hosted.hosts.items()}

    @property
    def layouts(self) -> Mapping[tuple[DomainIndex, NodeIndex], ReaderLayout]:
        return self.hosted.layouts

    @property
    def stores(self) -> dict[DomainIndex, Store]:
        return {index: host.domain.store for index, host in self.hosted.hosts.items()}

    @property
    def memory_limit(self) -> int:
        """The limit of the accounted bytes of all domains together."""
        return self.hosted.memory_limit

    @memory_limit.setter
    def memory_limit(self, limit: int) -> None:
        self.hosted.memory_limit = limit

    @property
    def published(self) -> Mapping[DomainIndex, Clock]:
        """The positions of each domain's bases that every reader of this process reflects."""
        return self.flusher.published

    @property
    def failure(self) -> HeadraceError | None:
        """The failure that stopped it: it goes on when its stores are opened again, by another."""
        return self.failed or self.flusher.failed

    @property
    def health(self) -> str:
        """ "ok", or what is wrong."""
        broken = [store.failure for store in self.rocks() if store.failure is not None]
        wrong = self.failure or (broken[0] if broken else None)
        return "ok" if wrong is None else wrong.message

    @property
    def full(self) -> str | None:
        """Why writes are refused for want of room on the disk; None while they are not."""
        return next((why for store in self.rocks() if (why := store.full()) is not None), None)

    def alarms(self) -> list[dict[str, str]]:
        """The storage's alarms, JSON-ready."""
        return [alarm for store in self.rocks() for alarm in store.alarms()] + self.flusher.crowding.alarms()

    def rocks(self) -> list[RocksStore]:
        return [store for store in self.stores.values() if isinstance(store, RocksStore)]

    @property
    def waiting_inputs(self) -> int:
        return len(self._inbox)

    @property
    def waiting_bytes(self) -> int:
        """The bytes that these take, about."""
        return self._inbox.bytes

    # --- what others ask ----------------------------------------------------------------------------------------

    def write(
        self, domain: DomainIndex, operation: TransactionAct, schema: int | None = None, within: Within = None
    ) -> Future[Outcome]:
        """``schema`` is the version of the table that the operation was made for; NotHere where it has another then."""
        write, size = self.hosted.write, _size_of(operation)
        return self._ask(lambda batch, answer: write(domain, operation, answer, batch, schema, within), size)

    def write_for(
        self, answer: Answerer, domain: DomainIndex, act: TransactionAct, schema: int | None, within: Within = None
    ) -> None:
        """The same, told to ``answer`` on the flusher's thread. Raises where it is not taken."""
        write, size = self.hosted.write, _size_of(act)
        self._enter(Input(lambda batch, told: write(domain, act, told, batch, schema, within), answer, size))

    def read(
        self, domain: DomainIndex, reader: NodeIndex, keys: tuple[Row, ...], look: Callable[[], Found]
    ) -> Future[Found]:
        """Have the keys filled, and answer what ``look`` finds while they are; the flusher's thread calls it.

        The keys are holes for it only where the reader is no longer there.
        """
        future: Future[Found] = Future()

        def run(batch: Batch, _: Answerer) -> None:
            reading = Look(look)
            self.hosted.read(domain, reader, keys, reading, _looker(future, reading), batch)

        self._put(run, future)
        return future

    def read_together(self, wanted: Sequence[WantedKeys]) -> Future[list[Any]]:
        """``read`` of several readers as one input, and so in one batch; what each look finds, in their order."""
        future: Future[list[Any]] = Future()

        def run(batch: Batch, _: Answerer) -> None:
            together = JointRead(wanted, future)
            for each, look in zip(wanted, together.looks, strict=True):
                self.hosted.read(each.domain, each.reader, each.keys, look, together.answerer(look), batch)

        self._put(run, future)
        return future

    def hold(self, domain: DomainIndex, reader: NodeIndex) -> Future[tuple[Clock, ReaderSnapshot]]:
        """A reader's state as one batch leaves it, and exactly what that reflects. The snapshot is to be closed."""
        future: Future[tuple[Clock, ReaderSnapshot]] = Future()

        def run(batch: Batch, _: Answerer) -> None:
            self.hosted.check_reader(domain, reader)
            batch.holds.append(lambda: self._held(domain, reader, future, batch))

        self._put(run, future)
        return future

    def _held(self, domain: DomainIndex, reader: NodeIndex, future: Future[Any], batch: Batch) -> Look:
        clock = self.hosted.clock_of(domain, reader)
        look = Look(lambda: (clock, self._client.snapshot()))
        batch.answers.append((_looker(future, look), Filled()))
        return look

    def evict(self, domain: DomainIndex, node: NodeIndex, keys: tuple[Row, ...]) -> Future[Outcome]:
        return self._ask(lambda batch, answer: self.hosted.evict(domain, node, keys, answer, batch))

    def _evict_crowded(self, holes: Sequence[Publish], cleared: Sequence[Reader], excess: int) -> None:
        """Make holes of publishes that had no room in the reader map; see ``crowding.py``."""

        def make_holes(batch: Batch, answer: Answerer) -> None:
            for hole in holes:
                self.hosted.evict_here(hole.domain, hole.reader, hole.evicted, batch)
            for domain, reader in cleared:
                self.hosted.evict_here(domain, reader, None, batch)
            self.hosted.shrink(excess, batch)
            self.flusher.crowding.evicting = False

        self._inbox.insert(make_holes)

    def touch(self, domain: DomainIndex, reader: NodeIndex, keys: tuple[Row, ...]) -> None:
        """Tell of keys that were read. A full inbox drops it: it is only a sample."""
        if not self._inbox.is_half_full:
            self._put(lambda batch, _: self.hosted.touch(domain, reader, keys, batch), Future())

    def reached(self, domain: DomainIndex, reader: NodeIndex, clock: Clock) -> Future[Outcome]:
        """Answered when what the reader has published reflects the clock. Cancel it to give up."""
        future: Future[Outcome] = Future()

        def run(_batch: Batch, answer: Answerer) -> None:
            self.hosted.reached(domain, TokenWait(reader, clock, answer, future.cancelled))

        self._put(run, future, revocable=True)
        return future

    def command(self, domain: DomainIndex, command: Command, *, epoch: int | None = None) -> Future[Progress]:
        """Perform a command; the future has its progress when its effects are visible.

        A full inbox takes it all the same: a migration that is committed, or is being undone, is not to fail by load.
        ``epoch`` is that of the leader who wants it: StaleEpoch where another was heard of before its turn came. What a
        leader wants is done in the order in which it came, before what waits of others; only what feeds a backfill,
        and makes much to send, waits with them. A sliced command goes on by itself for a while (``Stretch``), but no
        slice is begun once its leader has wanted anything else: a recovery never meets a slice of before.
        """
        future: Future[Progress] = Future()
        if isinstance(command, Sliced):
            run = self._stretch(domain, command, epoch).run
        else:
            self._wanted += epoch is not None

            def run(batch: Batch, answer: Answerer) -> None:
                self.hosted.check(epoch)
                batch.answers.append((answer, self.hosted.perform(domain, command, batch)))

        self._put(run, future, limited=False, always=epoch is not None and not isinstance(command, (Feed, Follow)))
        return future

    def _stretch(self, domain: DomainIndex, command: Sliced, epoch: int | None) -> Stretch:
        wanted = self._wanted

        def perform(batch: Batch) -> tuple[Progress, float]:
            self.hosted.check(epoch)
            return self._paces.perform(self.hosted, domain, command, batch)

        return Stretch(perform, lambda: self._wanted != wanted, self._inbox)

    def call(self, question: Callable[[], Any]) -> Future[Any]:
        """Ask something of the domains between two steps."""
        future: Future[Any] = Future()
        self._put(lambda _batch, _answer: future.set_result(question()), future, limited=False)
        return future

    def receive(
        self, packets: Sequence[LinkPacket], taken: Callable[[], None] | None = None, refused: Refused = told
    ) -> None:
        """Packets of other workers, in order. All are taken; ``taken`` is called when it is processed."""

        def run(batch: Batch, _: Answerer) -> None:
            self.hosted.receive(packets, batch, refused)
            if taken is not None:
                taken()

        self._put(run, Future(), always=True)

    def control(
        self, act: Callable[[DomainHost, Batch], Any], *, epoch: int | None = None, at_once: bool = False
    ) -> Future[Any]:
        """Change or ask who hosts what; the future has what it answers when its effects are visible, or ``at_once``.

        It waits for nothing that waits for others, so it may overtake requests and commands. ``epoch`` is as in
        ``command``.
        """
        self._wanted += epoch is not None

        def run(batch: Batch, answer: Answerer) -> None:
            self.hosted.check(epoch)
            done = act(self.hosted, batch)
            answer(done) if at_once else batch.answers.append((answer, done))

        future: Future[Any] = Future()
        self._put(run, future, always=True)
        return future

    def between(self, question: Callable[[DomainHost], Found]) -> Found | None:
        """Ask something short of the domains on the caller's own thread, which spares it two changes of threads; None
        where this thread has something to do, or what it did is not synced: it is to be asked by :meth:`control`."""
        if self.failure is not None or not self._turn.acquire(blocking=False):
            return None
        try:
            if self._ended or self._inbox.stopping or any(self._inbox.queues) or not self.flusher.is_idle:
                return None
            return question(self.hosted)
        finally:
            self._turn.release()

    def _ask(self, run: Run, size: int = INPUT_BYTES) -> Future[Outcome]:
        future: Future[Outcome] = Future()
        self._put(run, future, size=size)
        return future

    def _put(
        self,
        run: Run,
        future: Future[Any],
        *,
        limited: bool = True,
        always: bool = False,
        revocable: bool = False,
        size: int = INPUT_BYTES,
    ) -> None:
        # A caller may go away, but what was begun is carried through: from here on nobody can cancel the future,
        # and setting its result cannot fail.
        if not revocable:
            future.set_running_or_notify_cancel()
        self._enter(Input(run, _answerer(future), size), limited=limited, always=always)

    def _enter(self, one: Input, *, limited: bool = True, always: bool = False) -> None:
        if self.failure is not None:
            raise self.failure
        self._inbox.put(one, limited=limited, always=always)

    # --- the thread ---------------------------------------------------------------------------------------------

    def _run(self) -> None:
        inputs: deque[Input] = deque()
        while inputs or (inputs := deque(self._inbox.take())):
            with self._turn:
                if not self._perform(inputs):
                    return

    def _perform(self, inputs: deque[Input]) -> bool:
        """One batch of these, with its flush or on its way to it. False: the thread ends, since something failed."""
        batch = Batch()
        until = time.perf_counter() + BATCH_SECONDS
        taken: list[Input] = []
        try:
            while inputs and (not taken or time.perf_counter() < until):
                taken.append(inputs.popleft())
                self._take(taken[-1], batch)
            has_effects = self.hosted.finish(batch)
        except Exception as error:
            self._break_off(error, batch, taken, inputs)
            return False
        if has_effects:
            self.flusher.hand(batch, at_once=self._alone and not (inputs or any(self._inbox.queues)))
        if self._suspects and (lost := self._lost()) is not None:
            self._fail(lost, inputs)
            return False
        return True

    def _take(self, one: Input, batch: Batch) -> None:
        try:
            one.run(batch, one.answer)
        except HeadraceError as error:
            one.answer(Failed(error))

    def _break_off(self, error: Exception, batch: Batch, taken: list[Input], waiting: Iterable[Input]) -> None:
        """A bug, or the disk, broke a step off in the middle: this batch's effects are not performed."""
        _log.exception("the worker stops: a step failed")
        why = f"the disk failed it: {error}" if isinstance(error, StepBroken) else f"an internal error: {error}"
        failed = Unavailable(f"the worker stopped on {why}", hint=OPENED_AGAIN)
        for one in taken:
            one.answer(Failed(unknown_outcome(failed)))
        batch.fail(failed)  # What waited since an earlier batch.
        self._fail(failed, waiting)

    def _watch(self, store: Store) -> None:
        if isinstance(store, RocksStore):
            store.when_lost(self._suspect)

    def _suspect(self) -> None:
        """Any thread: have the dataflow thread look around once it is done with its batch."""
        self._suspects = True
        self._inbox.insert(lambda batch, answer: None)

    def _flush_failed(self) -> None:
        """The flusher's, or in a lone client's batch the dataflow thread itself."""
        if self.failed is None:
            self._suspect()
        for listener in self.failure_listeners:
            listener()

    def _lost(self) -> HeadraceError | None:
        """Why nothing can be made durable or visible any more: memory may be ahead of what anyone may see."""
        self._suspects = False
        if self.flusher.failed is not None:
            return self.flusher.failed
        return next((store.lost for store in self.rocks() if store.lost is not None), None)

    def _fail(self, error: HeadraceError, waiting: Iterable[Input]) -> None:
        """Nothing more is taken. Hits go on: the readers are as the last batch left them, and agree."""
        self.failed = error
        for one in [*waiting, *self._inbox.fail(error)]:
            one.answer(Failed(error))
        self.hosted.fail(error)
        self._progressed()

    def _progressed(self) -> None:
        for listener in list(self.listeners):
            listener()
        if self.failure is not None:
            for listener in self.failure_listeners:
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
        if future.done() or not (future.running() or future.set_running_or_notify_cancel()):
            return
        if isinstance(outcome, Failed):
            future.set_exception(outcome.error)
        else:
            future.set_result(outcome)

    return answer


def _size_of(operation: TransactionAct) -> int:
    """The bytes of the input that it becomes, about: long texts are counted where they were received."""
    rows = operation.rows if isinstance(operation, Insert) else ()
    return INPUT_BYTES + (len(rows) * len(rows[0]) * VALUE_BYTES if rows else 0)
