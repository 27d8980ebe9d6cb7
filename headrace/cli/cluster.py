"""The commands that run a cluster: ``up`` on this machine, or its parts, one by one, on any."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.serving import setting_option, takes_settings
from headrace.errors import BadRequest
from headrace.serving.last_words import perhaps_unheard
from headrace.settings import Settings
from headrace.sizes import format_size, several
from worker.service.system import end_with_parent
from zookeeper.address import is_loopback
from zookeeper.secret import FILE

if TYPE_CHECKING:
    from headrace.cluster.supervisor import Up

ZooKeeper = Annotated[str | None, setting_option("zookeeper")]
SecretFile = Annotated[Path | None, setting_option("secret_file")]
Deployment = Annotated[str | None, setting_option("deployment")]
Supervised = Annotated[bool, typer.Option("--supervised", hidden=True, help="Stop when standard input ends.")]


@takes_settings
def up(
    settings: Settings,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Print the process numbers too.")] = False,
) -> None:
    """Run a whole cluster on this machine, until Ctrl-C. Needs Java for ZooKeeper, unless --zookeeper names one.

    Examples:

      headrace up

      headrace up --workers 4 --shards 8 --zookeepers 3 --data /var/lib/headrace
    """
    from headrace.cluster.supervisor import up  # Late, as with serve.

    def started(running: Up) -> None:
        typer.echo(f"headrace answers at {running.url} (documentation at {running.url}/docs)")
        if running.mysql:
            typer.echo(f"MySQL's clients are answered at {running.mysql}")
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


@takes_settings
def controller(settings: Settings, supervised: Supervised = False) -> None:
    """Run a controller of a cluster: one leads, the others stand by.

    Examples:

      headrace controller --zookeeper zoo1:2181,zoo2:2181,zoo3:2181 --host 0.0.0.0 --advertise $(hostname)
    """
    check_part(settings, supervised)
    check_secret(settings)
    from headrace.cluster import parts  # Late, as with serve.

    parts.controller(settings)


@takes_settings
def worker(settings: Settings, supervised: Supervised = False) -> None:
    """Run a worker of a cluster: it hosts the domains that the leader assigns.

    Examples:

      headrace worker --zookeeper zoo1:2181,zoo2:2181,zoo3:2181 --name w1 --data /var/lib/headrace
    """
    check_part(settings, supervised)
    check_secret(settings)
    from headrace.cluster import parts  # Late, as with serve.

    parts.worker(settings)


@takes_settings
def api(
    settings: Settings,
    supervised: Supervised = False,
    fd: Annotated[int | None, typer.Option(hidden=True, help="A listening socket to take over.")] = None,
    mysql_fd: Annotated[int | None, typer.Option(hidden=True, help="The same, for MySQL's clients.")] = None,
) -> None:
    """Run an api process of a cluster: it answers the HTTP requests of applications.

    Examples:

      headrace api --zookeeper zoo1:2181,zoo2:2181,zoo3:2181 --host 0.0.0.0
    """
    check_part(settings, supervised)
    check_secret(settings)
    from headrace.cluster import parts  # Late, as with serve.

    parts.api(settings, fd, mysql_fd)


def check_secret(settings: Settings) -> None:
    """Raises BadRequest where others could reach a part's port, and it has no secret to keep them out."""
    if settings.secret_file is not None or (settings.data / FILE).exists():
        return
    if not is_loopback(settings.host):
        raise BadRequest(
            f'at "{settings.host}" whoever reaches this process could command it: it has no secret',
            hint="--secret-file FILE, the same on all machines: docs/security.md",
        )


def check_part(settings: Settings, supervised: bool = False) -> None:
    """Check what every part of a cluster needs. Raises BadRequest."""
    if settings.zookeeper is None:
        raise BadRequest(
            "it is not known where ZooKeeper is",
            hint="--zookeeper host:port; headrace up brings one of its own, and prints where",
        )
    if supervised:
        end_with_parent()
