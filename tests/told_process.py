"""A process whose output is read as it comes, by a thread: nothing is waited for without a deadline."""

from __future__ import annotations

import multiprocessing
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from threading import Condition, Thread

from tests.kit.secrets import secret_in

ROOT = Path(__file__).parents[1]
SECONDS = 180.0
"""More than a start of a cluster may take by itself before it says what is missing: then that is what is heard."""


class ToldProcess:
    """``python``, or another program, with these arguments, over the code of this repository."""

    def __init__(
        self,
        arguments: list[str],
        environment: Mapping[str, str],
        cwd: Path | None = None,
        program: str = sys.executable,
    ) -> None:
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115  (it lives as long as the process)
        self.popen = subprocess.Popen(
            [program, *arguments],
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT}/clients/python", "PYTHONUNBUFFERED": "1", **environment},
            cwd=cwd,
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


# --- commands that end by themselves ----------------------------------------------------------------------------------

LOADED = ("headrace.cli.commands", "headrace.cluster.supervisor", "headrace.cluster.parts", "worker.service.process")
LOADED += ("headrace.cluster.controller_process", "headrace.cluster.api_process", "headrace.serving.server")
_FORKING = multiprocessing.get_context("forkserver")
_FORKING.set_forkserver_preload([*LOADED])


def headrace(*arguments: str, **environment: str) -> tuple[int, str, str]:
    """Exit code, output and errors of the command, in a process of its own: a fork of one that has loaded the code,
    which takes a command a second or two."""
    with tempfile.TemporaryDirectory() as folder:
        told = [f"{folder}/{name}" for name in ("output", "errors")]
        process = _FORKING.Process(target=_command, args=(arguments, environment, told))
        process.start()
        process.join(SECONDS)
        if process.exitcode is None:
            process.kill()
            process.join()
        output, errors = (Path(each).read_text() for each in told)
        assert process.exitcode is not None
        return process.exitcode, output, errors


def _command(arguments: tuple[str, ...], environment: Mapping[str, str], told: list[str]) -> None:
    from headrace.cli import main

    for descriptor, path in enumerate(told, 1):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), descriptor)
    os.environ.update(environment)
    sys.argv = ["headrace", *arguments]
    main()
