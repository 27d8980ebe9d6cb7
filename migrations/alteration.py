"""ALTER TABLE and CREATE OR REPLACE VIEW under views that run: which of them would mean something else.

A view that runs keeps the columns that it was planned with, by their places in the stored rows. Its text names them by
their names, and what a text names can change without an error: ``*`` and NATURAL follow the table's columns, and a
dropped column and a new one can have one name::

    text ── frozen ──► * and NATURAL written out ── planned over aligned tables ──► nodes
                            before = after?                  before = after?

The tables are *aligned*: on each side they have the live columns of both, those of the other side under a name that no
text can write. So columns stand in the same places on both sides, and two plans are the same nodes of the joint graph
exactly if they read the same stored columns in the same way. (A column that merely came or went would else make every
plan over the table another one.)

A view that others read is replaced where its columns stay or grow. To these others it is as a table is that is altered,
as far as names go, and so it is looked at as one; what else it means to them may change, and then they are built anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from domains.errors import HeadraceError, SqlError, StillInUse
from domains.graph import Parameter
from domains.types import Column, TableColumn, TableSchema
from migrations.catalog import Catalog, ViewDefinition
from migrations.joint_graph import JointGraph
from migrations.parse import same_tree
from migrations.plan import State, understand
from migrations.query.view import PlannedView, frozen, plan_view


def outdated_views(state: State, schema: TableSchema) -> Iterator[ViewDefinition]:
    """The ad-hoc views that no longer mean what they meant once the table has this schema.

    :raises StillInUse: a view that has a name is among them, or can no longer be understood.
    """
    before = state.catalog.table(schema.name)
    if before.columns == schema.columns:
        return  # Indexes have no meaning, only a price.
    after = state.catalog.with_table(schema)
    aligned = [state.catalog.with_table(_aligned(one, other)) for one, other in ((before, schema), (schema, before))]
    graph = state.joint.copy()  # One for all: a number says which node it is only within one graph.
    for name in state.catalog.dependents(schema.name):
        view = state.catalog.views[name.lower()]
        try:
            written = _written_out(view, state.catalog, after)
            same = written is not None and _come_to_the_same(written, aligned, graph)
            reason = f'it would read other columns of "{schema.name}"'
        except HeadraceError as error:
            same, reason = False, error.message
        if not same and not view.ad_hoc:
            raise StillInUse(f'view "{name}" needs it: {reason}', hint="drop the view first")
        if not same:
            yield view


def rebuilt_views(state: State, old: ViewDefinition, new: ViewDefinition) -> list[tuple[ViewDefinition, PlannedView]]:
    """Of the views that read one which is replaced those that are other nodes afterwards, and what they come to.

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
        names = [f'"{view.name}"' for view in readers]
        who = f"view {names[0]} reads" if len(names) == 1 else f"views {', '.join(names[:-1])} and {names[-1]} read"
        for before, after in zip(old.columns, kept, strict=True):
            lost = f'which would have no column "{before.name}"' if after is None else ""
            if after is not None and after.type != before.type:
                lost = f'whose column "{before.name}" would be {after.type}, where it is {before.type}'
            if lost:
                raise StillInUse(f'{who} view "{old.name}", {lost}', hint="drop or replace these first")
    grown = (*old.columns, *by_name.values())
    one, other = (tuple(TableColumn(each.name, each.type) for each in some) for some in (old.columns, grown))
    return TableSchema(old.name, one), TableSchema(old.name, other)


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
