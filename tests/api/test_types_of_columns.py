"""Which columns of a look-up's answer JSON has no type for: said in a header, on every way that an answer takes."""

from __future__ import annotations

import httpx
import pytest

from controller.deployment import Deployment

VALUES = """
CREATE TABLE bills (id BIGINT NOT NULL PRIMARY KEY, text TEXT, paid DECIMAL(8,2), due DATE, at DATETIME);
CREATE VIEW BillsById AS SELECT id, paid, text, at, due FROM bills WHERE id = ?
"""
TYPES = "1:DECIMAL 3:DATETIME 4:DATE"


@pytest.fixture
async def bills(deployment: Deployment) -> None:
    await deployment.execute(VALUES)
    await deployment.insert(
        "bills", [{"id": 1, "text": "7", "paid": "1.50", "due": "2026-01-31", "at": "2026-01-31 08:00:00"}]
    )


async def test_a_miss_a_hit_and_a_token_say_the_same(http: httpx.AsyncClient, bills: None) -> None:
    written = (await http.patch("/v1/tables/bills/rows", json={"key": {"id": 1}, "set": {"text": "8"}})).json()
    for headers in ({}, {}, {"Headrace-Token": written["token"]}):
        page = await http.get("/v1/views/BillsById?id=1", headers=headers)
        assert page.status_code == 200, page.text
        assert page.headers["Headrace-Types"] == TYPES
        for keys in ([[1]], [[1], [2]], [["1"]]):
            many = await http.post("/v1/views/BillsById/lookup", json={"keys": keys}, headers=headers)
            assert many.headers["Headrace-Types"] == TYPES


async def test_look_ups_of_several_views_say_it_of_each(http: httpx.AsyncClient, bills: None) -> None:
    wanted = [
        {"view": "ByIds", "keys": [[[1]]]},
        {"view": "BillsById", "keys": [[1]]},
        {"view": "BillsById", "keys": [[{"first": [1, "id"]}]]},
    ]
    token = (await http.post("/v1/tables/bills/rows", json={"rows": [{"id": 2}]})).json()["token"]
    for headers in ({}, {}, {}, {"Headrace-Token": token}):
        found = await http.post("/v1/lookups", json={"lookups": wanted}, headers=headers)
        assert found.status_code == 200, found.text
        assert found.headers["Headrace-Types"] == f"-, {TYPES}, {TYPES}"


async def test_nothing_is_said_where_json_has_all_types(http: httpx.AsyncClient) -> None:
    for _ in range(2):
        assert "Headrace-Types" not in (await http.get("/v1/views/ByTitle?title=x")).headers
        assert "Headrace-Types" not in (await http.get("/v1/views/Nothing?id=1")).headers
        many = await http.post("/v1/lookups", json={"lookups": [{"view": "ByTitle", "keys": [["x"]]}]})
        assert "Headrace-Types" not in many.headers
