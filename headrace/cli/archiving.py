"""The archive and what stands on it: ``headrace archive``, ``headrace backup``, ``headrace restore``."""

from __future__ import annotations

import json
import shlex
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from headrace_client import tokens

from headrace.cli.queries import AsJson, Config, Url, connected
from headrace.cli.serving import Archive, ArchiveRetention, SparkMaster, setting_help
from headrace.errors import BadRequest
from headrace.settings import Settings, load
from headrace.sizes import format_size, several

if TYPE_CHECKING:
    from worker.archive.place import Place


# ``headrace archive rebuild``: base shards whose disk is gone.


def rebuild(
    data: Annotated[Path | None, typer.Option(metavar="DIR", help=setting_help("data"))] = None,
    archive: Archive = None,
    shard: Annotated[
        list[int] | None, typer.Option(metavar="N", help="A shard to rebuild; repeat. [dim]default: all[/]")
    ] = None,
    token: Annotated[
        str | None, typer.Option(help="Token of the last write, to name the lost positions up to it.")
    ] = None,
    as_json: AsJson = False,
    spark_master: SparkMaster = None,
    config: Config = None,
) -> None:
    """Rebuild base shards whose disk is gone, from the archive and by Spark, and name exactly what is missing.

    The data directory must not contain these shards yet. Start the worker, or the server, on it afterwards.

    Examples:

      headrace archive rebuild --archive s3://backups/site --data /var/lib/headrace --shard 1
    """
    from headrace.backup.restoring import rebuild, report

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


archive = typer.Typer(
    help="Look at the archive of the base tables, check it, compact it. See docs/archive.md.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Source = Annotated[str, typer.Argument(metavar="SRC", help="A back-up or an archive: a directory or a URL.")]
Dest = Annotated[str, typer.Argument(metavar="DEST", help="An empty directory, or a URL with nothing under it.")]


@archive.command()
def status(archive: Archive = None, as_json: AsJson = False, config: Config = None) -> None:
    """Show what is archived of every shard of every table.

    Examples:

      headrace archive status --archive /var/lib/headrace-archive
    """
    from worker.archive.manifests import all_manifests

    manifests = all_manifests(_place(load(config, archive=archive)))
    if as_json:
        shown = [
            {
                "shard": each.base,
                "begin": each.begin,
                "position": each.position,
                "segments": len(each.segments),
                "rows": sum(segment.rows for segment in each.segments),
                "bytes": sum(segment.bytes for segment in each.segments),
                "last": max((segment.closed for segment in each.segments), default=None),
                "epoch": each.epoch,
            }
            for each in manifests
        ]
        typer.echo(json.dumps(shown))
        return
    for each in manifests:
        size = format_size(sum(segment.bytes for segment in each.segments))
        last = max((segment.closed for segment in each.segments), default="never")
        reach = f"positions {each.begin:,} to {each.position:,} in {len(each.segments)} segments"
        typer.echo(f"{each.base}: {reach}, {size}, {last}")
    if not manifests:
        typer.echo("nothing is archived here")


@archive.command()
def check(archive: Archive = None, config: Config = None) -> None:
    """Read the whole archive and check its digests; exit code 1 if anything is missing or damaged.

    Examples:

      headrace archive check --archive s3://backups/headrace
    """
    from worker.archive.checking import check_archive

    problems = 0
    for checked in check_archive(_place(load(config, archive=archive))):
        problems += len(checked.problems)
        size = format_size(checked.bytes)
        verdict = "ok" if not checked.problems else f"{len(checked.problems)} problems"
        segments = len(checked.manifest.segments)
        typer.echo(f"{checked.manifest.base}: {segments} segments, {checked.rows:,} rows, {size}: {verdict}")
        for problem in checked.problems:
            typer.echo(f"  {problem}")
    if problems:
        raise typer.Exit(1)


@archive.command()
def compact(
    archive: Archive = None,
    archive_retention: ArchiveRetention = None,
    config: Config = None,
) -> None:
    """Fold segments older than the retention into a snapshot of each shard, and delete these segments.

    A running server does this by itself. Do not read old positions meanwhile.

    Examples:

      headrace archive compact --archive /var/lib/headrace-archive --archive-retention 0
    """
    from worker.archive.compacting import compact_now
    from worker.archive.manifests import all_manifests
    from worker.archive.place import time_text
    from worker.archive.recipes import RecipeBook

    settings = load(config, archive=archive, archive_retention=archive_retention)
    place = _place(settings)
    before = RecipeBook(place).reach(time_text(time.time() - settings.archive_retention))
    for manifest in all_manifests(place):
        after = compact_now(place, manifest, before)
        typer.echo(f"{manifest.base}: {len(manifest.segments)} segments are now {len(after.segments)}")


def backup(
    dest: Dest,
    data: Annotated[Path | None, typer.Option(metavar="DIR", help="Data directory of a stopped server.")] = None,
    snapshot: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="All as it was in this snapshot of the running server, or latest."),
    ] = None,
    url: Url = None,
    config: Config = None,
) -> None:
    """Back a deployment up: its tables and its recipe, with their history as far as the archive has it.

    A running server (--url) archives up to now and serves on; it must have an archive. The directory of a stopped
    server is given by --data.

    Examples:

      headrace backup backups/monday

      headrace backup backups/month-end --snapshot month-end

      headrace backup backups/monday --data /var/lib/headrace
    """
    from headrace.backup.taking import back_up_running, back_up_stopped

    if data is not None and url is not None:
        raise BadRequest(
            "both --data and --url were given", hint="--url for a server that runs, --data for one that does not"
        )
    if data is not None and snapshot is not None:
        raise BadRequest("a stopped server has no snapshots to read", hint="start it, and give --url")
    if data is not None:
        contents = back_up_stopped(data, dest, typer.echo)
    else:
        with connected(load(config, url=url)) as connection:
            contents = back_up_running(connection, dest, typer.echo, snapshot=snapshot)
    typer.echo(f"{dest}: {len(contents.files)} files as of {contents.time}")


