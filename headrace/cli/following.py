"""``headrace import`` and ``headrace follow``: tables of a MariaDB or PostgreSQL beside, kept here."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
from rich.progress import Progress as Bar

from headrace.cli.queries import Config, Url, connected
from headrace.render import console
from headrace.settings import load as load_settings

if TYPE_CHECKING:
    from headrace.upstream.following import UpstreamProgress

UpstreamUrl = Annotated[
    str, typer.Argument(metavar="mysql://…|postgresql://…", help="mysql://user:password@host:3306/database")
]
Tables = Annotated[list[str] | None, typer.Argument(metavar="[TABLE…]", help="Its tables. [dim]default: all[/]")]
Name = Annotated[
    str,
    typer.Option("--source", metavar="NAME", help="What this database is called here. [dim]default: by its name[/]"),
]
Collation = Annotated[
    str | None, typer.Option(metavar="NAME", help="The collation of texts that have one which is not known here.")
]
ChunkRows = Annotated[int, typer.Option(metavar="N", min=1, max=100_000, help="Rows that are copied at once.")]
Patience = Annotated[float, typer.Option(metavar="SECONDS", min=0, help="How long to wait for a server that is away.")]


def import_(
    upstream: UpstreamUrl,
    tables: Tables = None,
    source: Name = "",
    collation: Collation = None,
    chunk_rows: ChunkRows = 2_000,
    patience: Patience = 60.0,
    url: Url = None,
    config: Config = None,
) -> None:
    """Copy tables of a MariaDB or PostgreSQL, and what changes meanwhile. After a crash, run the same command again;
    then headrace follow keeps them up to date: see docs/upstream.md.

    Example:

      headrace import mysql://headrace:secret@127.0.0.1/shop orders customers
    """
    from headrace.upstream.address import UpstreamAddress
    from headrace.upstream.following import (  # Late: its driver is an extra.
        FollowRequest,
        UpstreamFollower,
        begin_import,
    )

    settings = load_settings(config, url=url)
    asked = FollowRequest(UpstreamAddress.parse(upstream), source, chunk_rows, patience)
    bar = Bar(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        console=console(stderr=True),
        transient=True,
    )
    with connected(settings) as db, bar:
        task = bar.add_task("copying", total=None)

        def tell(progress: UpstreamProgress) -> None:
            what = progress.problem or f"copying {progress.table}"
            bar.update(task, description=what, completed=progress.rows, total=max(progress.rows, progress.rows_total))

        follower = UpstreamFollower(begin_import(db, asked, tables or (), collation), asked, tell)
        follower.run(until_copied=True)
    typer.echo(
        f"{follower.progress.rows:,} rows copied, and all changes up to {follower.progress.position or 'the start'}"
    )
    typer.echo(f"headrace follow {asked.address} keeps them up to date")


def follow(
    upstream: UpstreamUrl,
    source: Name = "",
    patience: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS", min=0, help="How long to wait for a server that is away. [dim]default: for ever[/]"
        ),
    ] = None,
    leave_out: Annotated[
        list[str] | None, typer.Option(metavar="TABLE", help="Follow this table no longer; repeat.")
    ] = None,
    drop: Annotated[
        bool, typer.Option("--drop", help="Follow no table any longer, and have the database keep nothing for it.")
    ] = False,
    url: Url = None,
    config: Config = None,
) -> None:
    """Keep imported tables up to date, until Ctrl-C, or until it must stop: see docs/upstream.md. It may be killed.

    Example:

      headrace follow mysql://headrace:secret@127.0.0.1/shop
    """
    from headrace.upstream.address import UpstreamAddress
    from headrace.upstream.following import FollowRequest, UpstreamFollower, drop_follow, followed_database

    settings = load_settings(config, url=url)
    asked = FollowRequest(
        UpstreamAddress.parse(upstream), source, patience=float("inf") if patience is None else patience
    )
    with connected(settings) as db:
        if drop:
            typer.echo(f"{', '.join(drop_follow(db, asked)) or 'no table'}: not followed any longer, and as they were")
            return
        told = {"problem": ""}

        def tell(progress: UpstreamProgress) -> None:
            if progress.problem != told["problem"]:
                typer.echo(progress.problem or "goes on", err=True)
                told["problem"] = progress.problem

        target = followed_database(db, asked)
        target.leave_out(leave_out or ())
        follower = UpstreamFollower(target, asked, tell)
        for each in (signal.SIGTERM, signal.SIGINT):
            signal.signal(each, lambda *_: follower.end())
        typer.echo(f"following {asked.address}")
        follower.run()
    typer.echo(f"stopped at {follower.progress.position}")
