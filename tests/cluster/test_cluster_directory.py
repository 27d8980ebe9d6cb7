"""The data directory of ``headrace up``, and a copy of it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.cluster.directory import ClusterDirectory
from headrace.serving.listening import StartFailed

SUPERVISE = """
import os, sys
from pathlib import Path
from headrace.cluster.directory import ClusterDirectory
directory = ClusterDirectory(Path(sys.argv[1]))
directory.take()
directory.record({}, {"worker-1": os.getpid()})
print("there", flush=True)
sys.stdin.read()
"""


def test_a_copy_of_a_directory_in_use_is_refused_and_kills_nobody(tmp_path: Path) -> None:
    """It says what runs, as if that were left over from a supervisor that was killed."""
    arguments = [sys.executable, "-c", SUPERVISE, str(tmp_path / "data")]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdin is not None
        assert other.stdout.readline() == "there\n"
        shutil.copytree(tmp_path / "data", tmp_path / "copy")
        copy = ClusterDirectory(tmp_path / "copy")
        with pytest.raises(StartFailed, match=f"copy.*process {other.pid}"):
            copy.take()
        assert other.poll() is None
        other.stdin.close()
        assert other.wait() == 0
    assert json.loads((tmp_path / "copy" / "up.json").read_text())["parts"]
    assert copy.take() == []
    copy.release()
