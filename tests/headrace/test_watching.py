"""The bar of a migration at the terminal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from io import StringIO

import pytest
from headrace_client.results import Progress
from rich.console import Console

from headrace.cli import queries
from headrace.cli.queries import created_view, details, watched
from headrace.errors import Cancelled

BEGUN = Progress("1", "CREATE VIEW v AS SELECT 1", "running", "load full states", 0.5, ("load full states",), None)


@pytest.mark.parametrize(
    ("text", "view"),
    [
        ("CREATE VIEW v AS SELECT 1", "v"),
        ("\n create or replace ext view `a b` AS SELECT 1;\n", "a b"),
        ("CREATE VIEW v(a) AS SELECT 1", "v"),
        ("CREATE TABLE t (a INT)", None),
        ("CREATE VIEW v AS SELECT 1; INSERT INTO t VALUES (1)", None),
        ("SELECT 'CREATE VIEW'", None),
    ],
)
def test_what_is_watched(text: str, view: str | None) -> None:
    assert created_view(text) == view


def test_what_is_known_is_told() -> None:
    assert details(BEGUN) == ""
    told = replace(
        BEGUN, rows=1500, rows_total=20_000, stages=3, stages_done=1, seconds_left=41.7, ui="http://here:4040"
    )
    assert details(told) == "1,500 of 20,000 rows, stage 2 of 3, 42 s left, http://here:4040"


def test_the_bar_shows_the_step_and_at_the_end_which_way_it_was() -> None:
    shown = StringIO()
    done = replace(BEGUN, state="done", step="", progress=1.0, backfill="spark", why="2,000,000 base rows")

    def wait(tell: Callable[[Progress], None]) -> Progress:
        tell(replace(BEGUN, rows=5, rows_total=10))
        return done

    watched(Console(file=shown, force_terminal=True, width=120), wait, pytest.fail)
    assert "load full states" in shown.getvalue()
    assert "5 of 10 rows" in shown.getvalue()
    assert "backfilled by spark: 2,000,000 base rows" in shown.getvalue()


def test_ctrl_c_cancels_and_tells_what_came_of_it() -> None:
    """It only stopped the watching: the server built on, and the view was there some time later."""
    said: list[str] = []

    def wait(_tell: Callable[[Progress], None]) -> Progress:
        said.append("wait")
        if "cancel" not in said:
            raise KeyboardInterrupt
        raise Cancelled("the migration was cancelled")

    with pytest.raises(Cancelled):
        watched(Console(file=StringIO()), wait, lambda: said.append("cancel"))
    assert said == ["wait", "cancel", "wait"]


def test_tasks_are_told_until_rows_are_fed() -> None:
    begun = replace(BEGUN, rows_total=10, tasks=8, tasks_done=3)
    assert details(begun) == "0 of 10 rows, task 4 of 8"
    assert details(replace(begun, rows=5)) == "5 of 10 rows"


def test_without_a_terminal_progress_is_told_in_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queries, "PLAIN_SECONDS", 0.0)
    shown = StringIO()
    done = replace(BEGUN, state="done", step="", progress=1.0)

    def wait(tell: Callable[[Progress], None]) -> Progress:
        tell(replace(BEGUN, rows=5, rows_total=10))
        return done

    watched(Console(file=shown, width=120), wait, pytest.fail)
    assert shown.getvalue().splitlines()[0] == "50% load full states, 5 of 10 rows"
