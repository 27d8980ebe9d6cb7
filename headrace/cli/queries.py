"""The commands that ask a running server: ``sql``, ``status``, ``explain``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from headrace_client.results import Result

from headrace import connect
from headrace.cli.watching import creates_view, watched
from headrace.errors import BadRequest
from headrace.render import console, result_lines, status_tables
from headrace.settings import load

Url = Annotated[str | None, typer.Option(help="The server. [dim]default: setting url, http://127.0.0.1:8080[/]")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the server's JSON.")]
Config = Annotated[Path | None, typer.Option(metavar="FILE", help="Settings as TOML.")]


def sql(
    text: Annotated[str | None, typer.Argument(metavar="SQL", help="Statements, separated by ;")] = None,
    file: Annotated[
        Path | None, typer.Option("--file", "-f", help="Read the statements from a file; - is stdin.")
    ] = None,
    param: Annotated[
        list[str] | None, typer.Option(metavar="VALUE", help="A value for the next ?, as JSON or else as text; repeat.")
    ] = None,
    token: Annotated[str | None, typer.Option(help="Let reads wait for the write that answered this token.")] = None,
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
    with connect(load(config, url=url).url) as db:
        if printer.is_terminal and not (as_json or param) and creates_view(statements):
            migration = db.migrate(statements)
            watched(printer, lambda tell: migration.wait(progress=tell), migration.cancel)
            return
        results = db.execute_all(statements, [_value(each) for each in param or []], token=token)
    if not results:
        raise BadRequest("there is no statement in the text")
    if as_json:
        answer = {"results": [_shown(each) for each in results], "token": results[0].token if results else None}
        typer.echo(json.dumps(answer, ensure_ascii=False))
        return
    for result in results:
        for line in result_lines(result):
            printer.print(line)


def status(as_json: AsJson = False, url: Url = None, config: Config = None) -> None:
    """Show the server's health, memory and counters.

    Examples:

      headrace status

      headrace status --json --url http://127.0.0.1:9000
    """
    with connect(load(config, url=url).url) as db:
        shown = db.status()
    if as_json:
        typer.echo(json.dumps(shown, ensure_ascii=False))
        return
    printer = console()
    for table in status_tables(shown):
        printer.print(table)


def explain(
    view: Annotated[str, typer.Argument(help="The view's name.")], url: Url = None, config: Config = None
) -> None:
    """Show a view's part of the dataflow as a tree: operators, state, and why something is full.

    Examples:

      headrace explain StoriesWithVC
    """
    with connect(load(config, url=url).url) as db:
        typer.echo(db.view(view).explain())


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
    return shown if result.first_id is None else {**shown, "first_id": result.first_id}
