"""A case: everything that one seed decides, before anything runs. The same seed gives the same operations, always."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from random import Random

from tests.campaign.asking_again import as_it_reads_now
from tests.campaign.constraints import constrained, random_alteration, random_generated, referring
from tests.campaign.kinds import INT, JSON, TXT, Kind, draw
from tests.campaign.queries import Output, Query, Select, Source, View, breadth, read_views, used_columns
from tests.campaign.rendering import parameters
from tests.campaign.schema import Column, Reference, Table, random_column, random_table
from tests.campaign.selects import Queries, readable, stored
from tests.campaign.statements import (
    THROUGH,
    AddColumn,
    AdHoc,
    Aim,
    AskMore,
    ChangeColumn,
    Compare,
    CreateTable,
    CreateView,
    Delete,
    DropColumn,
    DropView,
    Evict,
    Insert,
    Key,
    Lookup,
    Operation,
    Pressure,
    RenameColumns,
    RenameTables,
    Restart,
    RetypeColumn,
    Steps,
    Update,
    Write,
)
from tests.campaign.subject import Setting
from tests.campaign.terms import Parameter, Term, column, placeholder, same
from tests.campaign.writes import random_insert, random_joined, random_write

LENGTHS = (30, 60, 60, 120)
"""Operations after the loading. Short cases start afresh more often, long ones let holes and fills pile up."""

_ACTS = {
    "write": 40,
    "lookup": 24,
    "steps": 10,
    "evict": 8,
    "compare": 6,
    "view": 4,
    "pressure": 3,
    "ad hoc": 2,
    "restart": 2,
    "drop view": 1.5,
    "alter": 1.5,
    "ask more": 1.0,
    "constraint": 5.0,
    "rename": 0.7,
    "joined": 2.0,
}


@dataclass(frozen=True, slots=True)
class Case:
    seed: int
    setting: Setting
    operations: tuple[Operation, ...]


CHANGED = {
    "INT": ((INT, "BIGINT"), (TXT, "VARCHAR(12)")),
    "BIGINT": ((TXT, "VARCHAR(30)"),),
    "VARCHAR(12)": ((TXT, "VARCHAR(40)"), (TXT, "TEXT")),
}
"""Types that a column may have for good afterwards."""


def numbered(random: Random, table: Table) -> Table:
    """The table, whose primary key now and then numbers its rows."""
    first = table.columns[0]
    if table.primary_key != (first.name,) or first.type.kind is not Kind.INT or table.spread or first.generated:
        return table
    if first.name in table.read_columns | table.naming or first.has_default or random.random() < 0.2:
        return table
    return replace(table, columns=(replace(first, auto=True), *table.columns[1:]))


def hinted(query: Query, random: Random) -> Query:
    """The query, now and then with the hint that it is partial by some of its parameters and not by all of them, or
    that its sums are made below joins.

    A parameter has its column's name where no other one is compared with a column of that name.
    """
    if not isinstance(query, Select):
        return query
    compared = [_compared(part) for term in query.where for part in term.walk()]
    asked = [each for each in compared if each is not None]
    joins = {source.join for source in query.sources[1:]}
    summed = query.group is not None and joins and joins <= {"JOIN", ","} and all(kind == "=" for _, kind in asked)
    if summed and Random(repr(query)).random() < 0.6:  # The rest of the case is the same without it.
        query = replace(query, eager=True)
    if random.random() < 0.4:
        return query
    names = Counter(name for term in query.where for part in term.walk() for name in _beside_parameters(part))
    keys = [each for each in map(_compared, query.where) if each is not None]
    able = [name for name, kind in keys if kind in ("=", "in") and names[name] == 1]
    shown = any(part.parameter is not None for output in query.outputs for part in output.term.walk())
    if not able or len(asked) == 1 or shown:  # What stands beside a column in the list has its name, too.
        return query
    return replace(query, partial_by=tuple(random.sample(able, random.randint(1, max(1, len(able) - 1)))))


def _beside_parameters(term: Term) -> list[str]:
    """The columns of a comparison with parameters; of rows there are several."""
    if all(argument.parameter is None for argument in term.arguments):
        return []
    return [argument.column[1] for argument in term.arguments if argument.column is not None]


def _compared(term: Term) -> tuple[str, str] | None:
    """Of a comparison of a column with a parameter the column's name, and how it compares."""
    column = term.arguments[0].column if term.arguments else None
    parameter = next((each.parameter for each in term.arguments[1:] if each.parameter is not None), None)
    return None if column is None or parameter is None else (column[1], parameter.kind)


