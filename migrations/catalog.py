"""The catalog: which base tables and views there are, as one immutable value.

A statement is planned against a catalog and yields another one; whoever fails half-way simply keeps the old. Names are
found in any case and keep the case that they were declared with.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from zlib import crc32

from domains.errors import UnknownName
from domains.language.collating.collation import BINARY
from domains.language.types import TableSchema
from migrations.parse.grammar import SCHEMA, VIRTUAL_SCHEMAS
from migrations.parse.namespaces import tables_read
from migrations.parse.reading import exp
from migrations.parse.temporary import MARK, is_hidden, plain_name


@dataclass(frozen=True, slots=True)
class ViewDefinition:
    """A view as it was defined. It is planned anew wherever it is read; nodes are shared by the joint graph."""

    name: str
    sql: str
    """The SELECT's text."""
    external: bool
    """``CREATE EXT VIEW``, and ad-hoc SELECTs: it has a reader of its own."""
    ad_hoc: bool
    """Made for an ad-hoc SELECT, not by CREATE VIEW: it may be dropped at any time."""
    relation: exp.Query = field(compare=False, repr=False)
    columns: tuple[str, ...] = ()
    """``CREATE VIEW name (columns) AS …``; () keeps the SELECT's own names."""
    created: str = field(default="", compare=False)
    """When, ``2026-01-31 08:00:00``; "" where the recipe does not say."""
    reads: frozenset[str] = field(init=False, compare=False, repr=False)
    """Lower-case names of the tables and views that it reads."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "reads", names_read(self.relation))

    @property
    def title(self) -> str:
        """What SQL calls the view."""
        return self.name


@dataclass(frozen=True, slots=True)
class Policy:
    """What of a table's rows is there for whom. Several that let rows through are joined by OR."""

    name: str
    command: str
    """``ALL``, or the one that it is about."""
    using: str
    """The condition on rows that are there, as it was written; "" where there is none."""
    check: str
    """The condition on rows as they are to be; "": ``using`` is."""
    condition: exp.Expr | None = field(compare=False, repr=False, default=None)
    """``using`` as a tree."""
    checked: exp.Expr | None = field(compare=False, repr=False, default=None)


# What becomes of api processes that have not heard of a policy yet.
#
# A table's schema has a number of its policies, and of those of tables that foreign keys reach from it, and each shard
# of the table has the schema. All that an api process sends there says for which schema it was made: writes by a
# version, SELECTs without a view by the whole of it. A view has nodes of its own for other policies, and those before
# are removed. So
#
#     **Invariant.** Once CREATE or DROP POLICY is answered, each shard of the table refuses whatever was planned by
#     other policies, and no reader of before is there to be read, whoever asks: also an api process that is cut off
#     from ZooKeeper, for however long, or was stopped meanwhile.
#
# Order (``Change.steps``): new views are built; the entry is decided; old readers are removed, and shards get the
# schema; the statement is answered. A leader that is lost between answers nobody, and the next one does the rest before
# it leads: a shard whose schema is not the recipe's is altered (``leader/reconcile.py``), as in one process.


def policies_number(tables: Sequence[Sequence[Policy]]) -> int:
    """The same for the same policies of a table, and of those that foreign keys reach from it; 0 for none."""
    told = [[(each.name, each.command, each.using, each.check) for each in policies] for policies in tables]
    return (crc32(repr(told).encode("utf-8", "backslashreplace")) or 1) if any(told) else 0


@dataclass(frozen=True, slots=True)
class Namespace:
    """A database beside the first. What is in it has its name before the own: ``shop.orders``."""

    name: str
    collation: str = ""
    """Of texts in its tables that name none; "": that of the deployment."""


def _no_policies() -> Mapping[str, tuple[Policy, ...]]:
    return MappingProxyType({})


def _nothing() -> Mapping[str, TableSchema]:
    return MappingProxyType({})


def _none_dropped() -> Mapping[str, int]:
    return MappingProxyType({})


