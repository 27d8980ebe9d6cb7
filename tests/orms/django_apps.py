"""Django's own test apps, one at a time, by its own runner: what becomes of each test.

The apps are those of its source distribution that have models; what an app asks of the database is its own business, so
one that asks nothing costs a second. ``django_recorder.py`` notes the tests, ``django_settings.py`` names the server.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

APP_SECONDS = 900
"""The longest app takes three minutes on a machine that does nothing else."""
OTHERS = frozenset(("gis_tests", "postgres_tests"))
"""Apps of other databases."""


def apps(tests: Path) -> list[str]:
    found = {path.parent.name for path in tests.glob("*/models.py") if path.stat().st_size}
    return sorted((found | {path.parent.parent.name for path in tests.glob("*/models/__init__.py")}) - OTHERS)


def noted(tests: Path, app: str, python: Path, port: int, notes: Path) -> dict[str, tuple[str, str]]:
    """Of each test of an app what became of it (passed, failed, skipped), and why; one that did not end has failed."""
    notes.unlink(missing_ok=True)
    here = Path(__file__).parent
    environment = {**os.environ, "MYSQL_PORT": str(port), "NOTES": str(notes), "PYTHONPATH": f"{here}:{tests.parent}"}
    words = ["runtests.py", "--settings=django_settings", "--parallel", "1", "--noinput", app]
    found = dict[str, tuple[str, str]]()
    with notes.with_suffix(".txt").open("wb") as log:
        try:
            done = subprocess.run(
                [str(python), *words],
                cwd=tests,
                env=environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                timeout=APP_SECONDS,
                check=False,
            )
            ended = f"its runner ended with {done.returncode}"
        except subprocess.TimeoutExpired:
            done, ended = None, f"it took more than {APP_SECONDS} seconds"
    for test, kind, why in _lines(notes):
        if found.get(test, ("", ""))[0] != "failed":  # By a subtest.
            found[test] = (kind, why)
    has_failed = any(kind == "failed" for kind, _ in found.values())
    if done is None or (done.returncode and not has_failed):
        found[app] = ("failed", ended)
    return found


def _lines(notes: Path) -> Iterator[tuple[str, str, str]]:
    if notes.exists():
        for line in notes.read_text().splitlines():
            test, kind, why = json.loads(line)
            yield test, kind, why
