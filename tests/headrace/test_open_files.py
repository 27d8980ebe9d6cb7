"""Fewer open files than the shards need: said at the start, with the numbers, before anything is made."""

from __future__ import annotations

import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest

LOW = 64
WRITE = """
import sys
import headrace
with headrace.embedded(sys.argv[1], shards=16) as db:
    db.execute("CREATE TABLE t (a BIGINT NOT NULL PRIMARY KEY); CREATE VIEW n AS SELECT COUNT(*) AS n FROM t")
    db.table("t").insert([{"a": at} for at in range(1000)])
    print(db.execute("SELECT n FROM n").rows[0][0])
"""
MOVED = """
import sys
from pathlib import Path
from worker.service.shards import open_shard
held = []
for number in range(16):
    try:
        held.append(open_shard(Path(sys.argv[1]), number, "w1", 1))
    except Exception as error:
        print(len(held), type(error).__name__, error)
        break
for shard in held:
    shard.store.close()
"""


def limited(soft: int, hard: int, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Python with these limits of open files."""
    limits = f"import resource, os, sys; resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, {hard})); "
    again = "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
    return subprocess.run(
        [sys.executable, "-c", limits + again, *arguments], capture_output=True, text=True, timeout=120, check=False
    )


@pytest.mark.parametrize("command", ["serve", "up"])
def test_a_start_that_needs_more_than_is_allowed_says_so(command: str, tmp_path: Path) -> None:
    options = ("--shards", "16", "--port", "0", "--data", str(tmp_path / "data"))
    workers = ("--workers", "1") if command == "up" else ()
    done = limited(LOW, LOW, "-m", "headrace", command, *options, *workers)
    assert done.returncode == 1
    assert re.search(rf"error: 16 shards need \d+ open files, and {LOW} are allowed\b", done.stderr), done.stderr
    assert re.search(r"ulimit -n \d+, or LimitNOFILE=65536", done.stderr)
    assert "Too many open files" not in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "data" / "shards").exists(), "nothing was decided"


def test_the_soft_limit_is_raised(tmp_path: Path) -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    done = limited(LOW, hard, "-c", WRITE, str(tmp_path / "data"))
    assert (done.returncode, done.stdout) == (0, "1000\n"), done.stderr


def test_what_is_said_to_be_needed_is_enough(tmp_path: Path) -> None:
    refused = limited(LOW, LOW, "-c", WRITE, str(tmp_path / "refused"))
    needed = re.search(r"16 shards need (\d+) open files", refused.stderr)
    assert needed is not None, refused.stderr
    number = int(needed[1])
    done = limited(number, number, "-c", WRITE, str(tmp_path / "data"))
    assert (done.returncode, done.stdout) == (0, "1000\n"), done.stderr


def test_a_worker_refuses_the_shard_that_is_one_too_many(tmp_path: Path) -> None:
    done = limited(LOW, LOW, "-c", MOVED, str(tmp_path))
    said = re.fullmatch(
        rf"(\d+) StorageFailure a shard needs (\d+) open files, and {LOW} are allowed .*\n", done.stdout
    )
    assert said is not None, (done.stdout, done.stderr)
    assert int(said[1]) > 0
    assert int(said[2]) > LOW
