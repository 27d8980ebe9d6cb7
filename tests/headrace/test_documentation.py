"""What docs/http.md and docs/configuration.md print is true."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import httpx
import pytest
from serving_process import ROOT, Launch

from api.statuses import STATUSES
from headrace.settings import Settings, load

HTTP = (ROOT / "docs" / "http.md").read_text()
CONFIGURATION = (ROOT / "docs" / "configuration.md").read_text()
IN_TRANSACTIONS = re.compile("/v1/transactions|Headrace-Session|consistent|/v1/snapshots|as_of")
"""What a deployment without transactions refuses."""
EXAMPLE = re.compile(r"```sh\n(.*?)```\n(?:```json\n(.*?)```\n)?", re.S)


def agrees(shown: Any, answered: Any) -> bool:
    """Equal, where … stands for any text, and at the end of a list for any further elements."""
    if shown == "…":
        return isinstance(answered, str)
    if isinstance(shown, dict) and isinstance(answered, dict):
        return shown.keys() == answered.keys() and all(agrees(shown[name], answered[name]) for name in shown)
    if isinstance(shown, list) and isinstance(answered, list):
        if shown and shown[-1] == "…":
            shown, answered = shown[:-1], answered[: len(shown) - 1]
        return len(shown) == len(answered) and all(map(agrees, shown, answered))
    return bool(shown == answered)


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
def test_examples_of_http(launch: Launch, request: pytest.FixtureRequest) -> None:
    host = launch().url.removeprefix("http://")
    examples = EXAMPLE.findall(HTTP)
    assert len(examples) >= 15
    for command, shown in examples:
        if "fake" in request.node.name and IN_TRANSACTIONS.search(command):
            continue
        script = command.replace("localhost:8080", host)
        done = subprocess.run(["bash", "-euc", script], capture_output=True, text=True, check=True)
        if shown:
            assert agrees(json.loads(shown), json.loads(done.stdout)), (command, done.stdout)
        else:
            assert done.stdout


def test_every_call_and_code_is_documented(served: str) -> None:
    paths = httpx.get(f"{served}/openapi.json", timeout=60).json()["paths"]
    headings = " ".join(line for line in HTTP.splitlines() if line.startswith("## "))
    for path in paths:
        assert path in headings, path
    for kind, status in STATUSES.items():
        assert re.search(rf"^\| {status} \|.*`{kind.code}`", HTTP, re.M), kind.code


def test_every_setting_is_documented(tmp_path: Path) -> None:
    for name in Settings.model_fields:
        if name in ("key", "tls_ca", "tls_client_cert", "tls_client_key", "zookeeper_auth"):  # Without a flag.
            assert f"| `{name}` | | `HEADRACE_{name.upper()}` |" in CONFIGURATION
            continue
        flag = f"--{name.replace('_', '-')}"
        assert re.search(rf"^\| `{name}` \| `{flag}.*`HEADRACE_{name.upper()}`", CONFIGURATION, re.M), name
    example = re.search(r"```toml\n(.*?)```", CONFIGURATION, re.S)
    assert example
    file = tmp_path / "headrace.toml"
    file.write_text(example[1])
    assert load(file).port == tomllib.loads(example[1])["port"]
