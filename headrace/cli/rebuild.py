"""``headrace rebuild``: give up the disk of a cluster's lost shards, and have them made from the archive."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

import typer
from headrace_client import tokens
from headrace_client.calls import Call, progress
from headrace_client.encoding import to_json
from headrace_client.results import Progress

from headrace import connect
from headrace.cli.queries import AsJson, Url, watched
from headrace.cli.serving import Config
from headrace.errors import BadRequest, ConnectionFailed, NotFound, Unavailable
from headrace.render import console
from headrace.settings import load
from migrations.backfill.threshold import By

if TYPE_CHECKING:
    from headrace_client.connection import Connection
from zookeeper.address import joined

# ``headrace drain``.

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
    """An api process's knowledge of its cluster. Raises BadRequest where it is none."""
    with connect(url) as server:
        shown = server.status()
    if "cluster" not in shown:
        raise BadRequest(f"the server at {url} is not a cluster, and has no workers")
    cluster: dict[str, Any] = shown["cluster"]
    return cluster


def leader_url(cluster: dict[str, Any]) -> str:
    """Where the controller that leads answers. Raises Unavailable."""
    leader = cluster.get("leader")
    if leader is None:
        raise Unavailable("no controller leads, and only a leader moves domains", hint="try again")
    return f"http://{joined(leader['host'], leader['port'])}"


LOOK_SECONDS = 0.2
"""Between two looks how far it is."""


def rebuild(
    shards: Annotated[list[int] | None, typer.Argument(metavar="SHARD", help="Which shards.")] = None,
    lost: Annotated[bool, typer.Option("--lost", help="All that are lost.")] = False,
    token: Annotated[
        str | None, typer.Option(help="The token of the last write: lost positions up to it are named too.")
    ] = None,
    by: Annotated[
        By,
        typer.Option(
            help="Who folds the archive: the worker that gets the shard, or Spark; auto: Spark where more rows are "
            "archived of the shards than the controller's --spark-threshold."
        ),
    ] = "auto",
    as_json: AsJson = False,
    url: Url = None,
    config: Config = None,
) -> None:
    """Give up the disk of lost shards of a cluster, and rebuild them from the archive on another worker.

    A shard is lost when no worker that is there has its data directory. What was written to it and not archived is lost
    for good then, so bring the directory back if you can. What is lost is named exactly, as far as anybody knows of it.

    By Spark nothing is given up before the archive is folded: until then Ctrl-C leaves everything as it was.

    Examples:

      headrace rebuild --lost

      headrace rebuild --lost --by worker

      headrace rebuild 2 3 --token h1.eyJ2b3RlcyI6M30
    """
    if bool(shards) == lost:
        raise BadRequest("say which shards, or --lost", hint="headrace status shows which are unplaced")
    settings = load(config, url=url)
    cluster = cluster_of(settings.url)
    known = tokens.merge(cluster.get("acknowledged", {}), {} if token is None else tokens.decode(token))
    body = {"shards": shards or [], "known": known, "by": by, "wait": False}
    with connect(leader_url(cluster)) as controller:
        operation = Operation(controller, controller.send(Call("POST", "/v1/rebuild", dict, to_json(body))))
        watched(console(stderr=True), operation.wait, operation.cancel, "rebuilt")
    if as_json:
        typer.echo(json.dumps(operation.rebuilt))
    else:
        typer.echo("\n".join(line for each in operation.rebuilt for line in told(each)))


class Operation:
    """A rebuild under way at a leader."""

    def __init__(self, controller: Connection, started: dict[str, Any]) -> None:
        self._controller = controller
        self._path = f"/v1/rebuild/{quote(started['id'], safe='')}"
        self.rebuilt: list[dict[str, Any]] = []
        """The result, base shard by base shard, once it is done."""

    def wait(self, tell: Callable[[Progress], None]) -> Progress:
        """Until it has ended; raises what made it fail, or Unavailable where its leader is gone."""
        while True:
            shown = self._asked("GET")
            far = progress(shown)
            tell(far)
            if far.finished:
                self.rebuilt = shown["rebuilt"]
                return far.checked()
            time.sleep(LOOK_SECONDS)

    def cancel(self) -> None:
        self._asked("DELETE")

    def _asked(self, method: str) -> dict[str, Any]:
        try:
            return dict(self._controller.send(Call(method, self._path, dict)))
        except (ConnectionFailed, Unavailable, NotFound) as error:
            raise Unavailable(
                f"the leader that was asked is lost: {error.message}",
                hint="the next leader rebuilds what was given up; ask again for shards that stay unplaced",
            ) from error


def told(each: dict[str, Any]) -> list[str]:
    """A base shard's lines."""
    lines = [
        f'{each["base"]}: as of position {each["position"]:,}, {each["rows"]:,} rows, on worker "{each["worker"]}"'
    ]
    if each["lost"]:
        first, last = each["position"] + 1, each["known"]
        which = f"position {last:,} was" if first == last else f"positions {first:,} to {last:,} were"
        lines.append(f"{each['base']}: {which} not archived: {_writes(each['lost'])} lost")
    else:
        lines.append(f"{each['base']}: nothing is known to be lost")
    return lines


def _writes(count: int) -> str:
    return "1 write is" if count == 1 else f"{count:,} writes are"
