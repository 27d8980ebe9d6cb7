"""``headrace verify`` without Spark: what is looked at again, what is told, and the exit code."""

from __future__ import annotations

from typing import Any

import pytest
from typer.testing import CliRunner

from headrace import verifying
from headrace.cli import app
from headrace.verifying import DIFFERENT, EQUAL, NOT_JUDGED, ViewVerdict, verify
from migrations.backfill.spark.settings import SparkSettings


def wrong(view: str, *keys: int) -> ViewVerdict:
    differences = [{"key": f"[{key}]", "expected": ["[1]"], "held": [f"[{key}, 2]"]} for key in keys]
    return ViewVerdict(view, DIFFERENT if keys else EQUAL, 9, 9, 0.1, None, differences)


def looked(monkeypatch: pytest.MonkeyPatch, *looks: list[ViewVerdict]) -> list[list[str]]:
    """Have the judge say these, look after look; answers which views it was asked for."""
    asked: list[list[str]] = []

    def look(_db: Any, names: list[str], *_: Any) -> list[ViewVerdict]:
        asked.append(names)
        return looks[len(asked) - 1]

    monkeypatch.setattr(verifying, "_look", look)
    return asked


def judged(names: list[str]) -> dict[str, tuple[str, list[str], int]]:
    """Of each view the verdict, the keys that differ, and how often it was looked at."""
    found = verify(None, names, SparkSettings())  # type: ignore[arg-type]
    return {each.view: (each.verdict, [key["key"] for key in each.differences], each.looks) for each in found}


def test_what_is_wrong_each_time_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = looked(
        monkeypatch,
        [wrong("a", 1, 2), wrong("b")],
        [wrong("a", 3, 2)],
        [ViewVerdict("a", DIFFERENT, 9, 9, 0.1, None, [])],
    )
    monkeypatch.setattr(verifying, "LOOKS", 2)
    assert judged(["a", "b"]) == {"a": (DIFFERENT, ["[2]"], 2), "b": (EQUAL, [], 1)}
    assert asked == [["a", "b"], ["a"]], "only what differs is looked at again"


def test_what_was_on_its_way_is_equal(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = looked(
        monkeypatch,
        [wrong("a", 1), wrong("b", 7), wrong("c", 1)],
        [wrong("a"), wrong("b", 8), wrong("c", 1)],
        [wrong("c", 1)],
    )
    assert judged(["a", "b", "c"]) == {"a": (EQUAL, [], 2), "b": (EQUAL, [], 2), "c": (DIFFERENT, ["[1]"], 3)}
    assert asked == [["a", "b", "c"], ["a", "b", "c"], ["c"]]


@pytest.mark.parametrize(
    ("verdict", "code"),
    [(wrong("Ranking", 7), 1), (wrong("Ranking"), 0), (ViewVerdict("Ranking", NOT_JUDGED, 0, 0, 0.1, "no WEEK"), 0)],
)
def test_differences_are_printed_with_their_rows_and_the_exit_code_is_1(
    monkeypatch: pytest.MonkeyPatch, verdict: ViewVerdict, code: int
) -> None:
    looked(monkeypatch, *([verdict] for _ in range(2 * verifying.LOOKS)))
    run = CliRunner()
    url = ("--url", "http://127.0.0.1:9")
    said = run.invoke(app, ["verify", "Ranking", *url], env={"COLUMNS": "200"})
    assert said.exit_code == code, said.output
    assert verdict.verdict in said.output
    assert (verdict.reason or "") in said.output
    for difference in verdict.differences:
        assert [difference["key"] in said.output, "expected [1]" in said.output] == [True, True]
        assert "held     [7, 2]" in said.output
