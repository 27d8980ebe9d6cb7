"""Damage of a log that RocksDB's reader does not notice is a loss like any other, and a crash's tail is none."""

from __future__ import annotations

import marshal
import random
import shutil
from pathlib import Path

import pytest

from domains.errors import StorageFailure
from domains.language.types import BIGINT, TEXT, TableColumn, TableSchema
from tests.worker.test_lost_log import contents, refused, the_log
from worker.rocks import RocksStore, layout
from worker.rocks.acknowledged import FILE
from worker.rocks.misread import BLOCK, HEADER, misread

NOTES = TableSchema(
    "notes",
    (TableColumn("id", BIGINT, nullable=False), TableColumn("text", TEXT, nullable=False)),
    primary_key=(0,),
)
BLOCKS = 3


class Written:
    """A store that is open, with its log's size after each step."""

    def __init__(self, path: Path) -> None:
        self.store = RocksStore(path)
        self.store.create_table(NOTES)
        self.log = the_log(path)
        self.ends = [self.log.stat().st_size]

    def write(self, length: int) -> None:
        rows = [((len(self.ends), "x" * length), 1)]
        self.store.table("notes").stage(rows)
        self.store.commit([("notes", len(self.ends), rows)])
        self.store.sync()
        self.ends.append(self.log.stat().st_size)

    def fill_block(self) -> None:
        """Up to where no further header has room: the next block begins with a record."""
        self.write(300)
        self.write(300)
        around = self.ends[-1] - self.ends[-2] - 600  # The text is in the row and in the log of rows.
        while (left := -self.ends[-1] % BLOCK) >= HEADER:
            assert left > around
            self.write((left - around) // 2 if left < 2000 else 300)


@pytest.fixture
def written(tmp_path: Path) -> Written:
    written = Written(tmp_path / "live" / "base")
    for _ in range(BLOCKS):
        written.fill_block()
    written.write(300)
    return written


def crashed(written: Written, tmp_path: Path, name: str = "data") -> Path:
    shutil.copytree(written.log.parent, tmp_path / name / "base")
    return tmp_path / name / "base"


def zero(path: Path, start: int, end: int) -> None:
    with path.open("r+b") as file:
        file.seek(start)
        file.write(bytes(end - start))


def lost(written: Written, first: int) -> str:
    last = len(written.ends) - 1
    return rf'missing are {last - first + 1} of table "notes" \(positions {first} to {last}\); nothing was changed'


@pytest.mark.parametrize("count", [3, 7, 100, BLOCK], ids=str)
def test_zeros_that_rocksdb_jumps_over_are_a_loss_from_there_on(tmp_path: Path, written: Written, count: int) -> None:
    base = crashed(written, tmp_path)
    start = written.ends[10] + (4 if count == 3 else 0)
    zero(the_log(base), start, min(start + count, BLOCK))
    refused(base, lost(written, 11))
    written.store.close()


def test_a_block_that_is_zero_is_a_loss(tmp_path: Path, written: Written) -> None:
    base = crashed(written, tmp_path)
    zero(the_log(base), BLOCK, 2 * BLOCK)
    refused(base, lost(written, next(step for step, end in enumerate(written.ends) if end > BLOCK)))
    written.store.close()


@pytest.mark.parametrize("kind", [5, 6, 7, 8, 11])
def test_a_type_that_rocksdb_reads_again_for_ever_is_a_loss(tmp_path: Path, written: Written, kind: int) -> None:
    """Of a whole record 5 is one bit away."""
    base = crashed(written, tmp_path)
    with the_log(base).open("r+b") as file:
        file.seek(written.ends[20] + 6)
        file.write(bytes([kind]))
    refused(base, lost(written, 21))
    written.store.close()


def test_who_accepts_it_has_all_rows_before_it_and_none_behind(tmp_path: Path, written: Written) -> None:
    base = crashed(written, tmp_path)
    log = the_log(base)
    zero(log, written.ends[10], BLOCK)
    damaged = log.read_bytes()
    store = RocksStore(base, accept_loss=True)
    assert store.loss is not None
    assert store.loss.positions == {"notes": (11, len(written.ends) - 1)}
    assert sorted(row[0] for row, _ in store.table("notes").find((), ())) == list(range(1, 11))
    store.close()
    (aside,) = base.parent.glob("base.damaged-*")
    assert (aside / log.name).read_bytes() == damaged
    RocksStore(base).close()
    written.store.close()


def test_zeros_anywhere_lose_no_row_without_a_word(tmp_path: Path, written: Written) -> None:
    seed = random.SystemRandom().randrange(10**6)
    print(f"seed {seed}")
    chance = random.Random(seed)
    base = crashed(written, tmp_path)
    log = the_log(base)
    whole, last = log.read_bytes(), len(written.ends) - 1
    starts = written.ends[:-1]
    for _ in range(60):
        start = chance.choice([chance.choice(starts) + chance.randrange(HEADER), chance.randrange(len(whole))])
        ends = [start + chance.randrange(1, BLOCK), (start // BLOCK + 1) * BLOCK, chance.choice(starts)]
        end = min(max(start + 1, chance.choice(ends)), len(whole))
        log.write_bytes(whole[:start] + bytes(end - start) + whole[end:])
        before = contents(base)
        try:
            store = RocksStore(base)
        except StorageFailure:
            assert contents(base) == before, (start, end)
            continue
        assert sorted(row[0] for row, _ in store.table("notes").find((), ())) == list(range(1, last + 1)), (start, end)
        store.close()
        shutil.rmtree(base)
        crashed(written, tmp_path)
    written.store.close()


@pytest.mark.parametrize(
    "how", ["needed no more", "made larger", "gap", "cut at a record", "cut at a block", "deleted", "emptied"]
)
def test_a_log_that_another_one_follows(tmp_path: Path, how: str) -> None:
    written = Written(tmp_path / "live" / "base")
    for _ in range(2):
        written.fill_block()
    first, ends = written.log, list(written.ends)
    image = first.read_bytes()
    unflushed = crashed(written, tmp_path, "unflushed")
    written.store.flush()
    (written.log,) = set(first.parent.glob("*.log")) - {first}
    written.write(300)
    base = crashed(written, tmp_path)
    kept = base / first.name
    match how:
        case "needed no more":
            kept.write_bytes(image)
            zero(kept, ends[10], BLOCK)
        case "made larger":  # By what was flushed when the copy was made: the second log goes on where the first ends.
            base = unflushed
            shutil.copy2(written.log, base)
            with (base / first.name).open("ab") as file:
                file.write(bytes(BLOCK))
        case "gap":
            base = unflushed
            shutil.copy2(written.log, base)
            zero(base / first.name, ends[-3], 2 * BLOCK)
        case "deleted" | "emptied":
            base = unflushed
            for file in (written.log, written.log.with_name(FILE)):
                shutil.copy2(file, base)
            (base / first.name).unlink() if how == "deleted" else (base / first.name).write_bytes(b"")
        case _:
            base = unflushed
            shutil.copy2(written.log, base)
            with (base / first.name).open("r+b") as file:
                file.truncate(ends[20] if how == "cut at a record" else BLOCK)
    if how in ("gap", "cut at a record", "cut at a block", "deleted", "emptied"):
        refused(base, r'missing are [0-9]+ of table "notes"')
    else:
        store = RocksStore(base)
        assert len(store.table("notes").find((), ())) == len(written.ends) - 1
        store.close()
    written.store.close()


def test_a_directory_of_before_the_record_says_that_nobody_counts(tmp_path: Path) -> None:
    written = Written(tmp_path / "live" / "base")
    written.store._database.write({layout.STORE_KEY: marshal.dumps((1, 2), 2)})
    for _ in range(BLOCKS):
        written.fill_block()
    base = crashed(written, tmp_path)
    (base / FILE).unlink()
    zero(the_log(base), BLOCK, 2 * BLOCK)
    refused(base, "from byte 32,768 on; how much is missing is not known")
    RocksStore(base, accept_loss=True).close()
    written.store.close()


def test_a_manifest_that_would_be_read_for_ever_is_refused(tmp_path: Path, written: Written) -> None:
    base = crashed(written, tmp_path)
    (manifest,) = base.glob("MANIFEST-*")
    with manifest.open("r+b") as file:
        file.seek(6)
        file.write(b"\x05")
    refused(base, "is corrupt: .*MANIFEST")
    written.store.close()


def test_empty_room_at_the_end_of_blocks_is_no_damage(tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(10**6)
    print(f"seed {seed}")
    chance = random.Random(seed)
    written = Written(tmp_path / "base")
    for _ in range(100):  # 3 MB: with 6 RocksDB may begin another log.
        written.write(chance.choice([chance.randrange(3000), chance.randrange(100), chance.randrange(80_000)]))
    for _ in range(HEADER):
        written.fill_block()
    assert misread(written.log.parent) == {}
    written.store.close()
