"""``headrace serve``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from inspect import Parameter, signature
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from headrace.serving.last_words import perhaps_unheard
from headrace.settings import Settings, load
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


SIZES = ("memory_limit", "disk_reserve", "max_body_size", "spark_memory")
"""Settings in bytes."""


def setting_help(name: str, *, default: object = None) -> str:
    """The help of a setting's flag; ``default`` where a command has another than the setting."""
    field = Settings.model_fields[name]
    if default is None:
        default = format_size(field.default) if name in SIZES else field.default
    description = field.description or ""
    return f"{description[:1].upper()}{description[1:]}." + (
        f" [dim]default: {default}[/]" if default is not None else ""
    )


Config = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Settings as TOML. [dim]default: headrace.toml if it is there[/]")
]

Archive = Annotated[str | None, typer.Option(metavar="URL", help=setting_help("archive"))]
ArchiveInterval = Annotated[float | None, typer.Option(metavar="SECONDS", help=setting_help("archive_interval"))]
ArchiveRetention = Annotated[float | None, typer.Option(metavar="SECONDS", help=setting_help("archive_retention"))]
SparkMaster = Annotated[str | None, typer.Option(metavar="URL", help=setting_help("spark_master"))]
SparkConf = Annotated[
    list[str] | None, typer.Option(metavar="KEY=VALUE", help="A setting of Spark's own; may be given several times.")
]
SparkMemory = Annotated[str | None, typer.Option(metavar="SIZE", help=setting_help("spark_memory"))]
SparkThreshold = Annotated[int | None, typer.Option(metavar="ROWS", help=setting_help("spark_threshold"))]
DiskReserve = Annotated[str | None, typer.Option(metavar="SIZE", help=setting_help("disk_reserve"))]
LogLevel = Annotated[str | None, typer.Option(metavar="LEVEL", help=setting_help("log_level"))]
LogFormat = Annotated[str | None, typer.Option(metavar="FORMAT", help=setting_help("log_format"))]
SlowRequest = Annotated[float | None, typer.Option(metavar="SECONDS", help=setting_help("slow_request"))]
ArchiveSegmentRows = Annotated[int | None, typer.Option(metavar="N", help=setting_help("archive_segment_rows"))]


def serve(
    data: Annotated[Path | None, typer.Option(metavar="DIR", help=setting_help("data"))] = None,
    host: Annotated[str | None, typer.Option(help=setting_help("host"))] = None,
    port: Annotated[int | None, typer.Option(help=setting_help("port"))] = None,
    memory_limit: Annotated[str | None, typer.Option(metavar="SIZE", help=setting_help("memory_limit"))] = None,
    disk_reserve: DiskReserve = None,
    domains: Annotated[int | None, typer.Option(metavar="N", help=setting_help("domains"))] = None,
    shards: Annotated[int | None, typer.Option(metavar="N", help=setting_help("shards", default=1))] = None,
    state: Annotated[str | None, typer.Option(metavar="KIND", help=setting_help("state"))] = None,
    read_timeout: Annotated[float | None, typer.Option(metavar="SECONDS", help=setting_help("read_timeout"))] = None,
    max_body_size: Annotated[str | None, typer.Option(metavar="SIZE", help=setting_help("max_body_size"))] = None,
    archive: Archive = None,
    archive_interval: ArchiveInterval = None,
    archive_retention: ArchiveRetention = None,
    archive_segment_rows: ArchiveSegmentRows = None,
    spark_threshold: SparkThreshold = None,
    spark_master: SparkMaster = None,
    spark_conf: SparkConf = None,
    spark_memory: SparkMemory = None,
    log_level: LogLevel = None,
    log_format: LogFormat = None,
    slow_request: SlowRequest = None,
    config: Config = None,
) -> None:
    """Run a server with its data in one directory, until Ctrl-C.

    Examples:

      headrace serve

      headrace serve --data /var/lib/headrace --port 9000 --memory-limit 2GiB
    """
    # Late: it loads the engine, for which the other commands need not wait.
    from headrace.serving.server import Running, serve

    settings = load(
        config,
        data=data,
        host=host,
        port=port,
        memory_limit=memory_limit,
        disk_reserve=disk_reserve,
        domains=domains,
        shards=shards,
        state=state,
        read_timeout=read_timeout,
        max_body_size=max_body_size,
        archive=archive,
        archive_interval=archive_interval,
        archive_retention=archive_retention,
        archive_segment_rows=archive_segment_rows,
        spark_threshold=spark_threshold,
        spark_master=spark_master,
        spark_conf=spark_conf,
        spark_memory=spark_memory,
        log_level=log_level,
        log_format=log_format,
        slow_request=slow_request,
    )

    def started(running: Running) -> None:
        typer.echo(f"headrace answers at {running.url} (documentation at {running.url}/docs)")
        typer.echo(f"data in {settings.data.absolute()}, memory limit {format_size(settings.memory_limit)}")
        if settings.archive is not None:
            typer.echo(f"archived every {settings.archive_interval:g} s under {settings.archive}")
        typer.echo("stop with Ctrl-C")

    serve(settings, started)
    with perhaps_unheard():
        typer.echo("headrace has stopped")
