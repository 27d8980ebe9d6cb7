"""``headrace serve`` and ``headrace demo``, and how a command declares the settings that it takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from inspect import Parameter, signature
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import typer

from headrace.serving.last_words import perhaps_unheard
from headrace.settings import CLUSTER_SHARDS, Settings, flag_of, is_size, load
from headrace.sizes import format_size

# Commands that share options: one says its own, and is declared with those of all others of its kind.


def options_of(function: Callable[..., Any]) -> list[Parameter]:
    """A function's parameters as typer is to see them, with types instead of their text."""
    hints = get_type_hints(function, include_extras=True)
    return [
        each.replace(kind=Parameter.KEYWORD_ONLY, annotation=hints[name])
        for name, each in signature(function).parameters.items()
    ]


def declare(command: Callable[..., None], options: Sequence[Parameter], *, like: Callable[..., Any]) -> None:
    """Have typer take these for the command's options; name and help are those of the function that it is like."""
    command.__signature__ = signature(command).replace(parameters=options)  # type: ignore[attr-defined]
    command.__annotations__ = {**{each.name: each.annotation for each in options}, "return": None}
    command.__name__, command.__doc__ = like.__name__, like.__doc__


DEFAULTS = {("serve", "shards"): 1, ("up", "shards"): CLUSTER_SHARDS, ("controller", "shards"): CLUSTER_SHARDS}
"""Defaults of settings that depend on the command."""


def setting_help(name: str, command: str = "") -> str:
    """Help text of a setting's flag."""
    field = Settings.model_fields[name]
    text = field.description or ""
    if name == "memory_limit" and command != "serve":
        text = f"per worker: {text}"
    default = DEFAULTS.get((command, name), field.default)
    shown = format_size(default) if is_size(name) else default
    return f"{text[:1].upper()}{text[1:]}." + (f" [dim]default: {shown}[/]" if default not in (None, []) else "")


def setting_option(name: str, command: str = "") -> Any:
    return typer.Option(metavar=flag_of(name).value, help=setting_help(name, command))


def _flag_type(name: str) -> Any:
    """The type that typer checks. ``Settings`` checks the rest, wherever a value comes from."""
    kind: Any = Settings.model_fields[name].annotation
    if NoneType in get_args(kind):  # It may be left out, as every flag.
        kind = next(each for each in get_args(kind) if each is not NoneType)
    if get_origin(kind) is Literal:
        kind = type(get_args(kind)[0])
    return str if is_size(name) else kind


def takes_settings(own: Callable[..., None]) -> Callable[..., None]:
    """A command with a flag for each setting that names it, ``--config``, and the options of its own.

    ``own`` has the settings for its first parameter.
    """

    def command(**given: Any) -> None:
        flags = {name: given.pop(name) for name in [*given] if name in Settings.model_fields}
        own(load(given.pop("config"), **flags), **given)

    options = [
        Parameter(
            name,
            Parameter.KEYWORD_ONLY,
            default=None,
            annotation=Annotated[_flag_type(name) | None, setting_option(name, own.__name__)],
        )
        for name in Settings.model_fields
        if own.__name__ in flag_of(name).commands
    ]
    config = Parameter("config", Parameter.KEYWORD_ONLY, default=None, annotation=Config)
    declare(command, [*options, config, *options_of(own)[1:]], like=own)
    return command


Config = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Settings as TOML. [dim]default: headrace.toml if it is there[/]")
]

Archive = Annotated[str | None, setting_option("archive")]
ArchiveRetention = Annotated[float | None, setting_option("archive_retention")]
SparkMaster = Annotated[str | None, setting_option("spark_master")]
SparkConf = Annotated[list[str] | None, setting_option("spark_conf")]


@takes_settings
def serve(settings: Settings) -> None:
    """Run a server with its data in one directory, until Ctrl-C.

    Examples:

      headrace serve

      headrace serve --data /var/lib/headrace --port 9000 --memory-limit 2GiB
    """
    # Late: it loads the engine, for which the other commands need not wait.
    from headrace.serving.server import Running, serve

    def started(running: Running) -> None:
        typer.echo(f"headrace answers at {running.url} (documentation at {running.url}/docs)")
        if running.mysql:
            typer.echo(f"MySQL's clients are answered at {running.mysql}")
        typer.echo(f"data in {settings.data.absolute()}, memory limit {format_size(settings.memory_limit)}")
        if settings.archive is not None:
            typer.echo(f"archived every {settings.archive_interval:g} s under {settings.archive}")
        typer.echo("stop with Ctrl-C")

    serve(settings, started)
    with perhaps_unheard():
        typer.echo("headrace has stopped")


def demo(
    once: Annotated[bool, typer.Option("--once", help="Stop at the end instead of serving on.")] = False,
    scale: Annotated[float, typer.Option(help="How much data, as a multiple of the usual.", min=0.001)] = 1.0,
    port: Annotated[int, typer.Option(help="Port to listen on; 0 takes a free one.")] = 8080,
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Where to keep the data. [dim]default: headrace-data/demo, or with --once a temporary directory[/]",
        ),
    ] = None,
    url: Annotated[
        str | None, typer.Option(metavar="URL", help="Use this server, for example a cluster, and start none.")
    ] = None,
) -> None:
    """Start a server with the Lobsters program and show a miss, an upquery, a hit and an eviction.

    Examples:

      headrace demo

      headrace demo --once --scale 0.1

      headrace demo --url http://127.0.0.1:8080
    """
    demo = import_module("headrace.demo")
    if url is not None:
        demo.run_against(url, scale=scale)
    else:
        demo.run(once=once, scale=scale, port=port, data=data)
