"""``headrace drain``."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import quote

import typer
from headrace_client.calls import Call

from headrace import connect
from headrace.cli.queries import Url
from headrace.cli.serving import Config
from headrace.errors import BadRequest, Unavailable
from headrace.settings import load
from zookeeper.address import joined

DRAIN_SECONDS = 120.0
"""A domain closes after its writes are on disk and opens elsewhere: tenths of a second each, and there may be many."""


def drain(
    worker: Annotated[str, typer.Argument(help="The worker's name, as headrace status has it.")],
    undo: Annotated[bool, typer.Option("--undo", help="Let it have domains again.")] = False,
    url: Url = None,
    config: Config = None,
) -> None:
    """Move a worker's domains to others, so that it can be stopped without anybody noticing.

    Returns when it has none any more. It is given domains again after --undo, or when it has been started anew.

    Examples:

      headrace drain worker-2
    """
    settings = load(config, url=url)
    call = Call("DELETE" if undo else "POST", f"/v1/workers/{quote(worker, safe='')}/drain", dict)
    with connect(leader_url(cluster_of(settings.url)), timeout=DRAIN_SECONDS) as controller:
        controller.send(call)
    typer.echo(f'worker "{worker}" {"may have domains again" if undo else "has no domains any more"}')


def cluster_of(url: str) -> dict[str, Any]:
    """What an api process knows of its cluster. Raises BadRequest where it is none."""
    with connect(url) as server:
        shown = server.status()
    if "cluster" not in shown:
        raise BadRequest(f"the server at {url} is no cluster, and has no workers")
    cluster: dict[str, Any] = shown["cluster"]
    return cluster


def leader_url(cluster: dict[str, Any]) -> str:
    """Where the controller that leads answers. Raises Unavailable."""
    leader = cluster.get("leader")
    if leader is None:
        raise Unavailable("no controller leads, and only a leader moves domains", hint="try again")
    return f"http://{joined(leader['host'], leader['port'])}"
