"""Client, server and extras in empty environments, as users install them: ``make fresh``. Needs the network.

All but one are installed with the lowest versions that ``pyproject.toml`` allows: what it says of them is tested.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.told_process import ToldProcess

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]
SECONDS = 1200.0
"""For half a gigabyte of PySpark over a slow line."""
OF_THE_CLIENT = {
    "headrace-client",
    "httpx",
    "httpcore",
    "h11",
    "anyio",
    "sniffio",
    "idna",
    "certifi",
    "typing-extensions",
}
OF_EXTRAS = {"kazoo", "pyspark", "pyarrow", "matplotlib", "numpy", "duckdb", "asyncmy", "asyncpg", "redis", "pytest"}
USES = """
import sys
from headrace_client import connect

with connect(sys.argv[1]) as db:
    db.execute("CREATE TABLE t (a INT PRIMARY KEY); CREATE VIEW v AS SELECT a FROM t WHERE a = ?")
    written = db.table("t").insert([{"a": 1}, {"a": 2}])
    print(db.view("v").lookup(a=2, token=written.token))
"""
EMBEDS = """
from headrace import embedded

with embedded("data", read_your_writes=True) as db:
    db.execute("CREATE TABLE t (a INT PRIMARY KEY)")
    db.table("t").insert({"a": 2})
    print(db.execute("SELECT a FROM t").rows)
"""


class Environment:
    """An environment of its own, in which nothing of this one is seen."""

    def __init__(self, path: Path) -> None:
        self.bin = path / "bin"
        venv.create(path, with_pip=True)

    def run(self, *command: str, cwd: Path, fails: bool = False) -> str:
        """Its output; where it ``fails``, its errors."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        done = subprocess.run(
            [str(self.bin / command[0]), *command[1:]],
            cwd=cwd,
            env={**environment, "NO_COLOR": "1", "VIRTUAL_ENV": str(self.bin.parent)},
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert (done.returncode != 0) is fails, (command, done.stdout, done.stderr)
        return done.stderr if fails else done.stdout

    def install_lowest(self, source: Path, *what: str) -> None:
        uv = Path(sys.executable).with_name("uv")
        command = [uv, "pip", "install", "--quiet", "--python", self.bin / "python", "--resolution", "lowest-direct"]
        subprocess.run([*command, *what], cwd=source, check=True, timeout=SECONDS)

    def installed(self) -> set[str]:
        listed = json.loads(self.run("python", "-m", "pip", "list", "--format", "json", cwd=self.bin))
        return {each["name"].lower().replace("_", "-") for each in listed} - {"pip", "setuptools"}

    @contextmanager
    def serving(self, directory: Path, *command: str) -> Iterator[str]:
        process = ToldProcess([*command, "--port", "0"], {"PYTHONPATH": ""}, directory, str(self.bin / "headrace"))
        try:
            yield process.read_until(r"answers at (http://\S+)")[1]
        finally:
            process.popen.terminate()
            code, _, errors = process.finish()
        assert code == 0, errors


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What is installed from: an installation leaves folders there."""
    copy = tmp_path_factory.mktemp("source") / "headrace"
    shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(".*", "build", "*.egg-info", "__pycache__", "*-data"))
    return copy


@pytest.fixture(scope="module")
def server(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    environment = Environment(tmp_path_factory.mktemp("server") / "env")
    environment.install_lowest(source, "./clients/python", ".")
    return environment


@pytest.mark.parametrize("lowest", [False, True])
def test_the_client_alone(lowest: bool, source: Path, server: Environment, tmp_path: Path) -> None:
    client = Environment(tmp_path / "env")
    command = re.search(r"`(pip install \./clients/python)`", (ROOT / "README.md").read_text("utf-8"))
    assert command is not None
    if lowest:
        client.install_lowest(source, "./clients/python")
    else:
        client.run(*command[1].split(), cwd=source)
    assert {"headrace-client", "httpx"} <= client.installed() <= OF_THE_CLIENT
    with server.serving(tmp_path, "serve") as url:
        assert client.run("python", "-c", USES, url, cwd=tmp_path) == "[{'a': 2}]\n"


def test_the_server_without_extras_serves_and_names_them(server: Environment, tmp_path: Path) -> None:
    assert not server.installed() & OF_EXTRAS
    assert server.run("python", "-c", EMBEDS, cwd=tmp_path) == "((2,),)\n"
    assert "headrace[bench]" in server.run("headrace", "bench", "--quick", cwd=tmp_path, fails=True)
    assert "headrace[cluster]" in server.run("headrace", "up", cwd=tmp_path, fails=True)
    assert "headrace[spark]" in server.run("headrace", "backup", "to", cwd=tmp_path, fails=True)


def test_embedded_in_a_project_with_an_api_of_its_own(server: Environment, tmp_path: Path) -> None:
    (tmp_path / "api").mkdir()
    (tmp_path / "api" / "__init__.py").write_text("KIND = 'mine'\n")
    (tmp_path / "app.py").write_text(EMBEDS)
    told = server.run("python", "app.py", cwd=tmp_path, fails=True)
    assert f'the package "api" in {tmp_path} is in the way' in told
    assert "headrace_client" in told


@pytest.mark.skipif(shutil.which("java") is None, reason="there is no java on PATH")
def test_the_server_with_its_extras(source: Path, server: Environment, tmp_path: Path) -> None:
    environment = Environment(tmp_path / "env")
    environment.install_lowest(source, "./clients/python", "./loadgen", ".[cluster,spark,bench]")
    assert "worker-kill" in environment.run("headrace", "drill", "--list", cwd=tmp_path)
    with environment.serving(tmp_path, "up", "--workers", "1", "--archive", str(tmp_path / "archive")) as url:
        assert environment.run("python", "-c", USES, url, cwd=tmp_path) == "[{'a': 2}]\n"
        environment.run("headrace", "backup", str(tmp_path / "backup"), "--url", url, cwd=tmp_path)
        environment.run("headrace", "verify", "--url", url, cwd=tmp_path)
