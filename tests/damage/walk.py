"""One data directory as kill -9 leaves it, copies of it that are damaged, and what comes of them."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace import Embedded, embedded
from headrace.errors import HeadraceError, StorageFailure

ROWS = 3_000
QUERIES = (
    "SELECT COUNT(*), SUM(n) FROM t",
    "SELECT * FROM t ORDER BY id",
    "SELECT id FROM t WHERE n = 7 ORDER BY id",
    "SELECT * FROM u ORDER BY id",
    "SELECT * FROM High ORDER BY id",
    "SELECT * FROM Later ORDER BY id",
)
PASSED_OVER = ("readers", "LOG", "LOCK")
"""A cache that is made anew at each start, what RocksDB tells people, and a file that is always empty."""


@dataclass(frozen=True, slots=True)
class Damage:
    file: str
    how: str
    at: int = 0

    def do(self, data: Path) -> None:
        path = data / self.file
        content = bytearray(path.read_bytes())
        match self.how:
            case "delete":
                path.unlink()
                return
            case "cut":
                del content[self.at :]
            case "bit":
                content[self.at // 8] ^= 1 << self.at % 8
            case "byte":
                content[self.at] ^= 0xFF
            case _:
                raise AssertionError(self.how)
        path.write_bytes(content)


def make(data: Path, image: Path) -> None:
    """Tables in files and in the log, views of before and after the recipe was last written whole."""
    with embedded(data) as db:
        db.execute("CREATE TABLE t (id INT PRIMARY KEY, n INT, text TEXT); CREATE INDEX by_n ON t (n)")
        db.execute("CREATE VIEW High AS SELECT id, n FROM t WHERE n > 90")
        for first in range(0, ROWS, 1_000):
            db.table("t").insert(
                [{"id": at, "n": at % 100, "text": "x" * (at % 50)} for at in range(first, first + 1000)]
            )
    with embedded(data) as db:  # What was written before is in a file of rows by now.
        db.execute("CREATE TABLE u (id INT PRIMARY KEY, name TEXT)")
        for at in range(40):
            db.execute(f"INSERT INTO u VALUES ({at}, 'name {at}')")
            db.execute(f"UPDATE t SET n = n + 1 WHERE id = {at * 7}")
        db.execute("CREATE VIEW Later AS SELECT id FROM u WHERE id > 3")
        db.execute("ALTER TABLE u ADD COLUMN more INT DEFAULT 5")
        shutil.copytree(data, image, ignore=shutil.ignore_patterns("readers"))


def damages(image: Path, chance: random.Random, *, of_each: int) -> Iterator[Damage]:
    """For ever: of each file the ways in turn, at places that are drawn."""
    files = sorted(
        str(path.relative_to(image))
        for path in image.rglob("*")
        if path.is_file() and path.stat().st_size and not path.name.startswith(PASSED_OVER)
    )
    while True:
        for file in files:
            size = (image / file).stat().st_size
            for _ in range(of_each):
                yield Damage(file, "bit", chance.randrange(8 * size))
                yield Damage(file, "byte", chance.randrange(size))
            yield Damage(file, "cut", chance.randrange(size))
        for file in files:
            yield Damage(file, "delete")


def answers(db: Embedded) -> list[Any]:
    """Of each query, its rows or None where storage refuses it."""
    found: list[Any] = []
    for query in QUERIES:
        try:
            found.append(db.execute(query).rows)
        except HeadraceError as error:
            if error.code != "storage_failure":
                raise AssertionError(f"{query}: {error.code}: {error}") from error
            found.append(None)
    return found


def outcome(data: Path, expected: list[Any]) -> str:
    """What became of a damaged directory. Raises AssertionError where that must not be."""
    try:
        db = embedded(data)
    except StorageFailure as error:
        return f"refused: {error.message}"
    with db:
        found = answers(db)
    for query, rows, right in zip(QUERIES, found, expected, strict=True):
        assert rows in (None, right), f"{query}: {str(rows)[:200]} instead of {str(right)[:200]}"
    return "storage_failure" if None in found else "right"


class Walk:
    def __init__(self, directory: Path, seed: int) -> None:
        self._directory = directory
        self.image = directory / "image"
        self.chance = random.Random(seed)
        make(directory / "live", self.image)
        shutil.copytree(self.image, directory / "whole")
        with embedded(directory / "whole") as db:
            self.expected = answers(db)
        assert None not in self.expected

    def step(self, damage: Damage) -> str:
        data = self._directory / "damaged"
        shutil.rmtree(data, ignore_errors=True)
        shutil.copytree(self.image, data)
        damage.do(data)
        return outcome(data, self.expected)
