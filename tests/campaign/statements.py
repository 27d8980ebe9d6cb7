"""The operations of a case: statements that change data or graph, and what is done to the subject between them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tests.campaign.kinds import Kind, Value, literal
from tests.campaign.queries import Query, View
from tests.campaign.rendering import mysql, view_text
from tests.campaign.schema import Column, Reference, Table, key_name
from tests.campaign.terms import Term

Assignment = tuple[str, Term]


def _set_text(assignments: tuple[Assignment, ...]) -> str:
    return ", ".join(f"{name} = {term.mysql()}" for name, term in assignments)


@dataclass(frozen=True, slots=True)
class CreateTable:
    table: Table

    def text(self) -> str:
        return self.table.ddl()


@dataclass(frozen=True, slots=True)
class Insert:
    """``mode``: ``""``, ``ignore``, ``replace`` or ``update`` (ON DUPLICATE KEY UPDATE ``assignments``)."""

    table: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Value, ...], ...]
    mode: str = ""
    assignments: tuple[Assignment, ...] = ()

    def text(self) -> str:
        verb = {"ignore": "INSERT IGNORE", "replace": "REPLACE"}.get(self.mode, "INSERT")
        rows = ", ".join("(" + ", ".join(literal(value) for value in row) + ")" for row in self.rows)
        text = f"{verb} INTO {self.table} ({', '.join(self.columns)}) VALUES {rows}"
        return text + (f" ON DUPLICATE KEY UPDATE {_set_text(self.assignments)}" if self.mode == "update" else "")


def _where_text(where: Term | None, drawn: bool) -> str:
    """What is drawn lets every row pass."""
    conditions = [where.mysql()] if where is not None else []
    if drawn:
        conditions = [*(f"({each})" for each in conditions), "RAND() < 1"]
    return f" WHERE {' AND '.join(conditions)}" if conditions else ""


@dataclass(frozen=True, slots=True)
class Update:
    table: str
    assignments: tuple[Assignment, ...]
    where: Term | None
    drawn: bool = False
    """RAND() in it, where all that it may be comes to the same."""
    ignore: bool = False
    """UPDATE IGNORE; of a table with a primary key, whose order its rows are taken in."""

    def text(self) -> str:
        nought = " + CAST(FLOOR(RAND()) AS SIGNED)"
        sets = ", ".join(
            f"{name} = ({term.mysql()}){nought}"
            if self.drawn and term.type.kind is Kind.INT
            else f"{name} = {term.mysql()}"
            for name, term in self.assignments
        )
        return f"UPDATE {'IGNORE ' * self.ignore}{self.table} SET {sets}{_where_text(self.where, self.drawn)}"


@dataclass(frozen=True, slots=True)
class Delete:
    table: str
    where: Term | None
    drawn: bool = False

    def text(self) -> str:
        return f"DELETE FROM {self.table}{_where_text(self.where, self.drawn)}"


@dataclass(frozen=True, slots=True)
class CreateView:
    """``spare`` takes the place of ``view`` where the subject says Unsupported."""

    view: View
    spare: View | None = None

    def text(self) -> str:
        return f"CREATE {'EXT ' if self.view.external else ''}VIEW {self.view.name} AS {view_text(self.view.query)}"


@dataclass(frozen=True, slots=True)
class DropView:
    name: str

    def text(self) -> str:
        return f"DROP VIEW {self.name}"


@dataclass(frozen=True, slots=True)
class AddColumn:
    table: str
    column: Column

    def text(self) -> str:
        return f"ALTER TABLE {self.table} ADD COLUMN {self.column.ddl()}"


@dataclass(frozen=True, slots=True)
class DropColumn:
    table: str
    column: str

    def text(self) -> str:
        return f"ALTER TABLE {self.table} DROP COLUMN {self.column}"


@dataclass(frozen=True, slots=True)
class AskMore:
    """What is refused where a row that is stored breaks it: ``what`` is UNIQUE, PRIMARY KEY or NOT NULL."""

    table: str
    columns: tuple[Column, ...]
    what: str

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    def text(self) -> str:
        if self.what == "NOT NULL":
            changed = ", ".join(f"MODIFY {replace(column, nullable=False).ddl()}" for column in self.columns)
            return f"ALTER TABLE {self.table} {changed}"
        what = f"UNIQUE KEY {key_name(self.names, 'u')}" if self.what == "UNIQUE" else self.what
        return f"ALTER TABLE {self.table} ADD {what} ({', '.join(self.names)})"


@dataclass(frozen=True, slots=True)
class AlterConstraint:
    """An index, a UNIQUE key, a check (its name and condition) or a foreign key that comes or goes. What comes is
    refused where rows break it."""

    table: str
    what: Key | tuple[str, Term] | Reference
    comes: bool

    def text(self) -> str:
        match self.what:
            case Key(columns, unique):
                name = key_name(columns, "u" if unique else "i")
                added, gone = f"{'UNIQUE ' * unique}KEY {name} ({', '.join(columns)})", f"KEY {name}"
            case Reference(name):
                added, gone = self.what.ddl(), f"FOREIGN KEY {name}"
            case (name, condition):
                added, gone = f"CONSTRAINT {name} CHECK ({condition.mysql()})", f"CHECK {name}"
        return f"ALTER TABLE {self.table} " + (f"ADD {added}" if self.comes else f"DROP {gone}")


@dataclass(frozen=True, slots=True)
class Key:
    columns: tuple[str, ...]
    unique: bool


@dataclass(frozen=True, slots=True)
class RenameTables:
    """For good: one table has a name of its own from now on, or two have each other's. All other operations go on to
    speak of them by their first names."""

    tables: tuple[str, ...]
    number: int

    def text(self) -> str:
        first, *others = self.tables
        if not others:
            return f"RENAME TABLE {first} TO renamed{self.number}"
        return f"RENAME TABLE {first} TO aside, {others[0]} TO {first}, aside TO {others[0]}"


@dataclass(frozen=True, slots=True)
class RenameColumns:
    """One column is called otherwise for a while, or two have each other's names; then all is as it was."""

    table: str
    columns: tuple[str, ...]
    salt: int
    inside: tuple[Operation, ...] = ()
    """What is done meanwhile; the writes are of this table."""

    @property
    def names(self) -> dict[str, str]:
        """What columns are called meanwhile."""
        first, *others = self.columns
        return {first: others[0], others[0]: first} if others else {first: "elsewhere"}

    def text(self, back: bool = False) -> str:
        first, *others = self.columns
        pairs = [(first, others[0]), (others[0], first)] if others else [(first, "elsewhere")]
        if back and not others:
            pairs = [(new, old) for old, new in pairs]
        return f"ALTER TABLE {self.table} " + ", ".join(f"RENAME COLUMN {old} TO {new}" for old, new in pairs)


