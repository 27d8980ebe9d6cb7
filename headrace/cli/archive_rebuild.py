"""``headrace archive rebuild``: base shards whose disk is gone."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from headrace_client import tokens

from headrace.cli.queries import AsJson, Config
from headrace.cli.serving import Archive, SparkMaster, setting_help
from headrace.errors import BadRequest
from headrace.settings import load


def rebuild(
    data: Annotated[Path | None, typer.Option(metavar="DIR", help=setting_help("data"))] = None,
    archive: Archive = None,
    shard: Annotated[list[int] | None, typer.Option(metavar="N", help="Which shards; all, if not given.")] = None,
    token: Annotated[
        str | None, typer.Option(help="The last token that a write answered: what is missing up to it is named.")
    ] = None,
    as_json: AsJson = False,
    spark_master: SparkMaster = None,
    config: Config = None,
) -> None:
    """Rebuild base shards whose disk is gone from the archive, with Spark, and say exactly what is missing.

    They are made below the data directory, where nothing of them may be yet. Start the worker, or the server, on it
    afterwards.

    Examples:

      headrace archive rebuild --archive s3://backups/site --data /var/lib/headrace --shard 1
    """
    from headrace.rebuilding import rebuild, report  # Late, as with the other commands that load more than a client.

    settings = load(config, data=data, archive=archive, spark_master=spark_master)
    if settings.archive is None:
        raise BadRequest("no archive is given", hint="--archive, or the setting of that name")
    known = None if token is None else tokens.decode(token)
    began = time.monotonic()
    found = rebuild(settings.archive, settings.data, settings.spark(), shards=shard or (), known=known)
    if as_json:
        typer.echo(json.dumps([asdict(each) for each in found]))
    else:
        typer.echo(report(found, began))
