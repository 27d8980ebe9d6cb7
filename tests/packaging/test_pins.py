"""``pyproject.toml`` says in ranges what is needed; the lock files say exactly, and by hash, what is installed."""

from __future__ import annotations

import re
import sys
import tomllib
import zipfile
from pathlib import Path
from subprocess import run

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
CLIENT = tomllib.loads((ROOT / "clients" / "python" / "pyproject.toml").read_text("utf-8"))["project"]
MEASURING = tomllib.loads((ROOT / "loadgen" / "pyproject.toml").read_text("utf-8"))
OWN = {"headrace", "headrace-client", "headrace-loadgen"}
TIGHT = {"mysql-replication", "rocksdict", "sqlglot", "uvicorn"}
"""Packages whose insides are used: docs/dependencies.md says which."""
PIN = re.compile(r"([a-z0-9.-]+)==(\S+)(?: ; [^\\\n]+)? \\\n((?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)")
LOCKS = ["requirements.lock", "deploy/requirements.lock"]


def needed(*extras: str) -> list[Requirement]:
    named = [text for extra in extras for text in PROJECT["optional-dependencies"][extra]]
    if "bench" in extras:
        named += MEASURING["project"]["dependencies"]
    if "peers" in extras:
        named += MEASURING["project"]["optional-dependencies"]["peers"]
    return [each for each in map(Requirement, (*PROJECT["dependencies"], *named)) if each.name not in OWN]


def locked(name: str) -> dict[str, Version]:
    return {package: Version(version) for package, version, _ in PIN.findall((ROOT / name).read_text("utf-8"))}


@pytest.mark.parametrize("requirement", needed(*PROJECT["optional-dependencies"]), ids=str)
def test_ranges_have_two_ends_and_the_lock_is_within(requirement: Requirement) -> None:
    ends = {each.operator: Version(each.version) for each in requirement.specifier}
    assert set(ends) == {">=", "<"}
    low, high = ends[">="], ends["<"]
    # The next major version; of what is tight, the next that may change its insides.
    tight = [Version(f"{low.major}.{low.minor + 1}"), Version(f"{low.major}.{low.minor}.{low.micro + 1}")]
    assert high in (tight if requirement.name in TIGHT else [Version(f"{low.major + 1}")])
    assert locked("requirements.lock")[canonicalize_name(requirement.name)] in requirement.specifier


def test_server_client_and_measuring_tools_go_together() -> None:
    version = CLIENT["version"]
    assert f"headrace-client=={version}" in PROJECT["dependencies"]
    extras = PROJECT["optional-dependencies"]
    assert extras["bench"] == [f"headrace-loadgen=={version}"]
    assert extras["peers"] == [f"headrace-loadgen[peers]=={version}"]
    assert {MEASURING["project"]["version"], PROJECT["version"]} == {version}
    assert f"headrace=={version}" in MEASURING["project"]["dependencies"]
    assert [Requirement(each).name for each in CLIENT["dependencies"]] == ["httpx"]


@pytest.mark.parametrize("name", LOCKS)
def test_everything_in_a_lock_has_its_hash_and_no_address(name: str) -> None:
    text = (ROOT / name).read_text("utf-8")
    assert not PIN.sub("", re.sub(r"^#.*\n", "", text, flags=re.M)), "a line that is no pin with hashes: make lock"
    assert "://" not in text


def test_the_image_has_what_is_tested() -> None:
    everything, image = (locked(name) for name in LOCKS)
    assert image.items() <= everything.items()
    assert {canonicalize_name(each.name) for each in needed("cluster", "spark")} <= set(image)
    assert not {canonicalize_name(Requirement(each).name) for each in PROJECT["optional-dependencies"]["dev"]} & set(
        image
    )


def wheel_of(folder: Path, tmp_path: Path) -> tuple[set[str], str]:
    """Files and metadata of the wheel that is built of a folder, without the network; ``make fresh`` installs them."""
    pytest.importorskip("setuptools", minversion="77", reason="needs the setuptools of requirements.lock")
    for file in folder.rglob("*.*"):
        if file.suffix in (".py", ".toml", ".md", ".typed", ".sql", ".json"):
            copy = tmp_path / file.relative_to(folder)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(file.read_bytes())
    command = "pip wheel --quiet --no-deps --no-build-isolation --no-index --wheel-dir wheels ."
    run([sys.executable, "-m", *command.split()], cwd=tmp_path, check=True, timeout=120)
    (wheel,) = (tmp_path / "wheels").iterdir()
    with zipfile.ZipFile(wheel) as packed:
        names = packed.namelist()
        (metadata,) = (packed.read(name).decode() for name in names if name.endswith("METADATA"))
    return set(names), metadata


def test_the_clients_wheel_brings_one_package_and_needs_httpx(tmp_path: Path) -> None:
    names, metadata = wheel_of(ROOT / "clients" / "python", tmp_path)
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"headrace_client"}
    assert "headrace_client/py.typed" in names
    assert re.findall(r"^Requires-Dist: (\w+)", metadata, re.M) == ["httpx"]


def test_the_measuring_tools_wheel_brings_all_of_loadgen(tmp_path: Path) -> None:
    names, _ = wheel_of(ROOT / "loadgen", tmp_path)
    ours = {path.relative_to(ROOT).as_posix() for path in (ROOT / "loadgen").rglob("*.*") if "build" not in path.parts}
    wanted = {name for name in ours if name.endswith((".py", ".sql", "baseline.json"))}
    assert {name for name in names if not name.startswith("headrace_loadgen-")} == wanted


def test_the_server_is_packed_without_the_measuring_tools() -> None:
    from setuptools import find_packages

    include = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["setuptools"]["packages"]["find"]
    packed = {name.partition(".")[0] for name in find_packages(str(ROOT), include=include["include"])}
    assert packed == {"headrace", "api", "controller", "worker", "migrations", "domains", "zookeeper", "lobsters"}
