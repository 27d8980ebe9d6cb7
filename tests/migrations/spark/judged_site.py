"""The Lobsters program on an embedded server with an archive, with keys of every page query read."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import headrace
from headrace.embedding import Embedded
from lobsters import program
from lobsters.data import Data

VALUES_A_PARAMETER = 5
NOBODY: dict[type, Any] = {int: 99_999_999, str: "nobody"}
"""Values that no row has: their keys are filled and empty."""


def open_site(path: Path, scale: float, seed: int = 1, **settings: Any) -> Embedded:
    """A server with the program, its rows, and some keys of each view filled; close it."""
    db = headrace.embedded(path / "data", archive=str(path / "archive"), **settings)
    try:
        db.migrate(program.program()).wait()
        values: dict[str, dict[Any, None]] = defaultdict(dict)
        for table, rows in Data(scale, seed).batches(500):
            db.table(table).insert(rows)
            for row in rows:
                for name, value in row.items():
                    if value is not None and len(values[name]) < VALUES_A_PARAMETER:
                        values[name][value] = None
        values["story_id"].update(dict.fromkeys(values["id"]))
        for view in db.views():
            if view["external"]:
                read(db, view, values)
    except BaseException:
        db.close()
        raise
    return db


def read(db: Embedded, view: dict[str, Any], values: dict[str, dict[Any, None]]) -> None:
    names = [each["name"] for each in view["parameters"]]
    chosen = [[*values[name], NOBODY[type(next(iter(values[name]), ""))]] for name in names]
    count = max(map(len, chosen), default=0)
    keys = [[column[(i * (place + 1)) % len(column)] for place, column in enumerate(chosen)] for i in range(count)]
    db.view(view["name"]).lookup_many(keys or [[]])


def dumps(db: Embedded, folder: Path, views: Sequence[str] = ()) -> list[Path]:
    """What each reader holds, as files."""
    paths = []
    for view in db.views():
        if view["materialization"] != "none" and (not views or view["name"] in views):
            path = folder / f"{view['name']}.ndjson"
            path.write_bytes(b"".join(line.rstrip(b"\n") + b"\n" for line in db.view(view["name"]).held()))
            paths.append(path)
    return paths