THROUGH = {
    Kind.INT: ("VARCHAR(30)", "DECIMAL(30,2)", "DOUBLE"),
    Kind.TXT: ("VARBINARY(255)", "VARCHAR(300)"),
    Kind.DEC: ("VARCHAR(40)", "DECIMAL(30,6)"),
    Kind.DATE: ("DATETIME", "VARCHAR(30)"),
    Kind.DBL: ("VARCHAR(40)",),
    Kind.TIME: ("VARCHAR(30)",),
}
"""Types that have another value for each value of the column's."""


@dataclass(frozen=True, slots=True)
class RetypeColumn:
    """A column is of another type for a while, and rows have what is computed of it; then all is as it was, but for
    where they are stored."""

    table: str
    column: Column
    through: str
    salt: int
    inside: tuple[Operation, ...] = ()
    """What is done meanwhile."""

    def text(self, back: bool = False) -> str:
        column = self.column if back else replace(self.column, declared=self.through)
        return f"ALTER TABLE {self.table} MODIFY {column.ddl()}"

    @property
    def copy(self) -> str:
        return f"{self.column.name}_copied"

    def copied(self) -> str:
        kept = f"{self.copy} {self.column.declared} AS ({self.column.name})"
        return f"ALTER TABLE {self.table} ADD COLUMN {kept} STORED, ADD KEY {self.copy} ({self.copy})"

    def without_copy(self) -> str:
        return f"ALTER TABLE {self.table} DROP KEY {self.copy}, DROP COLUMN {self.copy}"


