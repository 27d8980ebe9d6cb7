"""Runs the suites, and prints what they come to: ``python -m tests.orms [--only sqlalchemy] [--cache DIRECTORY]``.

``--django`` runs Django's own test apps instead, all of them or those that are named.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import unified_diff
from pathlib import Path
from xml.etree import ElementTree

import pymysql

from loadgen.bench import servers
from tests.mysql.conftest import started, stopped
from tests.orms import django_apps

DATABASES = ("test", "test_schema", "test_schema_2")
"""That the suites want to be there."""
PROGRAMS = {
    "django": ("django==5.2.19",),
    "peewee": ("peewee==4.5.3",),
    "pandas": ("pandas==3.1.1",),
    "sqlmodel": ("sqlmodel==0.0.50", "sqlacodegen==4.0.4"),
}
"""Those of ``programs.py``, and what they need."""
OTHERS = ("pytest==8.4.2", "pymysql==1.2.4", "greenlet", *(pin for pins in PROGRAMS.values() for pin in pins))


@dataclass(frozen=True)
class Suite:
    package: str
    version: str
    tests: str
    """In the source distribution."""

    @property
    def pin(self) -> str:
        return f"{self.package}=={self.version}"


SUITES = (
    Suite("sqlalchemy", "2.0.58", "test/dialect/test_suite.py"),
    Suite("alembic", "1.20.1", "tests/test_suite.py"),
)
DJANGO = Suite("django", "5.2.19", "tests")
DJANGO_NEEDS = ("mysqlclient==2.3.1", "tblib==3.2.2", "jinja2", "pillow")
"""mysqlclient is built: that needs ``libmariadb-dev``, ``pkg-config`` and a C compiler."""


def environment(cache: Path) -> Path:
    """The Python that has the packages, made once."""
    python = cache / "venv" / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(cache / "venv")], check=True)
    pins = [*(suite.pin for suite in SUITES), *OTHERS]
    subprocess.run([str(python), "-m", "pip", "install", "--quiet", *pins], check=True)
    return python


def sources(suite: Suite, cache: Path) -> Path:
    """The source distribution, unpacked."""
    unpacked = cache / f"{suite.package}-{suite.version}"
    if not unpacked.exists():
        wanted = ["download", "--quiet", "--no-deps", "--no-binary", suite.package, "--dest", str(cache), suite.pin]
        subprocess.run([sys.executable, "-m", "pip", *wanted], check=True)
        with tarfile.open(unpacked.with_name(f"{unpacked.name}.tar.gz")) as archive:
            archive.extractall(cache, filter="data")
    return unpacked


@contextmanager
def server(name: str) -> Iterator[int]:
    """The port of one with empty databases."""
    with tempfile.TemporaryDirectory() as directory:
        if name == "MariaDB":
            with servers.mariadb(Path(directory), durable=False) as url:
                yield _with_databases(int(url.rstrip("/").rsplit(":", 1)[1]))
            return
        ours = started(Path(directory))
        try:
            yield _with_databases(ours.port)
        finally:
            stopped(ours)


def _with_databases(port: int) -> int:
    with pymysql.connect(host="127.0.0.1", port=port, user="root", autocommit=True) as db, db.cursor() as cursor:
        for name in DATABASES:
            cursor.execute(f"CREATE DATABASE {name} CHARACTER SET utf8mb4")
    return port


def results(suite: Suite, cache: Path, python: Path, name: str, port: int) -> dict[str, tuple[str, str]]:
    """Of each test what became of it (passed, failed, skipped), and why."""
    report = cache / f"{suite.package}-{name}.xml"
    uri = f"mysql+pymysql://root@127.0.0.1:{port}/test?charset=utf8mb4"
    words = [suite.tests, "--dburi", uri, "--junitxml", str(report), "--maxfail", "100000", "--tb", "line"]
    with (cache / f"{suite.package}-{name}.txt").open("wb") as log:
        command = [str(python), "-m", "pytest", "-p", "no:cacheprovider", "-q", *words]
        subprocess.run(command, cwd=sources(suite, cache), stdout=log, stderr=subprocess.STDOUT, check=False)
    found: dict[str, tuple[str, str]] = {}
    for case in ElementTree.parse(report).iter("testcase"):
        # The class has the name of the server's version behind its own.
        group = re.sub(r"_(?:mysql|mariadb)\+.*", "", case.get("classname", "").partition("test_suite.")[2])
        called = f"{group}.{case.get('name')}"
        kind, why = "passed", ""
        for word in ("failure", "error", "skipped"):
            if (told := case.find(word)) is not None:
                kind, why = ("skipped" if word == "skipped" else "failed"), told.get("message") or told.text or ""
        found[called] = (kind, " ".join(why.split())[:300])
    return found


def run_django(cache: Path, python: Path, only: list[str]) -> bool:
    """Each of Django's test apps on both; whether MariaDB passes a test that Headrace does not."""
    subprocess.run([str(python), "-m", "pip", "install", "--quiet", *DJANGO_NEEDS], check=True)
    tests, differs = sources(DJANGO, cache) / DJANGO.tests, False
    totals = {name: Counter[str]() for name in ("MariaDB", "Headrace")}
    with server("MariaDB") as theirs, server("Headrace") as ours:
        for app in only or django_apps.apps(tests):
            both = {}
            for name, port in (("MariaDB", theirs), ("Headrace", ours)):
                both[name] = django_apps.noted(tests, app, python, port, cache / f"django-{name}-{app}.jsonl")
                totals[name].update(kind for kind, _ in both[name].values())
            lost = {test for test, (kind, _) in both["MariaDB"].items() if kind == "passed"}
            lost -= {test for test, (kind, _) in both["Headrace"].items() if kind == "passed"}
            differs = differs or bool(lost)
            print(f"django {app}: {len(both['MariaDB']):,} tests, {len(lost)} differ", flush=True)
            for test in sorted(lost):
                kind, why = both["Headrace"].get(test, ("not run", ""))
                print(f"  {test}: {kind}: {why}")
    for name, counts in totals.items():
        told = ", ".join(f"{counts[kind]:,} {kind}" for kind in ("passed", "failed", "skipped"))
        print(f"{DJANGO.package} {DJANGO.version} on {name}: {told}", flush=True)
    return differs