def _no_views() -> Mapping[str, ViewDefinition]:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Catalog:
    """Tables and views by lower-case name, in the order of their creation.

    A table that RENAME TABLE has given another name stands under the one that it is stored by; :meth:`named` finds it
    by the one that SQL knows. **Invariant.** Each of the two names one table at a time. The first stays with the table
    until it is dropped, and successive tables of it are told apart by their generations, so no log, archive, clock or
    back-up ever takes one table for another.
    """

    tables: Mapping[str, TableSchema] = field(default_factory=_nothing)
    views: Mapping[str, ViewDefinition] = field(default_factory=_no_views)
    shards: int = 1
    """Number of shards of a table whose definition gives none."""
    dropped: Mapping[str, int] = field(default_factory=_none_dropped)
    """Number of dropped tables by lower-case name: the generation of the next table of this name."""
    collation: str = BINARY
    """The collation of texts in a table whose definition gives none; "" as in a recipe's entry."""
    policies: Mapping[str, tuple[Policy, ...]] = field(default_factory=_no_policies)
    """By the lower-case names that tables are stored by. A table that has one shows what its policies let through."""
    namespaces: Mapping[str, Namespace] = field(default_factory=lambda: MappingProxyType({}))
    """By lower-case name."""
    titles: Mapping[str, str] = field(init=False, compare=False, repr=False)
    """Tables that were renamed: the lower-case name that SQL knows → the one that the table is stored by."""

    def __post_init__(self) -> None:
        renamed = {table.shown.lower(): stored for stored, table in self.tables.items() if table.shown}
        object.__setattr__(self, "titles", renamed)

    def __reduce__(self) -> tuple[type[Catalog], tuple[object, ...]]:
        kept = (dict(self.tables), dict(self.views), self.shards, dict(self.dropped), self.collation)
        return Catalog, (*kept, dict(self.policies), dict(self.namespaces))

    def with_table(self, schema: TableSchema) -> Catalog:
        """This catalog with the table added, or replaced by its altered schema."""
        return replace(self, tables=MappingProxyType({**self.tables, schema.name.lower(): schema}))

    def without_table(self, name: str) -> Catalog:
        """``name`` is the one that the table is stored by."""
        lower = name.lower()
        dropped = MappingProxyType({**self.dropped, lower: self.dropped.get(lower, 0) + 1})
        tables = MappingProxyType({k: v for k, v in self.tables.items() if k != lower})
        return replace(self.with_policies(lower, ()), tables=tables, dropped=dropped)

    def with_policies(self, table: str, policies: tuple[Policy, ...]) -> Catalog:
        """``table`` is the name that it is stored by, in lower case."""
        others = {name: those for name, those in self.policies.items() if name != table}
        return replace(self, policies=MappingProxyType({**others, **({table: policies} if policies else {})}))

    def with_namespaces(self, namespaces: Iterable[Namespace]) -> Catalog:
        return replace(self, namespaces=MappingProxyType({each.name.lower(): each for each in namespaces}))

    def known_schema(self, name: str) -> str:
        """The database of this name, as it is written.

        :raises UnknownName: there is none."""
        lower = name.lower()
        if lower in (SCHEMA, *VIRTUAL_SCHEMAS) or is_hidden(lower):
            return lower
        if lower not in self.namespaces:
            known = (SCHEMA, *VIRTUAL_SCHEMAS, *(each.name for each in self.namespaces.values()))
            raise unknown("database", name, known)
        return self.namespaces[lower].name

    def placed(self, title: str) -> tuple[str, str]:
        """The database of what SQL calls so, and its name there."""
        schema, dot, name = title.partition(".")
        if is_hidden(title):
            return schema, name
        own = self.namespaces.get(schema.lower()) if dot else None
        return (SCHEMA, title) if own is None else (own.name, name)

    def within(self, schema: str) -> list[TableSchema | ViewDefinition]:
        """The tables and views of a database beside the first, by its lower-case name."""
        all_of_them: list[TableSchema | ViewDefinition] = [*self.tables.values(), *self.views.values()]
        return [each for each in all_of_them if each.title.lower().startswith(f"{schema}.")]

    def without_policies(self) -> Catalog:
        """As it is to whom no policy applies."""
        return replace(self, policies=_no_policies())

    def policed(self, names: Iterable[str]) -> tuple[str, ...]:
        """Which tables have policies, of those that these names of SQL stand for and those that views among them read:
        their names in SQL, in order."""
        if not self.policies:
            return ()
        pending, seen = {name.lower() for name in names}, set[str]()
        while pending:
            seen.add(name := pending.pop())
            if self.named(name) is None and name in self.views:
                pending |= self.views[name].reads - seen
        known = [table for name in sorted(seen) if (table := self.named(name)) is not None]
        return tuple(table.title for table in known if table.name.lower() in self.policies)

    def with_view(self, view: ViewDefinition) -> Catalog:
        return replace(self, views=MappingProxyType({**self.views, view.name.lower(): view}))

    def without_view(self, name: str) -> Catalog:
        lower = name.lower()
        return replace(self, views=MappingProxyType({k: v for k, v in self.views.items() if k != lower}))

    def named(self, name: str) -> TableSchema | None:
        """The table that SQL calls so."""
        lower = name.lower()
        found = self.tables.get(self.titles.get(lower, lower))
        return found if found is not None and found.title.lower() == lower else None

    def storage_name(self, name: str) -> str:
        """The name that a new table of this name is stored by: another one while a table that was renamed has it, and
        for a temporary table one of few."""
        hidden = is_hidden(name)
        number, free = 2, f"{MARK}1.{plain_name(name)}" if hidden else name
        while free.lower() in self.tables:
            free = f"{MARK}{number}.{plain_name(name)}" if hidden else f"{name}~{number}"
            number += 1
        return free

    def table(self, name: str) -> TableSchema:
        """:raises UnknownName: with the nearest table's name."""
        found = self.named(name)
        if found is None:
            raise unknown("table", name, (table.title for table in self.tables.values()))
        return found

    def relation(self, name: str) -> TableSchema | ViewDefinition:
        """The table or view that a FROM clause names.

        :raises UnknownName: with the nearest name of either.
        """
        found = self.named(name) or self.views.get(name.lower())
        if found is None:
            views = (view.name for view in self.views.values() if not view.ad_hoc)
            raise unknown("table or view", name, [*(table.title for table in self.tables.values()), *views])
        return found

    def dependents(self, name: str) -> tuple[str, ...]:
        """The views that read a table or view, directly or through others, in the order of their creation."""
        reached = {name.lower()}
        while True:
            more = {lower for lower, view in self.views.items() if lower not in reached and view.reads & reached}
            if not more:
                return tuple(view.name for lower, view in self.views.items() if lower in reached - {name.lower()})
            reached |= more


