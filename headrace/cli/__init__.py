"""The command line: ``headrace serve`` and ``up``, the parts of a cluster, and commands that speak to a server.

A command's module declares its options and says what it prints; the rest is in the client, the server and
``render.py``. What goes wrong is one line on standard error and exit code 1, never a trace.
"""

from __future__ import annotations

import sys
from io import TextIOWrapper
from typing import Annotated

import typer

from headrace import __version__
from headrace.cli import (
    archive_rebuild,
    archiving,
    cluster,
    draining,
    drilling,
    load,
    loadgen,
    queries,
    rebuild,
    serving,
    showing,
    state,
    verifying,
)
from headrace.errors import HeadraceError
from headrace.render import console

app = typer.Typer(
    name="headrace",
    help="Keeps the answers to an application's SQL queries ready to read.",
    epilog="Begin with [bold]headrace demo[/], or [bold]headrace serve[/] and [bold]headrace status[/].",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (serving.serve, queries.sql, queries.status, queries.explain, load.load, showing.demo):
    app.command()(command)
app.command()(verifying.verify)
archiving.archive.command()(archive_rebuild.rebuild)
app.command()(archiving.backup)
app.command()(archiving.restore)
app.add_typer(archiving.archive, name="archive")
app.add_typer(showing.bench, name="bench")
app.add_typer(loadgen.loadgen, name="loadgen")
for part in (cluster.up, cluster.controller, cluster.worker, cluster.api):
    app.command(rich_help_panel="Clusters")(part)
app.command(rich_help_panel="Clusters")(draining.drain)
app.command(rich_help_panel="Clusters")(rebuild.rebuild)
app.command(rich_help_panel="Clusters")(state.state)
app.command(rich_help_panel="Clusters")(drilling.drill)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"headrace {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    del version


def main() -> None:
    """The ``headrace`` command."""
    # A terminal without Unicode is told of an arrow as "\\u2192", which JSON reads as one, too.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # Nobody has put something else in its place.
            stream.reconfigure(errors="backslashreplace")
    try:
        app()
    except HeadraceError as error:
        printer = console(stderr=True)
        printer.print("error:", style="bold red", end=" ")
        printer.print(error.message, markup=False, soft_wrap=True)
        if error.hint:
            printer.print(f"hint: {error.hint}", markup=False, soft_wrap=True)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        # The reader of a pipe (head, less) has seen enough; Python would complain once more when it flushes at exit.
        sys.stderr.close()
        sys.exit(1)
