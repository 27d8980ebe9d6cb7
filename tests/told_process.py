"""A process whose output is read as it comes, by a thread: nothing is waited for without a deadline."""

from __future__ import annotations

import multiprocessing
import os
import re
import runpy
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Condition, Thread

from tests.kit.secrets import secret_in

ROOT = Path(__file__).parents[1]
SECONDS = 180.0
"""More than a start of a cluster may take by itself before it says what is missing: then that is what is heard."""


class ToldProcess:
    """``python``, or another program, with these arguments, over the code of this repository.

    Python is a ``Fork``, unless not ``forked``: for who looks at the command line of the process. How the real command
    starts is told by tests that start it themselves (``tests/headrace/test_start.py``, ``test_readme.py``)."""

    def __init__(
        self,
        arguments: list[str],
        environment: Mapping[str, str],
        cwd: Path | None = None,
        program: str = sys.executable,
        forked: bool = True,
    ) -> None:
        self._errors = tempfile.NamedTemporaryFile("w+")  # noqa: SIM115  (it lives as long as the process)
        paths = {"PYTHONPATH": f"{ROOT}:{ROOT}/clients/python", "PYTHONUNBUFFERED": "1"}
        env = {**os.environ, **paths, **environment}
        self.popen: subprocess.Popen[str] | Fork
        if program == sys.executable and forked:
            self.popen = Fork(arguments, env, self._errors.name, cwd)
        else:
            with open(self._errors.name, "a") as errors:  # A position of its own.
                self.popen = subprocess.Popen(
                    [program, *arguments], stdout=subprocess.PIPE, stderr=errors, text=True, env=env, cwd=cwd
                )
        self.lines: list[str] = []
        """All that it has said so far."""
        self._looked_at = 0
        self._ended = False
        self._more = Condition()
        self._reader = Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.popen.stdout
        for line in self.popen.stdout:
            with self._more:
                self.lines.append(line)
                self._more.notify_all()
        with self._more:
            self._ended = True
            self._more.notify_all()

    def read_until(self, pattern: str, seconds: float = SECONDS) -> re.Match[str]:
        """The first line that fits, of those that no earlier call has looked at."""

        def look() -> re.Match[str] | bool:
            for line in self.lines[self._looked_at :]:
                self._looked_at += 1
                if found := re.search(pattern, line):
                    return found
            return self._ended

        with self._more:
            found = self._more.wait_for(look, seconds)
        assert isinstance(found, re.Match), f"no {pattern!r} in {self.lines}, {self.errors()}"
        return found

    def finish(self, seconds: float = SECONDS) -> tuple[int, str, str]:
        """Exit code, output and errors, all of them, once it has ended by itself."""
        try:
            code = self.popen.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it has not ended after {seconds:g} s: {self.lines}, {self.errors()}") from None
        self._reader.join(seconds)
        return code, "".join(self.lines), self.errors()

    def errors(self) -> str:
        self._errors.seek(0)
        return self._errors.read()

    def kill(self) -> None:
        self.popen.kill()
        self.popen.wait()
        self._reader.join(SECONDS)
        if self._errors.closed:
            return  # Once more: by the test, and after it.
        said = "".join(self.lines) + self.errors()
        assert self.popen.stdout
        self.popen.stdout.close()
        self._errors.close()
        assert secret_in(said) is None, secret_in(said)


# --- forks of a process that has loaded the code ----------------------------------------------------------------------

LOADED = ("headrace.cli.commands", "headrace.cluster.supervisor", "headrace.cluster.parts", "worker.service.process")
LOADED += ("headrace.cluster.controller_process", "headrace.cluster.api_process", "headrace.serving.server")
_FORKING = multiprocessing.get_context("forkserver")
_FORKING.set_forkserver_preload([*LOADED])

FORKED_PARTS = ROOT / "tests" / "cluster" / "forked_parts.py"
"""What comes before ``-m headrace up``, so that the parts are forks too."""


class Fork:
    """What ``subprocess.Popen`` is for ``python`` with these arguments, as far as tests use it: a fork of one process
    that has loaded the code, which takes a process of its own two seconds of the processor, and a fork none."""

    def __init__(
        self, arguments: Sequence[str], environment: Mapping[str, str], errors: str, cwd: Path | None = None
    ) -> None:
        reader, writer = _FORKING.Pipe(duplex=False)
        given = ([*arguments], dict(environment), writer, errors, os.fspath(cwd or Path.cwd()))
        # A daemon ends with the tests, whatever they have forgotten, and only may not make others by multiprocessing.
        self._process = _FORKING.Process(target=_forked, args=given, daemon=True)
        self._process.start()
        writer.close()
        with reader:
            self.stdout = os.fdopen(os.dup(reader.fileno()), encoding="utf-8", errors="replace")
        assert self._process.pid is not None
        self.pid = self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    poll = returncode.fget

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired("python", timeout or 0.0)
        return self._process.exitcode

    def send_signal(self, which: int) -> None:
        if self._process.exitcode is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, which)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def _forked(arguments: list[str], environment: Mapping[str, str], output: Connection, errors: str, cwd: str) -> None:
    for descriptor, path in ((0, os.devnull), (2, errors)):
        opened = os.open(path, os.O_WRONLY | os.O_APPEND if descriptor else os.O_RDONLY)
        os.dup2(opened, descriptor)
        os.close(opened)
    os.dup2(output.fileno(), 1)
    output.close()
    os.chdir(cwd)
    python(arguments, environment)


def python(arguments: list[str], environment: Mapping[str, str]) -> None:
    """Be ``python`` with these arguments, a module after ``-m`` or a script, in a process that has just been forked."""
    os.environ.clear()
    os.environ.update(environment)
    # The inherited ones know where in its output the first process was.
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", closefd=False, errors="backslashreplace")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(write_through="PYTHONUNBUFFERED" in environment, line_buffering=stream is sys.stderr)
    if arguments[0] == "-m":
        sys.argv = arguments[1:]
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = arguments
        sys.path.insert(0, str(Path(arguments[0]).parent))
        runpy.run_path(arguments[0], run_name="__main__")


def headrace(*arguments: str, **environment: str) -> tuple[int, str, str]:
    """Exit code, output and errors of the command."""
    process = ToldProcess(["-m", "headrace", *arguments], environment)
    try:
        return process.finish()
    finally:
        process.kill()
