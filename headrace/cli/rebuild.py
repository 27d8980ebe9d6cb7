"""Commands for a cluster that has lost something: ``rebuild``, ``drain``, ``state``, ``accept-loss``.

``headrace rebuild`` gives up the disk of lost shards and has them made from the archive.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

import typer
from headrace_client import tokens
from headrace_client.calls import Call, progress
from headrace_client.encoding import to_json
from headrace_client.results import Progress

from headrace.cli.cluster import Deployment, SecretFile, ZooKeeper, check_part
from headrace.cli.queries import AsJson, Url, connected, watched
from headrace.cli.serving import Config, setting_option
from headrace.errors import BadRequest, ConnectionFailed, NotFound, Unavailable
from headrace.render import console
from headrace.settings import Settings, load
from migrations.backfill.spark.settings import By
from zookeeper.address import joined
from zookeeper.errors import AuthorityError
from zookeeper.local_authority import go_on_without
from zookeeper.secret import Secret, secret_of

if TYPE_CHECKING:
    from headrace_client.connection import Connection

Data = Annotated[Path | None, setting_option("data")]


def accept_loss(data: Data = None, config: Config = None) -> None:
    """Accept that a damaged disk has lost acknowledged writes and definitions, so that the server starts without them.

    A server with such a loss does not start, and says how many writes of which tables are missing. First try to restore
    a back-up, or to rebuild the shard from the archive. This command copies the damaged files aside and makes the
    directory usable without them; no server may run on it. The status has an alarm until headrace acknowledge-loss.

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


def leave_out(
    view: Annotated[str, typer.Argument(metavar="VIEW", help="The view that this version refuses.")],
    data: Data = None,
    config: Config = None,
) -> None:
    """Take a view that this version of headrace refuses out of the recipe of a server that is stopped.

    A start that meets such a view says so, and which. No row depends on it: create it again, in words that are taken,
    once the server runs.

    Examples:

      headrace leave-out PageOfUser --data /var/lib/headrace
    """
    from migrations.recipe import Recipe  # Late: they load the planner, and the storage library.
    from migrations.replaying import without_view
    from worker.rocks.store import RocksStore
    from zookeeper.local_authority import LocalAuthority

    directory = load(config, data=data).data
    if not (directory / "recipe.json").exists():
        raise NotFound(
            f'"{directory}" has no recipe',
            hint="a cluster's is in ZooKeeper: start the version that wrote it, drop the view",
        )
    for base in _bases(directory):
        RocksStore(base, create=False).close()  # Nobody serves it.

    async def write() -> bool:
        authority = LocalAuthority(directory / "recipe.json")
        state, version = await authority.read()
        before = Recipe.from_json(state or b"{}")
        after = without_view(before, view)
        if after is not before:
            await authority.write(after.to_json(), version)
        await authority.close()
        return after is not before

    if not asyncio.run(write()):
        raise NotFound(f'the recipe in "{directory}" has no view "{view}"')
    typer.echo(f'view "{view}" is left out: create it anew when the server runs')


def acknowledge_loss(data: Data = None, config: Config = None) -> None:
    """End the alarm of accepted losses, also while the server runs. The copies of damaged files stay.

    Examples:

      headrace acknowledge-loss --data /var/lib/headrace
    """
    from worker.rocks.opening import acknowledge_losses  # Late, as above.

    found = [told for base in _bases(load(config, data=data).data) for told in acknowledge_losses(base)]
    for told in found or ["there is no loss to acknowledge"]:
        typer.echo(told)


def _bases(directory: Path) -> list[Path]:
    """The directories of base tables. Those of given-up shards are left out."""
    found = [each for each in (directory / "base", *sorted(directory.glob("shards/[0-9]*/base"))) if each.exists()]
    if not found:
        raise NotFound(f'"{directory}" has no tables', hint="--data is the directory that headrace serve or up has")
    return found


def state(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="File to write, or to read with --restore.")],
    restore: Annotated[
        bool, typer.Option("--restore", help="Write the state back into a ZooKeeper that lost it.")
    ] = False,
    zookeeper: ZooKeeper = None,
    secret_file: SecretFile = None,
    data: Data = None,
    deployment: Deployment = None,
    config: Config = None,
) -> None:
    """Save a cluster's state in ZooKeeper: with the data directories, this is a back-up. See docs/operations.md.

    Examples:

      headrace state main.state --zookeeper zoo1:2181

      headrace state main.state --zookeeper zoo1:2181 --restore
    """
    from headrace.cluster import kept_state  # Late: it loads the planner.

    settings = load(config, zookeeper=zookeeper, deployment=deployment, secret_file=secret_file, data=data)
    check_part(settings)
    act = kept_state.restore if restore else kept_state.save
    try:
        kept = asyncio.run(act(settings, file))
    except AuthorityError as error:
        raise Unavailable(error.message, hint=error.hint) from error
    what = f'deployment "{kept.deployment}", epoch {kept.epoch:,}: {len(kept.recipe.entries)} recipe entries'
    typer.echo(f"{'restored' if restore else 'saved'} {what}, {kept.shards} shards")


# ``headrace drain``.

DRAIN_SECONDS = 120.0
"""A domain closes after its writes are on disk and opens elsewhere: tenths of a second each, and there may be many."""


