"""How a worker handles each message that comes over the wire, between the event loop and the dataflow thread.

::

    controller ─► Ping, OpenDomain, Perform, Reconfigure … ─► fence by epoch ─► Dataflow.control, Dataflow.command
    api ────────► WriteRequest, ReadRequest … ──────────────────────────────► Dataflow.write, .read, .reached
    workers ────► StreamFrame ─► Peers ─────────────────────────────────────► Dataflow.receive

A message is *begun* when it comes, before the next one of its connection is read, so a ``Report`` reflects what the
leader asked before it. It is answered when its effects are durable and visible.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from domains.errors import BadRequest, HeadraceError, ReadTimeout
from domains.plan.graph import DomainIndex, NodeIndex, is_automatic
from domains.plan.packets import InTransaction, Operation
from domains.store.memory_store import MemoryStore
from domains.store.storage import AUTOMATIC_BYTES, DISK_RESERVE, Store, refusal
from worker.adhoc.cut import asked_of_transactions, samples_of
from worker.archive.cut_tables import archive_for, copies_asked, parts_asked
from worker.dataflow.batch import Batch
from worker.dataflow.domain_host import DomainHost
from worker.dataflow.group_commit import LoopCompletions
from worker.dataflow.inbox import Stopping
from worker.dataflow.thread import DataflowThread
from worker.protocol.cuts import CloseCut, CutRead, EvaluateRequest, OfTransactions
from worker.protocol.messages import (
    CloseDomain,
    Done,
    EvictRequest,
    KnownTransactions,
    NotHere,
    OpenDomain,
    Pages,
    PagesInParts,
    Perform,
    Ping,
    Pong,
    Positions,
    ProtocolError,
    ReadRequest,
    Reconfigure,
    Report,
    Role,
    RowsRequest,
    SamplesRequest,
    SnapshotsRequest,
    StaleEpoch,
    Status,
    StatusDocument,
    StreamFrame,
    StreamOpen,
    StreamsRequest,
    TouchRequest,
    TransactionsRequest,
    WriteRequest,
)
from worker.protocol.operations import (
    ArchivedShardRequest,
    ArchiveRequest,
    BeginWatch,
    EndWatch,
    FlushDomain,
    Heard,
    HeardRequest,
    HeldRequest,
    HoldRequest,
    LeaveCopies,
    LinkRequest,
    LogRelease,
    PartsRequest,
    PartsSettled,
    RebuildMessage,
    RebuildShard,
    ReleaseRequest,
    ShowRequest,
)
from worker.reader_map import BoundLookup, ReaderClient, ReaderLayout
from worker.rocks.store import RocksStore
from worker.service.cuts import HELD_BYTES, HeldCuts
from worker.service.holds import Holds
from worker.service.rebuilds import ShardRebuilds
from worker.service.shards import open_shard
from worker.service.status import (
    heard_at_last,
    hosted_status,
    kept_snapshots,
    known_transactions,
    link_positions,
    row_counts,
    streams_of,
    worker_report,
)
from worker.service.waits import LeaderEpochs, LinkWaits
from worker.service.watching import WatchSessions
from worker.wire.connection import Connection
from worker.wire.peers import Peers
from worker.wire.server import Accepted, WireServer

if TYPE_CHECKING:
    from worker.archive.archiver import Archiver


Found = TypeVar("Found")
LeaderMessage = (
    Ping | OpenDomain | FlushDomain | CloseDomain | Perform | Reconfigure | Report | Positions | RebuildMessage
)


class WorkerServer:
    """The handler of a worker's port. All methods are for the event loop's thread."""

    def __init__(
        self,
        dataflow: DataflowThread,
        peers: Peers,
        name: str,
        incarnation: int,
        data: Path,
        archiver: Archiver | None = None,
        disk_reserve: int = DISK_RESERVE,
        held_bytes: int = HELD_BYTES,
        automatic_bytes: int = AUTOMATIC_BYTES,
        decided: Callable[[], Awaitable[int]] | None = None,
    ) -> None:
        """``decided`` reads the epoch of the state in ZooKeeper: see ``waits.py``."""
        self._dataflow = dataflow
        self._archiver = archiver
        self._peers = peers
        self._name = name
        self._incarnation = incarnation
        self._data = data
        self._disk_reserve = disk_reserve
        self._client = dataflow.client()
        self._started = time.monotonic()
        self._changing: dict[DomainIndex, asyncio.Lock] = {}
        """So that one message at a time opens or closes a domain."""
        self._changes: set[asyncio.Task[Done]] = set()
        """Openings and closings under way."""
        self._unreadable: dict[DomainIndex, RocksStore] = {}
        """The closed stores of shards that could not be read: when one is opened again, its alarm stays."""
        self._answers = LoopCompletions(asyncio.get_running_loop())
        self._is_short = False
        self._automatic_bytes = automatic_bytes
        dataflow.hosted.pressure.give_way = self._tell_leader
        self._holds = Holds(dataflow)
        self._watches = WatchSessions(dataflow)
        self._cuts = HeldCuts(dataflow, held_bytes)
        self._links = LinkWaits(self._is_linked)
        self._epochs = LeaderEpochs(lambda: dataflow.hosted.epoch, self.obey, decided)
        self._rebuilds = ShardRebuilds(name, data, None if archiver is None else archiver.options.url)

    def handle(self, connection: Connection, message: Any) -> Any:
        """See :data:`worker.wire.connection.Handler`."""
        assert isinstance(connection, Accepted)
        match message:
            case WriteRequest():
                return self._write(message)
            case ReadRequest():
                return self._read(message)
            case LinkRequest(domain=domain, within=within):
                return self._links.until(domain, within)
            case StreamFrame() | StreamOpen():
                return self._peers.take(connection, message)
            case TouchRequest():
                return self._touch(message)
            case EvictRequest(domain=domain, node=node, keys=keys):
                return asyncio.wrap_future(self._dataflow.evict(domain, node, keys))
            case SamplesRequest(domain=domain, tables=tables):
                return self._ask(lambda hosted, _: samples_of(hosted, domain, tables), at_once=True)
            case RowsRequest(domain=domain):
                return self._ask(lambda hosted, _: row_counts(hosted, domain))
            case TransactionsRequest(domain=domain):
                return self._ask(lambda hosted, _: KnownTransactions(known_transactions(hosted, domain)))
            case SnapshotsRequest(domain=domain, of=of):
                return self._ask(lambda hosted, _: kept_snapshots(hosted, domain, of))
            case StreamsRequest(domain=domain, table=table):
                return self._ask(lambda hosted, _: streams_of(hosted, domain, table))
            case HoldRequest(domain=domain, reader=reader):
                return self._holds.take(domain, reader)
            case HeldRequest(number=number):
                return self._holds.next(number)
            case ReleaseRequest(number=number):
                return self._holds.release(number)
            case BeginWatch():
                return self._watches.begin(message)
            case EndWatch(session=session, number=number):
                return self._watches.end(session, number)
            case ShowRequest(session=session, within=within):
                return self._watches.show(session, within)
            case EvaluateRequest():
                return self._cuts.evaluate(connection, message)
            case CloseCut(number=number):
                return self._cuts.close(number)
            case ArchiveRequest():
                return archive_for(self._archiver, self._name, message)
            case PartsRequest() | PartsSettled():
                return self._ask(lambda hosted, _: parts_asked(hosted, message))
            case LogRelease(keep=keep):
                return self._release(keep)
            case Status(nodes=nodes):
                return self._status(connection.server, nodes)
            case HeardRequest(given_up=given_up):
                return self._ask(lambda hosted, _: Heard(heard_at_last(hosted, given_up)))
            case ArchivedShardRequest(shard=shard):
                return self._rebuilds.archived(shard)
        if isinstance(message, CutRead):
            return self._cuts.read(message)
        if isinstance(message, OfTransactions):
            return self._ask(lambda hosted, _: asked_of_transactions(hosted, message), at_once=True)
        if not isinstance(message, LeaderMessage):
            raise ProtocolError(f'a worker is not asked "{type(message).__name__}"')
        if connection.hello.role is not Role.CONTROLLER:
            raise ProtocolError(f'"{type(message).__name__}" is for controllers alone')
        return self._epochs.take(message)

    def _write(self, request: WriteRequest) -> Awaitable[Any]:
        """A worker that stops answers NotHere: its domains go to other workers, which take the write."""
        names_a_table = isinstance(request.operation, Operation)
        if names_a_table != (request.schema is not None) or not (
            names_a_table or isinstance(request.within, InTransaction)
        ):
            raise BadRequest("a write names a table and its schema, or what a transaction wants")
        try:
            waiting, answer = self._answers.new()
            self._dataflow.write_for(answer, request.domain, request.operation, request.schema, request.within)
            return waiting
        except Stopping as error:
            raise NotHere(error.message, epoch=self._dataflow.hosted.epoch) from error

    def _tell_leader(self) -> bool:
        """Memory is short, by the thread of the steps: whether the leader has an automatic view here to remove."""
        found = self._has_automatic()
        self._is_short = self._is_short or found
        return found

    def _has_automatic(self) -> bool:
        """Whether a reader here is an automatic view's. Declared ones never come after these, which go before anything
        else is changed."""
        latest = list(self._dataflow.hosted.layouts)[-1:]  # At once: the thread of the steps adds and removes some.
        return any(is_automatic(reader) for _, reader in latest)

    def _holds_too_much(self) -> bool:
        """Whether the automatic views here are larger than they may be. Each heartbeat asks: it is decided at once
        where there are none."""
        if not self._has_automatic():
            return False
        found = 0
        for host in list(self._dataflow.hosted.hosts.values()):
            for vertex in list(host.domain.vertices.values()):
                if is_automatic(vertex.index):
                    found += sum(index.bytes for index in list(vertex.indexes.values()))
        return found > self._automatic_bytes

    # --- the leader's -------------------------------------------------------------------------------------------

    def obey(self, message: LeaderMessage) -> Pong | Awaitable[Any]:
        """Raises StaleEpoch if a later leader has been heard of."""
        self._dataflow.hosted.fence(message.epoch)
        match message:
            case Ping():
                is_short, self._is_short = self._is_short or self._holds_too_much(), False
                return Pong(self._name, self._incarnation, self._dataflow.hosted.broken, is_short)
            case Perform(epoch=epoch, domain=domain, command=command):
                return asyncio.wrap_future(self._dataflow.command(domain, command, epoch=epoch))
            case Positions(epoch=epoch):
                return self._ask(lambda hosted, _: link_positions(hosted), epoch, at_once=True)
            case Reconfigure():
                return self._reconfigure(message)
            case OpenDomain():
                return self._begin(self._open(message))
            case RebuildShard():
                return self._rebuilds.rebuild(message)
            case LeaveCopies():
                return self._rebuilds.leave(message, self._ask(lambda hosted, _: copies_asked(hosted, message)))
            case FlushDomain(domain=domain):
                return self._flush(domain)
            case CloseDomain():
                return self._begin(self._close(message))
            case Report():
                return self._report(message.epoch)

    def _reconfigure(self, message: Reconfigure) -> Awaitable[Any]:
        # First, so that what domains send to a new peer goes to the process that hosts it.
        self._peers.reconfigure(message.placement)
        incarnations = {domain: placed.incarnation for domain, placed in message.placement.items()}

        def act(hosted: DomainHost, batch: Batch) -> Done:
            hosted.reconfigure(incarnations, message.removals, batch)
            return Done()

        linked = self._ask(act, message.epoch, at_once=True)
        linked.add_done_callback(lambda _: self._links.look_again())
        return linked

    def _is_linked(self, domain: DomainIndex) -> bool:
        host = self._dataflow.hosted.hosts.get(domain)
        return host is not None and host.linked

    async def _report(self, epoch: int) -> Any:
        if self._changes:  # They were begun before, so the report must reflect them.
            await asyncio.wait(self._changes)
        return await self._ask(lambda hosted, _: worker_report(hosted, self._name), epoch, at_once=True)

    def _begin(self, change: Coroutine[Any, Any, Done]) -> Awaitable[Done]:
        """In a task of its own, so that it is carried through even if the caller goes away."""
        task = asyncio.create_task(change)
        self._changes.add(task)
        task.add_done_callback(self._changes.discard)
        return task

    async def _open(self, message: OpenDomain) -> Done:
        index, incarnation = message.domain, message.incarnation
        async with self._lock(index):
            host = self._dataflow.hosted.hosts.get(index)
            if host is not None and host.domain.incarnation >= incarnation:
                if host.domain.incarnation == incarnation:
                    return Done()
                raise StaleEpoch(
                    f"domain {index} is open here as incarnation {host.domain.incarnation}, later than {incarnation}",
                    epoch=self._dataflow.hosted.epoch,
                )
            if host is not None:
                await self._give_up(index, message.epoch)
            store, sync, close = await self._store(message)  # Slow: on a thread, and other domains go on.
            try:
                await self._ask(
                    lambda hosted, _: hosted.open(
                        index,
                        store,
                        incarnation=incarnation,
                        shard=message.shard,
                        shards=message.shards,
                        sync=sync,
                        close=close,
                    ),
                    message.epoch,
                    at_once=True,
                )
            except HeadraceError:
                if close is not None:
                    await self._apart(close)
                raise
        return Done()

    async def _store(self, message: OpenDomain) -> tuple[Store, Callable[[], None] | None, Callable[[], None] | None]:
        """The first group's domains stand on the base tables' shards; the others have no tables."""
        if message.domain != message.shard:
            return MemoryStore(), None, None
        opened = message.shard, self._name, message.incarnation
        shard = await asyncio.to_thread(open_shard, self._data, *opened, kept=message.kept, reserve=self._disk_reserve)
        if message.domain in self._unreadable:
            shard.store.opened_after(self._unreadable.pop(message.domain))
        return shard.store, shard.store.sync, shard.close

    async def _flush(self, domain: DomainIndex) -> Done:
        """The domain serves meanwhile; a request to close it waits."""
        async with self._lock(domain):
            host = self._dataflow.hosted.hosts.get(domain)
            if host is not None:
                await self._apart(host.domain.store.flush)
        return Done()

    async def _close(self, message: CloseDomain) -> Done:
        async with self._lock(message.domain):
            await self._give_up(message.domain, message.epoch)
        return Done()

    async def _give_up(self, index: DomainIndex, epoch: int) -> None:
        """Close a domain and its store. It may be opened elsewhere only then, since a worker that finds the store
        locked kills this process. So reports, which say that the domain is not here, wait for this."""
        host = self._dataflow.hosted.hosts.get(index)
        if host is not None and isinstance(store := host.domain.store, RocksStore) and store.failure is not None:
            self._unreadable[index] = store
        close = await self._ask(lambda hosted, batch: hosted.close(index, batch), epoch)
        if close is not None:
            await self._apart(close)

    async def _apart(self, act: Callable[[], None]) -> None:
        """Act on a thread of its own: other domains go on meanwhile."""
        await asyncio.to_thread(act)

    def _lock(self, domain: DomainIndex) -> asyncio.Lock:
        return self._changing.setdefault(domain, asyncio.Lock())

    def _ask(
        self, act: Callable[[DomainHost, Batch], Any], epoch: int | None = None, *, at_once: bool = False
    ) -> asyncio.Future[Any]:
        """Act between two steps, unless a later leader than that of ``epoch`` has been heard of by then. ``at_once``:
        the answer says nothing of what is visible or on disk, and so waits for no sync."""
        if epoch is None:  # It only looks, and anybody may ask: what it names may not be there.
            act = _unharmed(act)
        return asyncio.wrap_future(self._dataflow.control(act, epoch=epoch, at_once=at_once))

    # --- reads --------------------------------------------------------------------------------------------------

    async def _read(self, request: ReadRequest) -> Pages | PagesInParts:
        try:
            async with asyncio.timeout(request.within):
                if request.token:
                    reached = self._dataflow.reached(request.domain, request.reader, request.token)
                    await asyncio.wrap_future(reached)
                if request.in_parts:
                    return PagesInParts(tuple(await self._found(request, BoundLookup.parts)))
                return Pages(tuple(await self._found(request, BoundLookup.page)))
        except TimeoutError:
            raise ReadTimeout(
                f"reader {request.reader} of domain {request.domain} had no answer within {request.within:g} s"
            ) from None

    async def _found(
        self, request: ReadRequest, find: Callable[[BoundLookup, ReaderClient, ReaderLayout], Found | None]
    ) -> list[Found]:
        """What the look-ups find, after filling the keys if any is a hole.

        All keys are filled then, not only the holes: a hit may be evicted before the others are filled.
        """
        layout = self._dataflow.layouts.get((request.domain, request.reader))
        if layout is None or not self._is_linked(request.domain):
            raise self._not_here(request)

        def look() -> list[Found | None]:
            return [find(lookup, self._client, layout) for lookup in request.lookups]

        try:
            found = look()
        except Exception as raised:
            raise refusal(raised) from raised
        if None in found:
            keys = tuple(dict.fromkeys(key for lookup in request.lookups for key in lookup.keys))
            found = await asyncio.wrap_future(self._dataflow.read(request.domain, request.reader, keys, look))
        whole = [each for each in found if each is not None]
        if len(whole) < len(found):
            raise self._not_here(request)  # The reader was dropped meanwhile, or is being built again.
        return whole

    def _not_here(self, request: ReadRequest) -> NotHere:
        return NotHere(
            f"reader {request.reader} of domain {request.domain} is not here",
            hint="look it up again",
            epoch=self._dataflow.hosted.epoch,
            unlinked=not self._is_linked(request.domain),
        )

    def _touch(self, request: TouchRequest) -> None:
        try:
            self._dataflow.touch(request.domain, request.reader, request.keys)
        except HeadraceError:
            return  # It is only a sample, and its sender waits for no answer.

    # --- the archive --------------------------------------------------------------------------------------------

    def _release(self, keep: str) -> Done:
        if self._archiver is not None:
            self._archiver.release(keep)
        return Done()

    # --- status -------------------------------------------------------------------------------------------------

    async def _status(self, server: WireServer, nodes: frozenset[NodeIndex] | None) -> StatusDocument:
        dataflow = self._dataflow
        document = await self._ask(lambda hosted, _: hosted_status(hosted, dataflow.reader_map, nodes))
        own = {
            "worker": self._name,
            "incarnation": self._incarnation,
            "uptime": round(time.monotonic() - self._started, 3),
            "health": dataflow.health,
            "full": dataflow.full,
            "storage_alarms": dataflow.alarms(),
            "syncs": dataflow.flusher.syncs,
            "batches": dataflow.flusher.batches,
            "inbox": dataflow.waiting_inputs,
            "outbound_waiting": self._peers.waiting_bytes,
            "peers": self._peers.status(),
            "wire": server.traffic(),
            "refused": server.refusals.total,
        }
        if self._archiver is not None:
            own["archive"] = self._archiver.status()
        return StatusDocument({**own, **document})


def _unharmed(act: Callable[[DomainHost, Batch], Any]) -> Callable[[DomainHost, Batch], Any]:
    """The same, and what it raises is the asker's trouble, not that of the dataflow."""

    def looked(hosted: DomainHost, batch: Batch) -> Any:
        try:
            return act(hosted, batch)
        except Exception as raised:
            raise refusal(raised) from raised

    return looked
