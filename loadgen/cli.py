"""``headrace bench``, ``headrace loadgen`` and ``headrace drill``: the commands that measure, and break, a server.

Each imports what it runs only when it is called, so that the other commands need not wait for it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import Annotated, Any

import typer

from headrace.cli.serving import SparkMaster, declare, options_of
from headrace.settings import load


def register(app: typer.Typer) -> None:
    """Add the commands to ``headrace``; its ``cli/commands.py`` calls this where this distribution is installed."""
    app.add_typer(bench, name="bench")
    app.add_typer(loadgen, name="loadgen")
    app.command(rich_help_panel="Clusters")(drill)


def drill(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help='A drill, or "all".')] = None,
    rounds: Annotated[
        int, typer.Option(metavar="N", help="Number of faults, one after the other.", min=1, max=10_000)
    ] = 1,
    seed: Annotated[
        int | None, typer.Option(help="Seed of all random choices. [dim]default: a random one, which is printed[/]")
    ] = None,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Directory for JSON files and pictures.")] = Path("drills"),
    data: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Data directory of the cluster. [dim]default: a temporary one[/]"),
    ] = None,
    reads: Annotated[float, typer.Option(help="Reads a second.", min=1, max=20_000)] = 200.0,
    writes: Annotated[float, typer.Option(help="Writes a second.", min=1, max=5_000)] = 50.0,
    short: Annotated[bool, typer.Option("--short", help='With "all": only the drills that take seconds.')] = False,
    show: Annotated[bool, typer.Option("--list", help="List the drills.")] = False,
) -> None:
    """Break a local cluster on purpose, under load, and count what its users notice.

    Exit code 1 if an acknowledged write is missing or doubled, if a view is wrong once writes have stopped, or if
    service does not come back. A missed goal of time is only reported.

    Examples:

      headrace drill --list

      headrace drill worker-kill

      headrace drill all --short

      headrace drill worker-kill --rounds 200 --seed 7 --out results
    """
    from loadgen.drills import running

    if show or name is None:
        running.list_drills()
        return
    held = running.run_drills(
        running.chosen(name, short=short), rounds=rounds, seed=seed, out=out, data=data, rates=(reads, writes)
    )
    if not held:
        sys.exit(1)


loadgen = typer.Typer(
    help="Put an open-loop load on a server and measure sojourn times, processor time and memory.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)

Target = Annotated[
    str,
    typer.Option(
        "--target",
        metavar="URL",
        help="http:// is Headrace; mysql://, postgresql://, redis://…?behind=mysql://…; null: measures the generator.",
    ),
]
Runtime = Annotated[float, typer.Option(metavar="SECONDS", help="Measuring time at each rate.", min=0.5)]
Warmup = Annotated[float, typer.Option(metavar="SECONDS", help="Load before the measurement.", min=0)]
InFlight = Annotated[
    int, typer.Option(metavar="N", help="Maximum of concurrent requests; others wait.", min=1, max=4096)
]
Seed = Annotated[int, typer.Option(help="Seed of arrivals and requests.")]
DataScale = Annotated[
    float, typer.Option(metavar="SCALE", help="Amount of data in the target, 1 for the usual.", min=0.001, max=100)
]
DataSeed = Annotated[int, typer.Option(help="Seed of the generated data.")]
Prime = Annotated[bool, typer.Option("--prime", help="First create tables, views and data in an empty target.")]
Sweep = Annotated[
    bool, typer.Option("--sweep", help="Find the highest rate with a mean sojourn time of at most 50 ms.")
]
Reports = Annotated[Path, typer.Option(metavar="DIR", help="Directory for the JSON and HTML reports.")]
Rate = Annotated[float | None, typer.Option(metavar="R", help="Requests a second.", min=0.1, max=10_000_000)]

Own = Callable[..., Mapping[str, Any]]
"""A workload's own options → fields of ``loadgen.running.RunOptions``."""


def _shared(
    target: Target = "http://127.0.0.1:8080",
    runtime: Runtime = 30.0,
    warmup: Warmup = 5.0,
    in_flight: InFlight = 64,
    seed: Seed = 1,
    data_scale: DataScale = 1.0,
    prime: Prime = False,
    sweep: Sweep = False,
    out: Reports = Path("load"),
) -> None:
    """The options that every workload has; only their names, types and defaults are looked at."""


def _workload(**defaults: Any) -> Callable[[Own], Own]:
    """Register a workload's command, of the function's name: its own options with those of all behind them. Those that
    are named here have another default."""

    def register(own: Own) -> Own:
        def command(**given: Any) -> None:
            out = given.pop("out")
            said = own(**{name: given.pop(name) for name in signature(own).parameters})
            _run(out, workload=own.__name__, **given, **said)

        options = [*options_of(own), *options_of(_shared)]
        options = [each.replace(default=defaults.get(each.name, each.default)) for each in options]
        declare(command, options, like=own)
        loadgen.command()(command)
        return own

    return register


