"""The commands and requests to a worker over the wire, and its answers. One class a message; its fields are a format.

::

    controller ── OpenDomain, Perform, Reconfigure, Report … (with its epoch) ──► worker ── StreamFrame ──► worker
    api ───────── WriteRequest, ReadRequest … ──────────────────────────────────► worker ◄── StreamAck ────

Every message of the controller carries the ``epoch`` in which it leads. A worker remembers the highest that it has
seen and refuses lower ones with ``StaleEpoch``: a leader that was deposed and does not know it yet changes nothing.
Requests of api processes carry no epoch. If the domain is not here the answer is ``NotHere``, and nothing was done.
Each request names its answer in its docstring. The answer may always be a ``HeadraceError``, which
``Connection.ask`` raises.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any
from zlib import crc32

from domains.errors import HeadraceError, Unavailable
from domains.language.types import Row, TableSchema
from domains.plan.commands import Command
from domains.plan.graph import Columns, DomainIndex, NodeIndex
from domains.plan.packets import Clock, LinkId, TransactionAct, Within
from domains.store.storage import SnapshotRecord
from worker.reader_map.lookup import BoundLookup, Parts

REMEMBERED = 10_000
"""Schemas whose versions are cached: more than a deployment has tables."""

_known: dict[int, tuple[TableSchema, int]] = {}
"""Keyed by ``id``, since a schema's hash would cost as much as its text. Keeping the schema keeps its id from being
reused."""


def version_of(schema: TableSchema) -> int:
    """A table's schema as one number, by which a write says which schema it was made for: its maker may know an older
    or a newer one than the domain has, and rows made for one must not be stored under the other.

    It is the same in every process of one version of Headrace. From any thread.
    """
    found = _known.get(id(schema))
    if found is not None:
        return found[1]
    if len(_known) >= REMEMBERED:
        _known.clear()
    version = crc32(repr(schema).encode("utf-8", "backslashreplace"))
    _known[id(schema)] = (schema, version)
    return version


def together(versions: Sequence[int]) -> int:
    """The versions of the tables of one write, in their order, as one number: of one table it is its own."""
    return versions[0] if len(versions) == 1 else crc32(repr(tuple(versions)).encode())


# --- errors -----------------------------------------------------------------------------------------------------


class ProtocolError(HeadraceError):
    """The received bytes are not of our protocol, or of another version of it."""

    code = "protocol_error"


class WrongDeployment(HeadraceError):
    """The process belongs to another deployment."""

    code = "wrong_deployment"


class RemoteFault(HeadraceError):
    """The other side met an unexpected error, which is in its log."""

    code = "remote_fault"


class ConnectionLost(Unavailable):
    """There is no connection, or no longer. ``sent`` is False if the request surely was not done."""

    code = "connection_lost"

    def __init__(self, message: str, *, hint: str | None = None, sent: bool = False) -> None:
        super().__init__(message, hint=hint)
        self.sent = sent


class StaleEpoch(HeadraceError):
    """The worker follows a later leader, of ``epoch``."""

    code = "stale_epoch"

    def __init__(self, message: str, *, hint: str | None = None, epoch: int = 0) -> None:
        super().__init__(message, hint=hint)
        self.epoch = epoch


class NotHere(HeadraceError):
    """The domain is not hosted by this worker, or not linked yet. Nothing was done: ask the directory and try again.

    ``epoch`` is the worker's: the caller's directory may be older. ``unlinked``: the domain is missing, and not
    something in it; ``LinkRequest`` waits for it.
    """

    code = "not_here"

    def __init__(self, message: str, *, hint: str | None = None, epoch: int = 0, unlinked: bool = False) -> None:
        super().__init__(message, hint=hint)
        self.epoch = epoch
        self.unlinked = unlinked


# --- opening a connection ---------------------------------------------------------------------------------------


class Role(StrEnum):
    CONTROLLER = "controller"
    WORKER = "worker"
    API = "api"
    OPERATOR = "operator"
    """A person's command line."""


@dataclass(frozen=True, slots=True)
class Hello:
    """The first message of a client. → ``Welcome``"""

    protocol: str
    """``PROTOCOL`` of ``worker/wire``: both ends must have the same."""
    deployment: str
    role: Role
    name: str
    incarnation: int
    """The incarnation of the process, not of a domain: greater after each start."""


@dataclass(frozen=True, slots=True)
class Welcome:
    """The name of the process that answers, and its incarnation."""

    name: str
    incarnation: int


