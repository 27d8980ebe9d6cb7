"""A server process of the fake deployment, and the program that the client tests load into it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[2]
FAKE = Path(__file__).with_name("serve_fake.py")

SCHEMA = """
CREATE TABLE stories (id BIGINT NOT NULL PRIMARY KEY, title TEXT);
CREATE TABLE votes (story_id BIGINT NOT NULL, user_id BIGINT NOT NULL, PRIMARY KEY (story_id, user_id));
CREATE VIEW StoriesWithVC AS SELECT s.id AS id, s.title AS title, COUNT(v.user_id) AS vcount
  FROM stories s LEFT JOIN votes v ON v.story_id = s.id WHERE s.id = ? GROUP BY s.id, s.title;
CREATE VIEW ByIds AS SELECT id FROM stories WHERE id IN (?)
"""

Launch = Callable[..., "Process"]


class Process:
    """A running ``headrace serve``; ``url`` once it has said that it answers."""

    def __init__(self, kind: str, arguments: list[str], environment: dict[str, str]) -> None:
        program = [str(FAKE)] if kind == "fake" else ["-m", "headrace"]
        env = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", **environment}
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115  (it lives as long as the process)
        self.popen = subprocess.Popen(
            [sys.executable, *program, *arguments], stdout=subprocess.PIPE, stderr=self._errors, text=True, env=env
        )
        self.lines: list[str] = []
        self.url = ""

    def read_until(self, pattern: str) -> re.Match[str]:
        assert self.popen.stdout
        for line in self.popen.stdout:
            self.lines.append(line)
            if found := re.search(pattern, line):
                return found
        raise AssertionError(f"no {pattern!r} in {self.lines}, {self.errors()}")

    def finish(self) -> tuple[int, str, str]:
        """Exit code, output and errors, all of them; ``communicate`` would lose what ``read_until`` has buffered."""
        code = self.popen.wait(timeout=20)
        assert self.popen.stdout
        return code, "".join(self.lines) + self.popen.stdout.read(), self.errors()

    def errors(self) -> str:
        self._errors.seek(0)
        return self._errors.read()

    def kill(self) -> None:
        self.popen.kill()
        self.popen.wait()
        assert self.popen.stdout
        self.popen.stdout.close()
        self._errors.close()
