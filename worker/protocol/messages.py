"""The orders and requests to a worker over the wire, and its answers. One class a message; the fields are the contract.

::

    controller ── OpenDomain, Perform, Reconfigure, Report … (with its epoch) ──► worker ── StreamFrame ──► worker
    api ───────── WriteRequest, ReadRequest … ──────────────────────────────────► worker ◄── StreamAck ────

Every message of the controller carries the ``epoch`` in which it leads. A worker remembers the highest that it has
seen and refuses a lower one with ``StaleEpoch``: a leader that was deposed and does not know it yet changes nothing.
Requests of api processes carry no epoch; what a domain does not do here is answered with ``NotHere``, and then nothing
was done. Each request names its answer in its docstring; any request may be answered by a ``HeadraceError`` instead,
which ``Connection.request`` raises.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any
from zlib import crc32

from domains.errors import HeadraceError
from domains.language.types import Row, TableSchema
from domains.plan.commands import Command
from domains.plan.graph import DomainIndex, NodeIndex
from domains.plan.packets import Clock, LinkId, Once, Operation
from worker.protocol.operations import (
    ArchivedShard,
    ArchivedShardRequest,
    ArchiveMessage,
    Heard,
    HeardRequest,
    HoldMessage,
    MovingMessage,
    RebuildShard,
    RebuildUnderWay,
    ShardRebuilt,
)
from worker.reader_map.lookup import BoundLookup, Parts

# A table's schema as one number, so that a write can say which one it was made for.
#
# Whoever makes a write may know an older schema than the domain has, or a newer one that the domain is about to be
# told. Rows made for one must not be stored under the other.

REMEMBERED = 10_000
"""Schemas whose numbers are kept: more than a deployment has tables, so that it is worked out once for each."""

_known: dict[int, tuple[TableSchema, int]] = {}
"""By identity, since a schema's hash would cost as much as its text. The schema is kept so that it stays its own."""


def version_of(schema: TableSchema) -> int:
    """The same in every process of one version of Headrace. From any thread."""
    found = _known.get(id(schema))
    if found is not None:
        return found[1]
    if len(_known) >= REMEMBERED:
        _known.clear()
    version = crc32(repr(schema).encode("utf-8", "backslashreplace"))
    _known[id(schema)] = (schema, version)
    return version


# --- errors -----------------------------------------------------------------------------------------------------


class StaleEpoch(HeadraceError):
    """The worker follows a later leader. ``epoch`` is the one that it knows."""

    code = "stale_epoch"

    def __init__(self, message: str, *, hint: str | None = None, epoch: int = 0) -> None:
        super().__init__(message, hint=hint)
        self.epoch = epoch


class NotHere(HeadraceError):
    """The domain is not hosted by this worker, or not linked yet. Nothing was done: ask the directory and try again.

    ``epoch`` is the worker's, so that whoever asked can tell a directory that is older from one that is not.
    ``unlinked``: it is the domain that is missed, not something in it; ``LinkRequest`` says when it is there.
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
    """The first message of whoever connects. → ``Welcome``"""

    protocol: str
    """``PROTOCOL`` of ``worker/wire``: both ends must have the same."""
    deployment: str
    role: Role
    name: str
    incarnation: int
    """Of the process, not of a domain: another one after each start."""


@dataclass(frozen=True, slots=True)
class Welcome:
    """The process that answers: a name and the incarnation of its process."""

    name: str
    incarnation: int


@dataclass(frozen=True, slots=True)
class Done:
    """The answer where there is nothing to say."""


# --- from the controller ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ping:
    """The heartbeat. → ``Pong``"""

    epoch: int


@dataclass(frozen=True, slots=True)
class Pong:
    worker: str
    incarnation: int
    """Of the process."""
    broken: dict[DomainIndex, int] = field(default_factory=dict)
    """Its domains that are to be opened again, since they could not end a step, with their incarnations."""


@dataclass(frozen=True, slots=True)
class OpenDomain:
    """Host a domain, empty of nodes, over its shard's storage; not linked yet. → ``Done``

    Where this incarnation is open already nothing happens; an older one is closed first. A shard that is ``kept`` was
    made before, and is not begun anew: where it is missing that is damage.
    """

    epoch: int
    domain: DomainIndex
    incarnation: int
    shard: int
    shards: int
    kept: bool = False


@dataclass(frozen=True, slots=True)
class CloseDomain:
    """Flush and close a domain; nothing happens if it is not here. → ``Done``"""

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
    """Where one domain stands."""

    worker: str
    host: str
    port: int
    incarnation: int
    """Of the domain: the epoch in which it was opened."""
    process: int
    """The incarnation of the worker's process, as its ``Welcome`` and its znode say it. What is sent to the domain is
    meant for this process and no other that may answer under the same name."""


@dataclass(frozen=True, slots=True)
class Reconfigure:
    """The hosts from now on: of all domains, not only those that moved. One step of the dataflow. → ``Done``

    In this order: the removals are carried out, then each hosted domain is handed a ``PeerReset`` for every peer whose
    incarnation is newer than it knew, then the hosted domains that ``placement`` names are linked.
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
    """Those of the nodes that wait for their ``Activate``."""
    tables: tuple[TableSchema, ...]
    positions: Clock
    """Base shard → its last sequence number."""


