"""In a project with a package of the same name as one of the server's, it is said what is in the way."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from serving_process import ROOT

USES = """
try:
    from headrace import embedded
    embedded("data").close()
except Exception as error:
    print(f"{type(error).__name__}: {error}")
else:
    print("opened")
"""


def said(project: Path, *arguments: str) -> str:
    """The project is first on the path, as a script's folder is."""
    paths = os.pathsep.join(map(str, (project, ROOT, ROOT / "clients" / "python")))
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=project,
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    ).stdout


@pytest.mark.parametrize("name", ["api", "worker", "migrations"])
@pytest.mark.parametrize("loaded", [False, True])
def test_a_package_in_the_way_is_named(tmp_path: Path, name: str, loaded: bool) -> None:
    (tmp_path / name).mkdir()
    (tmp_path / name / "__init__.py").write_text("KIND = 'mine'\n")
    told = said(tmp_path, "-c", f"import {name}\n{USES}" if loaded else USES)
    assert told.startswith(f'Unavailable: the package "{name}" in {tmp_path} is in the way')
    assert "headrace_client" in told


def test_a_module_in_the_way_is_named(tmp_path: Path) -> None:
    (tmp_path / "api.py").write_text("")
    assert f'the package "api" in {tmp_path} is in the way' in said(tmp_path, "-c", USES)


def test_a_folder_that_is_no_package_is_in_nobodys_way(tmp_path: Path) -> None:
    (tmp_path / "api").mkdir()
    (tmp_path / "api" / "notes.txt").write_text("")
    assert said(tmp_path, "-c", USES) == "opened\n"


def test_the_client_works_beside_it(tmp_path: Path) -> None:
    (tmp_path / "api").mkdir()
    (tmp_path / "api" / "__init__.py").write_text("KIND = 'mine'\n")
    told = said(tmp_path, "-c", "import api, headrace_client as h; h.connect('http://x'); print(api.KIND)")
    assert told == "mine\n"


def test_the_client_loads_nothing_of_the_server(tmp_path: Path) -> None:
    program = (
        "import sys, headrace_client as h; h.connect('http://x'); h.connect_async('http://x')\n"
        "server = {'headrace', 'api', 'controller', 'worker', 'migrations', 'domains', 'orjson', 'fastapi'}\n"
        "print(sorted({each.partition('.')[0] for each in sys.modules} & server))"
    )
    assert said(tmp_path, "-c", program) == "[]\n"