@_workload()
def lobsters(
    scale: Annotated[
        float | None,
        typer.Option(metavar="S", help="Load in multiples of the real site's 46 pages a minute.", min=0.1),
    ] = None,
    rate: Annotated[
        float | None, typer.Option(metavar="R", help="Load in pages a second, instead of --scale.", min=0.1)
    ] = None,
    variant: Annotated[
        str,
        typer.Option(
            help="natural: the system aggregates; pages: also a whole page at once; hand-optimised: counters."
        ),
    ] = "natural",
    data_seed: DataSeed = 1,
) -> Mapping[str, Any]:
    """The pages of a news site, in the published mix.

    Examples:

      headrace loadgen lobsters --prime --data-scale 0.1 --rate 50

      headrace loadgen lobsters --data-scale 0.1 --sweep

      headrace loadgen lobsters --target mysql://root@127.0.0.1:3306/lobsters --variant hand-optimised --sweep
    """
    from loadgen.workloads.lobsters import rate_of

    if rate is not None and scale is not None:
        raise typer.BadParameter("give --scale or --rate, not both")
    pages = rate if rate is not None else rate_of(scale if scale is not None else 60.0)
    return {"variant": variant, "rate": pages, "data_seed": data_seed}


@_workload(in_flight=16)
def vote(
    rate: Rate = 10_000.0,
    distribution: Annotated[str, typer.Option(help="zipf (exponent 1.15) or uniform, over the stories.")] = "zipf",
    batch: Annotated[int, typer.Option(metavar="N", help="Requests in a batch.", min=1, max=10_000)] = 1000,
) -> Mapping[str, Any]:
    """Stories with their votes: 95 reads to 5 votes, in a client's batches.

    Examples:

      headrace loadgen vote --prime --rate 20000

      headrace loadgen vote --distribution uniform --sweep
    """
    return {"rate": rate, "distribution": distribution, "batch": batch}


@_workload(in_flight=8)
def ribbons(
    rate: Rate = 1_000.0,
    batch: Annotated[int, typer.Option(metavar="N", help="Updates in a batch.", min=1, max=1_000)] = 100,
    data_seed: DataSeed = 1,
) -> Mapping[str, Any]:
    """Updates of read ribbons of the Lobsters site, in batches: the heaviest load on its notifications.

    Examples:

      headrace loadgen ribbons --prime --data-scale 0.1 --rate 2000
    """
    return {"rate": rate, "batch": batch, "data_seed": data_seed}


@_workload()
def crud(rate: Rate = 200.0) -> Mapping[str, Any]:
    """Single rows: get, list, change, insert, delete.

    Examples:

      headrace loadgen crud --prime --rate 500

      headrace loadgen crud --target null: --rate 2000
    """
    return {"rate": rate}


@_workload(data_scale=0.1)
def graph(
    rate: Rate = 200.0,
    variant: Annotated[
        str, typer.Option(help="natural: a way from both ends, by joins; recursive: WITH RECURSIVE from one end.")
    ] = "natural",
    distribution: Annotated[str, typer.Option(help="uniform or zipf, of the nodes that have edges.")] = "uniform",
    data_seed: DataSeed = 1,
) -> Mapping[str, Any]:
    """A graph that changes: look-ups, one and two hops, shortest ways of at most four; half of the requests change it.

    At a data scale of 1 it has 100,000 nodes and 640,000 edges.

    Examples:

      headrace loadgen graph --prime --rate 500

      headrace loadgen graph --target mysql://root@127.0.0.1:3306/graph --variant recursive --prime --rate 100
    """
    return {"rate": rate, "variant": variant, "distribution": distribution, "data_seed": data_seed}


def _run(out: Path, **given: Any) -> None:
    """Late imports, as with the other commands that load more than a client."""
    running, telling = import_module("loadgen.running"), import_module("loadgen.telling")
    options = replace(running.RunOptions(workload=given["workload"], target=given["target"]), **given)
    result = telling.run(options, out)
    if result.cut:
        sys.exit(130)
    if not telling.is_good(result):
        sys.exit(1)


# headrace bench

Out = Annotated[Path | None, typer.Option(metavar="FILE", help="Write the figures as JSON.")]
Quick = Annotated[bool, typer.Option("--quick", help="Small data: to see that it runs, not how fast.")]

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
        import_module("loadgen.bench.ratios").run_guard(only=only, out=out)
    elif context.invoked_subcommand is None:
        import_module("loadgen.bench.ratios").run(only=only, out=out, quick=quick)


@bench.command()
def scale(
    workers: Annotated[str, typer.Option(metavar="LIST", help="Cluster sizes, in workers.")] = "1,2,4",
    out: Out = None,
    quick: Quick = False,
) -> None:
    """Measure what a request costs on clusters of several sizes. Starts them on this machine; needs Java.

    Examples:

      headrace bench scale --out scale.json

      headrace bench scale --workers 1,4 --quick
    """
    import_module("loadgen.bench.scaling.measuring").run(workers=workers, out=out, quick=quick)


