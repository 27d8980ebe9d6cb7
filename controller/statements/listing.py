"""A deployment's tables and views, from its state, and the nearest name to an unknown one."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any

from controller.deployment import ViewInfo
from domains.errors import NotFound
from domains.language.collating.collation import BINARY
from domains.language.types import Kind, SqlType, TableSchema, Value
from migrations.flow.plan import State, understand
from migrations.query.view import PlannedView


def table_of(state: State, name: str) -> TableSchema:
    """Raises NotFound with the nearest name."""
    schema = state.catalog.named(name)
    if schema is None:
        names = [each.title for each in state.catalog.tables.values()]
        raise NotFound(f'no table "{name}"', hint=_nearest(name, names))
    return schema


def stored_table(state: State, name: str) -> TableSchema:
    """The table of an operation, which has the name that it is stored by. Raises NotFound where it was dropped."""
    schema = state.catalog.tables.get(name.lower())
    if schema is None:
        raise NotFound(f'no table "{name}"')
    return schema


def view_of(state: State, name: str) -> PlannedView:
    """Raises NotFound with the nearest name."""
    planned = state.planned.get(name.lower())
    if planned is None:
        names = [each.name for each in state.catalog.views.values() if not each.ad_hoc]
        raise NotFound(f'no view "{name}"', hint=_nearest(name, names))
    return planned


def info_of(state: State, lower: str) -> ViewInfo:
    """``lower`` is the lower-case name of a view that is there."""
    definition, planned = state.catalog.views[lower], state.planned[lower]
    index = state.flow.readers.get(lower)
    kept = "none" if index is None else state.flow.node(index).materialization.value
    return ViewInfo(
        definition.name,
        definition.sql,
        planned.columns,
        planned.parameters,
        definition.external or bool(planned.parameters or planned.hidden) or definition.ad_hoc,
        definition.ad_hoc,
        kept,
        tuple(hidden.parameter.name for hidden in planned.hidden),
        definition.created,
    )


def _nearest(name: str, known: Sequence[str]) -> str | None:
    lower = {each.lower(): each for each in known}
    near = get_close_matches(name.lower(), list(lower), n=1)
    return f'did you mean "{lower[near[0]]}"?' if near else None


def column_row(schema: TableSchema, position: int) -> tuple[Any, ...]:
    column = schema.columns[position]
    if position in schema.shown_key:
        key = "PRI"
    elif any(position in unique for unique in schema.unique):
        key = "UNI"
    else:
        key = "MUL" if any(position in index for index in schema.indexes) else ""
    default = "CURRENT_TIMESTAMP" if column.default_now else _default_text(column.default)
    extra = "auto_increment" if column.auto_increment else "DEFAULT_GENERATED" if column.default_now else ""
    if column.on_update_now:
        extra = f"{extra} on update CURRENT_TIMESTAMP".strip()
    if column.generated is not None:
        extra = "VIRTUAL GENERATED" if column.virtual else "STORED GENERATED"
    return (column.name, column.type, "YES" if column.nullable else "NO", key, default, extra)


def _default_text(default: Value) -> str | None:
    if default is None:
        return None
    return f"0x{default.hex().upper()}" if isinstance(default, bytes) else str(default)


def collation_name(type: SqlType) -> str | None:
    return (type.collation or BINARY) if type.kind is Kind.TEXT else None


def unique_of(state: State, view: str) -> Sequence[str] | None:
    """The visible columns that tell a view's rows apart, but for NULL; None where none are known to. By the keys that
    its tables have now: one that was dropped may be among those by which the running view was planned."""
    planned = understand(state, state.catalog.views[view_of(state, view).name.lower()])
    return None if planned.unique is None else [planned.columns[at].name for at in planned.unique]