def restore(
    source: Source,
    data: Annotated[Path, typer.Option(metavar="DIR", help="Data directory to create; it must be absent or empty.")],
    as_of: Annotated[
        str | None,
        typer.Option(metavar="TIME|TOKEN|latest", help="2026-01-31T08:00:00Z, the token of a write, or latest."),
    ] = None,
    cluster: Annotated[
        str | None, typer.Option(metavar="NAME", help="Create the directory for the workers of this cluster.")
    ] = None,
) -> None:
    """Create a data directory from a back-up or an archive, as of now or of an earlier time.

    Examples:

      headrace restore backups/monday --data /var/lib/headrace

      headrace restore /var/lib/headrace-archive --data before --as-of 2026-01-31T08:00:00Z

      headrace restore backups/monday --data /var/lib/headrace --cluster main
    """
    from headrace.backup.restoring import restore

    def tell(base: str, rows: int) -> None:
        typer.echo(f"{base}: {rows:,} rows")

    restored = restore(source, data, as_of=as_of, cluster=cluster, tell=tell)
    chosen = restored.as_of
    token = as_of is not None and as_of.startswith(tokens.PREFIX)
    when = f"the write of the token, archived by {chosen.moment}" if token else chosen.moment
    typer.echo(
        f"restored {several(len(chosen.names), 'table')} in {several(chosen.shards, 'shard')}, "
        f"{several(restored.rows, 'row')}, as of {when}; tables and views as defined by {chosen.recorded}"
    )
    if chosen.later:
        typer.echo(
            f"not in it: {several(chosen.later, 'later write')} that the archive has of some tables and not of others; "
            "--as-of latest takes all that there is, which is of no one moment"
        )
    typer.echo(f"start it with: headrace {'serve' if cluster is None else 'up'} --data {shlex.quote(str(data))}")


def _place(settings: Settings) -> Place:
    from worker.archive.place import Place  # Late: it loads pyarrow.

    if settings.archive is None:
        raise BadRequest("it is not known where the archive is", hint="--archive, a directory or a URL")
    return Place(settings.archive).there()
