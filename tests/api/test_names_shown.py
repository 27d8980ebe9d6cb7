"""Tables and views are called in status and metrics what their users called them."""

from __future__ import annotations

import httpx
from fake_deployment import FakeDeployment

from controller.deployment import Deployment


async def test_metrics_and_status_call_tables_and_views_as_their_users_do(
    deployment: Deployment, http: httpx.AsyncClient
) -> None:
    """Two names that are one as a part of a metric's name are two metrics all the same."""
    if isinstance(deployment, FakeDeployment):
        return
    for name in ("a-b", "a_b"):
        (await http.post("/v1/sql", json={"sql": f"CREATE TABLE `{name}` (id INT PRIMARY KEY)"})).raise_for_status()
    text = (await http.get("/metrics")).text
    for table in ("a-b", "a_b"):
        assert f'headrace_table_rows{{table="{table}"}} 0.0' in text
    assert 'headrace_view_bytes{view="StoriesWithVC"} ' in text
    names = [line.rpartition(" ")[0] for line in text.splitlines() if not line.startswith("#")]
    assert len(names) == len(set(names))
    assert "StoriesWithVC" in (await http.get("/v1/status")).json()["views"]
