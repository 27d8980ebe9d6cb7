"""The commands that ask a running server: ``sql``, ``status``, ``explain``, ``advise``, ``migrations``."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from headrace_client import calls
from headrace_client.results import Progress, Result
from headrace_client.tokens import Token
from rich.console import Console, RenderableType
from rich.progress import BarColumn, TaskProgressColumn, TextColumn
from rich.progress import Progress as Bar

from headrace import connect
from headrace.errors import BadRequest
from headrace.render import Sort, console, result_lines, status_screen, status_tables, view_table
from headrace.settings import Settings, load

if TYPE_CHECKING:
    from headrace_client.connection import Connection

# A migration, or a rebuild, as a bar at the terminal: what it does, how far it is, how long it may still take.
#
# ::
#
# compute full states from the archive (spark)  ━━━━━━╸     61%  3,100,000 of 5,000,000 rows, stage 1 of 2, 21 s left

_CREATE_VIEW = re.compile(
    r"\s*CREATE\s+(?:OR\s+REPLACE\s+)?(?:EXT\s+)?VIEW\s+(`[^`]+`|[^\s(;]+)[^;]*;?\s*", re.IGNORECASE
)

PLAIN_SECONDS = 5.0
"""Seconds between two lines of progress where no terminal shows a bar."""


def created_view(text: str) -> str | None:
    """The view's name where this is one CREATE VIEW, which may take its time, and nothing else."""
    found = _CREATE_VIEW.fullmatch(text)
    return None if found is None else found[1].strip("`")


def watched(
    console: Console,
    wait: Callable[[Callable[[Progress], None]], Progress],
    cancel: Callable[[], object],
    what: str = "backfilled",
) -> Progress:
    """See a migration through, or a rebuild: ``wait`` is its, and is told whom to tell. Raises what made it fail.

    Where ``console`` is no terminal, a line every few seconds takes the bar's place. Ctrl-C cancels it and waits for
    its end, which may be that it was done already. A second one only stops watching.
    """
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TextColumn("{task.fields[more]}"))
    with Bar(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=1.0, more="")
        told = time.monotonic()

        def tell(progress: Progress) -> None:
            nonlocal told
            step, more = progress.step or progress.state, details(progress)
            bar.update(task, completed=progress.progress, description=step, more=more)
            if not console.is_terminal and time.monotonic() - told >= PLAIN_SECONDS:
                told = time.monotonic()
                console.print(f"{progress.progress:.0%} {step}{', ' if more else ''}{more}", highlight=False)

        try:
            done = wait(tell)
        except KeyboardInterrupt:
            cancel()
            done = wait(tell)
    if done.backfill is not None:
        console.print(f"{what} by {done.backfill}: {done.why}", style="dim", highlight=False)
    return done


def details(progress: Progress) -> str:
    """Rows, stages, time left and the job's page, as far as they are known."""
    parts: list[str] = []
    if progress.rows_total:
        parts.append(f"{progress.rows:,} of {progress.rows_total:,} rows")
    if progress.stages:
        parts.append(f"stage {min(progress.stages_done + 1, progress.stages)} of {progress.stages}")
    if progress.tasks and not progress.rows:
        parts.append(f"task {min(progress.tasks_done + 1, progress.tasks)} of {progress.tasks}")
    if progress.seconds_left is not None:
        parts.append(f"{progress.seconds_left:.0f} s left")
    if progress.ui is not None:
        parts.append(progress.ui)
    return ", ".join(parts)


