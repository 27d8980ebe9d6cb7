"""A case: everything that one seed decides, before anything runs. The same seed gives the same operations, always."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import count
from random import Random

from tests.campaign.kinds import INT
from tests.campaign.queries import Output, Query, Select, Source, View, breadth, read_views, used_columns
from tests.campaign.rendering import parameters
from tests.campaign.schema import Table, random_column, random_table
from tests.campaign.selects import Queries, readable, stored
from tests.campaign.statements import (
    AddColumn,
    AdHoc,
    Compare,
    CreateTable,
    CreateView,
    DropColumn,
    DropView,
    Evict,
    Lookup,
    Operation,
    Pressure,
    Restart,
    Steps,
)
from tests.campaign.subject import Setting
from tests.campaign.terms import Parameter, Term, column, placeholder, same
from tests.campaign.writes import random_insert, random_write

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
}


@dataclass(frozen=True, slots=True)
class Case:
    seed: int
    setting: Setting
    operations: tuple[Operation, ...]


def hinted(query: Query, random: Random) -> Query:
    """The query, now and then with the hint that it is partial by some of its parameters and not by all of them.

    A parameter has its column's name where no other one is compared with a column of that name.
    """
    if not isinstance(query, Select) or random.random() < 0.4:
        return query
    parts = [part for term in query.where for part in term.walk() if part.arguments]
    compared = [(part.arguments[0].column, _parameter_of(part)) for part in parts]
    asked = [(column[1], parameter.kind) for column, parameter in compared if column is not None and parameter]
    names = Counter(name for name, _ in asked)
    able = [name for name, kind in asked if kind in ("=", "in") and names[name] == 1]
    if not able or len(asked) == 1:
        return query
    return replace(query, partial_by=tuple(random.sample(able, random.randint(1, max(1, len(able) - 1)))))


def _parameter_of(term: Term) -> Parameter | None:
    """Of a comparison, what a column is compared with."""
    return next((argument.parameter for argument in term.arguments[1:] if argument.parameter is not None), None)


def setting_of(seed: int) -> Setting:
    """One domain or several, in one shard or several; full now and then, and of these some in bulk."""
    random = Random(f"setting {seed}")
    partial, domains = random.random() < 0.88, random.choice((1, 2, 2, 3, 4))
    shards = random.choice((1, 1, 2, 3, 4))
    return Setting(seed, partial, domains, shards, bulk=random.random() < (0.2 if partial else 0.6))


def case_of(seed: int, setting: Setting | None = None) -> Case:
    """Of the setting, the case knows how many shards there are."""
    setting = setting or setting_of(seed)
    return Case(seed, setting, tuple(_Program(Random(f"case {seed}"), setting.shards).operations()))


@dataclass
class _Program:
    """Writes the operations down, keeping track of the tables and views that there are at each point."""

    random: Random
    shards: int
    tables: dict[str, Table] = field(default_factory=dict)
    views: dict[str, View] = field(default_factory=dict)
    found: list[Operation] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._names = count()
        self._columns = count(5)
        self._parameters = count()

    def operations(self) -> list[Operation]:
        random = self.random
        for i in range(random.choices((1, 2, 3, 4), (2, 5, 4, 2))[0]):
            table = random_table(random, f"b{i}", self.shards)
            self.tables[table.name] = table
            self.found.append(CreateTable(table))
        early = random.random() < 0.4
        if early:
            self._views(random.choice((1, 2)), early=True)
        for table in self.tables.values():
            for _ in range(random.choice((0, 2, 3, 4))):
                self.found.append(random_insert(random, table, rows=random.choice((2, 4, 8))))
        self._views(random.choice((1, 2, 3, 4)))
        for _ in range(random.choice(LENGTHS)):
            self._act(random.choices(list(_ACTS), list(_ACTS.values()))[0])
        self.found.append(Compare(random.randrange(1 << 30), every=True))
        return self.found

    def _act(self, kind: str) -> None:
        random = self.random
        salt = random.randrange(1 << 30)
        match kind:
            case "write":
                self.found.append(random_write(random, random.choice(list(self.tables.values()))))
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
            case "ad hoc":
                self.found.append(AdHoc(self._query(None)))
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
        """What surely is supported: one table's columns by an equality on one of them."""
        table = self.random.choice(list(self.tables.values()))
        columns = [column("s", c.name, c.type) for c in table.columns]
        outputs = tuple(Output(term, c.name, aliased=False) for term, c in zip(columns, table.columns, strict=True))
        key = self.random.choice(columns)
        parameter = placeholder(Parameter(next(self._parameters), "=", key.type))
        return Select(outputs, (Source("s", stored(table)),), (same(INT, "({0} = {1})", key, parameter),))

    def _drop_view(self) -> None:
        read = {inner.name for view in self.views.values() for inner in read_views(view.query)}
        free = [name for name in self.views if name not in read]
        if free:
            name = self.random.choice(free)
            del self.views[name]
            self.found.append(DropView(name))

    def _alter(self) -> None:
        random = self.random
        table = random.choice(list(self.tables.values()))
        if random.random() < 0.55 and len(table.columns) < 8:
            added = random_column(random, f"c{next(self._columns)}")
            if not added.has_default:
                added = replace(added, nullable=True)
            self.tables[table.name] = replace(table, columns=(*table.columns, added))
            self.found.append(AddColumn(table.name, added))
            return
        used = {name for view in self.views.values() for t, name in used_columns(view.query) if t == table.name}
        free = [name for name in table.names if name not in used and name not in table.key_columns]
        if free and len(table.columns) > 2:
            name = random.choice(free)
            self.tables[table.name] = replace(table, columns=tuple(c for c in table.columns if c.name != name))
            self.found.append(DropColumn(table.name, name))