def printed(program: str, python: Path, port: int) -> str:
    """What a program prints, or what it ends with."""
    command = [str(python), str(Path(__file__).with_name("programs.py")), program, str(port)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout + ("" if done.returncode == 0 else done.stderr)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.orms", description=__doc__)
    parser.add_argument("--only", choices=[*(suite.package for suite in SUITES), *PROGRAMS])
    parser.add_argument(
        "--django", nargs="*", metavar="APP", help="Django's own test apps alone: these, or all of them"
    )
    parser.add_argument("--cache", type=Path, default=Path(".orms"))
    given = parser.parse_args()
    cache: Path = given.cache.resolve()
    cache.mkdir(parents=True, exist_ok=True)
    python, differs = environment(cache), False
    if given.django is not None:
        sys.exit(run_django(cache, python, given.django))
    for suite in SUITES:
        if given.only not in (None, suite.package):
            continue
        both = {}
        for name in ("MariaDB", "Headrace"):
            with server(name) as port:
                both[name] = results(suite, cache, python, name, port)
            counts = Counter(kind for kind, _ in both[name].values())
            told = ", ".join(f"{counts[kind]:,} {kind}" for kind in ("passed", "failed", "skipped"))
            print(f"{suite.package} {suite.version} on {name}: {told}", flush=True)
        for test, (kind, _) in sorted(both["MariaDB"].items()):
            ours, why = both["Headrace"].get(test, ("not run", ""))
            if kind == "passed" and ours != "passed":
                differs = True
                print(f"  {test}: {ours}: {why}")
    for program in PROGRAMS:
        if given.only not in (None, program):
            continue
        texts = []
        for name in ("MariaDB", "Headrace"):
            with server(name) as port:
                texts.append(printed(program, python, port))
        is_same = texts[0] == texts[1] and "Traceback" not in texts[0]
        differs = differs or not is_same
        print(f"{program}: {'the same on both' if is_same else 'differs'}", flush=True)
        if not is_same:
            print("\n".join(unified_diff(*(text.splitlines() for text in texts), "MariaDB", "Headrace", lineterm="")))
    sys.exit(differs)


if __name__ == "__main__":  # Servers are forked from a process that reads this file, too.
    main()