def setting_of(seed: int) -> Setting:
    """One domain or several, in one shard or several; full now and then, and of these some in bulk."""
    random = Random(f"setting {seed}")
    partial, domains = random.random() < 0.88, random.choice((1, 2, 2, 3, 4))
    shards = random.choice((1, 1, 2, 3, 4))
    return Setting(seed, partial, domains, shards, bulk=random.random() < (0.2 if partial else 0.6))


def case_of(seed: int, setting: Setting | None = None) -> Case:
    """Of the setting, the case knows how many shards there are."""
    setting = setting or setting_of(seed)
    program = _Program(Random(f"case {seed}"), Random(f"again {seed}"), setting.shards)
    return Case(seed, setting, tuple(program.operations()))


@dataclass
class _Program:
    """Writes the operations down, keeping track of the tables and views that there are at each point."""

    random: Random
    again: Random
    """For what is asked before and after an alteration; the rest of the case is the same without it."""
    shards: int
    tables: dict[str, Table] = field(default_factory=dict)
    views: dict[str, View] = field(default_factory=dict)
    found: list[Operation] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._names = count()
        self._columns = count(5)
        self._renames, self._late = count(), count()
        self._parameters = count()
        self._asked: list[Query] = []
        self._dropped: dict[str, list[Column]] = {}

    def operations(self) -> list[Operation]:
        random = self.random
        for i in range(random.choices((1, 2, 3, 4), (2, 5, 4, 2))[0]):
            table = random_table(random, f"b{i}", self.shards)
            table = constrained(Random(f"constraints {table}"), table)
            table = referring(Random(f"references {table}"), table, list(self.tables.values()))
            table = numbered(Random(f"numbered {table}"), table)
            self.tables[table.name] = table
            self.found.append(CreateTable(table))
        parents = {reference.parent for table in self.tables.values() for reference in table.references}
        self.tables = {name: replace(table, is_parent=name in parents) for name, table in self.tables.items()}
        early = random.random() < 0.4
        if early:
            self._views(random.choice((1, 2)), early=True)
        for table in self.tables.values():
            for _ in range(random.choice((0, 2, 3, 4))):
                self._load(table, random.choice((2, 4, 8)))
        self._views(random.choice((1, 2, 3, 4)))
        for _ in range(random.choice(LENGTHS)):
            self._act(random.choices(list(_ACTS), list(_ACTS.values()))[0])
        self.found.append(Compare(random.randrange(1 << 30), every=True))
        return self.found

    def _load(self, table: Table, rows: int) -> None:
        """One row that names none would keep all others out."""
        for _ in range(rows if table.references else 1):
            self._write(random_insert(self.random, table, rows=1 if table.references else rows), table)

    def _write(self, write: Write, table: Table) -> None:
        if table.auto and isinstance(write, Insert) and len(write.columns) > 1 and Random(repr(write)).random() < 0.8:
            at = write.columns.index(table.auto)
            rows = tuple((*row[:at], *row[at + 1 :]) for row in write.rows)
            write = Insert(table.name, (*write.columns[:at], *write.columns[at + 1 :]), rows)
        related = bool(table.references) or (table.is_parent and not isinstance(write, Insert))
        self.found.append(Aim(write, Random(repr(write)).randrange(1 << 30)) if related else write)

    def _act(self, kind: str) -> None:
        random = self.random
        salt = random.randrange(1 << 30)
        match kind:
            case "write":
                table = random.choice(list(self.tables.values()))
                self._write(random_write(random, table), table)
            case "lookup" if self.views:
                self.found.append(Lookup(random.choice(list(self.views)), salt, random.choice((1, 1, 1, 4))))
            case "evict" if self.views:
                self.found.append(Evict(random.choice(list(self.views)), salt))
            case "steps":
                self.found.append(Steps(salt, random.choice((1, 1, 2, 4))))
            case "compare":
                self.found.append(Compare(salt))
            case "view" if len(self.views) < 8:
                self._views(1)
            case "pressure":
                self.found.append(Pressure(salt))
            case "restart":
                self.found.append(Restart())
            case "drop view" if len(self.views) > 1:
                self._drop_view()
            case "alter":
                self._alter()
            case "ask more":
                self._ask_more()
            case "constraint":
                self._alter_constraint()
            case "rename":
                names = random.sample(list(self.tables), min(len(self.tables), random.choice((1, 1, 2))))
                self.found.append(RenameTables(tuple(names), next(self._renames)))
            case "joined":
                joined = random_joined(random, list(self.tables.values()))
                self.found += [joined] if joined is not None else []
            case "ad hoc":
                self._ask(self._query(None))
                self._ask_with_variables()
            case _:
                pass

    def _query(self, parameters: count[int] | None, limit: int = 6) -> Query:
        """A query over few enough tables: the judge, and full state, hold every combination that a bad join makes."""
        while True:
            query = Queries(self.random, list(self.tables.values()), self._readable(), parameters).query()
            if breadth(query) <= limit:
                return query

    def _readable(self) -> list[View]:
        return [view for view in self.views.values() if readable(view)]

    def _views(self, number: int, early: bool = False) -> None:
        """``early``: before there are rows, so that nobody can tell how many the view will have."""
        for _ in range(number):
            name = f"v{next(self._names)}"
            query = hinted(self._query(self._parameters, 3 if early else 6), self.random)
            external = bool(parameters(query)) or self.random.random() < 0.5
            view = View(name, query, external)
            self.views[name] = view
            self.found.append(CreateView(view, View(name, self._simple(), external=True)))

    def _simple(self) -> Query:
        """What surely is supported: one table's columns by an equality on one of them, or all where all are JSON."""
        table = self.random.choice(list(self.tables.values()))
        columns = [column("s", c.name, c.type) for c in table.columns]
        outputs = tuple(Output(term, c.name, aliased=False) for term, c in zip(columns, table.columns, strict=True))
        plain = [each for each in columns if each.type.kind is not Kind.JSON]
        if not plain:
            return Select(outputs, (Source("s", stored(table)),))
        key = self.random.choice(plain)
        parameter = placeholder(Parameter(next(self._parameters), "=", key.type))
        return Select(outputs, (Source("s", stored(table)),), (same(INT, "({0} = {1})", key, parameter),))

    def _drop_view(self) -> None:
        read = {inner.name for view in self.views.values() for inner in read_views(view.query)}
        free = [name for name in self.views if name not in read]
        if free:
            name = self.random.choice(free)
            del self.views[name]
            self.found.append(DropView(name))

    def _ask(self, query: Query) -> None:
        self._asked.append(query)
        self.found.append(AdHoc(query))

    def _ask_with_variables(self) -> None:
        """The same, with variables for constants of its WHERE: their values, or a subquery's."""
        query, random = self._asked[-1], self.again
        if not isinstance(query, Select) or not query.where:
            return
        variables: list[tuple[str, str]] = []

        def read(term: Term) -> Term:
            if term.constant and term.type in (INT, TXT) and random.random() < 0.7:
                name, value, judged = f"v{len(variables)}", term.text, term.judged
                numbers = [(t.name, c.name) for t in self.tables.values() for c in t.columns if c.type == INT]
                if term.type == INT and numbers and random.random() < 0.4:
                    value = judged = "(SELECT MAX({1}) FROM {0})".format(*random.choice(numbers))
                variables.append((name, value))
                return replace(term, text=f"@{name}", judged=judged)
            return replace(term, arguments=tuple(map(read, term.arguments))) if term.arguments else term

        asked = replace(query, where=tuple(map(read, query.where)))
        if variables:
            self.found.append(AdHoc(asked, tuple(variables)))

    def _alter(self) -> None:
        """Columns come and go. The same texts are asked before and after."""
        table = self.random.choice(list(self.tables.values()))
        alteration = self._alteration(table)
        if alteration is None:
            return
        self._ask_about(table)
        match alteration:
            case AddColumn(_, added):
                columns = (*table.columns, added)
            case DropColumn(_, name):
                columns = tuple(column for column in table.columns if column.name != name)
                if table.column(name).generated is None:
                    self._dropped.setdefault(table.name, []).append(table.column(name))
        self.tables[table.name] = replace(table, columns=columns)
        self.found.append(alteration)
        if self.again.random() < 0.5:  # The rest of the case is the same without it.
            free = [each for each in columns if each.name not in table.read_columns]
            names = self.again.sample(free, min(len(free), self.again.choice((1, 1, 2))))
            places = tuple(each.name for each in names)
            if places:
                inside = self._inside(self.tables[table.name])
                self.found.append(RenameColumns(table.name, places, self.again.randrange(1 << 30), inside))
        self._retype(table, columns)
        self._change(table.name)
        for query in self.again.sample(self._asked, min(3, len(self._asked))):
            now = as_it_reads_now(query, self.tables)
            if now is not None:
                self._ask(now)

    def _retype(self, table: Table, columns: Sequence[Column]) -> None:
        """By a generator of its own, so that the rest of the case is the same without it."""
        random = Random(f"retype {len(self.found)} {table}")
        used = {name for view in self.views.values() for t, name in used_columns(view.query) if t == table.name}
        used |= {*table.primary_key, table.shard_by, *table.read_columns}
        free = [each for each in columns if each.name not in used and each.generated is None and each.type != JSON]
        if free and random.random() < 0.6:
            c = random.choice(free)
            through = "VARCHAR(300)" if c.type.members else random.choice(THROUGH[c.type.kind])
            inside = self._inside(self.tables[table.name], c.name)
            self.found.append(RetypeColumn(table.name, c, through, random.randrange(1 << 30), inside))

    def _change(self, name: str) -> None:
        """A column has another name, type or place for good; by a generator of its own, too."""
        table = self.tables[name]
        random = Random(f"change {len(self.found)} {table}")
        used = {column for view in self.views.values() for t, column in used_columns(view.query) if t == name}
        used |= {column for key in (*table.unique, *table.indexes) for column in key} | table.read_columns
        free = [each for each in table.columns if each.name not in used and each.generated is None]
        if not free or random.random() < 0.3:
            return
        old = new = random.choice(free)
        if random.random() < 0.8 and old.name not in table.key_columns and not old.type.members:
            type, declared = random.choice(CHANGED.get(old.declared, ((old.type, old.declared),)))
            new = replace(new, type=type, declared=declared)
            new = replace(new, default=None, has_default=False) if type != old.type else new
        if random.random() < 0.6:
            new = replace(new, name=f"c{next(self._columns)}")
        places = [" FIRST", *(f" AFTER {each}" for each in table.names if each != old.name)]
        place = random.choice(places) if random.random() < 0.5 else ""
        plain = not place and new.declared == old.declared and new != old and random.random() < 0.5
        changed = ChangeColumn(name, old.name, new, place, plain)
        if place or new != old:
            self.found.append(changed)
            self.tables[name] = changed.of(table)
            for other, each in self.tables.items():
                self.tables[other] = each.renamed(name, old.name, new.name) if other != name else each

    def _inside(self, table: Table, column: str = "") -> tuple[Operation, ...]:
        """What is done while columns of the table are altered; what an UPDATE makes of ``column`` is its type's own."""
        found, program = (
            list[Operation](),
            _Program(self.again, self.again, self.shards, {table.name: table}, self.views),
        )
        for _ in range(self.again.choice((0, 1, 3, 6))):
            program.found = []
            program._act(self.again.choice(("write", "write", "write", "lookup", "evict", "pressure", "steps")))
            found += [each for each in program.found if not column or not _speaks_of(each, column)]
        return tuple(found)

    def _alter_constraint(self) -> None:
        """What is refused the judge will know; that it comes is noted here, so that it may go again."""
        random = self.random
        table = random.choice(list(self.tables.values()))
        if random.random() < 0.2 and len(table.columns) < 8:
            column = random_generated(random, table, f"g{next(self._columns)}")
            if column is not None:
                self.tables[table.name] = replace(table, columns=(*table.columns, column))
                self.found.append(AddColumn(table.name, column))
            return
        alteration = random_alteration(random, table, list(self.tables.values()), next(self._late))
        if alteration is None:
            return
        self.found.append(alteration)
        match alteration.what:
            case Key(columns, unique):
                name = "unique" if unique else "indexes"
                keys = [key for key in getattr(table, name) if key != columns]
                stays = alteration.comes or (unique and table.is_parent)  # A foreign key may keep it.
                table = replace(table, **{name: (*keys, columns) if stays else tuple(keys)})
            case Reference(_, _, parent) if alteration.comes and alteration.what not in table.references:
                table = replace(table, references=(*table.references, alteration.what))
                self.tables[table.name] = table
                self.tables[parent] = replace(self.tables[parent], is_parent=True)
                return
            case (name, _) if not isinstance(alteration.what, Reference):
                checks = [check for check in table.checks if check[0] != name]
                table = replace(table, checks=(*checks, alteration.what) if alteration.comes else tuple(checks))
        self.tables[table.name] = table

    def _ask_more(self) -> None:
        """Of the rows that there are then: whether it is refused the judge will know."""
        random = self.random
        table = random.choice(list(self.tables.values()))
        what = random.choice(("UNIQUE", "PRIMARY KEY", "NOT NULL"))
        if what != "UNIQUE":  # ON DELETE SET NULL, and what is computed, have to be able to be NULL.
            free = [c for c in table.columns if c.generated is None and c.name not in table.naming]
        keys = [c for c in (table.columns if what == "UNIQUE" else free) if c.can_be_key]
        free = keys if what == "UNIQUE" else [c for c in keys if not c.has_default or c.default is not None]
        if what == "PRIMARY KEY" and table.primary_key:
            return
        some = random.sample(free, min(len(free), random.choice((1, 1, 2, 3))))
        if table.spread and what != "NOT NULL" and all(c.name != table.shard_by for c in some):
            some += [c for c in free if c.name == table.shard_by]
            if not some or some[-1].name != table.shard_by:
                return
        if some:
            self.found.append(AskMore(table.name, tuple(some), what))

    def _ask_about(self, table: Table) -> None:
        """All columns, and some of them by their names."""
        columns = [column("s", c.name, c.type) for c in table.columns]
        outputs = tuple(Output(term, c.name, aliased=False) for term, c in zip(columns, table.columns, strict=True))
        sources = (Source("s", stored(table)),)
        self._ask(Select(outputs, sources, star=True))
        some = tuple(self.again.sample(outputs, self.again.randint(1, len(outputs))))
        self._ask(Select(some, sources, distinct=self.again.random() < 0.3))

    def _alteration(self, table: Table) -> AddColumn | DropColumn | None:
        random = self.random
        if random.random() < 0.55 and len(table.columns) < 8:
            added = random_column(random, f"c{next(self._columns)}")
            if not added.has_default:
                added = replace(added, nullable=True)
            return AddColumn(table.name, self._returned(table) or added)
        used = {name for view in self.views.values() for t, name in used_columns(view.query) if t == table.name}
        free = [name for name in table.names if name not in used and name not in table.key_columns]
        return DropColumn(table.name, random.choice(free)) if free and len(table.columns) > 2 else None

    def _returned(self, table: Table) -> Column | None:
        """Now and then, a column that was dropped comes back with its name and type, and with other values."""
        gone = self._dropped.get(table.name, [])
        if not gone or self.again.random() < 0.3:
            return None
        column = gone.pop(self.again.randrange(len(gone)))
        has_default = column.declared not in ("TEXT", "JSON") and column.generated is None
        default = draw(self.again, column.type) if has_default else None
        return replace(column, nullable=True, has_default=has_default, default=default)


def _speaks_of(operation: Operation, column: str) -> bool:
    """Whether an expression reads the column or makes its value, or a value of the column that does not fit comes."""
    write = operation.write if isinstance(operation, Aim) else operation
    match write:
        case Insert(_, _, rows, mode):
            return mode == "update" or (mode == "" and len(rows) == 1)
        case Update() | Delete():
            return re.search(rf"\b{column}\b", write.text()) is not None
    return False
