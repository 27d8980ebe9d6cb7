"""``headrace verify``: compare a running server's views with an independent computation."""

from __future__ import annotations

import json
import sys
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from headrace.cli.queries import Config, Url, connected
from headrace.cli.serving import SparkConf, SparkMaster
from headrace.render import console
from headrace.settings import load

SHOWN_KEYS = 20
"""Differing keys shown of a view; ``--json`` has all."""

STYLES = {"equal": "green", "different": "bold red", "not judged": "yellow"}


def verify(
    views: Annotated[
        list[str] | None,
        typer.Argument(metavar="[VIEW]...", help="Views to verify. [dim]default: all that have a reader[/]"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print verdicts as JSON.")] = False,
    archive: Annotated[
        str | None, typer.Option(help="The archive's URL for Spark, if the server's own is another.")
    ] = None,
    snapshot: Annotated[
        str | None, typer.Option(metavar="NAME", help="Compare views as they are in this snapshot, or in latest.")
    ] = None,
    spark_master: SparkMaster = None,
    spark_conf: SparkConf = None,
    url: Url = None,
    config: Config = None,
) -> None:
    """Compute views anew by Spark SQL, from the archive, and compare them with the rows in their readers.

    The server goes on serving and taking writes. Differences are printed with their rows, and the exit code is then
    1. A view that Spark cannot compute is reported as not judged, with the reason.

    Examples:

      headrace verify

      headrace verify StoriesWithVC --json

      headrace verify --snapshot month-end
    """
    from headrace.verifying import ViewVerdict, verify  # Late, as with the other commands that load more than a client.

    settings = load(config, url=url, spark_master=spark_master, spark_conf=spark_conf)
    with connected(settings) as db, _bar(quiet=as_json) as bar:
        task = bar.add_task("", total=1.0)

        def tell(doing: str, done: float) -> None:
            bar.update(task, description=doing, completed=done)

        verdicts: list[ViewVerdict] = verify(
            db, views or (), settings.spark(), archive=archive, snapshot=snapshot, tell=tell
        )
        bar.update(task, visible=False)
    if as_json:
        typer.echo(json.dumps({"views": [each.to_json() for each in verdicts]}, ensure_ascii=False))
    else:
        _print(console(), verdicts)
    if any(each.verdict == "different" for each in verdicts):
        sys.exit(1)


def _bar(*, quiet: bool) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    out = Console(stderr=True, emoji=False)
    return Progress(*columns, console=out, transient=True, disable=quiet or not out.is_terminal)


def _print(printer: Console, verdicts: list[Any]) -> None:
    table = Table()
    for name in ("view", "verdict", "keys", "rows", "seconds"):
        table.add_column(name, justify="left" if name in ("view", "verdict") else "right")
    for each in verdicts:
        said = Text(each.verdict + (f": {each.reason}" if each.reason else ""), style=STYLES[each.verdict])
        table.add_row(Text(each.view), said, f"{each.keys:,}", f"{each.rows:,}", f"{each.seconds:.1f}")
    printer.print(table)
    for each in verdicts:
        for difference in each.differences[:SHOWN_KEYS]:
            printer.print(Text(f"{each.view} {difference['key']}", style="bold"))
            for word in ("expected", "held"):
                for row in difference[word]:
                    printer.print(Text(f"  {word:8} {row}"))
        if len(each.differences) > SHOWN_KEYS:
            printer.print(Text(f"… and {len(each.differences) - SHOWN_KEYS} more keys of {each.view} (--json has all)"))