Url = Annotated[str | None, typer.Option(help="The server. [dim]default: setting url, http://127.0.0.1:8080[/]")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the server's JSON.")]
Config = Annotated[Path | None, typer.Option(metavar="FILE", help="Settings as TOML.")]


def connected(settings: Settings, *, raw: bool = False, login: tuple[str, str] | None = None) -> Connection:
    """The server that a command asks, with the key and the certificates that the settings have."""
    return connect(
        settings.url,
        raw=raw,
        key=settings.key,
        login=login,
        tls_ca=settings.tls_ca,
        tls_cert=settings.tls_client_cert,
        tls_key=settings.tls_client_key,
    )


def sql(
    text: Annotated[str | None, typer.Argument(metavar="SQL", help="Statements, separated by ;")] = None,
    file: Annotated[
        Path | None, typer.Option("--file", "-f", help="Read the statements from a file; - is stdin.")
    ] = None,
    param: Annotated[
        list[str] | None, typer.Option(metavar="VALUE", help="A value for the next ?, as JSON or else as text; repeat.")
    ] = None,
    token: Annotated[str | None, typer.Option(help="Let reads wait for the write whose answer had this token.")] = None,
    as_json: AsJson = False,
    url: Url = None,
    config: Config = None,
) -> None:
    """Run SQL of any kind.

    Examples:

      headrace sql "SELECT title FROM stories WHERE id = 7"

      headrace sql "SELECT title FROM stories WHERE author = ?" --param 7 --json

      headrace sql -f schema.sql
    """
    statements = _statements(text, file)
    printer = console()
    with connected(load(config, url=url), raw=True) as db:
        view = None if param else created_view(statements)
        if view is not None:
            # A view of many rows takes longer to build than a request may last, so its migration is followed.
            migration = db.migrate(statements)
            watched(console(stderr=True), lambda tell: migration.wait(progress=tell), migration.cancel)
            results = [Result((), (), 0, Token(""), done=f"view {view} created")]
        else:
            results = db.execute_all(statements, [_value(each) for each in param or []], token=token)
    if not results:
        raise BadRequest("there is no statement in the text")
    if as_json:
        answer = {"results": [_shown(each) for each in results], "token": results[0].token or None}
        typer.echo(json.dumps(answer, ensure_ascii=False))
        return
    for result in results:
        for line in result_lines(result):
            printer.print(line)


def status(
    views: Annotated[bool, typer.Option("--views", help="List every view with its memory and reads.")] = False,
    sort: Annotated[Sort, typer.Option(help="Order of the views.")] = Sort.MEMORY,
    only: Annotated[
        str | None, typer.Option("--filter", metavar="TEXT", help="Only views with this in their name.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Show everything that the server reports.")] = False,
    watch: Annotated[
        float | None, typer.Option(metavar="SECONDS", min=0.1, help="Repeat at this interval until Ctrl-C.")
    ] = None,
    as_json: AsJson = False,
    url: Url = None,
    config: Config = None,
) -> None:
    """Show the server's health, memory and counters, and the views that cost most.

    Examples:

      headrace status

      headrace status --views --sort time --filter user

      headrace status --watch 2

      headrace status --json --url http://127.0.0.1:9000
    """
    printer = console()
    with connected(load(config, url=url)) as db:
        while True:
            shown = db.status()
            if as_json:
                typer.echo(json.dumps(shown, ensure_ascii=False))
            else:
                if watch is not None:
                    printer.clear()
                for table in _status(shown, views or only is not None, sort, only, everything):
                    printer.print(table)
            if watch is None:
                return
            time.sleep(watch)


def _status(
    shown: Mapping[str, Any], views: bool, sort: Sort, only: str | None, everything: bool
) -> Iterator[RenderableType]:
    if everything:
        return status_tables(shown)
    if views:
        wanted = (only or "").lower()
        return view_table({n: each for n, each in shown.get("views", {}).items() if wanted in n.lower()}, sort)
    return status_screen(shown)


def explain(
    view: Annotated[str, typer.Argument(help="The view's name.")], url: Url = None, config: Config = None
) -> None:
    """Show a view's part of the dataflow as a tree: operators, state, and why something is full.

    Examples:

      headrace explain StoriesWithVC
    """
    with connected(load(config, url=url)) as db:
        typer.echo(db.view(view).explain())


def schema(url: Url = None, config: Config = None) -> None:
    """Print the SQL that creates all tables and views anew, without rows.

    Examples:

      headrace schema > schema.sql

      headrace sql -f schema.sql --url http://127.0.0.1:9000
    """
    with connected(load(config, url=url)) as db:
        if text := db.schema():
            typer.echo(text)


def _statements(text: str | None, file: Path | None) -> str:
    if text is not None and file is not None:
        raise BadRequest("SQL was given twice", hint="give it as an argument or with -f, not both")
    if text is not None:
        return text
    if file is None and sys.stdin.isatty():
        raise BadRequest("no SQL was given", hint='headrace sql "SELECT …", or headrace sql -f file.sql')
    try:
        return sys.stdin.read() if file is None or str(file) == "-" else file.read_text("utf-8")
    except OSError as error:
        raise BadRequest(f'cannot read "{file}": {error.strerror}') from error
    except UnicodeDecodeError as error:
        raise BadRequest(f'"{file or "-"}" is not UTF-8') from error


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _shown(result: Result) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "columns": [column._asdict() for column in result.columns],
        "rows": result.rows,
        "rows_affected": result.rows_affected,
    }
    shown |= {} if result.first_id is None else {"first_id": result.first_id}
    return shown | ({} if result.done is None else {"done": result.done})


