"""Random base tables: every column kind, nullable or not, with and without keys (a table without one is a bag)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

from tests.campaign.kinds import DATE, DBL, INT, JSON, TIME, TXT, Kind, Type, Value, dec, draw, literal
from tests.campaign.terms import Term

_TYPES = (
    (INT, "INT", 6),
    (TXT, "VARCHAR(12)", 4),
    (dec(2), "DECIMAL(8,2)", 2),
    (DATE, "DATE", 2),
    (DBL, "DOUBLE", 1),
    (TIME, "TIME", 1),
    (TXT, "ENUM", 3),
    (TXT, "SET", 1),
    (JSON, "JSON", 2),
)
_MEMBERS = (("b", "a", "ab", "B"), ("e", "d", "c", "b", "a"), ("2x", "a", "10"))
_ALIASES = {"INT": ("INT", "BIGINT", "INTEGER"), "VARCHAR(12)": ("VARCHAR(12)", "VARCHAR(12)", "TEXT")}


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    type: Type
    declared: str
    nullable: bool = True
    default: Value = None
    has_default: bool = False
    generated: Term | None = None
    """What it is computed of; then it has no default, and no write gives it a value."""
    virtual: bool = False
    auto: bool = False
    """AUTO_INCREMENT."""

    @property
    def can_be_key(self) -> bool:
        return self.declared != "TEXT" and self.type.kind not in (Kind.DBL, Kind.JSON)

    @property
    def whole_digits(self) -> int:
        """Of a DECIMAL."""
        return int(self.declared[8:].partition(",")[0]) - self.type.scale

    @property
    def width(self) -> int | None:
        """The greatest number of characters."""
        return int(self.declared[8:-1]) if self.declared.startswith("VARCHAR") else None

    def ddl(self) -> str:
        text = f"{self.name} {self.declared}"
        if self.generated is not None:
            text += f" AS ({self.generated.mysql()}) {'VIRTUAL' if self.virtual else 'STORED'}"
        if not self.nullable:
            text += " NOT NULL"
        if self.has_default:
            text += f" DEFAULT {literal(self.default)}"
        return text + " AUTO_INCREMENT" * self.auto


@dataclass(frozen=True, slots=True)
class Reference:
    """A foreign key: ``columns`` name a row of ``parent`` by its ``key``."""

    name: str
    columns: tuple[str, ...]
    parent: str
    key: tuple[str, ...]
    on_delete: str
    on_update: str

    def ddl(self) -> str:
        named = f"FOREIGN KEY ({', '.join(self.columns)}) REFERENCES {self.parent} ({', '.join(self.key)})"
        return f"CONSTRAINT {self.name} {named} ON DELETE {self.on_delete} ON UPDATE {self.on_update}"


@dataclass(frozen=True, slots=True)
class Table:
    """A base table as the program knows it; keys hold column names."""

    name: str
    columns: tuple[Column, ...]
    primary_key: tuple[str, ...] = ()
    unique: tuple[tuple[str, ...], ...] = ()
    indexes: tuple[tuple[str, ...], ...] = ()
    shard_by: str = ""
    """The column that decides a row's shard; empty where there are no shards."""
    clause: str = ""
    """What CREATE TABLE says of it; nothing where it is the column that is taken anyway."""
    spread: bool = False
    """The table has more than one shard."""
    checks: tuple[tuple[str, Term], ...] = ()
    """Names and conditions."""
    references: tuple[Reference, ...] = ()
    is_parent: bool = False
    """Others, or itself, have foreign keys to it. The judge finds that out by itself."""

    def column(self, name: str) -> Column:
        return next(column for column in self.columns if column.name == name)

    @property
    def auto(self) -> str:
        """The AUTO_INCREMENT column, if it has one."""
        return next((column.name for column in self.columns if column.auto), "")

    def renamed(self, table: str, old: str, new: str) -> Table:
        """As it speaks of a column of ``table``, itself or another one, that is called ``new`` now."""

        def now(names: tuple[str, ...], of: str) -> tuple[str, ...]:
            return tuple(new if name == old and of == table else name for name in names)

        references = tuple(
            replace(each, columns=now(each.columns, self.name), key=now(each.key, each.parent))
            for each in self.references
        )
        shard_by = "".join(now((self.shard_by,), self.name))
        return replace(self, primary_key=now(self.primary_key, self.name), shard_by=shard_by, references=references)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    @property
    def keys(self) -> tuple[tuple[str, ...], ...]:
        """The primary key first, then the unique ones: the order in which a duplicate is looked for."""
        return ((self.primary_key,) if self.primary_key else ()) + self.unique

    @property
    def key_columns(self) -> frozenset[str]:
        return (
            frozenset(name for key in (*self.keys, *self.indexes, (self.shard_by,)) for name in key)
            | self.read_columns
            | self.naming
        )

    @property
    def read_columns(self) -> frozenset[str]:
        """What checks and generated columns read."""
        terms = [*(term for _, term in self.checks), *(c.generated for c in self.columns if c.generated is not None)]
        return frozenset(part.column[1] for term in terms for part in term.walk() if part.column is not None)

    @property
    def naming(self) -> frozenset[str]:
        """The columns of foreign keys."""
        return frozenset(name for reference in self.references for name in reference.columns)

    def ddl(self) -> str:
        parts = [column.ddl() for column in self.columns]
        if self.primary_key:
            parts.append(f"PRIMARY KEY ({', '.join(self.primary_key)})")
        parts += [f"UNIQUE KEY {key_name(key, 'u')} ({', '.join(key)})" for key in self.unique]
        parts += [f"INDEX {key_name(key, 'i')} ({', '.join(key)})" for key in self.indexes]
        parts += [f"CONSTRAINT {name} CHECK ({term.mysql()})" for name, term in self.checks]
        parts += [reference.ddl() for reference in self.references]
        return f"CREATE TABLE {self.name} ({', '.join(parts)}){self.clause}"


