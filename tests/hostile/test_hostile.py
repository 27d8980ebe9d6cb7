"""A short form of ``make hostile``: each client hears its limit, and the one beside it is answered meanwhile."""

from __future__ import annotations

from pathlib import Path

from tests.hostile.lines import LINES
from tests.hostile.run import run

GENEROUS = 5.0
"""Seconds, on a machine that is busy with other tests. What this is about took 9 to 90."""
LONG = ("insert", "rows", "bodies", "statements allowed", "select", "explain", "long texts", "finish", "pages")
"""They take seconds of a processor each, and have tests of their own."""


async def test_every_line_hears_its_limit_and_the_poller_is_answered(tmp_path: Path) -> None:
    names = [name for name in LINES if name not in LONG]
    for seen in await run(tmp_path, names, 0.3, 1):
        assert seen.at(1) < GENEROUS, seen.text()
        wanted = LINES[seen.line][1]
        assert wanted in seen.heard, seen.text()