@dataclass(frozen=True, slots=True)
class Done:
    """The answer without content."""


# --- from the controller ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ping:
    """The heartbeat. → ``Pong``"""

    epoch: int


@dataclass(frozen=True, slots=True)
class Pong:
    worker: str
    incarnation: int
    """The incarnation of the process."""
    broken: dict[DomainIndex, int] = field(default_factory=dict)
    """Its domains that could not end a step and must be opened again, with their incarnations."""
    is_short: bool = False
    """Its state was over the memory limit since the last heartbeat, and an automatic view is here."""


@dataclass(frozen=True, slots=True)
class OpenDomain:
    """Host a domain, empty of nodes, over its shard's storage; not linked yet. → ``Done``

    If this incarnation is open already nothing happens; an older one is closed first. A ``kept`` shard was created
    before and is not created again: if it is missing, that is damage.
    """

    epoch: int
    domain: DomainIndex
    incarnation: int
    shard: int
    shards: int
    kept: bool = False


@dataclass(frozen=True, slots=True)
class CloseDomain:
    """Flush and close a domain, if it is here. → ``Done``"""

    epoch: int
    domain: DomainIndex


@dataclass(frozen=True, slots=True)
class Perform:
    """One command on one domain; answered when its effects are visible. → ``domains.plan.commands.Progress``"""

    epoch: int
    domain: DomainIndex
    command: Command


@dataclass(frozen=True, slots=True)
class Placed:
    """The host of one domain."""

    worker: str
    host: str
    port: int
    incarnation: int
    """The domain's incarnation: the epoch in which it was opened."""
    process: int
    """The incarnation of the worker's process, as in its ``Welcome`` and its znode. Packets to the domain are for this
    process and no other of the same name."""


