"""The audit log of a cluster: one file for each api process, which together have everything."""

from __future__ import annotations

import json
from pathlib import Path

import httpx
import pytest
from running_cluster import Launch

TABLES = 20


@pytest.mark.cluster
def test_each_api_process_writes_a_file_of_its_own(launch: Launch, tmp_path: Path) -> None:
    parts = ("--apis", "2", "--workers", "1", "--controllers", "1", "--shards", "1")
    cluster = launch(*parts, "--audit-log", str(tmp_path / "audit.jsonl")).serves()
    sent = [f"CREATE TABLE t{number} (id INT PRIMARY KEY)" for number in range(TABLES)]
    for sql in sent:  # Over a connection each, which either process may take.
        httpx.post(f"{cluster.url}/v1/sql", json={"sql": sql}, timeout=60).raise_for_status()
    code, _, err = cluster.stop()
    assert code == 0, err
    found = []
    for name in ("audit-api-1.jsonl", "audit-api-2.jsonl"):
        shown = [json.loads(line) for line in (tmp_path / name).read_bytes().splitlines()]
        assert (shown[0]["code"], shown[-1]["code"]) == ("begins", "ends")
        found += [line["statement"] for line in shown if line["kind"] == "definition"]
    assert sorted(found) == sorted(sent)
