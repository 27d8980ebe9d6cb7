"""SQL types, rows and table schemas: what every other file of the engine speaks about.

A value is one of Python's own immutable scalars, and its column's type alone decides which:

=========  ==============================  =====================================================
kind       Python value                    notes
=========  ==============================  =====================================================
INTEGER    ``int`` (never ``bool``)        TINYINT … BIGINT, BOOL (0 or 1), YEAR, BIT; bounds by declared type
DOUBLE     ``float``                       finite, ``-0.0`` becomes ``0.0``; NaN and infinities are refused
DECIMAL    ``decimal.Decimal``             quantised to ``scale`` digits, half up
TEXT       ``str``                         CHAR, VARCHAR, TEXT, ENUM, SET; compared as ``collation.py`` says
BLOB       ``bytes``
DATE       ``str``, ``2026-01-31``         so that order, equality and JSON are those of the text
DATETIME   ``str``, ``2026-01-31 08:00:00`` with ``.ffffff`` only where the fraction is not zero
TIME       ``datetime.timedelta``          −838:59:59 to 838:59:59: ``durations.py``
JSON       ``str``                         a document's one text: ``documents.py``
NULL       ``None``                        the type of a bare NULL; every kind admits ``None``
=========  ==============================  =====================================================

Rows are tuples. A column never mixes ``1``, ``True`` and ``1.0``, which Python calls equal.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal
from enum import StrEnum

from domains.language.collating.collation import Collation, Collations, collated

Value = None | int | float | str | bytes | Decimal | timedelta
Row = tuple[Value, ...]
Delta = tuple[Row, int]
"""A row and its weight: +n inserts n copies, -n retracts them (a Z-set's element)."""


class Kind(StrEnum):
    INTEGER = "INTEGER"
    DOUBLE = "DOUBLE"
    DECIMAL = "DECIMAL"
    TEXT = "TEXT"
    BLOB = "BLOB"
    DATE = "DATE"
    DATETIME = "DATETIME"
    TIME = "TIME"
    JSON = "JSON"
    NULL = "NULL"


@dataclass(frozen=True, slots=True)
class SqlType:
    """A SQL type. ``name`` is how it is printed (``VARCHAR(40)``, ``BIGINT``)."""

    kind: Kind
    name: str
    length: int | None = None
    """Greatest number of characters (TEXT) or bytes (BLOB), or of digits in all (DECIMAL; None: 65)."""
    scale: int = 0
    """Digits after the point (DECIMAL)."""
    low: int | None = None
    """Least value (INTEGER, and 0 for an unsigned DECIMAL or DOUBLE)."""
    high: int | None = None
    members: tuple[str, ...] = ()
    """The members of ENUM and SET, which are TEXT: a member's name, or those of several with commas between them, in
    this order. As a number, and in ORDER BY, a value is its place from 1 on, or a bit for each member."""
    collation: Collation | None = None
    """The collation of TEXT; None: by code point."""

    @property
    def equality(self) -> Collation | None:
        """The equality of its values, by which keys are made of them; None: Python's own."""
        return Collation.DOCUMENT if self.kind is Kind.JSON else self.collation

    @property
    def is_set(self) -> bool:
        """Whether it is a SET, where it has members."""
        return self.name.startswith("SET")

    def __str__(self) -> str:
        return self.name


BIGINT = SqlType(Kind.INTEGER, "BIGINT", low=-(2**63), high=2**63 - 1)
YEAR = SqlType(Kind.INTEGER, "YEAR", low=0, high=2155)
BOOL = SqlType(Kind.INTEGER, "BOOL", low=-128, high=127)
DOUBLE = SqlType(Kind.DOUBLE, "DOUBLE")
TEXT = SqlType(Kind.TEXT, "TEXT")
BLOB = SqlType(Kind.BLOB, "BLOB")
DATE = SqlType(Kind.DATE, "DATE")
DATETIME = SqlType(Kind.DATETIME, "DATETIME")
TIME = SqlType(Kind.TIME, "TIME")
JSON = SqlType(Kind.JSON, "JSON")
NULL = SqlType(Kind.NULL, "NULL")


def decimal_type(scale: int) -> SqlType:
    """DECIMAL with ``scale`` digits after the point, wide enough for any result."""
    return SqlType(Kind.DECIMAL, f"DECIMAL(65,{scale})", scale=scale)


KEPT_HERE = {"sent": False}
"""Of a field that no other process is told."""


@dataclass(frozen=True, slots=True)
class Column:
    """One output column of a node or a view."""

    name: str
    type: SqlType
    origin: Origin | None = field(default=None, compare=False, repr=False, metadata=KEPT_HERE)
    """For clients that ask for it; of answers alone."""


@dataclass(frozen=True, slots=True)
class Origin:
    """What the text of a query says about a column of its answer: MySQL's clients are told."""

    title: str
    """Its name; two columns of an answer may have the same one."""
    source: str = ""
    """The table's name in the query, or that of a view or derived table; "" for an expression."""
    named: str = ""
    """Which table that is; of a view or derived table its name again, or that of the table below, which it copies."""
    column: str = ""
    """The column's name in it."""
    schema: str = ""
    """The database of that table."""
    table: TableSchema | None = None
    """The base table whose values they are, unchanged; None where they are computed."""
    at: int = 0
    """Where in that table's rows."""
    nullable: bool = True
    """Whether the column, or an outer join, admits NULL."""
    copied: bool = False
    """A derived table that groups, or is cut, has rows of its own: keys do not tell them apart."""


def collations_of(columns: Iterable[Column | TableColumn]) -> Collations:
    """The collations of a row with these columns."""
    return collated([column.type.equality for column in columns])


@dataclass(frozen=True, slots=True)
class StoredExpression:
    """An expression over a table's stored row, as a part of its schema."""

    sql: str
    """The text of the definition."""
    encoded: str
    """The form for the engine: ``json_rows.decoded_expression``."""


@dataclass(frozen=True, slots=True)
class Check:
    """A condition that no stored row makes false. NULL is not false."""

    name: str
    condition: StoredExpression


class Reaction(StrEnum):
    """The fate of the rows that name a row which goes, or whose key changes."""

    NO_ACTION = "NO ACTION"
    RESTRICT = "RESTRICT"
    """The write is refused; the same as NO ACTION, as in MySQL."""
    CASCADE = "CASCADE"
    SET_NULL = "SET NULL"


@dataclass(frozen=True, slots=True)
class ForeignKey:
    """Each row names by ``columns`` a row of table ``parent``, unless one of them is NULL."""

    name: str
    columns: tuple[int, ...]
    parent: str
    key: tuple[str, ...]
    """The parent's columns, in the order of ``columns``: a unique key of it, where the foreign key is enforced."""
    on_delete: Reaction = Reaction.NO_ACTION
    on_update: Reaction = Reaction.NO_ACTION
    enforced: bool = True
    """False: NOT ENFORCED. Nothing is checked, and the parent need not be there."""


@dataclass(frozen=True, slots=True)
class TableColumn:
    """One column of a base table. Its position in the stored row never changes, even after it is dropped."""

    name: str
    type: SqlType
    nullable: bool = True
    default: Value = None
    has_default: bool = False
    """False: an omitted value is NULL where the column is nullable, else an error."""
    default_now: bool = False
    """DEFAULT CURRENT_TIMESTAMP: the writer stamps the time before the row reaches the engine."""
    auto_increment: bool = False
    dropped: bool = False
    on_update_now: bool = False
    """ON UPDATE CURRENT_TIMESTAMP: where an UPDATE changes something else of the row, and does not set it."""
    generated: StoredExpression | None = None
    """Its value is computed of the row when that is written, whether it is declared VIRTUAL or STORED."""
    virtual: bool = False
    initial: Value = None
    """The value in rows that were stored before the column came, where ``has_initial``; else it is ``default``."""
    has_initial: bool = False
    initial_of: StoredExpression | None = None
    """Where that value is computed of each of these rows instead (``store/widening.py``)."""
    hidden: bool = False
    """It is generated for a key, as MySQL has it for functional and prefix keys: no statement sees it. Its name is that
    part of the key."""
    comment: str = field(default="", compare=False, repr=False)
    """No row depends on it: the column is the same one with another, and no shard is told; nor is it in the schema's
    version, which is made of what is shown of it."""


UNKNOWN_GENERATION = -1
"""The generation of a table that an earlier version wrote: it is taken for the recipe's table of the same name."""


FOLLOWS = "@follows "
"""How the comment of a table begins whose rows are those of a database elsewhere, whose name comes behind: nobody but
who follows that writes to it."""


@dataclass(frozen=True, slots=True)
class TableSchema:
    """A base table as the catalog knows it. Columns are append-only; a dropped one stays as a tombstone.

    ``primary_key`` and the entries of ``unique`` and ``indexes`` are positions in ``columns``. A table without a
    primary key is a bag: equal rows may stand in it several times.
    """

    name: str
    columns: tuple[TableColumn, ...]
    primary_key: tuple[int, ...] = ()
    unique: tuple[tuple[int, ...], ...] = ()
    indexes: tuple[tuple[int, ...], ...] = ()
    index_names: tuple[str, ...] = ()
    """The names of ``indexes``, in their order, for DROP INDEX."""
    shard_by: int | None = None
    """The column that decides a row's shard; None: the first of the primary key, else the first column."""
    shards: int = 0
    """Number of shards of the table; 0: as many as the deployment has."""
    generation: int = 0
    """Number of tables of the same name that were dropped before this one was created (``sharding.base_shard``)."""
    checks: tuple[Check, ...] = ()
    foreign_keys: tuple[ForeignKey, ...] = ()
    order: tuple[int, ...] = ()
    """Positions in the order in which columns are shown, where FIRST or AFTER have changed it; others come behind."""
    unique_names: tuple[str, ...] = ()
    """The names of ``unique``, in their order."""
    late_primary: bool = False
    """The first of ``unique`` is the PRIMARY KEY: it came by ALTER TABLE, and rows are stored as those of a bag."""
    collation: Collation | None = None
    """The collation of texts in columns that come later and name none."""
    filled: str = ""
    """Names the CREATE TABLE … AS SELECT that it comes of: no two have one name."""
    filling: bool = False
    """It has rows already and is not decided yet: nobody else knows of it (``control.py``)."""
    shown: str = ""
    """The name that SQL has for it since RENAME TABLE; "": ``name``, by which it is stored, logged and archived."""
    policies: int = 0
    """Stands for its row policies, and those of tables that foreign keys reach from it: whoever plans by others has
    another schema, and is refused (``migrations/catalog.py``)."""
    comment: str = field(default="", compare=False, repr=False)
    """As that of a column."""

    @property
    def title(self) -> str:
        """The name that SQL has for the table."""
        return self.shown or self.name

    @property
    def shown_key(self) -> tuple[int, ...]:
        """The PRIMARY KEY as SQL knows it, whether rows are stored by it or not."""
        return self.unique[0] if self.late_primary else self.primary_key

    @property
    def shard_column(self) -> int:
        if self.shard_by is not None:
            return self.shard_by
        return self.primary_key[0] if self.primary_key else min(self.live())

    def position(self, name: str) -> int | None:
        """The position of the live column ``name`` (in any case), or None."""
        wanted = name.lower()
        for position, column in enumerate(self.columns):
            if not column.dropped and not column.hidden and column.name.lower() == wanted:
                return position
        return None

    def is_the_table(self, other: TableSchema) -> bool:
        """Whether both are the same table, perhaps altered, rather than a dropped one and its successor, or one that
        was being filled when it was given up."""
        if (self.filling or other.filling) and self.filled != other.filled:
            return False
        return UNKNOWN_GENERATION in (self.generation, other.generation) or self.generation == other.generation

    def live(self) -> tuple[int, ...]:
        """The positions of the columns that are not dropped, in the order in which they are shown."""
        places: Iterable[int] = range(len(self.columns))
        if self.order:
            places = (*self.order, *(place for place in places if place not in self.order))
        columns = self.columns
        return tuple([place for place in places if not columns[place].dropped and not columns[place].hidden])
