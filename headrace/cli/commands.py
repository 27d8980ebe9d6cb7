"""The ``headrace`` command with all its subcommands: which there are, and under which heading help lists them."""

from __future__ import annotations

from importlib import import_module
from inspect import cleandoc
from typing import Annotated

import typer

from headrace import __version__
from headrace.cli import accounts, archiving, cluster, following, load, queries, rebuild, serving, verifying
from headrace.errors import Unavailable

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
for command in (
    serving.serve,
    queries.sql,
    queries.schema,
    queries.status,
    queries.explain,
    queries.advise,
    queries.migrations,
    queries.snapshots,
    load.load,
    serving.demo,
):
    app.command()(command)
app.command("import")(following.import_)
app.command()(following.follow)
app.command()(verifying.verify)
archiving.archive.command()(archiving.rebuild)
app.command()(archiving.backup)
app.command()(archiving.restore)
app.command()(rebuild.accept_loss)
app.command()(rebuild.leave_out)
app.command()(rebuild.acknowledge_loss)
app.command()(accounts.admin)
app.add_typer(accounts.key, name="key")
app.add_typer(archiving.archive, name="archive")
for part in (cluster.up, cluster.controller, cluster.worker, cluster.api):
    app.command(rich_help_panel="Clusters")(part)
app.command(rich_help_panel="Clusters")(rebuild.drain)
app.command(rich_help_panel="Clusters")(rebuild.rebuild)
app.command(rich_help_panel="Clusters")(rebuild.state)


def _measuring_tools_are_missing() -> None:
    """A measuring tool, which is not installed: pip install 'headrace\\[bench]'."""
    raise Unavailable("the measuring tools are not installed", hint="pip install 'headrace[bench]'")


try:  # A distribution of its own.
    import_module("loadgen.cli").register(app)
except ModuleNotFoundError as error:
    if error.name != "loadgen":
        raise
    for name in ("bench", "loadgen", "drill"):
        app.command(
            name, add_help_option=False, context_settings={"ignore_unknown_options": True, "allow_extra_args": True}
        )(_measuring_tools_are_missing)


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


def _flowing(text: str) -> str:
    """A docstring whose paragraphs are lines, since typer breaks a paragraph where the source does; examples stay."""
    paragraphs = cleandoc(text).split("\n\n")
    return "\n\n".join(each if each.startswith(" ") else each.replace("\n", " ") for each in paragraphs)


def _let_help_flow(commands: typer.Typer) -> None:
    for each in commands.registered_commands:
        each.help = _flowing(each.help or (each.callback and each.callback.__doc__) or "")
    for group in commands.registered_groups:
        if group.typer_instance is not None:
            _let_help_flow(group.typer_instance)


_let_help_flow(app)
