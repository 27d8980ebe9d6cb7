"""Reads ``queries*.txt``: SELECTs that SQLite judges.

A line is a query. ``sqlite:`` below it is SQLite's own text, where the two dialects spell or mean it differently;
``values:`` is a list of lists, each of which is asked, one value a ``?``. Lines that start with ``#`` are remarks.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Case:
    sql: str
    values: tuple[tuple[Any, ...], ...] = ((),)
    sqlite: str = ""


def read_cases(name: str) -> list[Case]:
    """The cases of one file beside this one."""
    cases: list[Case] = []
    for line in (Path(__file__).parent / name).read_text().splitlines():
        if line.startswith("sqlite: "):
            cases[-1] = replace(cases[-1], sqlite=line.removeprefix("sqlite: "))
        elif line.startswith("values: "):
            values = tuple(tuple(entry) for entry in json.loads(line.removeprefix("values: ")))
            cases[-1] = replace(cases[-1], values=values)
        elif line and not line.startswith("#"):
            cases.append(Case(line))
    return cases
