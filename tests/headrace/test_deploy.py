"""What ``deploy/`` says is so: command lines are parsed by their commands, variables are settings, files are there."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import typer
from serving_process import ROOT

from headrace.cli import app
from headrace.cluster.supervisor import CONTROLLER_GRACE, WORKER_GRACE
from headrace.serving.listening import GRACE_SECONDS
from headrace.settings import Settings, load
from zookeeper.address import parse_address
from zookeeper.registration import advertised, check_name

DEPLOY = ROOT / "deploy"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
COMPOSE = (DEPLOY / "compose.yaml").read_text("utf-8")
HOST = "node-1.example.org"
"""What systemd puts for %H."""


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in Settings.model_fields:
        monkeypatch.delenv(f"HEADRACE_{name.upper()}", raising=False)
    monkeypatch.chdir(tmp_path)


def settings_of(words: list[str]) -> Settings:
    """What the command makes of its command line, the environment and the settings file."""
    command: Any = typer.main.get_command(app)
    context = command.commands[words[0]].make_context(words[0], words[1:])
    # A flag that may stand several times, and does not, is an empty tuple here; the command has None.
    given = {name: value or None for name, value in context.params.items() if name in Settings.model_fields}
    return load(context.params["config"], **given)


def check_part(kind: str, settings: Settings, grace: float) -> None:
    """What the command itself looks at when it starts, and how long it may take to stop."""
    assert settings.zookeeper is not None
    if kind in ("api", "serve"):
        assert grace >= settings.read_timeout + GRACE_SECONDS
        return
    check_name(settings.name or "", kind)
    assert advertised(settings.host, settings.advertise) == settings.name
    assert grace >= {"controller": CONTROLLER_GRACE, "worker": WORKER_GRACE}[kind]


# --- systemd ----------------------------------------------------------------------------------------------------------


def unit(path: Path) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, value in re.findall(r"^(\w+)=(.*)$", path.read_text("utf-8"), re.M):
        found.setdefault(name, []).append(value)
    return found


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.stem)
def test_a_unit_starts_its_part(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = unit(path)
    assert told["Environment"] == ["HEADRACE_CONFIG=/etc/headrace.toml"]
    monkeypatch.setenv("HEADRACE_CONFIG", str(DEPLOY / "systemd" / "headrace.toml"))
    program, command, *words = shlex.split(told["ExecStart"][0].replace("%H", HOST))
    assert (program, command) == ("/usr/bin/env", "headrace")
    kind = path.stem.removeprefix("headrace-")
    assert words[0] == kind
    settings = settings_of(words)
    check_part(kind, settings, float(told["TimeoutStopSec"][0]))
    # It may write here and nowhere else, whatever the settings say; and what they say is relative to it.
    assert told["StateDirectory"] == ["headrace"]
    assert told["WorkingDirectory"] == ["/var/lib/headrace"]
    assert kind not in ("worker", "serve") or settings.data == Path("/var/lib/headrace")
    assert (told["UMask"], told["StateDirectoryMode"]) == (["0077"], ["0700"])


def test_there_is_a_unit_for_each_part() -> None:
    assert [path.stem for path in UNITS] == ["headrace-api", "headrace-controller", "headrace-serve", "headrace-worker"]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze")
def test_systemd_takes_the_units() -> None:
    done = subprocess.run(["systemd-analyze", "verify", *UNITS], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze")
@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.stem)
def test_a_unit_is_hardly_exposed(path: Path) -> None:
    """Less than 3 of 10. The rest is the network, which it is for."""
    words = ["systemd-analyze", "security", "--offline=true", "--threshold=29", "--no-pager", str(path)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


# --- containers -------------------------------------------------------------------------------------------------------


def services() -> dict[str, tuple[str, str]]:
    """Of our own: what it runs, and all that is said of it. (YAML needs a library of its own, and the file is ours.)"""
    found = re.findall(r"^  (\w+):\n    <<: \*headrace\n    command: (\w+)\n((?:    .*\n)+)", COMPOSE, re.M)
    return {name: (command, said) for name, command, said in found}


def variables(said: str) -> dict[str, str]:
    return {name: value.strip('"') for name, value in re.findall(r"(HEADRACE_\w+): ((?:,(?! )|[^,\s])+)", said)}


COMMON = re.search(r"&headrace-settings\n(?:  .*\n)+", COMPOSE)


@pytest.mark.parametrize("name", services())
def test_a_container_starts_its_part(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    command, said = services()[name]
    assert COMMON is not None
    for variable, value in {**variables(COMMON[0]), **variables(said)}.items():
        assert variable.removeprefix("HEADRACE_").lower() in Settings.model_fields, variable
        monkeypatch.setenv(variable, value)
    settings = settings_of([command])
    assert settings.name == name
    grace = re.search(r"stop_grace_period: (\d+)s", said)
    check_part(command, settings, float(grace[1]) if grace else 10.0)  # Ten seconds where nothing is said.
    hosts = [host for host, _ in parse_address(settings.zookeeper or "").hosts]
    assert all(re.search(rf"^  {host}:\n    <<: \*zookeeper$", COMPOSE, re.M) for host in hosts)
    tick = re.search(r'ZOO_TICK_TIME: "(\d+)"', COMPOSE)
    assert tick is not None
    assert 2 * int(tick[1]) <= 1000 * settings.session_timeout <= 20 * int(tick[1]), "ZooKeeper would grant another"
    match command:
        case "controller":
            assert settings.quorum == sum(each == "worker" for each, _ in services().values())
        case "worker":
            assert f'volumes: ["{name}:{settings.data.parent}"]' in said
        case "api":
            assert re.search(rf'ports: \["\d+:{settings.port}"\]', said)


def test_the_compose_file_has_all_parts() -> None:
    assert sorted({command for command, _ in services().values()}) == ["api", "controller", "worker"]
    assert COMPOSE.count("<<: *headrace\n") == len(services())


def test_a_container_changes_nothing_but_its_data() -> None:
    """What stands in the block that all parts merge; a worker's own ``tmpfs`` leaves the place of its volume alone."""
    common = COMPOSE[COMPOSE.index("x-headrace:") : COMPOSE.index("x-headrace-settings:")]
    for line in ("read_only: true", "cap_drop: [ALL]", 'security_opt: ["no-new-privileges:true"]'):
        assert f"  {line}\n" in common
    assert re.search(
        r"^ARG BASE=\S+@sha256:[0-9a-f]{64}\nFROM \$BASE$", (DEPLOY / "Dockerfile").read_text("utf-8"), re.M
    )
    uid = re.search(r"useradd .*--uid (\d+)", (DEPLOY / "Dockerfile").read_text("utf-8"))
    assert uid is not None
    assert f'"/var/lib/headrace:mode=0700,uid={uid[1]},gid={uid[1]}"' in common
    for name, (command, said) in services().items():
        assert ('tmpfs: ["/tmp"]' in said) == (command == "worker"), name


def test_the_image_has_all_packages() -> None:
    dockerfile = (DEPLOY / "Dockerfile").read_text("utf-8")
    copied = dict(re.findall(r"^COPY (\w+) (\w+)$", dockerfile, re.M))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    packages = project["tool"]["setuptools"]["packages"]["find"]["include"]
    assert copied == {name: name for name in (each.rstrip("*") for each in packages)}
    files = re.search(r"^COPY (\S+\.\S+(?: \S+)*) \./$", dockerfile, re.M)
    assert files is not None
    assert all((ROOT / name).is_file() for name in files[1].split())
    assert project["project"]["readme"] in files[1].split()
