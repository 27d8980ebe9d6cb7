"""A server whose disk has lost acknowledged writes: refused at start, accepted by a command, an alarm until told."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headrace import embedded
from headrace.backup.taking import back_up_stopped
from headrace.cli import app
from headrace.errors import StorageFailure
from worker.embedded import shards_of

runner = CliRunner()


def run(*arguments: str) -> str:
    result = runner.invoke(app, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return " ".join(result.output.split())


@pytest.mark.parametrize(
    "gone", ["base", "shards/0000/base", "shards/0002/base", "shards/0001", "shards/0002", "shards"]
)
@pytest.mark.parametrize("emptied", [False, True])
def test_tables_whose_directory_is_gone_are_not_begun_anew(tmp_path: Path, gone: str, emptied: bool) -> None:
    """Without its last shard a directory was one of fewer shards, and what was emptied was new."""
    data, shards = tmp_path / "data", 1 if gone == "base" else 3
    with embedded(data, shards=shards) as db:
        db.execute("CREATE TABLE t (id INT PRIMARY KEY, n INT); INSERT INTO t VALUES (1, 2)")
    shutil.rmtree(data / gone)
    if emptied:
        (data / gone).mkdir()
    before = sorted(data.rglob("*"))
    for wanted in (None, shards):
        with pytest.raises(StorageFailure, match=r"is missing|has 1 shard, not 3"):
            embedded(data, **({} if wanted is None else {"shards": wanted}))
    with pytest.raises(StorageFailure, match="is missing"):
        back_up_stopped(data, str(tmp_path / "backup"))
    assert sorted(data.rglob("*")) == before, "nothing was made"


def test_the_number_of_shards_is_noted_where_an_earlier_version_did_not(tmp_path: Path) -> None:
    with embedded(tmp_path, shards=3) as db:
        db.execute("CREATE TABLE t (id INT PRIMARY KEY, n INT); INSERT INTO t VALUES (1, 2), (2, 3), (3, 4)")
    count = tmp_path / "shards" / "count.json"
    noted = count.read_bytes()
    count.unlink()
    with embedded(tmp_path) as db:
        assert db.execute("SELECT COUNT(*) FROM t").rows == ((3,),)
    assert count.read_bytes() == noted
    refusals = []
    for at in range(len(noted)):
        count.write_bytes(noted[:at] + bytes([noted[at] ^ 1]) + noted[at + 1 :])
        try:
            assert shards_of(tmp_path) == 3
        except StorageFailure as error:
            refusals.append(error.message)
    assert len(refusals) > 20
    assert all("cannot tell how many shards" in each for each in refusals)


@pytest.mark.parametrize("shards", [1, 2])
def test_a_loss_is_refused_accepted_and_acknowledged(tmp_path: Path, shards: int) -> None:
    data = tmp_path / "data"
    with embedded(tmp_path / "live", shards=shards) as db:
        db.execute("CREATE TABLE t (id INT PRIMARY KEY, n INT)")
        for at in range(50):
            db.execute(f"INSERT INTO t VALUES ({at}, 1), ({at + 1000}, 2)")
        shutil.copytree(tmp_path / "live", data, ignore=shutil.ignore_patterns("readers"))
    log = max(data.rglob("0*.log"), key=lambda path: path.stat().st_size)
    content = bytearray(log.read_bytes())
    content[len(content) * 3 // 10] ^= 0xFF
    log.write_bytes(content)
    with pytest.raises(StorageFailure, match='of table "t"') as refused:
        embedded(data)
    assert refused.value.hint is not None
    assert refused.value.hint.endswith(f"headrace accept-loss --data {data}")
    assert 'of table "t"' in run("accept-loss", "--data", str(data))
    assert run("accept-loss", "--data", str(data)).count("nothing is missing") == shards
    for _ in range(2):
        with embedded(data) as db:
            (alarm,) = db.status()["storage_alarms"]
            assert 'of table "t"' in alarm["error"]
            ((count,),) = db.execute("SELECT COUNT(*) FROM t").rows
            assert 0 < count < 100
            db.execute(f"REPLACE INTO t VALUES ({2000}, 3)")
    assert 'of table "t"' in run("acknowledge-loss", "--data", str(data))
    assert "no loss" in run("acknowledge-loss", "--data", str(data))
    with embedded(data) as db:
        assert db.status()["storage_alarms"] == []


def test_definitions_that_a_deleted_file_had_are_missed(tmp_path: Path) -> None:
    """They came since recipe.json was written, and were gone without a word."""
    data = tmp_path / "data"
    with embedded(tmp_path / "live") as db:
        db.execute("CREATE TABLE t (id INT PRIMARY KEY, n INT)")
        db.execute("CREATE VIEW Later AS SELECT n FROM t WHERE id = ?")
        shutil.copytree(tmp_path / "live", data, ignore=shutil.ignore_patterns("readers"))
    (data / "recipe.slots").unlink()
    with pytest.raises(StorageFailure, match=r'recipe.slots" is missing') as refused:
        embedded(data)
    assert "accept-loss" in (refused.value.hint or "")
    assert 'recipe.slots" is missing' in run("accept-loss", "--data", str(data))
    assert "recipe" not in run("accept-loss", "--data", str(data))
    with embedded(data) as db:
        assert db.execute("SELECT COUNT(*) FROM t").rows == ((0,),)
        assert "Later" not in db.status()["views"]
