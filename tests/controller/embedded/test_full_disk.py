"""A real disk that is full: a small one of its own is mounted for it, and a file takes the room and gives it back."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from controller.deployment import ReasonKind, health_of
from controller.embedded.local import LocalDeployment
from controller.embedded.opening import Opening
from domains.errors import HeadraceError, OutcomeUnknown, StorageFailure, Unavailable

MIB = 2**20
PATIENCE = 20.0
SCHEMA = """
CREATE TABLE notes (id BIGINT PRIMARY KEY, story INT NOT NULL, text TEXT);
CREATE VIEW OfStory AS SELECT id FROM notes WHERE story = ? ORDER BY id;
CREATE EXT VIEW Total AS SELECT COUNT(*) AS n FROM notes
"""


class SmallDisk:
    def __init__(self, path: Path) -> None:
        self.path = path
        self._ballast = path / "ballast"

    @property
    def free(self) -> int:
        found = os.statvfs(self.path)
        return found.f_bavail * found.f_frsize

    def leave(self, free: int) -> None:
        """Fill it up to so many bytes."""
        with self._ballast.open("ab") as file:
            os.posix_fallocate(file.fileno(), file.tell(), self.free - free)

    def make_room(self) -> None:
        self._ballast.unlink()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    """256 MiB of memory at most, and a quarter of it is the reader map's."""
    path = tmp_path / "disk"
    path.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256m", "headrace-test", str(path)], capture_output=True, text=True
    )
    if mounted.returncode:
        pytest.skip(f"a small disk cannot be mounted here, which takes root and its rights: {mounted.stderr.strip()}")
    try:
        yield SmallDisk(path)
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


class Notes:
    """Writes rows, and knows which were acknowledged, refused and neither."""

    def __init__(self, deployment: LocalDeployment, seed: int) -> None:
        self.deployment = deployment
        self._random = Random(seed)
        self._next = 0
        self.acknowledged: set[int] = set()
        self.unknown: set[int] = set()

    async def write(self) -> None:
        """Ten rows of 4 kB that no compression makes smaller."""
        ids = range(self._next, self._next + 10)
        self._next += 10
        rows = [{"id": id, "story": id % 10, "text": self._random.randbytes(2048).hex()} for id in ids]
        try:
            await self.deployment.insert("notes", rows)
        except OutcomeUnknown:
            self.unknown.update(ids)
            raise
        self.acknowledged.update(ids)

    async def write_until_refused(self) -> HeadraceError:
        while True:
            try:
                await self.write()
            except HeadraceError as error:
                return error

    async def check(self) -> None:
        """What was acknowledged is there, what was refused is not, and a full view and a partial one agree."""
        found = {id for story in range(10) for id in await read(self.deployment, story)}
        assert self.acknowledged <= found <= self.acknowledged | self.unknown
        (row,) = json.loads(b"[" + await self.deployment.page("Total", {}) + b"]")
        assert row["n"] == len(found)


async def read(deployment: LocalDeployment, story: int) -> list[int]:
    page = await deployment.page("OfStory", {"story": [str(story)]})
    return [row["id"] for row in json.loads(b"[" + page + b"]")]


async def opened(disk: SmallDisk, reserve: int) -> LocalDeployment:
    path = disk.path / "data"
    return await LocalDeployment.open(path, opening=Opening(), read_timeout=PATIENCE, disk_reserve=reserve)


async def until_written(notes: Notes) -> None:
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return await notes.write()
        except HeadraceError:
            assert time.monotonic() < deadline, "there is room, and writes are not taken"
            await asyncio.sleep(0.01)


async def test_below_the_reserve_writes_are_refused_and_reads_go_on(disk: SmallDisk) -> None:
    deployment = await opened(disk, reserve=64 * MIB)
    try:
        await deployment.execute(SCHEMA)
        notes = Notes(deployment, seed=16)
        await notes.write()
        hits = {story: await read(deployment, story) for story in range(5)}
        for _ in range(2):
            disk.leave(72 * MIB)
            refused = await notes.write_until_refused()
            assert isinstance(refused, StorageFailure)
            assert "kept free" in refused.message
            assert disk.free > 32 * MIB, "it was refused long before RocksDB had to fail"
            (reason,) = await deployment.unready()
            assert (reason.kind, "kept free" in reason.message) == (ReasonKind.CHANGES, True)
            await notes.check()  # Stories 5 to 9 are misses the first time.
            disk.make_room()
            await until_written(notes)
            assert health_of(await deployment.unready()) == "ok"
        assert not notes.unknown
        for story, ids in hits.items():
            assert (await read(deployment, story))[: len(ids)] == ids
    finally:
        await deployment.close()


async def test_a_disk_with_no_room_at_all_is_got_over_without_a_restart(disk: SmallDisk) -> None:
    """Without a reserve, so that RocksDB itself fails, in the middle of whatever it does."""
    deployment = await opened(disk, reserve=0)
    try:
        await deployment.execute(SCHEMA)
        notes = Notes(deployment, seed=17)
        await notes.write()
        hits = {story: await read(deployment, story) for story in range(5)}
        disk.leave(2 * MIB)
        assert isinstance(await notes.write_until_refused(), OutcomeUnknown)
        assert notes.acknowledged
        with pytest.raises((Unavailable, StorageFailure)):
            await notes.write()
        deadline = time.monotonic() + PATIENCE
        while "not ok since" not in health_of(await deployment.unready()) or "cannot" not in health_of(
            await deployment.unready()
        ):
            assert time.monotonic() < deadline, health_of(
                await deployment.unready()
            )  # Nothing can be opened without room.
            await asyncio.sleep(0.01)
        for story, ids in hits.items():
            assert (await read(deployment, story))[: len(ids)] == ids, "hits go on"
        disk.make_room()
        await until_written(notes)
        await notes.check()
        assert health_of(await deployment.unready()) == "ok"
    finally:
        await deployment.close()
    deployment = await opened(disk, reserve=0)
    try:
        notes.deployment = deployment
        await notes.check()
    finally:
        await deployment.close()
