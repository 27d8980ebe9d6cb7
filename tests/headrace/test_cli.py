from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from headrace_client.results import Column, Result
from serving_process import ROOT, SCHEMA
from typer.testing import CliRunner

from headrace import __version__
from headrace.cli import app, main
from headrace.render import Sort, console, result_lines, status_screen, status_tables, view_table

runner = CliRunner()


def run(*arguments: str, given: str | None = None) -> str:
    result = runner.invoke(app, list(arguments), input=given, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


@pytest.fixture
def url(served: str) -> str:
    run("sql", SCHEMA, "--url", served)
    return served


def test_sql(url: str, tmp_path: Path) -> None:
    insert = "INSERT INTO stories (id, title) VALUES (?, ?)"
    assert "1 row affected" in run("sql", insert, "--param", "1", "--param", "one [bold]", "--url", url)
    table = run("sql", "SELECT id, title FROM stories", "--url", url)
    assert "one [bold]" in table
    assert "1 row" in table
    answer = json.loads(run("sql", "SELECT id, title FROM stories", "--json", "--url", url))
    assert answer["results"] == [
        {
            "columns": [{"name": "id", "type": "BIGINT"}, {"name": "title", "type": "TEXT"}],
            "rows": [[1, "one [bold]"]],
            "rows_affected": 0,
        }
    ]
    file = tmp_path / "file.sql"
    file.write_text("SELECT title FROM stories; SELECT id FROM stories")
    assert run("sql", "-f", str(file), "--url", url).count("1 row") == 2
    assert "one" in run("sql", "-f", "-", "--url", url, given="SELECT title FROM stories")
    assert "one" in run("sql", "--url", url, given="SELECT title FROM stories")


def test_schema_is_sql_that_makes_it_anew(url: str) -> None:
    text = run("schema", "--url", url)
    assert text.index("stories") < text.index("StoriesWithVC")
    names = ["DROP VIEW StoriesWithVC", "DROP VIEW ByIds", "DROP TABLE votes", "DROP TABLE stories"]
    run("sql", "; ".join(names), "--url", url)
    run("sql", text, "--url", url)
    assert run("schema", "--url", url) == text


def test_status_and_explain(url: str) -> None:
    shown = run("status", "--url", url)
    assert "counters" in shown
    assert re.search(r"│ limit +│ +[\d.]+ [kMG]B │", shown), "the memory limit is shown as a size"
    assert json.loads(run("status", "--json", "--url", url))["health"] == "ok"
    assert "StoriesWithVC" in run("explain", "storieswithvc", "--url", url)


def test_url_from_the_environment(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_URL", url)
    assert "health" in run("status")


def test_version_and_help() -> None:
    assert run("--version").strip() == f"headrace {__version__}"
    for command in ("serve", "sql", "status", "explain", "demo", "bench"):
        assert "Examples:" in run(command, "--help")


def test_the_help_says_whose_memory_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("typer.rich_utils.MAX_WIDTH", 400)
    for command, per_worker in (("serve", False), ("up", True), ("worker", True)):
        assert ("Per worker: bytes of state" in run(command, "--help")) == per_worker, command


def test_a_terminal_without_unicode_is_told_all_the_same() -> None:
    plain = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(
        [sys.executable, "-m", "headrace", "serve", "--help"], capture_output=True, env=plain, check=False
    )
    assert done.returncode == 0, done.stderr
    assert rb"s3://\u2026" in done.stdout


Headrace = Callable[..., tuple[int, str, str]]


@pytest.fixture
def headrace(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Headrace:
    """The command in this process: exit code, output and errors."""

    def call(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["headrace", *arguments])
        with pytest.raises(SystemExit) as stopped:
            main()
        said = capsys.readouterr()
        return int(stopped.value.code or 0), said.out, said.err

    return call


@pytest.mark.parametrize("command", [["status"], ["sql", "SELECT 1"], ["explain", "v"]])
def test_no_server(command: list[str], headrace: Headrace) -> None:
    code, out, err = headrace(*command, "--url", "http://127.0.0.1:1")
    assert (code, out) == (1, "")
    assert re.fullmatch(r'error: .*http://127\.0\.0\.1:1\nhint: .*"headrace serve"\n', err)


def test_errors_of_the_server(url: str) -> None:
    command = [sys.executable, "-m", "headrace", "explain", "StoriesWithVX", "--url", url]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == 'error: no view "StoriesWithVX"\nhint: did you mean "StoriesWithVC"?\n'
    command = [sys.executable, "-m", "headrace", "sql", " ; ", "--url", url]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "error: there is no statement in the text\n")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["sql", "SELECT 1", "-f", "x.sql"], "SQL was given twice"),
        (["sql", "-f", "absent.sql"], 'cannot read "absent.sql"'),
        (["status", "--config", "absent.toml"], 'cannot read the settings file "absent.toml"'),
        (
            ["status", "--url", "localhost:8080"],
            '"localhost:8080" is not the URL of a server\nhint: write it like http://',
        ),
        (["serve", "--port", "99999"], 'setting "port" from the command line'),
        (["worker", "--zookeeper", "a:x:y"], '"a:x:y" is not an address of ZooKeeper'),
    ],
)
def test_wrong_use(arguments: list[str], says: str, headrace: Headrace) -> None:
    code, _, err = headrace(*arguments)
    assert code == 1
    assert says in err
    assert "Traceback" not in err


def test_demo_and_bench_are_handed_their_options(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[dict[str, Any]] = []
    for name in ("headrace.demo", "loadgen.bench.ratios"):
        module = types.ModuleType(name)
        module.run = lambda **options: seen.append(options)  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, module.__name__, module)
    run("demo", "--once", "--scale", "0.1", "--port", "0", "--data", "d")
    run("bench", "--only", "reads", "--out", "o.json", "--quick")
    assert seen == [
        {"once": True, "scale": 0.1, "port": 0, "data": Path("d")},
        {"only": "reads", "out": Path("o.json"), "quick": True},
    ]


