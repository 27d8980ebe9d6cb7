"""The commands that run a cluster: ``up`` on this machine, or its parts, one by one, on any."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.serving import (
    Archive,
    ArchiveInterval,
    ArchiveRetention,
    ArchiveSegmentRows,
    Config,
    DiskReserve,
    LogFormat,
    LogLevel,
    SlowRequest,
    SparkConf,
    SparkMaster,
    SparkMemory,
    SparkThreshold,
    declare,
    options_of,
    setting_help,
)
from headrace.cluster.parts import end_with_parent
from headrace.errors import BadRequest
from headrace.serving.last_words import perhaps_unheard
from headrace.settings import CLUSTER_SHARDS, Settings, load
from headrace.sizes import format_size, several

if TYPE_CHECKING:
    from headrace.cluster.supervisor import Up

ZooKeeper = Annotated[str | None, typer.Option(metavar="HOSTS", help=setting_help("zookeeper"))]
Auth = Annotated[str | None, typer.Option(metavar="NAME:PASSWORD", help=setting_help("zookeeper_auth"))]
Deployment = Annotated[str | None, typer.Option(metavar="NAME", help=setting_help("deployment"))]
SessionTimeout = Annotated[float | None, typer.Option(metavar="SECONDS", help=setting_help("session_timeout"))]
Name = Annotated[str | None, typer.Option(help=setting_help("name"))]
Host = Annotated[str | None, typer.Option(help=setting_help("host"))]
Port = Annotated[int | None, typer.Option(help=setting_help("port"))]
Advertise = Annotated[str | None, typer.Option(metavar="HOST", help=setting_help("advertise"))]
Data = Annotated[Path | None, typer.Option(metavar="DIR", help=setting_help("data"))]
MemoryLimit = Annotated[
    str | None,
    typer.Option(metavar="SIZE", help=setting_help("memory_limit").replace("Bytes of", "Per worker: bytes of")),
]
Shards = Annotated[int | None, typer.Option(metavar="N", help=setting_help("shards", default=CLUSTER_SHARDS))]
DeadAfter = Annotated[float | None, typer.Option(metavar="SECONDS", help=setting_help("dead_after"))]
ReadTimeout = Annotated[float | None, typer.Option(metavar="SECONDS", help=setting_help("read_timeout"))]
MaxBodySize = Annotated[str | None, typer.Option(metavar="SIZE", help=setting_help("max_body_size"))]
Supervised = Annotated[bool, typer.Option("--supervised", hidden=True, help="Stop when standard input ends.")]


def up(
    workers: Annotated[int | None, typer.Option(metavar="N", help=setting_help("workers"))] = None,
    shards: Shards = None,
    controllers: Annotated[int | None, typer.Option(metavar="N", help=setting_help("controllers"))] = None,
    apis: Annotated[int | None, typer.Option(metavar="N", help=setting_help("apis"))] = None,
    zookeepers: Annotated[int | None, typer.Option(metavar="N", help=setting_help("zookeepers", default=1))] = None,
    zookeeper: ZooKeeper = None,
    zookeeper_auth: Auth = None,
    deployment: Deployment = None,
    session_timeout: SessionTimeout = None,
    dead_after: DeadAfter = None,
    data: Data = None,
    host: Host = None,
    port: Port = None,
    memory_limit: MemoryLimit = None,
    disk_reserve: DiskReserve = None,
    read_timeout: ReadTimeout = None,
    max_body_size: MaxBodySize = None,
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
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Print the process numbers too.")] = False,
) -> None:
    """Run a whole cluster on this machine, until Ctrl-C. Needs Java for ZooKeeper, unless --zookeeper names one.

    Examples:

      headrace up

      headrace up --workers 4 --shards 8 --zookeepers 3 --data /var/lib/headrace
    """
    given = {name: value for name, value in locals().items() if name not in ("config", "verbose")}
    from headrace.cluster.supervisor import up  # Late, as with serve.

    settings = load(config, **given)

    def started(running: Up) -> None:
        typer.echo(f"headrace answers at {running.url} (documentation at {running.url}/docs)")
        typer.echo(
            f"{several(settings.workers, 'worker')}, {several(settings.controllers, 'controller')}, "
            f"{settings.apis} api; ZooKeeper at {running.zookeeper}"
        )
        if verbose:
            for name, pid in running.pids.items():
                typer.echo(f"  {name}: process {pid}")
        directory = settings.data.absolute()
        typer.echo(f"data in {directory}, logs in {directory / 'logs'}")
        typer.echo(f"memory limit {format_size(settings.memory_limit)} for each worker")
        typer.echo("stop with Ctrl-C")

    up(settings, started, _tell)
    _tell("headrace has stopped")


def _tell(text: str) -> None:
    with perhaps_unheard():
        typer.echo(text)


def _every_part(
    zookeeper: ZooKeeper = None,
    zookeeper_auth: Auth = None,
    deployment: Deployment = None,
    session_timeout: SessionTimeout = None,
    name: Name = None,
    host: Host = None,
    log_level: LogLevel = None,
    log_format: LogFormat = None,
    config: Config = None,
    supervised: Supervised = False,
) -> None:
    """The options that every part has; only their names, types and defaults are looked at."""


def _part(own: Callable[..., None]) -> Callable[..., None]:
    """The command that runs the part of the function's name: the options of every part, and behind them its own."""

    def command(**given: Any) -> None:
        config, supervised = given.pop("config"), given.pop("supervised")
        no_settings = {name: given.pop(name) for name in [*given] if name not in Settings.model_fields}
        settings = part_settings(config, supervised, given)
        from headrace.cluster import parts  # Late, as with serve.

        getattr(parts, own.__name__)(settings, **no_settings)

    declare(command, [*options_of(_every_part), *options_of(own)], like=own)
    return command


