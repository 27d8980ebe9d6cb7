"""One recipe entry worked out: statements of a migration, planned together against the state before it.

The order of what is to be done is: rows are checked, where a table is to ask more of them; tables that are new or
changed; views that go; views that come (their nodes are
built beside the running ones and become visible at the end); tables that go.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from domains.engine.lifecycle.expected import asks_more, sought
from domains.errors import AlreadyExists, HeadraceError, LimitExceeded, StillInUse, Unsupported
from domains.language.types import TableSchema
from domains.plan import commands
from domains.plan.graph import Columns, DomainIndex
from domains.plan.sharding import physical
from domains.store.widening import following, kept_foreign_keys
from migrations.access.policies import written_through
from migrations.altered_tables import altered_views, called, dropped_first, policed_views, rebuilt_views
from migrations.catalog import Policy, ViewDefinition, policies_number
from migrations.flow.dataflow import Placement
from migrations.flow.plan import SLICE_ROWS, MigrationPlan, PlanStep, State, plan_readers, plan_removal, understand
from migrations.parse.grammar import SCHEMA, VIRTUAL_SCHEMAS
from migrations.parse.reading import Parsed, exp
from migrations.query.relation import Relation
from migrations.query.view import PlannedView, asks
from migrations.recipe import RecipeEntry
from migrations.statements.adhoc.shapes_of_selects import AdHoc, ad_hoc_name
from migrations.statements.definitions.foreign_keys import (
    as_ignored,
    referring,
    refuse_broken,
    refuse_referred,
    refuse_unread,
)
from migrations.statements.definitions.parts import as_whole_keys
from migrations.statements.interpret import interpret_one, split
from migrations.statements.policies.defining import refuse_policies
from migrations.statements.statement import (
    AlterTableStatement,
    CreateIndex,
    CreateSchema,
    CreateTableStatement,
    CreateView,
    DropIndex,
    DropSchema,
    DropTableStatement,
    DropView,
    SetPolicies,
    Statement,
)

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
            own = "views" if isinstance(node, exp.Drop) or node.args.get("kind") in ("VIEW", "POLICY") else "tables"
            if isinstance(node, exp.Drop) and node.args.get("kind") == "INDEX":
                own = "tables"
            if own == kind:
                parts[-1] = replace(parts[-1], statements=(*parts[-1].statements, parsed.sql))
            else:
                parts.append(RecipeEntry((parsed.sql,), collation=entry.collation, now=entry.now))
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
    work.filled, work.now = entry.filled, entry.now
    if entry.ad_hoc:
        for sql in entry.statements:
            work.add(CreateView(AdHoc(sql, ad_hoc_name(sql), ()).definition()))
    else:
        statements = parsed or [each for sql in entry.statements for each in split(sql)]
        for statement in statements:
            try:
                said = as_whole_keys(statement) if entry.whole_keys else statement
                said = as_ignored(said) if entry.ignored_keys else said
                catalog = replace(work.state.catalog, collation=entry.collation)
                work.add(interpret_one(said, catalog, (), entry.now))
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
        self.filled = self.now = ""
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
            case CreateSchema(namespace=namespace):
                catalog = self.state.catalog
                if namespace.name.lower() not in (SCHEMA, *VIRTUAL_SCHEMAS, *catalog.namespaces):
                    self.state.catalog = catalog.with_namespaces([*catalog.namespaces.values(), namespace])
            case DropSchema(name=name):
                self._drop_schema(name)
            case AlterTableStatement(table=table, schema=schema, cascade=cascade):
                self._alter_table(table, schema, cascade=cascade)
            case CreateIndex(table=table, schema=schema) | DropIndex(table=table, schema=schema):
                self._alter_table(table, schema)
            case DropTableStatement(name=name, if_exists=if_exists, cascade=cascade):
                self._drop_table(name, if_exists, cascade=cascade)
            case CreateView():
                self._create_view(statement)
            case SetPolicies(table=table, policies=policies):
                self._set_policies(table, policies)
            case DropView(name=name, if_exists=if_exists, cascade=cascade):
                self._drop_view(name, if_exists, cascade=cascade)
            case _:
                raise Unsupported("a migration takes CREATE, ALTER and DROP statements only")

    def _free(self, name: str, if_not_exists: bool) -> bool:
        catalog = self.state.catalog
        there = catalog.named(name) is not None or name.lower() in catalog.views
        if there and not if_not_exists:
            raise AlreadyExists(f'"{name}" exists already', hint="use IF NOT EXISTS, or drop it first")
        return not there

    def _create_table(self, statement: CreateTableStatement) -> None:
        schema = statement.schema
        if self._free(schema.title, statement.if_not_exists):
            generation = self.state.catalog.dropped.get(schema.name.lower(), 0)
            schema = replace(schema, generation=generation, filled=self.filled)
            self.state.catalog = self.state.catalog.with_table(schema)
            self.meanings.clear()
            self.made.add(schema.name)
            self._at_table(schema, commands.CreateTable(schema), f"create table {schema.name}")

    def _alter_table(self, table: str, schema: TableSchema, *, cascade: bool = False) -> None:
        before = self.state.catalog.tables[table.lower()]
        refuse_broken(self.state.catalog, before, schema)
        schema, *others = self._renamed_keys(before, schema)
        refuse_policies(self.state.catalog, before, schema)
        views = altered_views(self.state, schema, cascade=cascade)
        for view in views.outdated:
            for name in self.state.catalog.dependents(view.name):
                self._forget(self.state.catalog.views[name.lower()])
            self._forget(view)
        for each in (schema, *others):
            self.state.catalog = self.state.catalog.with_table(each)
        for view in views.renamed:
            self.state.catalog = self.state.catalog.with_view(view)
        self.meanings.clear()
        if schema.name not in self.made:
            self._check_rows(before, schema)
        if schema != before:  # Where a comment alone is another, no shard has to know.
            self._at_table(schema, commands.AlterTable(schema), f"alter table {schema.name}")
        if self.state.catalog.policies:  # A foreign key may have come.
            self._fence(self.tables)
        for columns in dict.fromkeys((*schema.unique, *schema.indexes)):
            if columns not in (*before.unique, *before.indexes):
                self.tables.extend(build_index(schema, columns, self.state.shards))

    def _renamed_keys(self, before: TableSchema, schema: TableSchema) -> list[TableSchema]:
        """The table, and those whose foreign keys name a column of it that it renames: a shard alters them with it."""
        others = [each for each in self.state.catalog.tables.values() if each.name != schema.name]
        own = dict(zip(before.foreign_keys, kept_foreign_keys(before, schema), strict=True))
        keys = tuple(own.get(key, key) for key in schema.foreign_keys)
        return [replace(schema, foreign_keys=keys), *following(before, schema, others)]

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
        if catalog.named(name) is None and if_exists:
            return
        schema = catalog.table(name)
        refuse_referred(catalog, schema, "dropped")
        views = [catalog.views[view.lower()] for view in catalog.dependents(name)]
        named = [view.name for view in views if not view.ad_hoc]
        if named and not cascade:
            raise StillInUse(
                f'{called(named)} table "{name}"',
                hint=f"{dropped_first(named)}, or DROP TABLE … CASCADE them with it",
            )
        for view in views:
            self._forget(view)
        self._remove_table(schema)

    def _remove_table(self, schema: TableSchema) -> None:
        self.state.catalog = self.state.catalog.without_table(schema.name)
        self.meanings.clear()
        self.drops += at_table(schema, self.state.shards, commands.DropTable(schema.name), f"drop table {schema.name}")

    def _drop_schema(self, name: str) -> None:
        """With all that is in it, unless something else needs that."""
        found = self.state.catalog.within(name)
        tables = [each for each in found if isinstance(each, TableSchema)]
        views = [each for each in found if isinstance(each, ViewDefinition)]
        own = {each.name for each in tables}
        for table in tables:
            for child, _ in referring(self.state.catalog, table.name):
                if child.name not in own:
                    refuse_referred(self.state.catalog, table, "dropped")
        gone = {each.title.lower(): None for each in found}
        readers = dict.fromkeys(each for title in gone for each in self.state.catalog.dependents(title))
        others = [self.state.catalog.views[each.lower()] for each in readers if each.lower() not in gone]
        if named := [each.name for each in others if not each.ad_hoc]:
            raise StillInUse(f'{called(named)} database "{name}"', hint=dropped_first(named))
        for view in (*others, *views):
            self._forget(view)
        for table in tables:
            self._remove_table(table)
        left = [each for lower, each in self.state.catalog.namespaces.items() if lower != name]
        self.state.catalog = self.state.catalog.with_namespaces(left)

    def _create_view(self, statement: CreateView) -> None:
        definition = replace(statement.definition, created=self.now)
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
        if planned.parameters or planned.hidden:
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

    def _set_policies(self, table: TableSchema, policies: tuple[Policy, ...]) -> None:
        """Views that read the table are planned anew, and take over together once it is decided. Then nothing that was
        planned before is served (``catalog.py``)."""
        catalog = self.state.catalog
        for name in catalog.dependents(table.title):
            if catalog.views[name.lower()].ad_hoc:
                self._forget(catalog.views[name.lower()])
        after = self.state.catalog.with_policies(table.name.lower(), policies)
        for view, planned in policed_views(self.state, after, table):
            lower = view.name.lower()
            if lower in self.state.flow.readers or planned.hidden:
                self.readers[lower] = None
            self.gone[lower] = None
            self.planned[lower] = planned
        self.state.catalog = after
        self.meanings.clear()
        self._fence(self.drops)

    def _fence(self, steps: list[PlanStep]) -> None:
        """Have shards refuse what was planned by other policies of a table, or of those that writes to it reach."""
        for table in list(self.state.catalog.tables.values()):
            catalog = self.state.catalog
            reached = sorted({table.title.lower(), *written_through(catalog, [table.title])})
            stored = [known.name.lower() for name in reached if (known := catalog.named(name)) is not None]
            schema = replace(table, policies=policies_number([catalog.policies.get(name, ()) for name in stored]))
            if schema != table:
                self.state.catalog = catalog.with_table(schema)
                told = f"refuse what was planned by other policies of table {table.name}"
                steps += at_table(schema, self.state.shards, commands.AlterTable(schema), told)

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
            raise StillInUse(f'{called(named)} view "{name}"', hint=dropped_first(named))
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
