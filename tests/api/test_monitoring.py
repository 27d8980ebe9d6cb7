"""The alerts and the dashboard in ``deploy/monitoring`` ask for metrics that there are."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from conftest import open_deployment

from api.app import create_app
from api.endpoints import RequestMetrics
from api.limits import Admission, Limits
from api.metrics import Metrics

FOLDER = Path(__file__).resolve().parents[2] / "deploy" / "monitoring"
METRIC = re.compile(r"\bheadrace_[a-z0-9_]+")
BESIDE = {
    "audit": lambda: {"failing": 1, "lost": 0},
    "authentication": lambda: {"jwt": {"key_failures": 0}},
}
"""What the audit log and the issuer's keys say, where there are such (``test_auditing``, ``test_bearer_tokens``)."""


def alerts() -> list[dict[str, Any]]:
    rules = yaml.safe_load((FOLDER / "alerts.yml").read_text())
    return [rule for group in rules["groups"] for rule in group["rules"]]


def panels() -> list[dict[str, Any]]:
    shown: list[dict[str, Any]] = json.loads((FOLDER / "grafana-dashboard.json").read_text())["panels"]
    return shown


def expressions() -> Iterator[str]:
    yield from (rule["expr"] for rule in alerts())
    yield from (target["expr"] for panel in panels() for target in panel["targets"])


@pytest.fixture
async def samples(tmp_path: Path) -> set[str]:
    """Each sample's name with its labels, of one process and of a cluster."""
    found: set[str] = set()
    for kind in ("local", "cluster"):
        deployment = await open_deployment(kind, tmp_path / kind)
        await deployment.execute("CREATE TABLE t (id INT PRIMARY KEY); CREATE VIEW v AS SELECT id FROM t WHERE id = ?")
        admission = Admission(Limits())
        admission.count("max_waiting")
        app = create_app(deployment, admission=admission)
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://headrace") as http:
            (await http.get("/v1/views/v?id=1")).raise_for_status()
            found |= set((await http.get("/metrics")).text.splitlines())
        found |= set((await Metrics(deployment, RequestMetrics(), admission, BESIDE).text()).decode().splitlines())
        await app.close()
        await deployment.close()
    return {line.rpartition(" ")[0] for line in found if not line.startswith("#")}


async def test_alerts_and_dashboard_ask_for_what_metrics_has(samples: set[str]) -> None:
    names = {sample.partition("{")[0] for sample in samples}
    asked = {name for each in expressions() for name in METRIC.findall(each)}
    assert len(asked) > 20
    assert asked <= names, f"unknown: {sorted(asked - names)}"
    for each in expressions():
        for grouped in re.findall(r"by \(([a-z, ]+)\)", each):
            labels = set(grouped.split(", ")) - {"instance"}
            having = [sample for sample in samples if sample.partition("{")[0] in METRIC.findall(each)]
            assert any(all(f'{label}="' in sample for label in labels) for sample in having), f"{labels}: {each}"
    assert 'route="GET /v1/views/{view}"' in "".join(samples), "the route that alerts and panels name"


def test_what_is_shown_is_named_once_and_alerts_say_where_to_look() -> None:
    for names in ([rule["alert"] for rule in alerts()], [panel["title"] for panel in panels()]):
        assert len(names) == len(set(names))
    assert all(rule["annotations"]["summary"] and rule["labels"]["severity"] for rule in alerts())


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
def test_prometheus_takes_the_rules_and_the_configuration() -> None:
    for check in (["check", "rules", "alerts.yml"], ["check", "config", "prometheus.yml"]):
        told = subprocess.run(["promtool", *check], cwd=FOLDER, capture_output=True, text=True, timeout=60)
        assert told.returncode == 0, told.stdout + told.stderr
