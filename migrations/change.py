"""One recipe entry worked out: statements of a migration, planned together against the state before it.

The order of what is to be done is: rows are checked, where a table is to ask more of them; tables that are new or
changed; views that go; views that come (their nodes are
built beside the running ones and become visible at the end); tables that go.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from domains.engine.lifecycle.expected import asks_more, sought
from domains.errors import AlreadyExists, HeadraceError, LimitExceeded, SqlError, StillInUse, Unsupported
from domains.language.types import Column, TableColumn, TableSchema
from domains.plan import commands
from domains.plan.graph import Columns, DomainIndex, Parameter
from domains.plan.sharding import physical
from migrations.catalog import Catalog, ViewDefinition
from migrations.flow.dataflow import Placement
from migrations.flow.plan import SLICE_ROWS, MigrationPlan, PlanStep, State, plan_readers, plan_removal, understand
from migrations.joint_graph.graph import JointGraph
from migrations.parse.reading import Parsed, exp, same_tree
from migrations.query.relation import Relation
from migrations.query.view import PlannedView, asks, frozen, plan_view
from migrations.recipe import RecipeEntry
from migrations.statements.adhoc.shapes_of_selects import AdHoc, ad_hoc_name
from migrations.statements.definitions.foreign_keys import as_ignored, refuse_broken, refuse_referred, refuse_unread
from migrations.statements.interpret import interpret_one, split
from migrations.statements.statement import (
    AlterTableStatement,
    CreateIndex,
    CreateTableStatement,
    CreateView,
    DropIndex,
    DropTableStatement,
    DropView,
    Statement,
)

# ALTER TABLE and CREATE OR REPLACE VIEW under views that run: which of them would mean something else.
#
# A view that runs keeps the columns that it was planned with, by their places in the stored rows. Its text names them
# by their names, and what a text names can change without an error: ``*`` and NATURAL follow the table's columns, and
# a dropped column and a new one can have one name::
#
#     text ── frozen ──► * and NATURAL written out ── planned over aligned tables ──► nodes
#                             before = after?                  before = after?
#
# The tables are *aligned*: on each side they have the live columns of both, those of the other side under a name that
# no text can write. So columns stand in the same places on both sides, and two plans are the same nodes of the joint
# graph exactly if they read the same stored columns in the same way. (A column that merely came or went would else
# make every plan over the table another one.)
#
# A view that others read is replaced where its columns stay or grow. To these others it is as a table is that is
# altered, as far as names go, and so it is looked at as one; what else it means to them may change, and then they are
# built anew.


def outdated_views(state: State, schema: TableSchema, *, cascade: bool = False) -> list[ViewDefinition]:
    """The views that no longer mean what they meant once the table has this schema, or can no longer be understood:
    those of SELECTs without a name, and the others only with ``cascade``.

    :raises StillInUse: there are others; with all of them.
    """
    before = state.catalog.table(schema.name)
    # Indexes have no meaning, only a price. A subquery may rely on a key that is unique, and none on one's absence.
    schema = replace(schema, unique=tuple(key for key in before.unique if key in schema.unique))
    if (before.columns, before.order, before.unique) == (schema.columns, schema.order, schema.unique):
        return []
    outdated: list[ViewDefinition] = []
    reasons: dict[str, str] = {}
    after = state.catalog.with_table(schema)
    aligned = [state.catalog.with_table(each) for each in _aligned_with_types(before, schema)]
    graph = state.joint.copy()  # One for all: a number says which node it is only within one graph.
    for name in state.catalog.dependents(schema.name):
        view = state.catalog.views[name.lower()]
        try:
            written = _written_out(view, state.catalog, after)
            same = written is not None and _come_to_the_same(written, aligned, graph)
            what = "read other columns" if before.unique == schema.unique else "rely on a UNIQUE key that has gone"
            reason = f'it would {what} of "{schema.name}"'
        except HeadraceError as error:
            same, reason = False, error.message
        if not same:
            outdated.append(view)
            if not view.ad_hoc:
                reasons[name] = reason
    if reasons and not cascade:
        first, *others = reasons
        more = f" (and so do {', '.join(others)})" if others else ""
        raise StillInUse(f'view "{first}" needs it: {reasons[first]}{more}', hint=_dropped_first(reasons))
    return outdated


def _dropped_first(views: Collection[str]) -> str:
    return f"drop {'the view' if len(views) == 1 else 'these views'} first"


def rebuilt_views(state: State, old: ViewDefinition, new: ViewDefinition) -> list[tuple[ViewDefinition, PlannedView]]:
    """The views that read a replaced one and are other nodes afterwards, and what they come to.

    :raises SqlError: it would read itself. :raises StillInUse: what a view that has a name needs of it would not be.
    """
    catalog = state.catalog.without_view(old.name)
    readers = [state.catalog.views[name.lower()] for name in state.catalog.dependents(old.name)]
    circle = [view.name for view in (old, *readers) if view.name.lower() in new.reads]
    if circle:
        through = f', by "{circle[0]}"' if circle[0] != old.name else ""
        raise SqlError(f'view "{new.name}" would read itself{through}', hint="read what these read")
    columns = _kept_columns(readers, understand(state, old), understand(replace(state, catalog=catalog), new))
    for _ in outdated_views(replace(state, catalog=catalog.with_table(columns[0])), columns[1]):
        raise AssertionError("views of ad-hoc SELECTs are forgotten before")
    after, graph, rebuilt = catalog.with_view(new), state.joint.copy(), []
    for view in readers:
        one, other = (
            plan_view(c, graph, view.name, view.relation, columns=view.columns) for c in (state.catalog, after)
        )
        if one == other:
            continue
        for what in ("columns", "parameters"):
            if _shown(getattr(one, what)) != _shown(getattr(other, what)):
                raise StillInUse(f'view "{view.name}" would have other {what}', hint="drop the view first")
        rebuilt.append((view, other))
    return rebuilt


def _kept_columns(
    readers: Sequence[ViewDefinition], old: PlannedView, new: PlannedView
) -> tuple[TableSchema, TableSchema]:
    """The columns before and after as those of a table that is altered."""
    by_name = {column.name.lower(): column for column in new.columns}
    kept = [by_name.pop(column.name.lower(), None) for column in old.columns]
    if readers:
        who = _called([view.name for view in readers])
        for before, after in zip(old.columns, kept, strict=True):
            lost = f'which would have no column "{before.name}"' if after is None else ""
            if after is not None and after.type != before.type:
                lost = f'whose column "{before.name}" would be {after.type}, where it is {before.type}'
            if lost:
                raise StillInUse(f'{who} view "{old.name}", {lost}', hint="drop or replace these first")
    grown = (*old.columns, *by_name.values())
    one, other = (tuple(TableColumn(each.name, each.type) for each in some) for some in (old.columns, grown))
    return TableSchema(old.name, one), TableSchema(old.name, other)


def _called(views: Sequence[str]) -> str:
    """``view "a" reads``, ``views "a" and "b" read``."""
    names = [f'"{view}"' for view in views]
    return f"view {names[0]} reads" if len(names) == 1 else f"views {', '.join(names[:-1])} and {names[-1]} read"


def _shown(things: Iterable[Column | Parameter]) -> list[tuple[object, ...]]:
    """What whoever reads a view sees of its columns or parameters."""
    return [(each.name.lower(), each.type, getattr(each, "kind", None)) for each in things]


def _written_out(view: ViewDefinition, before: Catalog, after: Catalog) -> ViewDefinition | None:
    """The view with ``*`` and NATURAL written out; None where that gives two texts."""
    text, meaning = frozen(before, view.relation)
    if meaning is None and not same_tree(text, frozen(after, view.relation)[0]):
        return None
    return replace(view, relation=text)


def _come_to_the_same(view: ViewDefinition, catalogs: Iterable[Catalog], graph: JointGraph) -> bool:
    """Whether the view comes to the same nodes in all of the catalogs."""
    one, *others = (plan_view(each, graph, view.name, view.relation, columns=view.columns) for each in catalogs)
    return all(other == one for other in others)


def _aligned_with_types(before: TableSchema, after: TableSchema) -> tuple[TableSchema, TableSchema]:
    """Both aligned. A column of another type stands twice on each side, once with each type, and has its own name where
    that side has it: so it is one and the same only to a view that does not read it."""
    before, after = replace(before, order=()), replace(after, order=())  # To a view that runs, that is no difference.
    old, new = list(_aligned(before, after).columns), list(_aligned(after, before).columns)
    for place, (one, other) in enumerate(zip(before.columns, after.columns, strict=False)):
        if one.type != other.type and not one.dropped and not other.dropped:
            old.append(TableColumn(f"\0new {place}", other.type))
            new.append(other)
            new[place] = replace(one, name=f"\0old {place}")
    return replace(before, columns=tuple(old)), replace(after, columns=tuple(new))


def _aligned(schema: TableSchema, other: TableSchema) -> TableSchema:
    """The schema with the live columns of both. Columns are append-only, so places tell which are one and the same."""
    longer = max(schema.columns, other.columns, key=len)
    columns = []
    for place, column in enumerate(longer):
        own, others = (_live(each, place) for each in (schema, other))
        if own is None and others is not None:
            columns.append(replace(others, name=f"\0{place}"))
        else:
            columns.append(own or replace(column, dropped=True))
    return replace(schema, columns=tuple(columns))


def _live(schema: TableSchema, place: int) -> TableColumn | None:
    column = schema.columns[place] if place < len(schema.columns) else None
    return None if column is None or column.dropped else column


BASES = DomainIndex(0)
"""The group that has the base tables."""


@dataclass(slots=True)
class Change:
    """What an entry changes, from ``State`` to ``State``; ``steps`` in order, and how to take them back."""

    state: State
    entry: RecipeEntry
    checks: list[PlanStep] = field(default_factory=list)
    """The checks that rows are what their tables are to be, done before the change is decided."""
    relents: list[PlanStep] = field(default_factory=list)
    """What takes the checks back."""
    tables: list[PlanStep] = field(default_factory=list)
    removal: MigrationPlan = field(default_factory=lambda: MigrationPlan((), ()))
    views: MigrationPlan = field(default_factory=lambda: MigrationPlan((), ()))
    drops: list[PlanStep] = field(default_factory=list)

    @property
    def undo(self) -> tuple[PlanStep, ...]:
        """What takes back all that comes before the decision."""
        return (*self.views.undo, *self.relents)

    @property
    def steps(self) -> tuple[PlanStep, ...]:
        """``views`` before ``removal``: what can fail or be cancelled comes before what cannot be taken back."""
        return (*self.checks, *self.tables, *self.views.steps, *self.removal.steps, *self.drops)


def entries_of(entry: RecipeEntry) -> tuple[RecipeEntry, ...]:
    """The entry in parts that change either tables or views: statements of one kind that follow one another.

    Dropping a table goes with the views: both come after the commit.
    """
    if entry.ad_hoc or entry.forget or (len(entry.statements) == 1 and ";" not in entry.statements[0]):
        return (entry,)
    parts: list[RecipeEntry] = []
    kind: str | None = None
    for sql in entry.statements:
        for parsed in split(sql):
            node = parsed.expression
            own = "tables" if not isinstance(node, exp.Drop) and node.args.get("kind") != "VIEW" else "views"
            if isinstance(node, exp.Drop) and node.args.get("kind") == "INDEX":
                own = "tables"
            if own == kind:
                parts[-1] = replace(parts[-1], statements=(*parts[-1].statements, parsed.sql))
            else:
                parts.append(RecipeEntry((parsed.sql,), collation=entry.collation))
            kind = own
    if entry.readers:
        parts.append(RecipeEntry(readers=entry.readers))
    return tuple(parts)


def change_of(state: State, entry: RecipeEntry, placement: Placement, parsed: Sequence[Parsed] | None = None) -> Change:
    """Work an entry out. The state given is left as it is.

    ``parsed`` is what the entry's statements parse to, where the caller has done that; it too is left as it is.

    :raises HeadraceError: what is wrong with a statement; nothing has changed then.
    """
    try:
        return _worked_out(state, entry, placement, parsed)
    except RecursionError:  # A query that could be parsed may still be a dataflow that is deeper than Python's stack.
        raise LimitExceeded("the dataflow becomes too deep", hint="join fewer tables, stack fewer views") from None


def _worked_out(state: State, entry: RecipeEntry, placement: Placement, parsed: Sequence[Parsed] | None) -> Change:
    work = _Work(state)
    work.go_on_from(entry)
    if entry.ad_hoc:
        for sql in entry.statements:
            work.add(CreateView(AdHoc(sql, ad_hoc_name(sql), ()).definition()))
    else:
        statements = parsed or [each for sql in entry.statements for each in split(sql)]
        for statement in statements:
            try:
                said = as_ignored(statement) if entry.ignored_keys else statement
                catalog = replace(work.state.catalog, collation=entry.collation)
                work.add(interpret_one(said, catalog, (), ""))
            except HeadraceError as error:
                if len(statements) > 1:
                    error.message = whose(statement) + error.message
                raise
    for name in entry.forget:
        work.forget_ad_hoc(name)
    work.readers.update((name.lower(), None) for name in entry.readers)
    return work.finish(entry, placement)


def whose(statement: Parsed) -> str:
    """What the statement defines, for an error: of several that are done together, none has a number of its own."""
    node = statement.expression
    table = node.this.find(exp.Table) if isinstance(node.this, exp.Expression) else None
    return f'"{table.name}": ' if table is not None else ""


def build_index(schema: TableSchema, columns: Columns, shards: int = 1) -> list[PlanStep]:
    """Bring stored rows into a declared index, in every shard of the table. Nothing is done where it is complete."""
    command = commands.BuildIndex(schema.name, columns, SLICE_ROWS)
    return at_table(schema, shards, command, f"index table {schema.name}", sliced=True)


def at_table(
    schema: TableSchema, shards: int, command: commands.Command, text: str, *, sliced: bool = False
) -> list[PlanStep]:
    """A command for every shard of a table; ``shards`` is the deployment's factor."""
    if shards == 1:
        return [PlanStep(BASES, command, text, sliced)]
    domains = [physical(BASES, shard, shards) for shard in range(schema.shards or shards)]
    return [PlanStep(domain, command, f"domain {domain}: {text}", sliced) for domain in domains]


