"""Views of which a part is applied when they are read: the same on every way of an answer, and said by EXPLAIN."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from controller.deployment import Deployment

VIEWS = """
CREATE TABLE bills (id INT PRIMARY KEY, payer INT, text TEXT, paid DECIMAL(8,2), due DATE);
CREATE EXT VIEW Found AS SELECT id, paid * ? AS due FROM bills WHERE payer = ? AND (id > ? OR text LIKE ?) ORDER BY id;
CREATE EXT VIEW Total AS SELECT COUNT(*) AS n, SUM(paid) AS paid FROM bills WHERE due >= ?;
CREATE EXT VIEW Named AS SELECT id FROM bills WHERE id NOT IN (:some) AND payer <> :who ORDER BY id LIMIT ?
"""


@pytest.fixture
async def bills(http: httpx.AsyncClient, deployment: Deployment) -> str:
    """The token by which all of them are there. (The fake's judge, SQLite, has no such parameters.)"""
    if type(deployment).__name__ == "FakeDeployment":
        pytest.skip("the fake knows no such views")
    await deployment.execute(VIEWS)
    rows = [
        {"id": at, "payer": at % 3, "text": f"t{at}", "paid": f"{at}.50", "due": f"2026-01-{at:02}"}
        for at in range(1, 10)
    ]
    written = await http.post("/v1/tables/bills/rows", json={"rows": rows})
    return written.json()["token"]  # type: ignore[no-any-return]


async def rows(http: httpx.AsyncClient, view: str, key: list[Any], query: str, token: str) -> list[dict[str, Any]]:
    """A look-up by GET, by POST, and beside another; a miss and a hit of each."""
    found = []
    for headers in ({"Headrace-Token": token}, {}):
        page = await http.get(f"/v1/views/{view}?{query}", headers=headers)
        assert page.status_code == 200, page.text
        found.append(page.json()["rows"])
        many = await http.post(f"/v1/views/{view}/lookup", json={"keys": [key]}, headers=headers)
        found.append(many.json()["results"][0])
        several = await http.post("/v1/lookups", json={"lookups": [{"view": view, "keys": [key]}]}, headers=headers)
        found.append(several.json()["results"][0][0])
    assert all(each == found[0] for each in found), found
    return found[0]  # type: ignore[no-any-return]


async def test_conditions_and_columns(http: httpx.AsyncClient, bills: str) -> None:
    query = "paid=2&payer=1&id=6&text=t4"
    assert await rows(http, "Found", [2, 1, 6, "t4"], query, bills) == [
        {"id": 4, "due": "9.0000"},
        {"id": 7, "due": "15.0000"},
    ]
    change = await http.patch("/v1/tables/bills/rows", json={"key": {"id": 7}, "set": {"payer": 2}})
    assert await rows(http, "Found", [2, 1, 6, "t4"], query, change.json()["token"]) == [{"id": 4, "due": "9.0000"}]


async def test_groups(http: httpx.AsyncClient, bills: str) -> None:
    assert await rows(http, "Total", ["2026-01-08"], "due=2026-01-08", bills) == [{"n": 2, "paid": "18.00"}]
    assert await rows(http, "Total", ["2027-01-08"], "due=2027-01-08", bills) == [{"n": 0, "paid": None}]


async def test_lists_and_limits(http: httpx.AsyncClient, bills: str) -> None:
    found = await rows(http, "Named", [[1, 2, 3], 0, 2], "some=1&some=2&some=3&who=0&limit=2", bills)
    assert found == [{"id": 4}, {"id": 5}]


async def test_what_does_not_fit_is_refused(http: httpx.AsyncClient, bills: str) -> None:
    for key in ([2, 1, "x", "t4"], [2, 1, 6, 4], ["x", 1, 6, "t4"]):
        answer = await http.post("/v1/views/Found/lookup", json={"keys": [key]})
        assert answer.json()["error"]["code"] == "type_violation", answer.text


async def test_explain_names_what_is_applied(http: httpx.AsyncClient, deployment: Deployment, bills: str) -> None:
    await rows(http, "Total", ["2026-01-08"], "due=2026-01-08", bills)
    await rows(http, "Found", [2, 1, 6, "t4"], "paid=2&payer=1&id=6&text=t4", bills)
    found = deployment.explain("Found").splitlines()
    assert found[:3] == [
        "when it is read: by id",
        "when it is read: π id, paid * ? → due",
        "when it is read: σ id > ? OR text LIKE ?",
    ]
    assert "reader Found  partial by (payer)" in found[3]
    total = deployment.explain("Total").splitlines()
    assert total[1] == "when it is read: γ (); SUM(count_rows), SUM(sum)"
    assert "none of its parameters can be followed up to a base table" in total[2]