def test_help_breaks_lines_at_the_terminal_and_not_where_the_source_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("typer.rich_utils.MAX_WIDTH", 400)  # read from the environment once, when it is imported
    assert "if a view is wrong once writes have stopped, or if service" in run("drill", "--help")
    assert "must not contain these shards yet. Start the worker" in run("archive", "rebuild", "--help")


def test_ctrl_c_while_a_command_is_loaded_is_no_trace() -> None:
    code = """
import builtins, sys
from headrace.cli import main
plain = builtins.__import__
def interrupted(name, *rest):
    if name == "typer":
        raise KeyboardInterrupt
    return plain(name, *rest)
builtins.__import__ = interrupted
main()
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_a_folder_of_our_name_beside_a_script_is_not_taken_for_us(tmp_path: Path) -> None:
    """A clone is such a folder."""
    if any(found for site in sys.path for found in Path(site).glob("__editable___headrace*finder.py")):
        pytest.skip("this environment was made before `make install` put us on the path: make clean install")
    (tmp_path / "headrace").mkdir()
    (tmp_path / "script.py").write_text("from headrace import connect")
    subprocess.run([sys.executable, str(tmp_path / "script.py")], cwd=tmp_path, check=True)


def test_the_command_line_loads_neither_engine_nor_client() -> None:
    """A command waits for what it needs itself, and a part of a cluster needs no client."""
    heavy = {"fastapi", "httpx", "rocksdict", "sqlglot", "uvicorn", "domains.plan.packets"}
    code = f"import sys, headrace.cli.commands; print({heavy} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_a_worker_does_not_load_what_answers_http() -> None:
    """One that was killed is to be back soon."""
    heavy = {"fastapi", "uvicorn", "httpx", "sqlglot", "pyarrow", "pyspark", "pandas", "matplotlib"}
    code = f"import sys, headrace.cluster.parts, worker.service.process; print({heavy} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def shown(renderables: Any) -> str:
    printer = console()
    with printer.capture() as capture:
        for each in renderables:
            printer.print(each)
    return capture.get()


def test_values_cannot_steer_the_terminal() -> None:
    result = Result((Column("a", "TEXT"),), (("\x1b[31mred\r",), (None,), ("[b]x[/b]",)), 0, "t")
    text = shown(result_lines(result))
    assert "\x1b" not in text
    assert "\\x1b[31mred\\r" in text
    assert "NULL" in text
    assert "[b]x[/b]" in text


def test_headings_are_whole_however_narrow_their_table_is() -> None:
    assert "cluster.acknowledged" in shown(status_tables({"cluster": {"acknowledged": {"a": 1}}}))


def test_an_alarm_is_said_below_the_figures_that_it_is_about() -> None:
    text = shown(status_tables({"memory": {"limit": 1, "alarm": "eviction cannot help"}, "counters": {"hits": 7}}))
    assert text.index("1 B") < text.index("alarm: eviction cannot help") < text.index("7")


def test_status_of_any_shape() -> None:
    status = {
        "health": "ok",
        "uptime": 3725,
        "memory": {"used_bytes": 1500, "readers": {"bytes": 10}},
        "domains": [{"name": "d0", "nodes": 3}, {"name": "d1", "nodes": 12, "full": True}],
        "names": ["x"],
        "empty": [],
    }
    text = shown(status_tables(status))
    for part in ("1:02:05", "1.5 kB", "memory.readers", "d1", "12"):
        assert part in text


def test_what_is_within_a_list_of_the_status_is_a_table_of_its_own() -> None:
    archive = {"url": "a", "alarms": [{"of": "votes@1", "error": "no room"}], "shards": {"votes@1": {"rows": 7}}}
    text = shown(status_tables({"archive": archive, "workers": [{"worker": "w1", "archive": archive}]}))
    for part in ("archive.alarms", "workers.w1.archive.alarms", "workers.w1.archive.shards.votes@1", "no room"):
        assert part in text
    assert "{" not in text


VIEWS = {
    f"View{number}": {
        "materialization": "partial",
        "keys": number,
        "bytes": 1000 * number,
        "hits": 3 * number,
        "misses": number,
        "seconds": 0.5 * (20 - number),
    }
    for number in range(20)
}


def test_the_status_of_many_views_fits_a_screen() -> None:
    tables = {f"t{number}": {"rows": 1000, "position": 5} for number in range(40)}
    status = {"health": "ok", "memory": {"limit": 5_000_000}, "tables": tables, "views": VIEWS, "domains": []}
    text = shown(status_screen(status))
    assert len(text.splitlines()) < 50
    assert "40,000" in text
    assert text.index("View19") < text.index("View10") < text.index("views by time to fill")
    assert "View9 " not in text.split("views by time")[0]
    assert "75.0%" in text
    assert "--views" in text


def test_an_alarm_is_on_the_screen_wherever_it_stands() -> None:
    archive = {"alarms": [{"of": "votes@1", "error": "no room"}]}
    assert "no room" in shown(status_screen({"health": "ok", "workers": [{"worker": "w1", "archive": archive}]}))
    assert "in the way" in shown(status_screen({"health": "ok", "storage": {"alarm": "in the way"}}))


def test_views_are_sorted_and_cannot_steer_the_terminal() -> None:
    text = shown(view_table({**VIEWS, "\x1b[31mred": {}}, Sort.TIME))
    assert text.index("View0") < text.index("View19")
    assert "\x1b" not in text
    text = shown(view_table(VIEWS, Sort.NAME))
    assert text.index("View0") < text.index("View1 ") < text.index("View10")
