"""``headrace rebuild``: give up the disk of a cluster's lost shards, and have them made from the archive."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from api import tokens
from headrace import connect
from headrace.cli.draining import cluster_of, leader_url
from headrace.cli.queries import AsJson, Url
from headrace.cli.serving import Config
from headrace.client.calls import Call
from headrace.client.encoding import to_json
from headrace.errors import BadRequest
from headrace.settings import load

REBUILD_SECONDS = 24 * 3600.0
"""For the answer: some hundred thousand rows a second, and there may be very many. The decision stands either way."""


def rebuild(
    shards: Annotated[list[int] | None, typer.Argument(metavar="SHARD", help="Which shards.")] = None,
    lost: Annotated[bool, typer.Option("--lost", help="All that are lost.")] = False,
    token: Annotated[
        str | None, typer.Option(help="The last token that a write answered: what is missing up to it is named too.")
    ] = None,
    as_json: AsJson = False,
    url: Url = None,
    config: Config = None,
) -> None:
    """Give up the disk of lost shards of a cluster, and rebuild them from the archive on another worker.

    A shard is lost when no worker that is there has its data directory. What was written to it and not archived is lost
    for good then, so bring the directory back if you can. What is lost is named exactly, as far as anybody knows of it.

    Examples:

      headrace rebuild --lost

      headrace rebuild 2 3 --token h1.eyJ2b3RlcyI6M30
    """
    if bool(shards) == lost:
        raise BadRequest("say which shards, or --lost", hint="headrace status shows which are unplaced")
    settings = load(config, url=url)
    cluster = cluster_of(settings.url)
    known = tokens.merge(cluster.get("acknowledged", {}), {} if token is None else tokens.decode(token))
    body = {"shards": shards or [], "known": known}
    with connect(leader_url(cluster), timeout=REBUILD_SECONDS) as controller:
        answer = controller.send(Call("POST", "/v1/rebuild", dict, to_json(body)))
    if as_json:
        typer.echo(json.dumps(answer["rebuilt"]))
    else:
        typer.echo("\n".join(line for each in answer["rebuilt"] for line in told(each)))


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