def drain(
    worker: Annotated[str, typer.Argument(help="The worker's name, as headrace status shows it.")],
    undo: Annotated[bool, typer.Option("--undo", help="Allow domains on the worker again.")] = False,
    secret_file: SecretFile = None,
    url: Url = None,
    config: Config = None,
) -> None:
    """Move all domains off a worker, so that it can be stopped unnoticed.

    Returns when the worker has none. It gets domains again after --undo, or after a restart.

    Examples:

      headrace drain worker-2
    """
    settings = load(config, url=url, secret_file=secret_file)
    call = Call("DELETE" if undo else "POST", f"/v1/workers/{quote(worker, safe='')}/drain", dict)
    with at_leader(cluster_of(settings), known_secret(settings), DRAIN_SECONDS) as controller:
        controller.send(call)
    typer.echo(f'worker "{worker}" {"may have domains again" if undo else "has no domains any more"}')


def cluster_of(settings: Settings) -> dict[str, Any]:
    """An api process's knowledge of its cluster. Raises BadRequest where it is none."""
    with connected(settings) as server:
        shown = server.status()
    if "cluster" not in shown:
        raise BadRequest(f"the server at {settings.url} is not a cluster, and has no workers")
    cluster: dict[str, Any] = shown["cluster"]
    return cluster


def leader_url(cluster: dict[str, Any]) -> str:
    """URL of the leading controller. Raises Unavailable."""
    leader = cluster.get("leader")
    if leader is None:
        raise Unavailable("no controller leads, and only a leader moves domains", hint="try again")
    return f"http://{joined(leader['host'], leader['port'])}"


def known_secret(settings: Settings) -> Secret | None:
    """Raises BadRequest."""
    try:
        return secret_of(settings.secret_file, settings.data)
    except AuthorityError as error:
        raise BadRequest(error.message, hint=error.hint) from error


def at_leader(cluster: dict[str, Any], secret: Secret | None, timeout: float = 60.0) -> Connection:
    """A connection to the leading controller. Raises Unavailable."""
    from headrace_client.connection import Connection  # Late: they load what other commands do not need.

    from headrace.cluster.control_links import as_operator

    return Connection(leader_url(cluster), timeout=timeout, transport=as_operator(secret))


LOOK_SECONDS = 0.2
"""Seconds between two looks at the progress."""


def rebuild(
    shards: Annotated[list[int] | None, typer.Argument(metavar="SHARD", help="Lost shards to rebuild.")] = None,
    lost: Annotated[bool, typer.Option("--lost", help="Rebuild all lost shards.")] = False,
    token: Annotated[
        str | None, typer.Option(help="Token of the last write, to name the lost positions up to it.")
    ] = None,
    by: Annotated[
        By,
        typer.Option(
            help="Where the archive is folded: in the worker that gets the shard, or by Spark; auto: by Spark if the "
            "shards have more archived rows than the controller's --spark-threshold."
        ),
    ] = "auto",
    as_json: AsJson = False,
    secret_file: SecretFile = None,
    url: Url = None,
    config: Config = None,
) -> None:
    """Give up the disk of lost shards of a cluster, and rebuild them from the archive on another worker.

    A shard is lost when no running worker has its data directory. Its writes that were not archived are then lost for
    good, so bring the directory back if you can. The command names exactly what is lost, as far as it is known.

    With Spark, nothing is given up before the archive is folded: until then Ctrl-C leaves everything as it was.

    Examples:

      headrace rebuild --lost

      headrace rebuild --lost --by worker

      headrace rebuild 2 3 --token h1.eyJ2b3RlcyI6M30
    """
    if bool(shards) == lost:
        raise BadRequest("say which shards, or --lost", hint="headrace status shows which are unplaced")
    settings = load(config, url=url, secret_file=secret_file)
    cluster = cluster_of(settings)
    known = tokens.merge(cluster.get("acknowledged", {}), {} if token is None else tokens.decode(token))
    body = {"shards": shards or [], "known": known, "by": by, "wait": False}
    with at_leader(cluster, known_secret(settings)) as controller:
        operation = Operation(controller, controller.send(Call("POST", "/v1/rebuild", dict, to_json(body))))
        watched(console(stderr=True), operation.wait, operation.cancel, "rebuilt")
    if as_json:
        typer.echo(json.dumps(operation.rebuilt))
    else:
        typer.echo("\n".join([line for each in operation.rebuilt for line in told(each)] + kept(operation.rebuilt)))


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


def kept(rebuilt: list[dict[str, Any]]) -> list[str]:
    """Lines for each shard that has transactions again, and for those of which it lacks its part."""
    found = {each["shard"]: each for each in rebuilt if each.get("transactions") or each.get("halves")}
    lines = []
    for shard, each in sorted(found.items()):
        if count := each["transactions"]:
            lines.append(f"shard {shard}: {_number(count)} brought back, which other shards have kept")
        lines += [f'shard {shard}: its part of transaction "{id}" was too large to be kept' for id in each["halves"]]
    return lines


def _number(count: int) -> str:
    return "1 transaction was" if count == 1 else f"{count:,} transactions were"


def _writes(count: int) -> str:
    return "1 write is" if count == 1 else f"{count:,} writes are"
