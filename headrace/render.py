"""Answers as tables on a terminal, by rich."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any

from headrace_client.results import Result
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from headrace.sizes import format_size, several

NUMBERS = ("INT", "BOOL", "FLOAT", "DOUBLE", "DECIMAL")
"""Parts of numeric types' names; their columns are aligned to the right."""

IDENTIFIERS = ("pid", "port", "process", "domain", "shard", "incarnation", "epoch")
"""Numbers that name something, and are not read as amounts."""

ALARM = "alarm"
"""A sentence among a group's values: said below them, where there is room for it."""

TOP_VIEWS = 10

PIPED_WIDTH = 10_000
"""A console for a terminal or a pipe. In a pipe, lines are not wrapped, so that a program sees one row a line."""


def console(*, stderr: bool = False) -> Console:
    made = Console(stderr=stderr, highlight=False, emoji=False)
    return made if made.is_terminal else Console(stderr=stderr, highlight=False, emoji=False, width=PIPED_WIDTH)


def result_lines(result: Result) -> Iterator[RenderableType]:
    """One statement's answer: a table and its number of rows, or what it did."""
    if not result.columns:
        yield Text(result.done or several(result.rows_affected, "row") + " affected", style="green")
        if result.first_id is not None:
            yield Text(f"first id {result.first_id}")
        return
    table = Table()
    for column in result.columns:
        numeric = any(part in column.type.upper() for part in NUMBERS)
        table.add_column(_text(column.name), justify="right" if numeric else "left", overflow="fold")
    for row in result.rows:
        table.add_row(*map(_text, row))
    yield table
    yield Text(several(len(result.rows), "row"), style="dim")


class Sort(StrEnum):
    """The orders of a list of views: the most expensive first."""

    MEMORY = "memory"
    TIME = "time"
    MISSES = "misses"
    NAME = "name"


def status_screen(status: Mapping[str, Any]) -> Iterator[RenderableType]:
    """The rows that fit a screen: plain values, totals, and the views that cost most."""
    tables, views = status.get("tables", {}), status.get("views", {})
    totals = {
        "tables": len(tables),
        "rows": sum(each.get("rows", 0) for each in tables.values()),
        "views": len(views),
        "domains": len(status.get("domains", ())),
    }
    plain = {name: value for name, value in status.items() if not isinstance(value, dict | list)}
    yield from _pairs("status", {**plain, **totals})
    for name in ("memory", "counters"):
        if name in status:
            yield from _group(name, status[name])
    yield from _alarms(status)
    if "workers" in status:
        names = ("worker", "health", "uptime", "memory_accounted", "memory_limit", "domains")
        yield from _list("workers", [{n: each.get(n, "") for n in names} for each in status["workers"]])
    for title, order in (("views by memory", Sort.MEMORY), ("views by time to fill", Sort.TIME)):
        top = _by(views, order)[:TOP_VIEWS]
        if any(_cost(each, order) for _, each in top):
            yield from view_table(dict(top), order, title)
    if len(views) > TOP_VIEWS:
        yield Text(f"all {len(views)} views: headrace status --views; everything: --all or --json", style="dim")


def view_table(views: Mapping[str, Mapping[str, Any]], order: Sort, title: str = "views") -> Iterator[RenderableType]:
    """Each view with what it holds and how it is read. The hit rate counts keys since the look-up was prepared."""
    table = Table()
    for name in ("view", "state", "keys", "bytes", "hits", "misses", "hit rate", "seconds"):
        table.add_column(name, justify="left" if name in ("view", "state") else "right", overflow="fold")
    for name, each in _by(views, order):
        hits, misses = each.get("hits", 0), each.get("misses", 0)
        rate = f"{hits / (hits + misses):.1%}" if hits + misses else ""
        table.add_row(
            _text(name),
            _text(each.get("materialization", "")),
            f"{each.get('keys', 0):,}",
            format_size(each.get("bytes", 0)),
            f"{hits:,}",
            f"{misses:,}",
            rate,
            f"{each.get('seconds', 0.0):,.3f}",
        )
    yield _heading(title)
    yield table


def _by(views: Mapping[str, Mapping[str, Any]], order: Sort) -> list[tuple[str, Mapping[str, Any]]]:
    return sorted(views.items(), key=lambda named: (-_cost(named[1], order), named[0].lower()))


