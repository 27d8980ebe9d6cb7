"""``headrace state``: the cluster's state out of ZooKeeper into a file, and back."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.cluster import Auth, Deployment, ZooKeeper, check_part
from headrace.cli.serving import Config, setting_option
from headrace.errors import NotFound, Unavailable
from headrace.settings import load
from zookeeper.authority import go_on_without
from zookeeper.errors import AuthorityError

# ``headrace accept-loss`` and ``acknowledge-loss``: go on where acknowledged writes cannot be read any more.

Data = Annotated[Path | None, setting_option("data")]


def accept_loss(data: Data = None, config: Config = None) -> None:
    """Go on without acknowledged writes and definitions that a damaged disk has taken from an unused data directory.

    A server that misses some of them does not start, and says how many of which tables. They may be in its archive or
    in a back-up: restore it, or rebuild the shard, where you can. This command copies the damaged files aside and
    makes the directory usable without them. The status has an alarm until headrace acknowledge-loss.

    Examples:

      headrace accept-loss --data /var/lib/headrace
    """
    from worker.rocks.store import RocksStore  # Late: it loads the storage library.

    directory = load(config, data=data).data
    for base in _bases(directory):
        store = RocksStore(base, create=False, accept_loss=True)
        store.close()
        typer.echo(f"{base}: {store.loss or 'nothing is missing'}")
    recipe = directory / "recipe.json"
    if recipe.exists() and (told := go_on_without(recipe)) is not None:
        typer.echo(f"{recipe}: {told}; it counts, without the changes of tables and views since it was written")


def acknowledge_loss(data: Data = None, config: Config = None) -> None:
    """End the alarm of losses that were accepted; the server may run. What was kept aside stays where it is.

    Examples:

      headrace acknowledge-loss --data /var/lib/headrace
    """
    from worker.rocks.opening import acknowledge_losses  # Late, as above.

    found = [told for base in _bases(load(config, data=data).data) for told in acknowledge_losses(base)]
    for told in found or ["there is no loss to acknowledge"]:
        typer.echo(told)


def _bases(directory: Path) -> list[Path]:
    """Those of shards that were given up are nobody's any more."""
    found = [each for each in (directory / "base", *sorted(directory.glob("shards/[0-9]*/base"))) if each.exists()]
    if not found:
        raise NotFound(f'"{directory}" has no tables', hint="--data is the directory that headrace serve or up has")
    return found


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

    settings = load(config, zookeeper=zookeeper, zookeeper_auth=zookeeper_auth, deployment=deployment)
    check_part(settings)
    act = kept_state.restore if restore else kept_state.save
    try:
        kept = asyncio.run(act(settings, file))
    except AuthorityError as error:
        raise Unavailable(error.message, hint=error.hint) from error
    what = f'deployment "{kept.deployment}", epoch {kept.epoch:,}: {len(kept.recipe.entries)} recipe entries'
    typer.echo(f"{'restored' if restore else 'saved'} {what}, {kept.shards} shards")
