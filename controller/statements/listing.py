"""A deployment's tables and views, from its state, and the nearest name to an unknown one."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches

from controller.deployment import ViewInfo
from domains.errors import NotFound
from domains.language.types import TableSchema
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


def unique_of(state: State, view: str) -> Sequence[str] | None:
    """The visible columns that tell a view's rows apart, but for NULL; None where none are known to. By the keys that
    its tables have now: one that was dropped may be among those by which the running view was planned."""
    planned = understand(state, state.catalog.views[view_of(state, view).name.lower()])
    return None if planned.unique is None else [planned.columns[at].name for at in planned.unique]
