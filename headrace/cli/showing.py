"""The commands that show what Headrace does: ``demo`` and ``bench``. Each loads its room only when it is called."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.serving import SparkMaster
from headrace.settings import load

Out = Annotated[Path | None, typer.Option(metavar="FILE", help="Write the figures as JSON.")]
Quick = Annotated[bool, typer.Option("--quick", help="Small data: to see that it runs, not how fast.")]


def demo(
    once: Annotated[bool, typer.Option("--once", help="Stop at the end instead of serving on.")] = False,
    scale: Annotated[float, typer.Option(help="How much data, as a multiple of the usual.", min=0.001)] = 1.0,
    port: Annotated[int, typer.Option(help="Port to listen on; 0 takes a free one.")] = 8080,
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Where to keep the data. [dim]default: headrace-data/demo, or with --once a temporary directory[/]",
        ),
    ] = None,
    url: Annotated[
        str | None, typer.Option(metavar="URL", help="Use this server, for example a cluster, and start none.")
    ] = None,
) -> None:
    """Start a server with the Lobsters program and show a miss, an upquery, a hit and an eviction.

    Examples:

      headrace demo

      headrace demo --once --scale 0.1

      headrace demo --url http://127.0.0.1:8080
    """
    demo = import_module("headrace.demo")
    if url is not None:
        demo.run_against(url, scale=scale)
    else:
        demo.run(once=once, scale=scale, port=port, data=data)


bench = typer.Typer(invoke_without_command=True, rich_markup_mode="rich")


@bench.callback()
def measurements(
    context: typer.Context,
    only: Annotated[str | None, typer.Option(metavar="NAME", help="Only this measurement.")] = None,
    out: Out = None,
    quick: Quick = False,
    guard: Annotated[
        bool, typer.Option("--guard", help="Two minutes: fail where a ratio is a third worse than the baseline.")
    ] = False,
) -> None:
    """Measure speed against hand-written code on this machine and print ratios.

    Examples:

      headrace bench --out bench.json

      headrace bench --only reads --quick

      headrace bench --guard
    """
    if context.invoked_subcommand is None and guard:
        import_module("headrace.bench.guard").run(only=only, out=out)
    elif context.invoked_subcommand is None:
        import_module("headrace.bench").run(only=only, out=out, quick=quick)


@bench.command()
def scale(
    workers: Annotated[str, typer.Option(metavar="LIST", help="How many workers the clusters have.")] = "1,2,4",
    out: Out = None,
    quick: Quick = False,
) -> None:
    """Measure what a request costs on clusters of several sizes. Starts them on this machine; needs Java.

    Examples:

      headrace bench scale --out scale.json

      headrace bench scale --workers 1,4 --quick
    """
    import_module("headrace.bench.scaling.measuring").run(workers=workers, out=out, quick=quick)


@bench.command()
def replay(
    rows: Annotated[int, typer.Option(metavar="N", help="Base rows to read back.")] = 1_000_000,
    ways: Annotated[str, typer.Option(help="How the view is built.")] = "slices,local,spark",
    out: Out = None,
    folder: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Keep the rows here, for further runs of as many.")
    ] = None,
    spark_master: SparkMaster = None,
) -> None:
    """Measure how fast base logs are read back: folds, and full state built in slices, in bulk, and by Spark.

    Needs some minutes, and Java for Spark: 10,000,000 rows take about a hundred times the seconds of 100,000, and up to
    600 bytes a row of disk.

    Examples:

      headrace bench replay --rows 200000

      headrace bench replay --rows 10000000 --ways slices,spark --out replay.json

      headrace bench replay --rows 50000000 --ways slices,local --folder /var/tmp/replay --out replay.json
    """
    spark = load(spark_master=spark_master).spark()
    import_module("headrace.bench.replaying.measuring").run(
        rows=rows, out=out, spark=spark, ways=ways.split(","), folder=folder
    )


@bench.command()
def rebuild(
    rows: Annotated[int, typer.Option(metavar="N", help="Base rows, of which half are lost.")] = 1_000_000,
    ways: Annotated[str, typer.Option(help="Who folds the archive.")] = "worker,spark",
    out: Out = None,
    folder: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where the clusters live, and stay, with what they logged.")
    ] = None,
    spark_master: SparkMaster = None,
) -> None:
    """Measure how fast a cluster has a lost disk back: base shards, the full view on them, and what others notice.

    Starts a cluster of two workers on this machine for each way, so it needs Java. Fails if an answer is another one
    afterwards. 1,000,000 rows take some minutes.

    Examples:

      headrace bench rebuild --rows 100000

      headrace bench rebuild --rows 1000000 --ways worker,spark --out rebuild.json
    """
    master = load(spark_master=spark_master).spark().master
    import_module("headrace.bench.rebuilding.measuring").run(
        rows=rows, out=out, ways=ways.split(","), folder=folder, master=master
    )