@dataclass(frozen=True, slots=True)
class Reconfigure:
    """The new hosts of all domains, not only of those that moved. One step of the dataflow. → ``Done``

    In this order: nodes are removed, then each hosted domain gets a ``PeerReset`` for every peer whose incarnation is
    newer than it knew, then the hosted domains that ``placement`` names are linked.
    """

    epoch: int
    placement: dict[DomainIndex, Placed]
    removals: dict[DomainIndex, tuple[NodeIndex, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Report:
    """The actual state, for a leader that takes over or recovers. → ``WorkerReport``"""

    epoch: int


@dataclass(frozen=True, slots=True)
class DomainReport:
    incarnation: int
    linked: bool
    nodes: frozenset[NodeIndex]
    building: frozenset[NodeIndex]
    """The nodes that wait for their ``Activate``."""
    tables: tuple[TableSchema, ...]
    positions: Clock
    """Base shard → its last sequence number."""
    expected: frozenset[str] = frozenset()
    """Tables of which more is expected by a change that is not decided."""


@dataclass(frozen=True, slots=True)
class WorkerReport:
    worker: str
    epoch: int
    """The highest one that the worker has seen."""
    domains: dict[DomainIndex, DomainReport]
    known: dict[DomainIndex, int] = field(default_factory=dict)
    """Peers' incarnations, as the last ``Reconfigure`` gave them."""
    sent: dict[LinkId, tuple[int, int]] = field(default_factory=dict)
    """Link → (epoch, sequence) of the last packet that a domain of this worker has sent …"""
    received: dict[LinkId, tuple[int, int]] = field(default_factory=dict)
    """… and has processed."""


@dataclass(frozen=True, slots=True)
class Positions:
    """The positions of the links, for a barrier: the small part of a ``Report``. → ``LinkPositions``"""

    epoch: int


@dataclass(frozen=True, slots=True)
class LinkPositions:
    sent: dict[LinkId, tuple[int, int]]
    received: dict[LinkId, tuple[int, int]]


# --- from anybody -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Status:
    """→ ``StatusDocument``"""

    nodes: frozenset[NodeIndex] | None = None
    """The nodes whose state and readers are told; None: all."""


@dataclass(frozen=True, slots=True)
class StatusDocument:
    document: dict[str, Any]
    """JSON-ready."""


# --- from api processes -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WriteRequest:
    """A write to one base shard; answered once it is durable. → ``domains.plan.packets.Written``, or ``Refused``

    ``schema`` is the version (:func:`version_of`; of several tables :func:`together`) of what the operation was made
    for. If the domain has another the answer is ``NotHere``, since rows of another width must not be stored.
    """

    domain: DomainIndex
    operation: TransactionAct
    """An ``Operation``, but in a transaction."""
    schema: int | None
    """None: it names no table."""
    within: Within = None


@dataclass(frozen=True, slots=True)
class TransactionsRequest:
    """The transactions over several shards that a base shard has a part in, and that are not over. →
    ``KnownTransactions``"""

    domain: DomainIndex


@dataclass(frozen=True, slots=True)
class KnownTransaction:
    id: str
    decider: DomainIndex
    others: tuple[DomainIndex, ...]
    """Where it was committed here: who has to hear of it. (): it is prepared here."""
    since: float = 0.0
    """When it was prepared here; see :class:`domains.plan.packets.Prepare`."""
    holds: tuple[str, ...] = ()
    """What is held for it here, for people."""
    is_open: bool = False
    """It is neither: its client goes on with it."""


@dataclass(frozen=True, slots=True)
class KnownTransactions:
    known: tuple[KnownTransaction, ...]


@dataclass(frozen=True, slots=True)
class SnapshotsRequest:
    """The snapshots that a base shard keeps. → ``KeptSnapshots``; SnapshotGone"""

    domain: DomainIndex
    of: str = ""
    """The one whose tables are asked for, too."""


@dataclass(frozen=True, slots=True)
class KeptSnapshots:
    kept: tuple[SnapshotRecord, ...]
    still: str = ""
    """The one that is being taken: the shard stands still for it."""
    tables: tuple[tuple[str, int, TableSchema], ...] = ()
    """Of the one that was named: the base shard's name and position, and its table as it was."""


@dataclass(frozen=True, slots=True)
class StreamsRequest:
    """The numbered streams of writes that a base shard remembers. → ``Streams``"""

    domain: DomainIndex
    table: str


@dataclass(frozen=True, slots=True)
class Streams:
    numbers: dict[str, int]
    """Stream → its last number."""


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """Look-ups of one shard of a reader. → ``Pages``, or with ``in_parts`` → ``PagesInParts``

    The worker waits until the reader reflects ``token`` and fills holes, for at most ``within`` seconds (ReadTimeout).
    """

    domain: DomainIndex
    reader: NodeIndex
    lookups: tuple[BoundLookup, ...]
    token: Clock
    within: float
    in_parts: bool = False
    """Answer each look-up's rows key by key with their ranks, to be merged with those of other shards."""


@dataclass(frozen=True, slots=True)
class Pages:
    """An answer for each look-up: its rows as comma-joined JSON objects."""

    pages: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class PagesInParts:
    pages: tuple[Parts, ...]


@dataclass(frozen=True, slots=True)
class EvictRequest:
    """→ ``domains.plan.packets.Evicted``"""

    domain: DomainIndex
    node: NodeIndex
    keys: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class TouchRequest:
    """Keys that were read in the reader map by another process; a notice."""

    domain: DomainIndex
    reader: NodeIndex
    keys: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class RowsRequest:
    """The numbers of rows in a domain's base shards. → ``RowCounts``"""

    domain: DomainIndex


@dataclass(frozen=True, slots=True)
class RowCounts:
    rows: dict[str, int]
    """Table → rows of this shard."""


@dataclass(frozen=True, slots=True)
class SamplesRequest:
    """Samples of tables, as a domain's base shard has them. → ``TableSamples``"""

    domain: DomainIndex
    tables: tuple[TableSchema, ...]


@dataclass(frozen=True, slots=True)
class SampledTable:
    """See :class:`domains.plan.estimates.TableStatistics`."""

    rows: int
    distinct: tuple[tuple[Columns, int], ...]


@dataclass(frozen=True, slots=True)
class TableSamples:
    tables: tuple[SampledTable, ...]
    """The tables in the order in which they were asked for."""


# --- between workers: one stream (``worker/wire/streams.py``) ---------------------------------------------------


@dataclass(frozen=True, slots=True)
class StreamOpen:
    """Begin or resume stream number ``stream`` of the connecting process. → ``StreamAck``: go on after that item"""

    stream: int


@dataclass(frozen=True, slots=True)
class StreamFrame:
    """Items ``number``, ``number + 1`` … of the connection's stream; a notice."""

    number: int
    items: tuple[bytes, ...]
    """Encoded packets, or pieces of packets."""
    continued: tuple[int, ...] = ()
    """Indexes in ``items`` of pieces that go on in the next item."""


@dataclass(frozen=True, slots=True)
class StreamAck:
    """All items up to ``number`` have arrived; a notice against the stream's direction."""

    number: int