def migrations(
    cancel: Annotated[str | None, typer.Option(metavar="ID", help="Cancel this one, whoever began it.")] = None,
    url: Url = None,
    config: Config = None,
) -> None:
    """List changes of tables and views that wait or run, and those that ended lately; or cancel one.

    Examples:

      headrace migrations

      headrace migrations --cancel aeccc1c2f123
    """
    with connected(load(config, url=url)) as db:
        found = db.migrations() if cancel is None else [db.migration(cancel).cancel()]
    if not found:
        typer.echo("no migration since the server's start")
    for each in found:
        more = "" if each.finished else f" {each.progress:.0%} {each.step}"
        typer.echo(f"{each.id} {each.state}{more}: {' '.join(each.sql.split())[:SHOWN_CHARACTERS]}")


def snapshots(
    take: Annotated[bool, typer.Option("--take", help="Keep all tables as they are now.")] = False,
    name: Annotated[str, typer.Option(metavar="NAME", help="Of the one that is taken.")] = "",
    hold: Annotated[bool, typer.Option("--hold", help="Until it is dropped, also when there are later ones.")] = False,
    drop: Annotated[str | None, typer.Option(metavar="NAME", help="Keep this one no more.")] = None,
    url: Url = None,
    config: Config = None,
) -> None:
    """List the snapshots that can be read, the oldest first; or take one, or drop one. See docs/transactions.md.

    Examples:

      headrace snapshots --take --name month-end --hold

      headrace snapshots --drop month-end
    """
    if not take and (name or hold):
        raise BadRequest("--name and --hold are of a snapshot that is taken", hint="add --take")
    with connected(load(config, url=url)) as db:
        if drop is not None:
            db.drop_snapshot(drop)
        if take:
            typer.echo(db.take_snapshot(name, hold=hold))
        found = db.snapshots() if drop is None and not take else []
    for each in found:
        typer.echo(f"{each['name']} {each['at']}{', held' if each['held'] else ''}")
    if not (found or take or drop):
        typer.echo("no snapshot is kept: headrace snapshots --take")


SHOWN_CHARACTERS = 100
"""Characters of a migration's statements that the list shows."""

ADVISED = 10
"""Queries: what is past them is seldom worth a view."""


def advise(url: Url = None, config: Config = None) -> None:
    """Print the queries without a declared view that took most time, and the statements that declare views of them.

    In a cluster they are those that all api processes were asked. One that does not answer is named.

    Examples:

      headrace advise
    """
    with connected(load(config, url=url)) as db:
        told = db.send(calls.show("/v1/queries"))
    found = told["queries"][:ADVISED]
    for each in told["missing"]:
        typer.echo(f"-- missing: what api process {each['process']} was asked ({each['why']})")
    if not found:
        typer.echo("no query was asked without a view since the server's start")
    for each in found:
        typer.echo(f"-- {each['calls']} calls, {each['milliseconds']:,.1f} ms in all; {each['why']}")
        typer.echo(f"{each['create_view']};")