@bench.command()
def mysql(
    only: Annotated[str | None, typer.Option(metavar="NAME", help="Only this work.")] = None,
    out: Out = None,
    quick: Quick = False,
) -> None:
    """Measure look-ups and inserts over MySQL's protocol, beside HTTP and beside MariaDB, of 1 and of 32 clients.

    Examples:

      headrace bench mysql --out mysql.json

      headrace bench mysql --only "prepared look-up" --quick
    """
    import_module("loadgen.bench.beside_mariadb.protocols").run(out=out, quick=quick, only=only)


@bench.command()
def live(
    subscriptions: Annotated[int, typer.Option(metavar="N", help="Subscriptions to live views.", min=1)] = 10_000,
    single: Annotated[int, typer.Option(metavar="N", help="Those with a connection of their own.", min=0)] = 1_000,
    answers: Annotated[int, typer.Option(metavar="N", help="Answers that they follow.", min=1)] = 1_000,
    rate: Annotated[float, typer.Option(metavar="N", help="Writes a second.", min=1)] = 200.0,
    seconds: Annotated[float, typer.Option(metavar="N", help="Seconds of writes.", min=1)] = 15.0,
    out: Out = None,
) -> None:
    """Measure live views: from a write to the event, what an event and a subscription cost; beside polling.

    Examples:

      headrace bench live

      headrace bench live --subscriptions 1000 --single 1000 --seconds 5
    """
    import_module("loadgen.bench.live").run(
        subscriptions=subscriptions, single=single, keys=answers, rate=rate, seconds=seconds, out=out
    )


@bench.command()
def tpch(
    scale: Annotated[float, typer.Option(metavar="S", help="Scale factor: 1 is a gigabyte of rows.", min=0.01)] = 0.1,
    only: Annotated[str | None, typer.Option(metavar="LIST", help="Only these queries, by number.")] = None,
    shards: Annotated[int, typer.Option(metavar="N", help="Shards of the tables and views.", min=1, max=64)] = 1,
    together: Annotated[bool, typer.Option("--together", help="All queries in one process, not one by one.")] = False,
    parameters: Annotated[
        bool, typer.Option("--parameters", help="Substitution parameters as ?, asked with the validation run's.")
    ] = False,
    out: Out = None,
    folder: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Keep generated and loaded rows here for later runs.")
    ] = None,
) -> None:
    """Measure the queries of TPC-H kept up to date, beside DuckDB computing them anew. Fails if an answer differs.

    Examples:

      headrace bench tpch --scale 0.01

      headrace bench tpch --scale 0.1 --only 3,10 --folder /var/tmp/tpch --out tpch.json

      headrace bench tpch --scale 0.1 --together

      headrace bench tpch --scale 0.01 --parameters
    """
    import_module("loadgen.bench.tpch.measuring").run(
        scale=scale, only=only, shards=shards, out=out, folder=folder, together=together, asked=parameters
    )


@bench.command()
def replay(
    rows: Annotated[int, typer.Option(metavar="N", help="Base rows to read back.")] = 1_000_000,
    ways: Annotated[str, typer.Option(help="Ways to build the view.")] = "slices,local,spark",
    out: Out = None,
    folder: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Keep the rows here for later runs with as many.")
    ] = None,
    spark_master: SparkMaster = None,
) -> None:
    """Measure how fast archived rows are folded, and full state is built from them: in slices, in bulk, by Spark.

    Needs some minutes, and Java for Spark: 10,000,000 rows take about a hundred times the seconds of 100,000, and up to
    600 bytes a row of disk.

    Examples:

      headrace bench replay --rows 200000

      headrace bench replay --rows 10000000 --ways slices,spark --out replay.json

      headrace bench replay --rows 50000000 --ways slices,local --folder /var/tmp/replay --out replay.json
    """
    spark = load(spark_master=spark_master).spark()
    import_module("loadgen.bench.recovery.replay").run(
        rows=rows, out=out, spark=spark, ways=ways.split(","), folder=folder
    )


@bench.command()
def rebuild(
    rows: Annotated[int, typer.Option(metavar="N", help="Base rows, half of which are lost.")] = 1_000_000,
    ways: Annotated[str, typer.Option(help="Where the archive is folded.")] = "worker,spark",
    out: Out = None,
    folder: Annotated[Path | None, typer.Option(metavar="DIR", help="Keep the clusters' data and logs here.")] = None,
    spark_master: SparkMaster = None,
) -> None:
    """Measure how fast a cluster recovers a lost disk: its base shards, a full view on them, and other clients' reads.

    Starts a cluster of two workers on this machine for each way, so it needs Java. Fails if an answer differs
    afterwards. 1,000,000 rows take some minutes.

    Examples:

      headrace bench rebuild --rows 100000

      headrace bench rebuild --rows 1000000 --ways worker,spark --out rebuild.json
    """
    master = load(spark_master=spark_master).spark().master
    import_module("loadgen.bench.recovery.rebuild").run(
        rows=rows, out=out, ways=ways.split(","), folder=folder, master=master
    )
