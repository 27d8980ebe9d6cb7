"""Files of jobs below the archive: each goes with who had it made, and nobody loses what they use."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from controller.migrating.bulk import building, job_files
from controller.migrating.bulk.building import BulkBuilder
from controller.migrating.bulk.job_files import RUNS, STAGING, JobFiles, epoch_of, id_of, url_of
from controller.migrating.execution import Migration
from domains.archive.manifest import ArchiveUnreachable


class Source:
    """An archive that is as it is now."""

    def __init__(self, archive: Path) -> None:
        self.url = str(archive)
        self.files = JobFiles()

    async def archive_now(self, hold: str, epoch: int) -> dict[str, int]:
        return {}

    async def release(self, hold: str) -> None:
        """Nobody is held."""


async def built(source: Source, id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A build that stages a state and loads it."""

    async def computed(self: Any, positions: Any) -> None:
        staged(self._staging)

    async def nothing(self: Any, *_: object) -> None:
        """It is loaded."""

    monkeypatch.setattr(building._Build, "_computed", computed)
    monkeypatch.setattr(building._Build, "_load", nothing)
    monkeypatch.setattr(building._Build, "_replay", nothing)
    executor: Any = SimpleNamespace(epoch=1, check=lambda: None)
    change: Any = SimpleNamespace(state=SimpleNamespace(flow=None), views=None)
    choice: Any = SimpleNamespace(runner=SimpleNamespace(name="simulated"))
    given: Any = source
    build = BulkBuilder(executor, given, [])._build(change, choice, Migration(id, "CREATE VIEW v", "running"))
    await build.fill()


def staged(url: str) -> Path:
    Path(url).mkdir(parents=True)
    (Path(url) / "state-0-1").write_bytes(b"rows")
    return Path(url)


async def test_a_build_that_ends_leaves_the_files_of_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its leader has been succeeded, or another operation of the same leader is under way."""
    other = staged(url_of(str(tmp_path), STAGING, "9-1-1"))
    await built(Source(tmp_path), "7-1", monkeypatch)
    assert list((tmp_path / STAGING).iterdir()) == [other]
    assert list(other.iterdir())


async def test_what_was_built_is_as_good_where_its_files_cannot_be_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreachable(url: str) -> None:
        raise ArchiveUnreachable(f"{url} cannot be reached now")

    source = Source(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(job_files, "delete_all", unreachable)
        await built(source, "7-1", monkeypatch)
    assert len(list((tmp_path / STAGING).iterdir())) == 1
    await source.files.remove_left()
    assert not list((tmp_path / STAGING).iterdir())


async def test_only_what_is_nobodys_is_cleared(tmp_path: Path) -> None:
    for id in ("7-1-1", "8-1-1", "lost"):
        staged(url_of(str(tmp_path), STAGING, id))
    staged(url_of(str(tmp_path), RUNS, "7-r1"))
    await JobFiles().clear(str(tmp_path), STAGING, lambda id: epoch_of(id) == 7)
    assert sorted(path.name for path in (tmp_path / STAGING).iterdir()) == ["8-1-1", "lost"]
    assert (tmp_path / RUNS / "7-r1").exists()


async def test_an_archive_that_cannot_be_reached_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(archive: str, kind: str) -> list[str]:
        raise ArchiveUnreachable(f"{archive} cannot be reached now")

    monkeypatch.setattr(job_files, "ids_of", unreachable)
    await JobFiles().clear("s3://there", STAGING, lambda id: True)


@pytest.mark.parametrize(
    ("archive", "url"),
    [
        ("/archive", "/archive/_rebuild/17-r3"),
        ("/archive/", "/archive/_rebuild/17-r3"),
        ("s3://bucket/a?region=x", "s3://bucket/a/_rebuild/17-r3?region=x"),
    ],
)
def test_a_directory_is_told_by_its_url(archive: str, url: str) -> None:
    assert url_of(archive, RUNS, "17-r3") == url
    assert (id_of(url), epoch_of(id_of(url))) == ("17-r3", 17)


@pytest.mark.parametrize("id", ["lost", "0123456789ab", "-1", "x-1"])
def test_not_all_ids_are_a_leaders(id: str) -> None:
    assert epoch_of(id) is None