@dataclass(frozen=True, slots=True)
class WorkerReport:
    worker: str
    epoch: int
    """The highest that the worker has seen."""
    domains: dict[DomainIndex, DomainReport]
    known: dict[DomainIndex, int] = field(default_factory=dict)
    """Peers' incarnations, as the last ``Reconfigure`` gave them."""
    sent: dict[LinkId, tuple[int, int]] = field(default_factory=dict)
    """Link → (epoch, sequence) of the last packet that a domain of this worker has sent."""
    received: dict[LinkId, tuple[int, int]] = field(default_factory=dict)
    """… and has processed."""


@dataclass(frozen=True, slots=True)
class Positions:
    """How far the links are, for a barrier: the small part of a ``Report``. → ``LinkPositions``"""

    epoch: int


@dataclass(frozen=True, slots=True)
class LinkPositions:
    sent: dict[LinkId, tuple[int, int]]
    received: dict[LinkId, tuple[int, int]]


# --- from anybody -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Status:
    """→ ``StatusDocument``"""


@dataclass(frozen=True, slots=True)
class StatusDocument:
    document: dict[str, Any]
    """JSON-ready."""


# --- from api processes -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WriteRequest:
    """A write to one base shard; answered once it is durable. → ``domains.plan.packets.Written``, or ``Refused``

    ``schema`` is the version (:func:`version_of`) of the table that the operation was made for: where the domain has
    another, ``NotHere`` is answered, for rows of another width must not be stored.
    """

    domain: DomainIndex
    operation: Operation
    schema: int
    once: Once | None = None


@dataclass(frozen=True, slots=True)
class StreamsRequest:
    """Which numbered streams of writes a base shard remembers. → ``Streams``"""

    domain: DomainIndex
    table: str


@dataclass(frozen=True, slots=True)
class Streams:
    numbers: dict[str, int]
    """Stream → its last number."""


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """Look-ups of one shard of a reader. → ``Pages``, or with ``in_parts`` → ``PagesInParts``

    Holes are filled, and the answer waits until the reader reflects ``token``, for at most ``within`` seconds each
    (ReadTimeout).
    """

    domain: DomainIndex
    reader: NodeIndex
    lookups: tuple[BoundLookup, ...]
    token: Clock
    within: float
    in_parts: bool = False
    """Each look-up's rows key by key with their ranks, for whoever joins them with those of other shards."""


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
    """Keys that were read elsewhere; a notice without an answer (``Connection.tell``)."""

    domain: DomainIndex
    reader: NodeIndex
    keys: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class RowsRequest:
    """How many rows a domain's base shards hold. → ``RowCounts``"""

    domain: DomainIndex


@dataclass(frozen=True, slots=True)
class RowCounts:
    rows: dict[str, int]
    """Table → rows of this shard."""


# --- between workers: one stream (``worker/wire/streams.py``) ---------------------------------------------------


@dataclass(frozen=True, slots=True)
class StreamOpen:
    """Begin or resume stream number ``stream`` of the connecting process. → ``StreamAck``: go on behind that item"""

    stream: int


@dataclass(frozen=True, slots=True)
class StreamFrame:
    """Items ``number``, ``number + 1`` … of the connection's stream; a notice."""

    number: int
    items: tuple[bytes, ...]
    """Encoded packets, or pieces of packets."""
    continued: tuple[int, ...] = ()
    """Places in ``items`` of those that are pieces and go on in the item that follows."""


@dataclass(frozen=True, slots=True)
class StreamAck:
    """All items up to ``number`` have arrived; a notice against the stream's direction."""

    number: int


Message = (
    Hello
    | Welcome
    | Done
    | Ping
    | Pong
    | OpenDomain
    | CloseDomain
    | Perform
    | Reconfigure
    | Report
    | WorkerReport
    | Positions
    | LinkPositions
    | Status
    | StatusDocument
    | WriteRequest
    | StreamsRequest
    | Streams
    | ReadRequest
    | Pages
    | PagesInParts
    | EvictRequest
    | TouchRequest
    | RowsRequest
    | RowCounts
    | HoldMessage
    | ArchiveMessage
    | MovingMessage
    | HeardRequest
    | Heard
    | ArchivedShardRequest
    | ArchivedShard
    | RebuildShard
    | RebuildUnderWay
    | ShardRebuilt
    | StreamOpen
    | StreamFrame
    | StreamAck
)