@_part
def controller(
    controller_port: Annotated[int | None, typer.Option(help=setting_help("controller_port"))] = None,
    advertise: Advertise = None,
    shards: Shards = None,
    quorum: Annotated[int | None, typer.Option(metavar="N", help=setting_help("quorum"))] = None,
    dead_after: DeadAfter = None,
    archive: Archive = None,
    archive_interval: ArchiveInterval = None,
    archive_retention: ArchiveRetention = None,
    spark_threshold: SparkThreshold = None,
    spark_master: SparkMaster = None,
    spark_conf: SparkConf = None,
    spark_memory: SparkMemory = None,
) -> None:
    """Run a controller of a cluster: one leads, the others stand by.

    Examples:

      headrace controller --zookeeper zoo1:2181,zoo2:2181,zoo3:2181 --host 0.0.0.0 --advertise $(hostname)
    """


@_part
def worker(
    data: Data = None,
    worker_port: Annotated[int | None, typer.Option(help=setting_help("worker_port"))] = None,
    advertise: Advertise = None,
    memory_limit: MemoryLimit = None,
    disk_reserve: DiskReserve = None,
    archive: Archive = None,
    archive_interval: ArchiveInterval = None,
    archive_retention: ArchiveRetention = None,
    archive_segment_rows: ArchiveSegmentRows = None,
) -> None:
    """Run a worker of a cluster: it hosts what the leader gives it.

    Examples:

      headrace worker --zookeeper zoo1:2181,zoo2:2181,zoo3:2181 --name w1 --data /var/lib/headrace
    """


@_part
def api(
    port: Port = None,
    read_timeout: ReadTimeout = None,
    max_body_size: MaxBodySize = None,
    slow_request: SlowRequest = None,
    fd: Annotated[int | None, typer.Option(hidden=True, help="A listening socket to take over.")] = None,
) -> None:
    """Run an api process of a cluster: it answers the HTTP requests of applications.

    Examples:

      headrace api --zookeeper zoo1:2181,zoo2:2181,zoo3:2181 --host 0.0.0.0
    """


def part_settings(config: Path | None, supervised: bool, given: dict[str, Any]) -> Settings:
    """The settings of a part of a cluster. Raises SettingsError, BadRequest."""
    settings = load(config, **given)
    if settings.zookeeper is None:
        raise BadRequest(
            "it is not known where ZooKeeper is",
            hint="--zookeeper host:port; headrace up brings one of its own, and prints where",
        )
    if supervised:
        end_with_parent()
    return settings