def key_name(key: tuple[str, ...], prefix: str) -> str:
    """``prefix``: ``u`` of a UNIQUE key, ``i`` of another index."""
    return "_".join((prefix, *key))


def random_column(random: Random, name: str, *, key: bool = False) -> Column:
    """A column; for a key a short one, never of floats."""
    while True:
        type, declared, _ = random.choices(_TYPES, [weight for *_, weight in _TYPES])[0]
        if not (key and type in (DBL, JSON)):
            break
    if declared in ("ENUM", "SET"):
        type = replace(type, members=random.choice(_MEMBERS), is_set=declared == "SET")
        declared += f"({', '.join(map(literal, type.members))})"
    declared = random.choice(_ALIASES.get(declared, (declared,)))
    if key and declared == "TEXT":
        declared = "VARCHAR(12)"
    has_default = declared not in ("TEXT", "JSON") and random.random() < 0.25
    nullable = not key and random.random() < 0.65
    default = draw(random, type) if has_default else None
    return Column(name, type, declared, nullable, default, has_default)


def random_table(random: Random, name: str, shards: int = 1) -> Table:
    """Two to five columns; a single, composite or no primary key, at most one UNIQUE beside it."""
    keyed = random.choices((0, 1, 2), (3, 6, 2))[0]
    count = random.randint(max(2, keyed + 1), 5)
    columns = []
    for i in range(count):
        column = random_column(random, f"c{i}", key=i < keyed)
        if i == 0 and keyed == 1 and random.random() < 0.8:
            column = Column("c0", INT, "INT", nullable=False)
        columns.append(column)
    shorts = [column.name for column in columns[keyed:] if column.can_be_key]
    unique: tuple[tuple[str, ...], ...] = ()
    if shorts and random.random() < 0.2:
        unique = (tuple(random.sample(shorts, min(len(shorts), random.choice((1, 1, 2))))),)
    indexes: tuple[tuple[str, ...], ...] = ()
    if shorts and random.random() < 0.4:
        indexes = (tuple(random.sample(shorts, min(len(shorts), random.choice((1, 1, 2))))),)
    key = tuple(column.name for column in columns[:keyed])
    table = Table(name, tuple(columns), key, unique, indexes)
    return table if shards == 1 else _sharded(random, table, shards)


def _sharded(random: Random, table: Table, shards: int) -> Table:
    """By a column that every key has; where there is none, in one shard."""
    if table.primary_key and table.unique and random.random() < 0.5:
        table = replace(table, unique=((*table.unique[0], random.choice(table.primary_key)),))
    free = [name for name in table.names if all(name in key for key in table.keys)]
    taken = table.primary_key[0] if table.primary_key else table.names[0]
    if not free or random.random() < 0.12:
        column = random.choice(table.names)
        return replace(table, shard_by=column, clause=f" SHARD BY ({column}) SHARDS 1")
    if taken in free and random.random() < 0.5:
        return replace(table, shard_by=taken, spread=True)
    column, factor = random.choice(free), random.choice((0, *range(2, shards + 1)))
    clause = f" SHARD BY ({column})" + (f" SHARDS {factor}" if factor else "")
    return replace(table, shard_by=column, clause=clause, spread=True)
