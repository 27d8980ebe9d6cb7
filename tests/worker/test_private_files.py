"""Files that are for one user: what comes, by the umask of a real command; what is there, by a look at it."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from worker.service.system import make_private

ROOT = Path(__file__).parents[2]


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def test_a_server_writes_for_its_own_user(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "headrace", "serve", "--data", str(tmp_path / "data"), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT, umask=0o022) as process:
        assert process.stdout is not None
        assert "answers at" in process.stdout.readline()
        found = {path: mode(path) for path in [tmp_path / "data", *(tmp_path / "data").rglob("*")]}
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    assert len(found) > 5
    assert {path: oct(bits) for path, bits in found.items() if bits & 0o077} == {}


def test_what_others_could_read_is_taken_from_them_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    data, elsewhere = tmp_path / "data", tmp_path / "elsewhere"
    for path in (data / "base" / "1.sst", data / "recipe.json", data / "notes.txt", elsewhere):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
        path.chmod(0o644)
    (data / "base" / "link").symlink_to(elsewhere)
    data.chmod(0o755)
    make_private(data)
    private = {data: 0o700, data / "base": 0o700, data / "base" / "1.sst": 0o600, data / "recipe.json": 0o600}
    assert {path: mode(path) for path in private} == private
    assert mode(data / "notes.txt") == 0o644, "it is not Headrace's; nobody reaches it any more"
    assert mode(elsewhere) == 0o644
    (told,) = caplog.messages
    assert "other users could read" in told
    assert " 3 files" in told
    make_private(data)
    assert len(caplog.messages) == 1


def test_a_directory_that_all_share_is_left(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "base").mkdir(mode=0o755)
    tmp_path.chmod(0o1777)
    make_private(tmp_path)
    assert (mode(tmp_path), mode(tmp_path / "base") & 0o044) == (0o1777, 0o044)
    assert "left so" in caplog.text


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_a_directory_of_another_user_is_left(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    tmp_path.chmod(0o755)
    os.chown(tmp_path, 12345, -1)
    make_private(tmp_path)
    assert mode(tmp_path) == 0o755
    assert "left so" in caplog.text
