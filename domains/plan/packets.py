"""The packets to a domain (data plane), and its effects, which the worker performs.

``Packet`` carries data, ``Command`` (``commands.py``) changes the graph: two vocabularies, each matched exhaustively.
Every packet on a link carries the link's sequence number, the controller's epoch and the clock, from the first format
on: the receiver refuses gaps and stale epochs, and a view's clock advances also where no rows come.

::

    client ── Write ──► ┌────────┐ ── Send(Update) ──► next domain
    reader ── Read ───► │ domain │ ── Send(Upquery) ─► previous domain (answered by fills inside an Update)
    worker ── Evict ──► └────────┘ ── Publish ──► reader map        ── Reply ──► whoever asked
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NewType

from domains.errors import HeadraceError
from domains.language.expressions import Expression
from domains.language.types import Delta, Row, Value
from domains.plan.copies import PartCopy
from domains.plan.graph import Columns, DomainIndex, NodeIndex
from domains.plan.snapshots import SnapshotAct

LinkId = NewType("LinkId", int)
RequestId = NewType("RequestId", int)
FIRST_DOMAIN = DomainIndex(0)
DOMAINS_MAX = 65_536
LANES_MAX = 64
"""A link's id is (sender × DOMAINS_MAX + receiver) × LANES_MAX + lane: the same in every plan, and it gives both ends.
The lane is how many links a path has crossed before. Two domains that feed each other would otherwise wait for each
other's clocks for ever: a clock on one lane depends on those of lower lanes only."""


def link_between(sender: DomainIndex, receiver: DomainIndex, lane: int = 0) -> LinkId:
    assert lane < LANES_MAX, f"a path crosses more than {LANES_MAX} links"
    return LinkId((sender * DOMAINS_MAX + receiver) * LANES_MAX + lane)