def ad_hoc_views(catalog: Catalog) -> tuple[str, ...]:
    """The views of SELECTs, which earlier builds kept in the recipe, but for what views with names read."""
    return tuple(
        view.name
        for view in catalog.views.values()
        if view.ad_hoc and all(catalog.views[other.lower()].ad_hoc for other in catalog.dependents(view.name))
    )


def unknown(what: str, name: str, known: Iterable[str], *, like: str | None = None) -> UnknownName:
    """The error for an unknown name, with the nearest known one (to ``like`` if it is given, else to the name)."""
    by_lower = {candidate.lower(): candidate for candidate in known if not is_hidden(candidate)}
    near = difflib.get_close_matches((like or name).lower(), list(by_lower), n=1, cutoff=0.6)
    hint = f'did you mean "{by_lower[near[0]]}"?' if near else None
    error = UnknownName(f'unknown {what} "{name}"', hint=hint)
    error.what = what
    return error


def names_read(relation: exp.Expr, but: Collection[exp.Expr] = ()) -> frozenset[str]:
    """Lower-case names of the tables and views that a query names, without those of its own CTEs. ``but``: names that
    are not read where they stand, such as that of the table that is written to."""
    skipped = set(map(id, but))
    return frozenset(each.name.lower() for each in tables_read(relation) if id(each) not in skipped)
