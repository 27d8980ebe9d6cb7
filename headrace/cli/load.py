"""``headrace load``: rows of files into a table of a running server."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from headrace.cli.queries import Config, Url, connected
from headrace.cli.serving import SparkConf, SparkMaster
from headrace.errors import BadRequest
from headrace.loading.chunks import CHUNK_ROWS, NULLS, PATIENCE, SPARK_THRESHOLD, FileOptions, Format
from headrace.loading.rejects import MOST
from headrace.render import console
from headrace.settings import load as load_settings
from headrace.sizes import parse_size

if TYPE_CHECKING:
    from headrace.loading.running import LoadProgress, LoadRequest


Table = Annotated[str, typer.Argument(help="The base table.")]
Files = Annotated[list[Path], typer.Argument(metavar="FILE…", help="CSV, JSON lines or Parquet, in this order.")]
Kind = Annotated[Format | None, typer.Option(help="Format of the files. [dim]default: by their names[/]")]
Delimiter = Annotated[
    str | None,
    typer.Option(
        metavar="CHARACTER", help=r"Delimiter of CSV fields. [dim]default: a tab (\t) in .tsv, else a comma[/]"
    ),
]
Columns = Annotated[str | None, typer.Option(metavar="A,B,…", help="Column names of CSV files without a header line.")]
Map = Annotated[
    list[str] | None,
    typer.Option(metavar="THEIRS=OURS", help="Load a file's column THEIRS into column OURS; THEIRS= skips it; repeat."),
]
Null = Annotated[
    list[str] | None,
    typer.Option(metavar="TEXT", help=r"Unquoted CSV text that is NULL; repeat. [dim]default: empty, and \N[/]"),
]
DateFormat = Annotated[str | None, typer.Option(metavar="FORMAT", help="Format of DATE in text, like %d.%m.%Y.")]
DatetimeFormat = Annotated[str | None, typer.Option(metavar="FORMAT", help="Format of DATETIME in text.")]
RejectsFile = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Write rows that cannot be loaded to this file, with reasons.")
]
MaxRejects = Annotated[int, typer.Option(metavar="N", min=0, help="Stop when more rows than this cannot be loaded.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Read and check all rows, and store nothing.")]
Stream = Annotated[
    str | None, typer.Option(metavar="NAME", help="Name of this load, to load the same files a second time.")
]
ChunkRows = Annotated[int, typer.Option(metavar="N", min=1, max=100_000, help="Rows in a request.")]
Patience = Annotated[
    float, typer.Option(metavar="SECONDS", min=0, help="How long to wait for a server that does not answer.")
]
Threshold = Annotated[
    str, typer.Option(metavar="SIZE", help="Let Spark read the files if there are several, larger than this together.")
]
Scratch = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Directory for prepared rows, which Spark's workers and this command can reach."),
]


def load(
    table: Table,
    files: Files,
    format: Kind = None,
    delimiter: Delimiter = None,
    columns: Columns = None,
    map: Map = None,
    null: Null = None,
    date_format: DateFormat = None,
    datetime_format: DatetimeFormat = None,
    rejects: RejectsFile = None,
    max_rejects: MaxRejects = MOST,
    dry_run: DryRun = False,
    stream: Stream = None,
    chunk_rows: ChunkRows = CHUNK_ROWS,
    patience: Patience = PATIENCE,
    spark_threshold_bytes: Threshold = SPARK_THRESHOLD,
    spark_master: SparkMaster = None,
    spark_conf: SparkConf = None,
    scratch: Scratch = None,
    url: Url = None,
    config: Config = None,
) -> None:
    """Load files into a table, each row exactly once. After a crash, run the same command again: see docs/loading.md.

    Examples:

      headrace load votes votes-1.csv.gz votes-2.csv.gz

      headrace load stories stories.parquet --rejects bad.jsonl --map storyId=id --map comment=
    """
    from headrace.loading.running import LoadRequest  # Late: it loads the planner and pyarrow.
    from headrace.loading.running import load as run_load

    options = FileOptions(
        format=format,
        delimiter=_delimiter(delimiter),
        columns=tuple(columns.split(",")) if columns else (),
        mapping=_mapping(map or []),
        nulls=tuple(NULLS if null is None else null),
        date_format=date_format,
        datetime_format=datetime_format,
        chunk_rows=chunk_rows,
    )
    settings = load_settings(config, url=url, spark_master=spark_master, spark_conf=spark_conf)
    request = LoadRequest(
        table,
        files,
        options,
        rejects,
        max_rejects,
        stream,
        dry_run,
        patience,
        spark=settings.spark(),
        spark_threshold=_size(spark_threshold_bytes),
        scratch=scratch,
    )
    bar = _bar()
    with bar, connected(settings) as db:
        ended = run_load(db, request, _Telling(bar))
    for line in _summary(ended, request):
        typer.echo(line)


def _bar() -> Bar:
    return Bar(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TextColumn("{task.fields[rows]}"),
        TimeRemainingColumn(),
        console=console(stderr=True),
        transient=True,
    )


class _Telling:
    """Moves the bar: once over the files for their digest, then with the rows."""

    def __init__(self, bar: Bar) -> None:
        self._bar = bar
        self._task = bar.add_task("reading", total=None, rows="")
        self._loading = False

    def __call__(self, progress: LoadProgress) -> None:
        if progress.identified and not self._loading:
            self._loading = True
            self._bar.reset(self._task, description="loading")
        rate = self._bar.tasks[0].finished_speed or self._bar.tasks[0].speed
        share = (progress.rows + progress.skipped) / progress.bytes_read if progress.bytes_read else 0.0
        speed = f", {rate * share:,.0f} rows/s" if rate and progress.rows else ""
        shown = (
            progress.note or f"{progress.rows:,} rows, {progress.rejected:,} rejected{speed}"
            if progress.identified
            else ""
        )
        self._bar.update(self._task, completed=progress.bytes_read, total=progress.bytes_total, rows=shown)


def _mapping(given: list[str]) -> dict[str, str]:
    mapping: dict[str, str] = {}
    for each in given:
        theirs, equals, ours = each.partition("=")
        if not equals or not theirs:
            raise BadRequest(
                f'"{each}" maps no column', hint="write --map THEIRS=OURS, or --map THEIRS= to leave it out"
            )
        mapping[theirs] = ours
    return mapping


def _delimiter(given: str | None) -> str | None:
    if given == r"\t":
        return "\t"
    if given is not None and (len(given) != 1 or not given.isascii() or given in '"\r\n'):
        raise BadRequest(f'"{given}" is not a delimiter', hint=r"give one character of ASCII, or \t for a tab")
    return given


def _size(text: str) -> int:
    try:
        return parse_size(text)
    except ValueError as error:
        raise BadRequest(str(error)) from error


def _summary(ended: LoadProgress, request: LoadRequest) -> list[str]:
    done = "would be loaded" if request.dry_run else "loaded"
    lines = [f"{ended.rows:,} rows {done} into {request.table}"]
    if ended.skipped:
        lines[0] += f", {ended.skipped:,} were read before"
    if ended.rejected:
        lines.append(f"{ended.rejected:,} rows were set aside: {request.rejects}")
    if ended.skipped and not ended.rows:
        lines.append("these files have been loaded: --stream NAME loads them a second time")
    lines.append(f"stream {ended.stream}")
    return lines
