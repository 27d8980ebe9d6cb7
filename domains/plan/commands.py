"""Changes of a domain's graph: the control plane's vocabulary (``packets.py`` is the data plane's).

A migration's order is: tables, ``AddNodes`` (invisible), ``BuildIndex`` and ``Feed`` in slices between steps,
``Activate``. In bulk, ``LoadState``, ``StartReplay`` and ``Follow`` stand in the place of ``Feed`` (``replay.py``).
Until the last, ``RemoveNodes`` undoes all of it. Before a table is altered, ``Expect`` and ``CheckRows`` find out
whether its rows allow it; ``Relent`` undoes that.

A table that is made of a SELECT is created with ``filling`` in its schema and filled by ``FillTable`` before it is
decided; then ``AlterTable`` takes the mark away. ``Relent`` undoes that, too.
"""

from __future__ import annotations

from dataclasses import dataclass

from domains.language.collating.collation import Collation
from domains.language.types import Row, TableSchema
from domains.plan.graph import Columns, Node, NodeIndex
from domains.plan.packets import Insert, LinkId
from domains.plan.sharding import shard_of


@dataclass(frozen=True, slots=True)
class CreateTable:
    schema: TableSchema


@dataclass(frozen=True, slots=True)
class AlterTable:
    schema: TableSchema


@dataclass(frozen=True, slots=True)
class Expect:
    """Refuse from now on what breaks a schema that the table is to have, if all of its rows allow it."""

    schema: TableSchema


@dataclass(frozen=True, slots=True)
class CheckRows:
    """Check the next ``limit`` stored rows by the schema that is expected."""

    table: str
    limit: int


@dataclass(frozen=True, slots=True)
class Relent:
    """Expect nothing more of a table. What was begun for it goes."""

    table: str


@dataclass(frozen=True, slots=True)
class FillTable:
    """Write rows to a table that was created to be filled, and that is not decided yet."""

    operation: Insert


@dataclass(frozen=True, slots=True)
class DropTable:
    table: str


@dataclass(frozen=True, slots=True)
class Part:
    """One shard's part of a shuffle: the rows with ``shard_of(row[column], shards) == number``."""

    column: int
    shards: int
    number: int
    collation: Collation | None = None
    """The column's."""

    def has(self, row: Row) -> bool:
        return shard_of(row[self.column], self.shards, self.collation) == self.number


@dataclass(frozen=True, slots=True)
class Route:
    """An egress and the ingress that it feeds over a link."""

    egress: NodeIndex
    link: LinkId
    ingress: NodeIndex
    bases: frozenset[str]
    """The base shards whose changes come this way: for these the link carries a clock."""
    part: Part | None = None
    """None: all rows go this way."""


@dataclass(frozen=True, slots=True)
class AddNodes:
    """Nodes of this domain in topological order, and the routes that begin or end at them."""

    nodes: tuple[Node, ...]
    outgoing: tuple[Route, ...] = ()
    incoming: tuple[Route, ...] = ()
    held: frozenset[NodeIndex] = frozenset()
    """Reads of these of the nodes wait until ``Activate``: they are known already, and are being built again."""
    bulk: bool = False
    """Full states come by ``LoadState`` and ``Follow``, and not by ``Feed``."""


@dataclass(frozen=True, slots=True)
class ExtendNodes:
    """Running nodes that are given further indexes or drives."""

    nodes: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class BuildIndex:
    """Bring the next ``limit`` stored rows into a base table's index."""

    table: str
    columns: Columns
    limit: int


@dataclass(frozen=True, slots=True)
class Feed:
    """Feed the next ``limit`` base rows to the vertices that are being backfilled."""

    limit: int


@dataclass(frozen=True, slots=True)
class LoadState:
    """Add items (a block of ``domains/archive/rows.py``) to the state of a full vertex that is being built in
    bulk."""

    node: NodeIndex
    items: bytes


@dataclass(frozen=True, slots=True)
class StartReplay:
    """All domains have loaded their states. Read the next ``limit`` rows of the logs that look-ups need."""

    positions: dict[str, int]
    """The position of each table that the states are as of."""
    limit: int


@dataclass(frozen=True, slots=True)
class Follow:
    """Replay the next ``limit`` rows of the log. When it is finished there are no more, and updates go on at once."""

    limit: int


@dataclass(frozen=True, slots=True)
class Activate:
    """The backfill is complete: its vertices join the others."""


@dataclass(frozen=True, slots=True)
class RemoveNodes:
    nodes: tuple[NodeIndex, ...]


Command = (
    CreateTable
    | AlterTable
    | Expect
    | CheckRows
    | Relent
    | DropTable
    | FillTable
    | AddNodes
    | ExtendNodes
    | BuildIndex
    | Feed
    | LoadState
    | StartReplay
    | Follow
    | Activate
    | RemoveNodes
)


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a sliced command has come: rows done, and whether that was all.

    ``limit`` is of one slice: who performs the command may do several before it tells.
    """

    rows: int
    finished: bool
