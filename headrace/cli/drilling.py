"""``headrace drill``: break a cluster on purpose, and count what the users noticed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

ALL = "all"


def drill(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Which drill, or all of them.")] = None,
    rounds: Annotated[int, typer.Option(metavar="N", help="How often the fault is done.", min=1, max=10_000)] = 1,
    seed: Annotated[int | None, typer.Option(help="Of what is left to chance; printed, if not given.")] = None,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where JSON and pictures go.")] = Path("drills"),
    data: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Where the cluster lives. [dim]default: a temporary directory[/]"),
    ] = None,
    reads: Annotated[float, typer.Option(help="Reads a second.", min=1, max=20_000)] = 200.0,
    writes: Annotated[float, typer.Option(help="Writes a second.", min=1, max=5_000)] = 50.0,
    short: Annotated[bool, typer.Option("--short", help="With all: only those that are done in some seconds.")] = False,
    show: Annotated[bool, typer.Option("--list", help="Say which drills there are.")] = False,
) -> None:
    """Break a cluster of this machine on purpose, under load, and count what the users noticed.

    Fails (exit code 1) if an acknowledged write is missing or there twice, if a view is wrong once nothing is written
    any more, or if service does not come back. What took longer than it should is told.

    Examples:

      headrace drill --list

      headrace drill worker-kill

      headrace drill all --short

      headrace drill worker-kill --rounds 200 --seed 7 --out results
    """
    from headrace.drills import telling  # Late, as with the other commands that load more than a client.

    if show or name is None:
        telling.list_drills()
        return
    held = telling.run_drills(
        telling.chosen(name, short=short), rounds=rounds, seed=seed, out=out, data=data, rates=(reads, writes)
    )
    if not held:
        sys.exit(1)