@dataclass(frozen=True, slots=True)
class ChangeColumn:
    """For good: a column has another name, type or place. All that comes later speaks of it as it is then."""

    table: str
    name: str
    column: Column
    place: str = ""
    """FIRST or AFTER another one."""
    plain: bool = False
    """RENAME COLUMN, and not CHANGE."""

    def text(self) -> str:
        if self.plain:
            return f"ALTER TABLE {self.table} RENAME COLUMN {self.name} TO {self.column.name}"
        way = "MODIFY" if self.column.name == self.name else f"CHANGE {self.name}"
        return f"ALTER TABLE {self.table} {way} {self.column.ddl()}{self.place}"

    def of(self, table: Table) -> Table:
        """The table with the column as it is to be."""
        columns = [self.column if each.name == self.name else each for each in table.columns]
        if self.place:
            columns.remove(self.column)
            after = self.place.removeprefix(" AFTER ")
            at = 0 if self.place == " FIRST" else 1 + [each.name for each in columns].index(after)
            columns.insert(at, self.column)
        return replace(table, columns=tuple(columns)).renamed(table.name, self.name, self.column.name)


@dataclass(frozen=True, slots=True)
class AdHoc:
    """A SELECT without parameters, run as a statement, at quiescence. ``variables`` are set before, in the same text;
    the query reads them."""

    query: Query
    variables: tuple[tuple[str, str], ...] = ()

    def text(self) -> str:
        sets = ", ".join(f"@{name} = {value}" for name, value in self.variables)
        return (f"SET {sets}; " if sets else "") + mysql(self.query)


@dataclass(frozen=True, slots=True)
class Joined:
    """DELETE of the matching rows of ``written``, or UPDATE of them by ``assignments``: (table, column, value). The
    values depend on the assigned row alone, so that it does not matter which match is taken."""

    tables: tuple[str, str]
    written: tuple[str, ...]
    on: Term
    where: Term | None
    assignments: tuple[tuple[str, str, Term], ...] = ()

    @property
    def table(self) -> str:
        return self.written[0]

    def text(self) -> str:
        join = f"{self.tables[0]} JOIN {self.tables[1]} ON {self.on.mysql()}"
        where = _where_text(self.where, drawn=False)
        if not self.assignments:
            return f"DELETE {', '.join(self.written)} FROM {join}{where}"
        sets = ", ".join(f"{table}.{name} = {term.mysql()}" for table, name, term in self.assignments)
        return f"UPDATE {join} SET {sets}{where}"


Write = Insert | Update | Delete | Joined


@dataclass(frozen=True, slots=True)
class Aim:
    """The write, with foreign keys that name rows which are there, or of a row that others name (``aiming.py``)."""

    write: Write
    salt: int

    def text(self) -> str:
        return self.write.text()


Renaming = RenameTables | RenameColumns | RetypeColumn | ChangeColumn
Alteration = AddColumn | DropColumn | AskMore | AlterConstraint | Renaming
Change = CreateTable | CreateView | DropView | Alteration
Statement = Write | Aim | Change | AdHoc


@dataclass(frozen=True, slots=True)
class Lookup:
    """Read ``count`` keys, drawn by ``salt`` from the view's parameters; answers are not compared (updates may be
    under way), but what they fill is, later."""

    view: str
    salt: int
    count: int = 1

    def text(self) -> str:
        return f"lookup {self.view}"


@dataclass(frozen=True, slots=True)
class Evict:
    view: str
    salt: int

    def text(self) -> str:
        return f"evict {self.view}"


@dataclass(frozen=True, slots=True)
class Pressure:
    salt: int

    def text(self) -> str:
        return "memory pressure"


@dataclass(frozen=True, slots=True)
class Restart:
    def text(self) -> str:
        return "restart"


@dataclass(frozen=True, slots=True)
class Steps:
    salt: int
    count: int

    def text(self) -> str:
        return f"deliver {self.count} packets"


@dataclass(frozen=True, slots=True)
class Compare:
    """Settle, then compare some keys of some views with the judge; ``every``: of all views, and more keys."""

    salt: int
    every: bool = False

    def text(self) -> str:
        return "compare"


Act = Lookup | Evict | Pressure | Restart | Steps | Compare
Operation = Statement | Act
