"""A terminal that is closed takes with it what was started there: in order, and with the exit code of a clean stop."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import subprocess
import sys
import termios
import time
from pathlib import Path

from tests.kit.certificates import Authority
from tests.told_process import ROOT

SECONDS = 120.0


def on_a_terminal(*arguments: str, until: bytes) -> int:
    """The exit code of a command whose terminal is closed once it has said this."""
    ours, its = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "headrace", *arguments],
        stdin=its,
        stdout=its,
        stderr=its,
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT}/clients/python"},
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # The system hangs up on whose terminal it is.
    )
    os.close(its)
    said, deadline = b"", time.monotonic() + SECONDS
    try:
        while until not in said:
            assert select.select([ours], [], [], deadline - time.monotonic())[0], said
            said += os.read(ours, 4096)
        os.close(ours)
        return process.wait(SECONDS)
    finally:
        process.kill()
        process.wait()


def test_serve_stops_in_order(tmp_path: Path) -> None:
    data = tmp_path / "data"
    assert on_a_terminal("serve", "--data", str(data), "--port", "0", until=b"stop with Ctrl-C") == 0
    assert (data / "base").exists()


def test_the_demo_stops_in_order(tmp_path: Path) -> None:
    options = ("--data", str(tmp_path / "data"), "--port", "0", "--scale", "0.01")
    assert on_a_terminal("demo", *options, until=b"Ctrl-C") == 0


def test_a_server_with_a_certificate_to_read_again_stops_with_its_terminal(tmp_path: Path) -> None:
    """SIGHUP means both; whose terminal is gone wants no certificate."""
    certificate, key = Authority(tmp_path).certificate("server")
    files = ("--tls-cert", str(certificate), "--tls-key", str(key))
    assert (
        on_a_terminal("serve", "--data", str(tmp_path / "data"), "--port", "0", *files, until=b"stop with Ctrl-C") == 0
    )
