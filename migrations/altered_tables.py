"""ALTER TABLE and CREATE OR REPLACE VIEW under views that run: which of them would mean something else.

A view that runs keeps the columns that it was planned with, by their places in the stored rows. Its text names them
by their names, and what a text names can change without an error: ``*`` and NATURAL follow the table's columns, and
a dropped column and a new one can have one name::

    text ── frozen ──► * and NATURAL written out ── planned over aligned tables ──► nodes
                             before = after?                  before = after?

The tables are *aligned*: on each side they have the live columns of both, those of the other side under a name that
no text can write. So columns stand in the same places on both sides, and two plans are the same nodes of the joint
graph exactly if they read the same stored columns in the same way. (A column that merely came or went would else
make every plan over the table another one.)

A column that is only called otherwise stands where it stood, and views that read it run on. They are given a text that
says its new name, if there is one that comes to the same nodes (``renamed_columns.py``). The recipe keeps the texts as
they were written, and makes the same ones of them where it is played again.

A view that others read is replaced where its columns stay or grow. To these others it is as a table is that is
altered, as far as names go, and so it is looked at as one; what else it means to them may change, and then they are
built anew.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace

from domains.errors import HeadraceError, SqlError, StillInUse
from domains.language.types import Column, TableColumn, TableSchema
from domains.plan.graph import Parameter
from migrations.catalog import Catalog, ViewDefinition
from migrations.flow.plan import State, understand
from migrations.parse.reading import exp, faithful, same_tree
from migrations.query.view import PlannedView, frozen, plan_view
from migrations.renamed_columns import new_names, proposals
from migrations.statements.definitions.written import readers_last


@dataclass(slots=True)
class AlteredViews:
    """What becomes of the views that read a table which is altered."""

    outdated: list[ViewDefinition] = field(default_factory=list)
    """Those that no longer mean what they meant, or can no longer be understood."""
    renamed: list[ViewDefinition] = field(default_factory=list)
    """Those that stay what they are, with a text that says new names."""


def altered_views(state: State, schema: TableSchema, *, cascade: bool = False) -> AlteredViews:
    """The views once the table has this schema. Only with ``cascade`` are views with a name among those that go.

    :raises StillInUse: there are some; with all of them.
    """
    found = AlteredViews()
    before = state.catalog.tables[schema.name.lower()]
    # Indexes have no meaning, only a price. A subquery may rely on a key that is unique, and none on one's absence.
    schema = replace(schema, unique=tuple(key for key in before.unique if key in schema.unique))
    seen = [(each.columns, each.order, each.unique, each.title) for each in (before, schema)]
    if seen[0] == seen[1]:
        return found
    comparison = _Comparison(state, before, schema)
    reasons: dict[str, str] = {}
    for view in readers_last([state.catalog.views[name.lower()] for name in state.catalog.dependents(before.title)]):
        try:
            after = comparison.after(view)
            what = "read other columns" if before.unique == schema.unique else "rely on a UNIQUE key that has gone"
            reason = f'it would {what} of "{before.title}"'
        except HeadraceError as error:
            after, reason = None, error.message
        if after is None:
            found.outdated.append(view)
            if not view.ad_hoc:
                reasons[view.name] = reason
        elif after is not view:
            found.renamed.append(after)
    if reasons and not cascade:
        first, *others = reasons
        more = f" (and so do {', '.join(others)})" if others else ""
        raise StillInUse(f'view "{first}" needs it: {reasons[first]}{more}', hint=dropped_first(reasons))
    return found


class _Comparison:
    """Views before and after one table is altered."""

    def __init__(self, state: State, before: TableSchema, schema: TableSchema) -> None:
        self._state = state
        self._table = before
        self._before = state.catalog
        self._after = state.catalog.with_table(schema)
        self._aligned = [state.catalog.with_table(each) for each in _aligned_with_types(before, schema)]
        self._graph = state.joint.copy()  # One for all: a number says which node it is only within one graph.
        self._names = new_names(before, schema)
        self._title = schema.title

    def after(self, view: ViewDefinition) -> ViewDefinition | None:
        """The view itself where it stays what it is; else the same view with new names, or None.

        :raises HeadraceError: it can no longer be understood.
        """
        refusal: HeadraceError | None = None
        try:
            if self._stays(view, view):
                return view
        except HeadraceError as error:
            refusal = error
        is_renamed = bool(self._names) or self._title != self._table.title
        if is_renamed and not view.ad_hoc and self._table.title.lower() in view.reads:
            planned = understand(self._state, view)
            for query in proposals(view, self._table, self._title, self._names, planned, self._columns_of):
                if (other := self._called_otherwise(view, query)) is not None:
                    self._after = self._after.with_view(other)
                    self._aligned[1] = self._aligned[1].with_view(other)
                    return other
        if refusal is not None:
            raise refusal
        return None

    def _called_otherwise(self, view: ViewDefinition, query: exp.Query) -> ViewDefinition | None:
        """The view by another text; None where that is not the same view."""
        try:
            other = replace(view, sql=faithful(query), relation=query)
            return other if self._stays(view, other) else None
        except HeadraceError:  # It was a guess.
            return None

    def _stays(self, view: ViewDefinition, other: ViewDefinition) -> bool:
        """Whether one before is what the other is after."""
        text, meaning = frozen(self._before, view.relation)
        if other is not view:
            texts = text, other.relation
        elif meaning is not None or same_tree(text, frozen(self._after, view.relation)[0]):
            texts = text, text
        else:
            return False
        pairs = zip(self._aligned, texts, strict=True)
        one, two = (_unnamed(plan_view(c, self._graph, view.name, q, columns=view.columns)) for c, q in pairs)
        return one == two

    def _columns_of(self, name: str) -> Sequence[str]:
        table = self._before.named(name)
        if table is not None:
            return [table.columns[at].name for at in table.live()]
        view = self._before.views.get(name.lower())
        return () if view is None else [column.name for column in understand(self._state, view).columns]


def _unnamed(planned: PlannedView) -> PlannedView:
    """Without the names of what the reader stores, which nobody sees: the view that runs keeps those that it has. And
    without what is known to tell rows apart: an answer is the same rows either way."""
    planned = replace(planned, unique=None)
    if planned.finish is None:
        return planned
    stored = tuple(Column("", column.type) for column in planned.finish.stored)
    return replace(planned, finish=replace(planned.finish, stored=stored))


def dropped_first(views: Collection[str]) -> str:
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
    altered = altered_views(replace(state, catalog=catalog.with_table(columns[0])), columns[1])
    assert not altered.outdated, "views of ad-hoc SELECTs are forgotten before"
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


def policed_views(state: State, after: Catalog, table: TableSchema) -> list[tuple[ViewDefinition, PlannedView]]:
    """The views that read a table and are other nodes once it has other policies, and what they come to.

    :raises StillInUse: a policy cannot be applied below what a view does, or what the view shows would be another.
    """
    graph, rebuilt = state.joint.copy(), []
    for view in (state.catalog.views[name.lower()] for name in state.catalog.dependents(table.title)):
        one = plan_view(state.catalog, graph, view.name, view.relation, columns=view.columns)
        try:
            other = plan_view(after, graph, view.name, view.relation, columns=view.columns)
        except HeadraceError as error:
            raise StillInUse(
                f'view "{view.name}" reads it, to which the policies cannot be applied: {error.message}',
                hint="drop the view first",
            ) from error
        if one == other:
            continue
        # What a parameter is compared by is another question where it is applied to what is read.
        if [each.name for each in one.parameters] != [each.name for each in other.parameters]:
            raise StillInUse(f'view "{view.name}" would have other parameters', hint="drop the view first")
        rebuilt.append((view, other))
    return rebuilt


def _kept_columns(
    readers: Sequence[ViewDefinition], old: PlannedView, new: PlannedView
) -> tuple[TableSchema, TableSchema]:
    """The columns before and after as those of a table that is altered."""
    by_name = {column.name.lower(): column for column in new.columns}
    kept = [by_name.pop(column.name.lower(), None) for column in old.columns]
    if readers:
        who = called([view.name for view in readers])
        for before, after in zip(old.columns, kept, strict=True):
            lost = f'which would have no column "{before.name}"' if after is None else ""
            if after is not None and after.type != before.type:
                lost = f'whose column "{before.name}" would be {after.type}, where it is {before.type}'
            if lost:
                raise StillInUse(f'{who} view "{old.name}", {lost}', hint="drop or replace these first")
    grown = (*old.columns, *by_name.values())
    one, other = (tuple(TableColumn(each.name, each.type) for each in some) for some in (old.columns, grown))
    # Under a name that no table is stored by.
    return TableSchema(f"\0{old.name}", one, shown=old.name), TableSchema(f"\0{old.name}", other, shown=old.name)


def called(views: Sequence[str]) -> str:
    """``view "a" reads``, ``views "a" and "b" read``."""
    names = [f'"{view}"' for view in views]
    return f"view {names[0]} reads" if len(names) == 1 else f"views {', '.join(names[:-1])} and {names[-1]} read"


def _shown(things: Iterable[Column | Parameter]) -> list[tuple[object, ...]]:
    """What whoever reads a view sees of its columns or parameters."""
    return [(each.name.lower(), each.type, getattr(each, "kind", None)) for each in things]


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
