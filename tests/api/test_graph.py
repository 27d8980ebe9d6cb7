"""The dataflow by parts: a view's own, a box for each view, and what a view costs."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from api.graph import collapsed, stats_of
from tests.api.conftest import READ_TIMEOUT


def node(index: int, **more: object) -> dict[str, object]:
    return {
        "node": index, "domain": 0, "stands_in": [0], "view": None, "table": None, "materialization": "none",
        "reason": None, "keys": 0, "bytes": 0, "deltas": 0, **more,
    }  # fmt: skip


GRAPH: dict[str, Any] = {
    "domains": [0],
    "nodes": [
        node(0, table="stories", deltas=3),
        node(1, table="votes", deltas=10),
        node(2, materialization="full", reason="MIN", bytes=50, keys=2, deltas=20),
        node(3, view="One", materialization="partial", bytes=5, keys=1, deltas=4),
        node(4, view="Two", materialization="full", bytes=7, keys=1, deltas=2),
        node(5, view="Three", materialization="partial", deltas=1),
    ],
    "edges": [
        {"from": 1, "to": 2, "link": False},
        {"from": 2, "to": 3, "link": False},
        {"from": 0, "to": 3, "link": False},
        {"from": 2, "to": 4, "link": False},
        {"from": 0, "to": 5, "link": False},
    ],
    "links": [],
}


def test_a_box_for_each_table_and_view() -> None:
    shown = collapsed(GRAPH)
    assert shown["tables"] == [{"table": "stories", "deltas": 3}, {"table": "votes", "deltas": 10}]
    one, two, three = shown["views"]
    assert (one["nodes"], one["shared"], one["bytes"], one["reasons"]) == (2, 1, 55, ["MIN"])
    assert (two["shared"], three["shared"]) == (1, 0)
    assert {(edge["table"], edge["view"]) for edge in shown["edges"]} == {
        ("stories", "One"), ("votes", "One"), ("votes", "Two"), ("stories", "Three"),
    }  # fmt: skip


def test_what_a_view_costs() -> None:
    nodes = [{**each, "shared": False} for each in GRAPH["nodes"][:4]]
    reader = {"materialization": "partial", "keys": 1, "bytes": 5, "hits": 3, "misses": 1, "seconds": 0.002}
    stats = stats_of("One", {"nodes": nodes, "reader": reader})
    assert (stats["hit_rate"], stats["miss_milliseconds"], stats["state_bytes"]) == (0.75, 2.0, 55)
    assert stats["deltas_per_write"] == round(24 / 13, 3)
    unread = stats_of("Three", {"nodes": [], "reader": None})
    assert (unread["hit_rate"], unread["miss_milliseconds"]) == (None, None)


async def test_of_a_real_deployment(http: httpx.AsyncClient, deployment: object) -> None:
    if type(deployment).__name__ == "FakeDeployment":
        pytest.skip("the fake has no dataflow")
    for story in (1, 1, 2):
        assert (await http.get(f"/v1/views/StoriesWithVC?id={story}", timeout=READ_TIMEOUT)).status_code == 200
    await http.post("/v1/tables/stories/rows", json={"rows": [{"id": 1, "author": 1, "title": "Weir"}]})
    part = (await http.get("/v1/graph?view=storieswithvc")).json()
    assert [each["view"] for each in part["nodes"] if each["view"]] == ["StoriesWithVC"]
    assert sum(each["deltas"] for each in part["nodes"] if each["table"] == "stories") == 1
    whole = (await http.get("/v1/graph")).json()
    inside = {each["node"] for each in part["nodes"]}
    assert [{**each, "shared": None} for each in whole["nodes"] if each["node"] in inside] == [
        {**each, "shared": None} for each in part["nodes"]
    ]
    assert part["edges"] == [edge for edge in whole["edges"] if edge["to"] in inside]
    assert {each["table"] for each in part["nodes"] if each["shared"]} >= {"stories"}
    assert not any(each["shared"] for each in part["nodes"] if each["view"])
    assert part["reader"] == (await http.get("/v1/status")).json()["views"]["StoriesWithVC"]
    boxes = (await http.get("/v1/graph?by=view")).json()
    assert {"table": "votes", "view": "StoriesWithVC"} in boxes["edges"]
    stats = (await http.get("/v1/views/StoriesWithVC/stats")).json()
    assert stats["hits"] + stats["misses"] == 3
    assert stats["keys"] == 2
    assert stats["materialization"] == "partial"
    views = {each["name"]: each for each in (await http.get("/v1/views")).json()["views"]}
    assert stats["created"] == views["StoriesWithVC"]["created"] is not None
    assert 0 <= stats["age"] < 600
    unknown = (await http.get("/v1/graph?view=StoriesWithVX")).json()
    assert unknown["error"]["code"] == "not_found"
    assert (await http.get("/v1/graph?by=color")).status_code == 400
