"""``headrace state``: the cluster's state out of ZooKeeper into a file, and back."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.cluster import Auth, Deployment, ZooKeeper, part_settings
from headrace.cli.serving import Config
from headrace.errors import Unavailable
from zookeeper.errors import AuthorityError


def state(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Where to write it, or with --restore to read it.")],
    restore: Annotated[bool, typer.Option("--restore", help="Bring it back into a ZooKeeper that lost it.")] = False,
    zookeeper: ZooKeeper = None,
    zookeeper_auth: Auth = None,
    deployment: Deployment = None,
    config: Config = None,
) -> None:
    """Save what a cluster keeps in ZooKeeper: with the data directories, this is a back-up. See docs/operations.md.

    Examples:

      headrace state main.state --zookeeper zoo1:2181

      headrace state main.state --zookeeper zoo1:2181 --restore
    """
    from headrace.cluster import kept_state  # Late: it loads the planner.

    given = {"zookeeper": zookeeper, "zookeeper_auth": zookeeper_auth, "deployment": deployment}
    settings = part_settings(config, False, given)
    act = kept_state.restore if restore else kept_state.save
    try:
        kept = asyncio.run(act(settings, file))
    except AuthorityError as error:
        raise Unavailable(error.message, hint=error.hint) from error
    what = f'deployment "{kept.deployment}", epoch {kept.epoch:,}: {len(kept.recipe.entries)} recipe entries'
    typer.echo(f"{'restored' if restore else 'saved'} {what}, {kept.shards} shards")