def sender_of(link: LinkId) -> DomainIndex:
    return DomainIndex(link // LANES_MAX // DOMAINS_MAX)


def receiver_of(link: LinkId) -> DomainIndex:
    return DomainIndex(link // LANES_MAX % DOMAINS_MAX)


def lane_of(link: LinkId) -> int:
    return link % LANES_MAX


Clock = dict[str, int]
"""Base shard (its table's name) → the latest sequence number that is reflected."""


# --- writes -----------------------------------------------------------------------------------------------------

Stamps = tuple[tuple[int, Value], ...]
"""(position, the time) of columns with ON UPDATE CURRENT_TIMESTAMP: set where anything else of a row changes."""

Access = tuple[tuple[Columns, tuple[Row, ...]], ...]
"""The constants of a WHERE: every row that it is true for has, in each part's columns, one of the part's keys."""


@dataclass(frozen=True, slots=True)
class RowGuard:
    """What row policies let one user do with the rows of a table: conditions over a stored row, with the user's claims
    as constants. What is not true is not let (``engine/writing/guarding.py``)."""

    table: str
    shows: Expression
    """USING of SELECT."""
    inserted: Expression
    """WITH CHECK of INSERT."""
    updated: Expression
    """USING of UPDATE, and then its WITH CHECK."""
    becomes: Expression
    deleted: Expression
    """USING of DELETE."""


Guards = tuple[RowGuard, ...]
"""Of each table with policies that an operation comes to, also by foreign keys; () where none apply to who writes."""


@dataclass(frozen=True, slots=True)
class Insert:
    """Rows of the table's stored width, already coerced, defaults filled in; None in an AUTO_INCREMENT column asks
    for the next value."""

    table: str
    rows: tuple[Row, ...]
    on_conflict: str = "error"
    """``error``, ``ignore`` (INSERT IGNORE), ``replace`` (REPLACE) or ``update`` (ON DUPLICATE KEY UPDATE);
    or ``list``, which is ``error`` that names every refused row, not only the first (:class:`Refused`)."""
    assignments: tuple[tuple[int, Expression], ...] = ()
    """The assignments of ``update``: (position, expression over the old row ++ the row that was to be inserted ++ what
    stands beside it)."""
    beside: tuple[Row, ...] = ()
    """Further values of the SELECT that each row is from; () where nothing is set to them."""
    returning: bool = False
    """Whether the stored rows are told, as in MariaDB's RETURNING."""
    stamps: Stamps = ()
    guards: Guards = ()
    unchecked: bool = False  # foreign_key_checks = 0: foreign keys refuse nothing, and change nothing.


@dataclass(frozen=True, slots=True)
class Update:
    """UPDATE table SET … WHERE …; expressions over the stored row."""

    table: str
    where: Expression | None
    assignments: tuple[tuple[int, Expression], ...]
    access: Access = ()
    """The engine picks an index by it."""
    limit: int | None = None
    stamps: Stamps = ()
    ignore: bool = False
    """UPDATE IGNORE: a row whose new values a unique key or a CHECK refuses stays as it is."""
    guards: Guards = ()
    unchecked: bool = False


@dataclass(frozen=True, slots=True)
class Delete:
    table: str
    where: Expression | None
    access: Access = ()
    limit: int | None = None
    returning: bool = False
    """Whether the deleted rows are told."""
    guards: Guards = ()
    unchecked: bool = False


@dataclass(frozen=True, slots=True)
class Amend:
    """Change or delete rows that a SELECT has chosen, if all of them are stored still as it saw them."""

    table: str
    rows: tuple[Row, ...]
    """Rows of the stored width; their values in dropped columns mean nothing."""
    beside: tuple[Row, ...] = ()
    """The values that the SELECT computed for each row; () where it computed nothing."""
    assignments: tuple[tuple[int, Expression], ...] | None = None
    """(position, expression over the row ++ what stands beside it); None deletes the rows."""
    single: bool = False
    """Whether a row stands for one of several equal stored rows, and not for all."""
    returning: bool = False
    stamps: Stamps = ()
    also: tuple[Amend, ...] = ()
    """The same of other tables of the shard, in one commit; ``guards`` and ``unchecked`` are of them, too."""
    ignore: bool = False
    """UPDATE IGNORE, in the order of ``rows``."""
    guards: Guards = ()
    unchecked: bool = False


Operation = Insert | Update | Delete | Amend


# --- transactions -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Savepoint:
    """Remember what is staged; one of the same name is forgotten."""

    name: str


@dataclass(frozen=True, slots=True)
class RollBackTo:
    """Have staged what was at the savepoint, which stays; what was read since stays read."""

    name: str


@dataclass(frozen=True, slots=True)
class Release:
    """Forget a savepoint, and those after it."""

    name: str


@dataclass(frozen=True, slots=True)
class Undo:
    """Take back the last operation: another shard has refused its part of the same statement."""


@dataclass(frozen=True, slots=True)
class AwaitLocks:
    """Take the locks that a read ``FOR UPDATE``, or ``FOR SHARE``, has wanted in vain. It is answered when they are
    taken, and the read can be done again."""


@dataclass(frozen=True, slots=True)
class StopWaiting:
    """The statement that waits for a lock here is refused; the transaction stays open."""


@dataclass(frozen=True, slots=True)
class Validate:
    """Whether all that was read here holds still: of a transaction that only reads, in several shards."""


@dataclass(frozen=True, slots=True)
class Prepare:
    """Keep what is staged, and hold what was looked up, until it is committed or rolled back, as the shard ``decider``
    says. It is there after a crash."""

    decider: DomainIndex
    since: float = 0.0
    """When whoever commits asked for it, in seconds since 1970: how long it has been in doubt. 0: not known."""


@dataclass(frozen=True, slots=True)
class Commit:
    others: tuple[DomainIndex, ...] = ()
    """Shards that are prepared. This one decides: the transaction is committed if this is done, and only then."""
    decided: bool = False
    """It was prepared here, and the decider has committed: where nothing is known of it any more, it was done."""
    copies: tuple[PartCopy, ...] = ()
    """What the others have told of their parts, to be kept until all is archived."""


@dataclass(frozen=True, slots=True)
class RollBack:
    """Unless it was committed here: then nothing is done, and ``rows_affected`` is 1."""


@dataclass(frozen=True, slots=True)
class ForgetDecision:
    """All others have committed: what was decided here need not be known any more."""


def is_repeatable(act: TransactionAct) -> bool:
    """Whether it may be asked for again by whoever has not heard what became of it: all that it has done is stored."""
    if isinstance(act, Commit):
        return act.decided or bool(act.others)
    return isinstance(act, (AwaitLocks, StopWaiting, Validate, Prepare, RollBack, ForgetDecision, SnapshotAct))


TransactionAct = (
    Operation
    | Savepoint
    | RollBackTo
    | Release
    | Undo
    | AwaitLocks
    | StopWaiting
    | Validate
    | Prepare
    | Commit
    | RollBack
    | ForgetDecision
    | SnapshotAct
)


def written_tables(operation: TransactionAct) -> list[str]:
    """The tables that it names, the first one first; what foreign keys reach besides is of the shard itself."""
    if not isinstance(operation, (Insert, Update, Delete, Amend)):
        return []
    also = operation.also if isinstance(operation, Amend) else ()
    return [operation.table, *(each.table for each in also)]


# --- packets ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Once:
    """A write's place in a stream of writes, whose numbers begin at 1 (``streams.py``).

    Number 0 has no rows and says that the stream is at its beginning: what is known of it is forgotten.
    """

    stream: str
    number: int


SKIPPING = ", skipping"


@dataclass(frozen=True, slots=True)
class InTransaction:
    """What a transaction wants of a shard; nothing of it is stored before its commit (``engine/transactions``)."""

    id: str
    begins: bool = False
    """It is open from now on, if it was not. Without it, one that is not known has ended."""
    most: int = 0
    """Bytes that its staged rows and look-ups may take; 0: as many as there are."""
    savepoints: tuple[str, ...] = ()
    """Those that it has where it begins."""
    domain: DomainIndex = FIRST_DOMAIN
    """Of the shard that is asked."""
    undoable: bool = False
    """Whether an operation may have to be undone, since others do parts of the same statement."""
    locks: bool = False
    """Whether what it writes, and what it looks up to write, is held against others, who wait; and not its reads."""
    reads: str = ""
    """How such a transaction reads: of its ``snapshot``, or what is ``latest``; or, as a write does, ``exclusive`` or
    ``shared``, with :data:`SKIPPING` behind it where rows that others hold are left out."""
    patience: float = 0.0
    """Seconds that a statement may wait for a lock, whose asker stops it then. 0: not at all."""


Within = Once | InTransaction | None
"""What a write is a part of."""


@dataclass(frozen=True, slots=True)
class Write:
    request: RequestId
    operation: TransactionAct
    """An :data:`Operation`, but in a transaction."""
    within: Within = None


@dataclass(frozen=True, slots=True)
class Read:
    """Fill these keys of a reader; replied to when all of them are filled."""

    request: RequestId
    reader: NodeIndex
    keys: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class EvictKeys:
    request: RequestId
    node: NodeIndex
    keys: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class EvictMemory:
    """Free at least ``excess`` accounted bytes of what is used least. A step of its own, never mixed into another."""

    excess: int


@dataclass(frozen=True, slots=True)
class Touch:
    """Keys that were read: a sample, and others that were not reported lately. For the order of eviction."""

    reader: NodeIndex
    keys: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class Pattern:
    """The pattern of an eviction, for those below: entries that agree with ``values`` may hold no longer.

    ``columns[i]`` are the columns that all carry ``values[i]`` (an equi-join's output has a join column twice).
    ``strict``: an entry with this key was evicted above, so only entries whose key contains every value are meant.
    Else a *row* named it: entries agree on those of their key columns that it knows, of which there is at least one.
    """

    columns: tuple[Columns, ...]
    values: Row
    strict: bool


@dataclass(frozen=True, slots=True)
class Fill:
    """The answer to an upquery: all rows of the sending shard that have ``key`` in ``columns``."""

    node: NodeIndex
    columns: Columns
    key: Row
    rows: tuple[Delta, ...]


@dataclass(frozen=True, slots=True)
class Unfilled:
    """The answer to an upquery of a key that the sending shard cannot read: the hole stays one."""

    node: NodeIndex
    columns: Columns
    key: Row
    error: HeadraceError


@dataclass(frozen=True, slots=True)
class LinkUpdate:
    """The content of one step of the sending domain on one link. Evictions come first, then deltas, then fills."""

    link: LinkId
    sequence: int
    epoch: int
    clock: Clock
    evictions: tuple[tuple[NodeIndex, Pattern], ...] = ()
    """The evictions, each with its receiving ingress."""
    deltas: tuple[tuple[NodeIndex, tuple[Delta, ...]], ...] = ()
    fills: tuple[Fill, ...] = ()
    ended: tuple[NodeIndex, ...] = ()
    """Receiving ingresses for which no more comes over this link: what fed them was removed. Their clock stands."""
    unfilled: tuple[Unfilled, ...] = ()


@dataclass(frozen=True, slots=True)
class Upquery:
    """Against the link's direction: fill ``keys`` of the receiving ingress ``node`` over ``link``."""

    link: LinkId
    epoch: int
    node: NodeIndex
    columns: Columns
    keys: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class PeerReset:
    """Another domain has started anew, as incarnation ``epoch``.

    What came from it is void, and fills that await it are asked for again; links to it begin at sequence 1.
    """

    peer: DomainIndex
    epoch: int


Packet = Write | Read | EvictKeys | EvictMemory | Touch | LinkUpdate | Upquery | PeerReset


# --- effects ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Written:
    rows_affected: int
    clock: Clock
    """The position of the write, which a token carries."""
    first_id: int | None = None
    """The first AUTO_INCREMENT value that was generated for a row which was inserted."""
    repeated: bool = False
    """Its number was done before: nothing was changed now."""
    returned: tuple[Row, ...] = ()
    """The stored rows that RETURNING is about."""
    matched: int = 0
    """Rows that an UPDATE was about, changed or not."""
    copies: tuple[PartCopy, ...] = ()
    """Of what is prepared now: its own part. Of what is committed in several shards: all parts."""


@dataclass(frozen=True, slots=True)
class Refused:
    """Nothing was changed, because of these rows: (number, from 1, and why)."""

    rows: tuple[tuple[int, str], ...]


@dataclass(frozen=True, slots=True)
class Filled:
    pass


@dataclass(frozen=True, slots=True)
class Evicted:
    count: int


@dataclass(frozen=True, slots=True)
class Failed:
    error: HeadraceError


Outcome = Written | Refused | Filled | Evicted | Failed


@dataclass(frozen=True, slots=True)
class Send:
    link: LinkId
    packet: LinkUpdate | Upquery


@dataclass(slots=True)
class Publish:
    """One reader's changes of one step, to be applied in one transaction: evictions, then fills, then deltas."""

    reader: NodeIndex
    evicted: list[Row] = field(default_factory=list)
    filled: list[tuple[Row, list[Delta]]] = field(default_factory=list)
    deltas: list[tuple[Row, Delta]] = field(default_factory=list)
    domain: DomainIndex = FIRST_DOMAIN
    """Whose reader it is: shards of one reader are published apart."""


@dataclass(frozen=True, slots=True)
class Reply:
    request: RequestId
    outcome: Outcome


Effect = Send | Publish | Reply