def _cost(view: Mapping[str, Any], order: Sort) -> float:
    figure = {Sort.MEMORY: "bytes", Sort.TIME: "seconds", Sort.MISSES: "misses", Sort.NAME: ""}[order]
    return float(view.get(figure, 0))


def _alarms(status: Mapping[str, Any]) -> Iterator[RenderableType]:
    """All alarms, wherever in the status they are; those of ``memory`` are shown there."""
    for name, value in status.items():
        if isinstance(value, Mapping) and name != "memory":
            yield from _alarms(value)
        elif name in ("alarms", "storage_alarms") and value:
            yield from _list("alarms", value)
        elif name == ALARM:
            yield Text.assemble(("alarm: ", "bold red"), _text(value))
        elif isinstance(value, list):
            for each in value:
                if isinstance(each, Mapping):
                    yield from _alarms(each)


def status_tables(status: Mapping[str, Any]) -> Iterator[RenderableType]:
    """The whole status: plain values first, then a table for each group."""
    scalars = {name: value for name, value in status.items() if not isinstance(value, dict | list)}
    if scalars:
        yield from _pairs("status", scalars)
    for name, value in status.items():
        if isinstance(value, dict):
            yield from _group(name, value)
        elif isinstance(value, list) and value:
            yield from _list(name, value)


def _group(title: str, values: Mapping[str, Any]) -> Iterator[RenderableType]:
    flat = {name: value for name, value in values.items() if not _has_parts(value) and name != ALARM}
    if flat:
        yield from _pairs(title, flat)
    if ALARM in values:
        yield Text.assemble(("alarm: ", "bold red"), _text(values[ALARM]))
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _group(f"{title}.{name}", value)
        elif _has_parts(value):
            yield from _list(f"{title}.{name}", value)


def _has_parts(value: Any) -> bool:
    """Whether it is shown as a table of its own."""
    return isinstance(value, dict) or (isinstance(value, list) and any(isinstance(each, dict) for each in value))


def _pairs(title: str, values: Mapping[str, Any]) -> Iterator[RenderableType]:
    table = Table(show_header=False)
    table.add_column(style="bold")
    table.add_column(justify="right", overflow="fold")
    for name, value in values.items():
        table.add_row(_text(name.replace("_", " ")), _text(_readable(f"{title}.{name}", value)))
    yield _heading(title)
    yield table


def _list(title: str, values: Sequence[Any]) -> Iterator[RenderableType]:
    rows = [value if isinstance(value, dict) else {"": value} for value in values]
    parted = [(row, name, value) for row in rows for name, value in row.items() if isinstance(value, dict)]
    apart = {name for _, name, _ in parted}
    names = [name for name in dict.fromkeys(name for row in rows for name in row) if name not in apart]
    table = Table()
    for name in names:
        numeric = all(isinstance(row.get(name), int | float) for row in rows)
        table.add_column(_text(name.replace("_", " ")), justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*(_text(_readable(name, row.get(name, ""))) for name in names))
    yield _heading(title)
    yield table
    for row, name, value in parted:
        yield from _group(f"{title}.{next(iter(row.values()))}.{name}", value)


def _heading(title: str) -> Text:
    """The heading of a table, printed above it: a title of rich's is broken in words where the table is narrower."""
    return Text(title, style="bold cyan")


def _readable(name: str, value: Any) -> Any:
    """Bytes and seconds in units, by the name that the status gives them."""
    if isinstance(value, list):
        return ", ".join(map(str, value))
    if isinstance(value, bool) or not isinstance(value, int | float) or name.rpartition(".")[2] in IDENTIFIERS:
        return value
    if "bytes" in name or name.startswith("memory"):
        return format_size(value)
    if "uptime" in name:
        minutes, seconds = divmod(int(value), 60)
        hours, minutes = divmod(minutes, 60)
        return f"{hours}:{minutes:02}:{seconds:02}"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.3f}"


def _text(value: Any) -> Text:
    """A value as it is: no markup, no escape sequences, and NULL told apart from the text of that name."""
    if value is None:
        return Text("NULL", style="dim")
    shown = value if isinstance(value, str) else str(value)
    return Text("".join(char if char.isprintable() or char == "\n" else ascii(char)[1:-1] for char in shown))
