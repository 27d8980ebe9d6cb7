"""The process is killed while it archives: what it leaves is whole, and the next one goes on where it was."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest
from archiving_child import BASE

from worker.archive.archiver import Archiver
from worker.archive.checking import check_archive
from worker.archive.folding import fold
from worker.archive.manifests import load_manifest
from worker.archive.options import ArchiveOptions
from worker.archive.place import Place
from worker.embedded import open_embedded

ROOT = Path(__file__).parents[3]
ROUNDS = 4


def acknowledged(directory: Path, first: int, count: int) -> int:
    """Run the child until it has acknowledged so many rows, kill it, and answer the number of the last."""
    child = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("archiving_child.py")), str(directory), str(first)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT}/clients/python"},
    )
    assert child.stdout
    assert child.stdout.readline() == "ready\n"
    last = first
    for _ in range(count):
        last = int(child.stdout.readline())
    child.send_signal(signal.SIGKILL)
    rest = child.communicate()[0].split()
    return int(rest[-1]) if rest else last


@pytest.mark.parametrize("seed", range(2))
def test_what_was_acknowledged_is_archived_by_whoever_comes_next(tmp_path: Path, seed: int) -> None:
    random, last = Random(seed), 0
    for _ in range(ROUNDS):
        # A row that was written and not told of may be there: the next child goes on well above it.
        last = acknowledged(tmp_path, last + 10, random.randrange(50, 600))
        for checked in check_archive(Place(str(tmp_path / "archive"))):
            assert checked.problems == ()
    dataflow = open_embedded(tmp_path / "data", groups=1, memory_limit=2**30)
    dataflow.start()
    archiver = Archiver(dataflow, ArchiveOptions(str(tmp_path / "archive"), interval=3600.0))
    archiver.start()
    archiver.archive_now().result(60.0)
    stored = dict(dataflow.call(lambda: dataflow.stores[BASE].table("t").find((), ())).result(60.0))
    assert archiver.alarms.document() == []
    archiver.close()
    dataflow.close()
    place = Place(str(tmp_path / "archive"))
    manifest = load_manifest(place, "t", 0)
    assert manifest is not None
    assert {row: weight for part in fold(place, manifest, manifest.position) for row, weight in part} == stored
    assert {segment.kind for segment in manifest.segments} == {"log"}, "the log was never trimmed of what was missing"
    assert manifest.gaps() == []
    assert len(stored) >= ROUNDS * 50
