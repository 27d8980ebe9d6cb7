"""A shard's directory made from the archive: whole or not at all, once for a decision, and behind what is lost."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from archived_tables import BAG

from domains.archive.manifest import ArchiveError, ArchiveFenced, SegmentMissing, ShardManifest
from domains.archive.redo import KeptTransaction, copies_file, kept_to_json
from domains.errors import BadRequest, StorageFailure
from domains.language.types import Row
from domains.plan.copies import PartCopy, copied
from domains.plan.graph import DomainIndex
from worker.archive import lost_shard
from worker.archive.folding import fold
from worker.archive.lost_shard import archived_shard, rebuild_shard
from worker.archive.manifests import change_manifest, load_manifest
from worker.archive.place import Place
from worker.archive.recipes import RecipeBook, RecipeRecord
from worker.archive.shard import ShardArchive
from worker.embedded import shard_directory
from worker.protocol.operations import ArchivedShard, RebuildShard, RebuildUnderWay, RebuiltTable, ShardRebuilt
from worker.rocks.store import RocksStore
from worker.service.rebuilds import ShardRebuilds

SHARD, SHARDS = 1, 2
ARCHIVED, WRITTEN = 40, 47


def row(number: int) -> Row:
    return (number, f"name {number}", None, number)


def asked(decided: int = 9, **known: int) -> RebuildShard:
    return RebuildShard(12, SHARD, SHARDS, decided, (BAG,), {"t@1": WRITTEN, **known})


@pytest.fixture
def url(tmp_path: Path) -> str:
    """An archive of 40 of the 47 writes of a shard whose disk is gone."""
    store = RocksStore(tmp_path / "gone")
    store.create_table(BAG)
    for number in range(1, ARCHIVED + 1):
        write(store, number)
    place = Place(str(tmp_path / "archive"))
    ShardArchive.open(place, store.cut("t"), SHARD, SHARDS, 3).append(store.cut("t"), "2026-01-01T00:00:00.000Z")
    store.close()
    return str(tmp_path / "archive")


def write(store: RocksStore, number: int) -> None:
    store.table("t").stage([(row(number), 1)])
    store.commit([("t", number, [(row(number), 1)])])


def held(data: Path) -> tuple[int, set[Row]]:
    store = RocksStore(shard_directory(data, SHARD) / "base", create=False)
    try:
        rows = {each for each, _ in store.table("t").scan(None, 1_000)[0]}
        return store.position("t"), rows
    finally:
        store.close()


def test_it_is_rebuilt_and_the_tail_is_named(tmp_path: Path, url: str) -> None:
    assert archived_shard(Place(url), SHARD) == ArchivedShard({"t@1": ARCHIVED}, url, ARCHIVED)
    assert archived_shard(Place(url), 0).positions == {}
    (table,) = rebuild_shard(tmp_path / "data", url, asked()).tables
    assert table == RebuiltTable("t@1", ARCHIVED, ARCHIVED, WRITTEN)
    assert table.lost == WRITTEN - ARCHIVED
    assert held(tmp_path / "data") == (WRITTEN, {row(number) for number in range(1, ARCHIVED + 1)})


def test_nothing_is_known_to_be_lost(tmp_path: Path, url: str) -> None:
    (table,) = rebuild_shard(tmp_path / "data", url, asked(**{"t@1": ARCHIVED - 3})).tables
    assert (table.known, table.lost) == (ARCHIVED, 0)
    assert held(tmp_path / "data")[0] == ARCHIVED


def test_the_archive_goes_on_and_is_not_of_the_former_host(tmp_path: Path, url: str) -> None:
    rebuild_shard(tmp_path / "data", url, asked())
    place = Place(url)
    former = RocksStore(tmp_path / "gone")
    write(former, ARCHIVED + 1)
    with pytest.raises(ArchiveFenced):
        ShardArchive.open(place, former.cut("t"), SHARD, SHARDS, 3)
    former.close()
    store = RocksStore(shard_directory(tmp_path / "data", SHARD) / "base")
    write(store, WRITTEN + 1)
    archive = ShardArchive.open(place, store.cut("t"), SHARD, SHARDS, 12)
    assert archive.lacks_log(store.cut("t")), "what is lost is no gap that is passed over"
    archive.begin(store.cut("t", rows=True), "2026-01-01T00:01:00.000Z")
    store.close()
    manifest = load_manifest(place, "t", SHARD)
    assert manifest is not None
    found = {each for part in fold(place, manifest, WRITTEN + 1) for each, _ in part}
    assert found == {row(number) for number in range(1, ARCHIVED + 1)} | {row(WRITTEN + 1)}


def test_it_is_made_once_for_a_decision(tmp_path: Path, url: str) -> None:
    data = tmp_path / "data"
    first = rebuild_shard(data, url, asked())
    store = RocksStore(shard_directory(data, SHARD) / "base")
    write(store, WRITTEN + 1)
    store.close()
    assert rebuild_shard(data, url, asked()) == first
    assert held(data)[0] == WRITTEN + 1, "what was written since is there"
    again = rebuild_shard(data, url, asked(decided=15))
    assert again.tables == (RebuiltTable("t@1", ARCHIVED, ARCHIVED, WRITTEN + 1),), "what is here knows of one more"
    assert held(data)[0] == WRITTEN + 1
    assert (data / "shards" / "given-up-0001-15" / "base").is_dir(), "what was there is put aside"


def leave(url: str, decided: int = 9) -> RebuildShard:
    """What shard 0 keeps of two transactions, of which the archive has one already."""
    other, lost = DomainIndex(0), DomainIndex(SHARD)

    def copy(order: int, number: int) -> PartCopy:
        return PartCopy(lost, 3, order, copied({("t", BAG.generation): [(row(number), 1)]}))

    kept = [KeptTransaction(id, other, other, (copy(at, at),)) for id, at in (("a", ARCHIVED), ("b", WRITTEN))]
    Place(url).replace(copies_file(decided, SHARD, 0), kept_to_json(kept))
    return replace(asked(decided), copies=(other,))


def test_transactions_that_others_keep_are_brought_back(tmp_path: Path, url: str) -> None:
    """Those that are in the archive are not, by the manifest or by a cut that has settled them."""
    place = Place(url)
    change_manifest(place, taken(url), lambda there: replace(there, transactions=("a",)))
    made = rebuild_shard(tmp_path / "data", url, leave(url))
    assert made.transactions == 1
    assert held(tmp_path / "data") == (WRITTEN + 1, {row(number) for number in (*range(1, ARCHIVED + 1), WRITTEN)})
    assert not place.files("copies"), "nobody needs it any more"
    store = RocksStore(shard_directory(tmp_path / "data", SHARD) / "base")
    assert list(store.parts()) == ["a", "b"]
    store.close()
    assert rebuild_shard(tmp_path / "data", url, replace(asked(), copies=(DomainIndex(0),))) == made


def test_what_a_cut_has_settled_is_not_brought_back(tmp_path: Path, url: str) -> None:
    def part(shard: int) -> dict[str, Any]:
        told = {"id": "a", "shard": shard, "decider": 0, "others": [SHARD] if not shard else []}
        at = {f"t@{shard}": ARCHIVED}
        return {**told, "prepared": at, "before": {f"t@{shard}": ARCHIVED - 1}, "committed": at, "prepared_order": 1}

    record = RecipeRecord("2026-01-01T00:00:00.000Z", {"t@0": ARCHIVED, "t@1": ARCHIVED}, {}, SHARDS, "{}")
    RecipeBook(Place(url)).keep(replace(record, told=(part(0), part(1))))
    made = rebuild_shard(tmp_path / "data", url, leave(url))
    assert made.transactions == 1
    assert held(tmp_path / "data")[1] == {row(number) for number in (*range(1, ARCHIVED + 1), WRITTEN)}


def test_without_what_the_others_keep_nothing_is_made(tmp_path: Path, url: str) -> None:
    request = leave(url)
    file = Path(url) / copies_file(9, SHARD, 0)
    whole = file.read_bytes()
    for damaged in (None, whole[:-9], whole.replace(b"name", b"nama", 1), b"[]"):
        file.unlink(missing_ok=True)
        if damaged is not None:
            file.write_bytes(damaged)
        with pytest.raises(ArchiveError, match="what another shard has kept"):
            rebuild_shard(tmp_path / "data", url, request)
        assert not shard_directory(tmp_path / "data", SHARD).exists()
    file.write_bytes(whole)
    assert rebuild_shard(tmp_path / "data", url, request).transactions == 2


def taken(url: str) -> ShardManifest:
    manifest = load_manifest(Place(url), "t", SHARD)
    assert manifest is not None
    return manifest


def test_a_damaged_archive_makes_nothing(tmp_path: Path, url: str) -> None:
    (segment,) = Path(url).rglob("*.parquet")
    segment.unlink()
    with pytest.raises(SegmentMissing):
        rebuild_shard(tmp_path / "data", url, asked())
    assert not shard_directory(tmp_path / "data", SHARD).exists()
    assert not list((tmp_path / "data" / "shards").glob("rebuild-*"))


def test_what_a_crash_left_is_swept_away(tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    data = tmp_path / "data"

    class Killed(BaseException):
        pass

    def killed(path: Path, document: object) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(lost_shard, "_write", killed)
        patched.setattr(lost_shard.shutil, "rmtree", lambda *_, **__: None)
        with pytest.raises(Killed):
            rebuild_shard(data, url, asked())
    assert (data / "shards" / "rebuild-0001").is_dir()
    assert not shard_directory(data, SHARD).exists()
    rebuild_shard(data, url, asked())
    assert held(data)[0] == WRITTEN
    assert not (data / "shards" / "rebuild-0001").exists()


def test_only_one_worker_of_a_directory_makes_it(tmp_path: Path, url: str) -> None:
    data = tmp_path / "data"
    directory = shard_directory(data, SHARD)
    directory.parent.mkdir(parents=True)
    with lost_shard._alone(directory), pytest.raises(StorageFailure, match="another worker is rebuilding"):
        rebuild_shard(data, url, asked())
    rebuild_shard(data, url, asked())


def test_a_table_that_was_never_archived_is_named_too_and_goes_on_behind_what_is_known(
    tmp_path: Path, url: str
) -> None:
    both = RebuildShard(12, SHARD, SHARDS, 9, (BAG, replace(BAG, name="young")), {"young@1": 3})
    assert rebuild_shard(tmp_path / "data", url, both).tables[1] == RebuiltTable("young@1", 0, 0, 3)
    directory = shard_directory(tmp_path / "data", SHARD)
    assert json.loads((directory / "rebuilt.json").read_text())["decided"] == 9
    store = RocksStore(directory / "base", create=False)
    try:
        assert store.position("young") == 3, "positions are given again that others have heard of"
    finally:
        store.close()


def test_a_dropped_table_is_not_brought_back(tmp_path: Path, url: str) -> None:
    assert rebuild_shard(tmp_path / "data", url, RebuildShard(12, SHARD, SHARDS, 9, (), {})).tables == ()


async def until_made(rebuilds: ShardRebuilds, request: RebuildShard) -> ShardRebuilt:
    async with asyncio.timeout(60.0):
        while True:
            answer = await rebuilds.rebuild(request)
            if isinstance(answer, ShardRebuilt):
                return answer
            assert isinstance(answer, RebuildUnderWay)
            await asyncio.sleep(0.005)


async def test_a_worker_makes_it_beside_what_it_serves(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    going = Event()  # Else it may be made before we are told that it was begun.
    monkeypatch.setattr(lost_shard, "rebuild_shard", lambda *given: going.wait(60) and rebuild_shard(*given))
    rebuilds = ShardRebuilds("w", tmp_path / "data", url)
    assert (await rebuilds.archived(SHARD)).positions == {"t@1": ARCHIVED}
    assert isinstance(await rebuilds.rebuild(asked()), RebuildUnderWay)
    going.set()
    assert (await until_made(rebuilds, asked())).tables[0].position == ARCHIVED
    assert (await until_made(ShardRebuilds("w", tmp_path / "data", url), asked())).tables[0].lost == WRITTEN - ARCHIVED


async def test_a_worker_without_an_archive_says_so(tmp_path: Path) -> None:
    rebuilds = ShardRebuilds("w", tmp_path / "data", None)
    with pytest.raises(BadRequest, match="has no archive"):
        await rebuilds.archived(SHARD)
    with pytest.raises(BadRequest, match="has no archive"):
        await rebuilds.rebuild(asked())
