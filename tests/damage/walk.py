"""A scene as kill -9 or a clean stop leaves it, copies of it that are damaged, and what comes of them."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from domains.archive.manifest import ArchiveError
from domains.errors import HeadraceError
from headrace.errors import StorageFailure
from tests.damage.scenes import Scene
from zookeeper.errors import AuthorityError

PASSED_OVER = ("LOG", "LOCK")
"""What RocksDB tells people, and a file that is always empty."""

BLOCKS = (512, 4096, 32 * 2**10)
"""Of a disk, a file system and RocksDB's log."""


@dataclass(frozen=True, slots=True)
class Damage:
    file: str
    how: str
    at: int = 0
    count: int = 1

    def do(self, data: Path) -> None:
        path = data / self.file
        match self.how:
            case "delete":
                path.unlink()
            case "folder":
                shutil.rmtree(path)
            case "empty":
                shutil.rmtree(path)
                path.mkdir()
            case "cut":
                with path.open("r+b") as file:
                    file.truncate(self.at)
            case "zeros":
                with path.open("r+b") as file:
                    file.seek(self.at)
                    file.write(bytes(min(self.count, path.stat().st_size - self.at)))
            case "bit" | "byte":
                with path.open("r+b") as file:
                    file.seek(self.at // 8)
                    (byte,) = file.read(1)
                    file.seek(self.at // 8)
                    file.write(bytes([byte ^ (1 << self.at % 8 if self.how == "bit" else 0xFF)]))
            case _:
                raise AssertionError(self.how)


def damages(image: Path, scene: Scene, chance: random.Random, *, of_each: int) -> Iterator[Damage]:
    """For ever: what the scene takes of the ways, of each file that it walks in turn, at places that are drawn; then
    without it, and without each folder."""
    return (each for each in _all_damages(image, scene, chance, of_each=of_each) if each.how in scene.ways)


def _all_damages(image: Path, scene: Scene, chance: random.Random, *, of_each: int) -> Iterator[Damage]:
    there = sorted((image / scene.walked).rglob("*"))
    folders = [str(path.relative_to(image)) for path in there if path.is_dir()]
    files = [
        str(path.relative_to(image))
        for path in there
        if path.is_file() and path.stat().st_size and not path.name.startswith(PASSED_OVER)
    ]
    while True:
        for file in files:
            size = scene.extent(image / file)
            for _ in range(of_each):
                yield Damage(file, "bit", chance.randrange(8 * size))
                yield Damage(file, "byte", chance.randrange(8 * size))
            yield Damage(file, "cut", chance.randrange(size))
            block = chance.choice(BLOCKS)
            yield Damage(file, "zeros", chance.randrange(0, size, block), block)
        gone = [(file, "delete") for file in files]
        gone += [(folder, how) for folder in folders for how in ("folder", "empty")]
        for path, how in gone:
            if path not in scene.unnoticed:
                yield Damage(path, how)


def outcome(scene: Scene, data: Path, expected: list[Any]) -> str:
    """What became of a damaged copy. Raises AssertionError where that must not be."""
    try:
        found = scene.answers(data)
    except (StorageFailure, ArchiveError, AuthorityError) as error:
        return f"refused: {error.message}"
    except HeadraceError as error:
        if type(error) not in scene.refusals:
            raise
        return f"refused: {error.message}"
    for number, (rows, right) in enumerate(zip(found, expected, strict=True)):
        assert rows in (None, right), f"answer {number}: {str(rows)[:200]} instead of {str(right)[:200]}"
    return "storage_failure" if None in found else "right"


class Walk:
    def __init__(self, scene: Scene, directory: Path, seed: int) -> None:
        self.scene = scene
        self.directory = directory
        self.image = directory / "image"
        self.chance = random.Random(seed)
        scene.make(directory / "live", self.image)
        self.expected = scene.answers(self._copy())
        assert None not in self.expected

    def _copy(self) -> Path:
        for former in ("damaged", "damaged.made"):  # The second is where a scene makes something of the first.
            shutil.rmtree(self.directory / former, ignore_errors=True)
        return Path(shutil.copytree(self.image, self.directory / "damaged"))

    def damages(self, *, of_each: int) -> Iterator[Damage]:
        return damages(self.image, self.scene, self.chance, of_each=of_each)

    def step(self, damage: Damage) -> str:
        data = self._copy()
        damage.do(data)
        return outcome(self.scene, data, self.expected)