class _Work:
    def __init__(self, state: State) -> None:
        self.state = state.copy()
        self.tables: list[PlanStep] = []
        self.checks: list[PlanStep] = []
        self.relents: list[PlanStep] = []
        self.made: set[str] = set()
        """Tables that come with this entry, and have no rows."""
        self.altered = dict[str, TableSchema]()  # Others that it has altered, as they are stored.
        self.drops: list[PlanStep] = []
        self.gone: dict[str, None] = {}
        self.readers: dict[str, None] = {}
        self.planned: dict[str, PlannedView] = {}
        self.meanings: dict[str, Relation] = {}
        """What new views come to, as long as nothing but further views has changed the catalog since."""

    def go_on_from(self, entry: RecipeEntry) -> None:
        """Go on as if the entries before it, which were left out, had been played."""
        flow, catalog = self.state.flow, self.state.catalog
        flow.next_index = max(flow.next_index, entry.first)
        flow.gathers, flow.gathered = entry.gathers, ()
        if entry.dropped:
            dropped = MappingProxyType({**catalog.dropped, **dict(entry.dropped)})
            self.state.catalog = replace(catalog, dropped=dropped)

    def add(self, statement: Statement) -> None:
        match statement:
            case CreateTableStatement():
                self._create_table(statement)
            case AlterTableStatement(table=table, schema=schema, cascade=cascade):
                self._alter_table(table, schema, cascade=cascade)
            case CreateIndex(table=table, schema=schema) | DropIndex(table=table, schema=schema):
                self._alter_table(table, schema)
            case DropTableStatement(name=name, if_exists=if_exists, cascade=cascade):
                self._drop_table(name, if_exists, cascade=cascade)
            case CreateView():
                self._create_view(statement)
            case DropView(name=name, if_exists=if_exists, cascade=cascade):
                self._drop_view(name, if_exists, cascade=cascade)
            case _:
                raise Unsupported("a migration takes CREATE, ALTER and DROP statements only")

    def _free(self, name: str, if_not_exists: bool) -> bool:
        catalog = self.state.catalog
        there = name.lower() in catalog.tables or name.lower() in catalog.views
        if there and not if_not_exists:
            raise AlreadyExists(f'"{name}" exists already', hint="use IF NOT EXISTS, or drop it first")
        return not there

    def _create_table(self, statement: CreateTableStatement) -> None:
        schema = statement.schema
        if self._free(schema.name, statement.if_not_exists):
            schema = replace(schema, generation=self.state.catalog.dropped.get(schema.name.lower(), 0))
            self.state.catalog = self.state.catalog.with_table(schema)
            self.meanings.clear()
            self.made.add(schema.name)
            self._at_table(schema, commands.CreateTable(schema), f"create table {schema.name}")

    def _alter_table(self, table: str, schema: TableSchema, *, cascade: bool = False) -> None:
        before = self.state.catalog.table(table)
        refuse_broken(self.state.catalog, before, schema)
        for view in outdated_views(self.state, schema, cascade=cascade):
            for name in self.state.catalog.dependents(view.name):
                self._forget(self.state.catalog.views[name.lower()])
            self._forget(view)
        self.state.catalog = self.state.catalog.with_table(schema)
        self.meanings.clear()
        if schema.name not in self.made:
            self._check_rows(before, schema)
        self._at_table(schema, commands.AlterTable(schema), f"alter table {schema.name}")
        for columns in dict.fromkeys((*schema.unique, *schema.indexes)):
            if columns not in (*before.unique, *before.indexes):
                self.tables.extend(build_index(schema, columns, self.state.shards))

    def _check_rows(self, before: TableSchema, schema: TableSchema) -> None:
        """Before anything is decided; writes go on meanwhile (``domains/engine/lifecycle/expected.py``)."""
        name, shards = schema.name, self.state.shards
        stored = self.altered.setdefault(name, before)
        refuse_unread(stored, schema, self.altered, self.state.catalog)
        if not asks_more(stored, schema):
            return
        self.checks += at_table(schema, shards, commands.Expect(schema), f"expect more of table {name}")
        for columns in sought(stored, schema):
            self.checks += build_index(schema, columns, shards)
        check = commands.CheckRows(name, SLICE_ROWS)
        self.checks += at_table(schema, shards, check, f"check the rows of table {name}", sliced=True)
        self.relents += at_table(schema, shards, commands.Relent(name), f"leave table {name} as it is")

    def _at_table(self, schema: TableSchema, command: commands.Command, text: str) -> None:
        self.tables.extend(at_table(schema, self.state.shards, command, text))

    def _drop_table(self, name: str, if_exists: bool, *, cascade: bool) -> None:
        catalog = self.state.catalog
        if name.lower() not in catalog.tables:
            if if_exists:
                return
            catalog.table(name)
        refuse_referred(catalog, name, "dropped")
        views = [catalog.views[view.lower()] for view in catalog.dependents(name)]
        named = [view.name for view in views if not view.ad_hoc]
        if named and not cascade:
            raise StillInUse(
                f'{_called(named)} table "{name}"',
                hint=f"{_dropped_first(named)}, or DROP TABLE … CASCADE them with it",
            )
        for view in views:
            self._forget(view)
        schema = catalog.table(name)
        self.state.catalog = self.state.catalog.without_table(name)
        self.meanings.clear()
        self.drops += at_table(schema, self.state.shards, commands.DropTable(schema.name), f"drop table {schema.name}")

    def _create_view(self, statement: CreateView) -> None:
        definition = statement.definition
        old = self.state.catalog.views.get(definition.name.lower())
        if statement.or_replace and old is not None:
            self._replace_view(old, definition)
        if not self._free(definition.name, statement.if_not_exists):
            return
        self.state.catalog = self.state.catalog.with_view(definition)
        lower = definition.name.lower()
        # Where it replaces a view, it was understood in a catalog that had the old one.
        meaning = statement.meaning if old is None else None
        if meaning is not None:
            self.meanings[lower] = meaning
        if definition.external or (meaning is not None and asks(meaning)):
            self.readers[lower] = None  # Planned with the others, when all are known.
            return
        self.planned[lower] = planned = understand(self.state, definition, meaning)
        if planned.parameters:
            self.readers[lower] = None

    def _replace_view(self, old: ViewDefinition, new: ViewDefinition) -> None:
        """The old one goes. Views that read it are planned anew, and take over together with it."""
        for name in self.state.catalog.dependents(old.name):
            if (reader := self.state.catalog.views[name.lower()]).ad_hoc:
                self._forget(reader)
        for view, planned in rebuilt_views(self.state, old, new):
            lower = view.name.lower()
            if lower in self.state.flow.readers:
                self.readers[lower] = None
            self.gone[lower] = None
            self.planned[lower] = planned
        self._forget(old)

    def _drop_view(self, name: str, if_exists: bool, *, cascade: bool) -> None:
        catalog = self.state.catalog
        view = catalog.views.get(name.lower())
        if view is None:
            if if_exists:
                return
            catalog.relation(name)
            raise Unsupported(f'"{name}" is a table', hint="use DROP TABLE")
        readers = [catalog.views[other.lower()] for other in catalog.dependents(name)]
        named = [reader.name for reader in readers if not reader.ad_hoc]
        if named and not cascade:
            raise StillInUse(f'{_called(named)} view "{name}"', hint=_dropped_first(named))
        for each in (*readers, view):
            self._forget(each)

    def _forget(self, view: ViewDefinition) -> None:
        self.state.catalog = self.state.catalog.without_view(view.name)
        self.meanings.clear()
        self.gone[view.name.lower()] = None
        self.readers.pop(view.name.lower(), None)
        self.planned.pop(view.name.lower(), None)

    def forget_ad_hoc(self, name: str) -> None:
        """Views made for SELECTs are forgotten without a statement: nobody else knows their names."""
        view = self.state.catalog.views.get(name.lower())
        if view is not None and view.ad_hoc:
            self._forget(view)

    def finish(self, entry: RecipeEntry, placement: Placement) -> Change:
        removal = MigrationPlan((), ())
        if self.gone:
            self.state, removal = plan_removal(self.state, self.gone)
        self.state.planned.update(self.planned)
        wanted = [self.state.catalog.views[name] for name in self.readers if name not in self.state.flow.readers]
        views = MigrationPlan((), ())
        if wanted:
            self.state, views = plan_readers(self.state, wanted, placement, self.meanings)
        return Change(self.state, entry, self.checks, self.relents, self.tables, removal, views, self.drops)
