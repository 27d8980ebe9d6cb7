"""Long texts of SQL and long bodies are read off the event loop, with the same results and errors, within limits."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from api.app import create_app
from api.encoding import LONG_BODY
from api.limits import Admission, Limits
from controller.embedded.local import LocalDeployment

SCHEMA = """CREATE TABLE t (id BIGINT PRIMARY KEY AUTO_INCREMENT, a BIGINT, b VARCHAR(20) NOT NULL DEFAULT 'none');
CREATE TABLE bag (a BIGINT, b TEXT); CREATE VIEW Total AS SELECT COUNT(*) AS n, SUM(a) AS s FROM bag"""
GENEROUS = 2.0
"""Seconds that the loop may be held at most; without turns some of this takes ten times as long."""


@pytest.fixture
async def http(tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    deployment = await LocalDeployment.open(tmp_path, read_timeout=60)
    app = create_app(deployment, admission=Admission(Limits(max_list_items=4_000)))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://headrace", timeout=120) as client:
        assert (await said(client, SCHEMA)).status_code == 200
        yield client
    await app.close()
    await deployment.close()


async def said(http: httpx.AsyncClient, sql: str, *params: object) -> httpx.Response:
    return await http.post("/v1/sql", json={"sql": sql, "params": params})


def error(answer: httpx.Response) -> Any:
    assert answer.status_code >= 400
    return answer.json()["error"]


async def totals(http: httpx.AsyncClient) -> Any:
    return (await http.get("/v1/views/Total")).json()["rows"]


async def test_a_long_insert(http: httpx.AsyncClient) -> None:
    values = ",".join(f"({each}, 'it''s {each}')" for each in range(3_000))
    answer = (await said(http, f"INSERT INTO bag (a, b) VALUES {values}")).json()
    assert answer["results"] == [{"columns": [], "rows": [], "rows_affected": 3000}]
    assert answer["token"]
    assert await totals(http) == [{"n": 3000, "s": 4498500}]
    found = (await said(http, "SELECT b FROM bag WHERE a = 77")).json()
    assert found["results"][0]["rows"] == [["it's 77"]]


async def test_long_writes_of_all_kinds(http: httpx.AsyncClient) -> None:
    """Beside, in a thread, within a text of several statements, and with parameters."""
    spaces = " " * 1_200
    keyed = ",".join(f"({each}, {each % 7})" for each in range(1, 400))
    assert (await said(http, f"INSERT INTO t (id, a) VALUES {keyed}")).json()["results"][0]["rows_affected"] == 399
    several = f"INSERT INTO t (a) VALUES (1){spaces}, (2); UPDATE t SET b = 'x'{spaces} WHERE id <= 10; "
    several += "DELETE FROM t WHERE id = 1"
    answer = (await said(http, several)).json()
    assert [each["rows_affected"] for each in answer["results"]] == [2, 10, 1]
    assert answer["results"][0]["first_id"] == 400
    assert (await said(http, f"DELETE FROM t{spaces} WHERE id IN ({','.join(map(str, range(2, 300)))})")).json()[
        "results"
    ][0]["rows_affected"] == 298
    marks = ",".join("(?, ?)" for _ in range(300))
    for first in (0, 1000):
        params = [each for number in range(300) for each in (first + number, "p")]
        answer = (await said(http, f"INSERT INTO bag (a, b) VALUES {marks}", *params)).json()
        assert answer["results"][0]["rows_affected"] == 300
    chosen = f"INSERT INTO bag (a, b) SELECT a, b FROM t WHERE id = 300{spaces}"
    assert (await said(http, chosen)).json()["results"][0]["rows_affected"] == 1
    assert (await said(http, f"CREATE TABLE other (a BIGINT{spaces}, b BIGINT)")).json()["results"][0]["done"]


@pytest.mark.parametrize(
    ("sql", "status", "code", "message"),
    [
        ("INSERT INTO t (id, a) VALUES {rows}, (1, 2, 3)", 400, "sql_error", "row 301"),
        ("INSERT INTO t (id, a) VALUES {rows}, (7, 2)", 409, "constraint_violation", "row 301"),
        ("INSERT INTO t (id, a) VALUES {rows}, ('x', 2)", 422, "type_violation", "row 301"),
        ("INSERT INTO nothing (id, a) VALUES {rows}", 400, "unknown_name", "nothing"),
        ("INSERT INTO t (id, a) VALUES {rows}, (", 400, "syntax_error", "line 1"),
        ("INSERT INTO t (id, a) VALUES {rows}, (?, 1)", 400, "bad_request", "param"),
        ("SELECT a FROM t WHERE id IN ({items})", 413, "limit_exceeded", '"max_list_items"'),
        ("SELECT {ones}", 413, "limit_exceeded", '"max_select_columns"'),
        ("SELECT {brackets}1", 413, "limit_exceeded", '"max_nesting"'),
        ("SELECT t.a FROM t {joins}", 413, "limit_exceeded", '"max_joins"'),
        ("{statements}", 413, "limit_exceeded", '"max_statements"'),
        ("SELECT '{much}'", 413, "limit_exceeded", '"max_sql_size"'),
    ],
)
async def test_errors(http: httpx.AsyncClient, sql: str, status: int, code: str, message: str) -> None:
    text = sql.format(
        rows=",".join(f"({each}, 1)" for each in range(1, 301)),
        items=",".join(map(str, range(4_001))),
        ones=",".join("1" * 1_001),
        brackets="(" * 100_000,
        joins=" ".join(f"JOIN t AS t{each} ON t{each}.id = t.id" for each in range(61)),
        statements="SELECT 1;" * 1_001,
        much="a" * 2_000_000,
    )
    answer = await said(http, text)
    assert (answer.status_code, error(answer)["code"]) == (status, code)
    assert message in error(answer)["message"]


async def test_a_migration_has_the_same_limits(http: httpx.AsyncClient) -> None:
    answer = await http.post("/v1/migrations", json={"sql": "CREATE VIEW v AS SELECT " + "(" * 5_000})
    assert '"max_nesting"' in error(answer)["message"]


async def test_a_long_body_of_rows(http: httpx.AsyncClient) -> None:
    rows = [{"a": each, "b": "x" * 20} for each in range(8_000)]
    sent = await http.post("/v1/tables/bag/rows", json={"rows": rows})
    assert len(sent.request.content) > LONG_BODY
    assert sent.json()["rows_affected"] == 8_000
    assert await totals(http) == [{"n": 8_000, "s": sum(range(8_000))}]
    for rows_of, message in (
        ([*rows, {"a": "x"}], "row 8001"),
        ([*rows, 7], "a row is a int"),
        ([*rows, {"c": 1}], '"bag.c"'),
    ):
        answer = await http.post("/v1/tables/bag/rows", json={"rows": rows_of})
        assert message in error(answer)["message"]
    for body, message in (
        ({"rows": rows, "more": 1}, '"more"'),
        ({"rows": "x" * LONG_BODY}, '"rows"'),
        ({"row": rows}, '"rows"'),
        ([rows], "object"),
    ):
        answer = await http.post("/v1/tables/bag/rows", json=body)
        assert answer.status_code == 400
        assert message in error(answer)["message"]
    broken = await http.post("/v1/tables/bag/rows", content=sent.request.content[:-1])
    assert "not JSON" in error(broken)["message"]
    assert (await totals(http))[0]["n"] == 8_000


async def test_the_loop_is_not_held(http: httpx.AsyncClient) -> None:
    """By any of these; a loop that is held does not wake."""
    longest = 0.0

    async def watch() -> None:
        nonlocal longest
        while True:
            before = time.monotonic()
            await asyncio.sleep(0.001)
            longest = max(longest, time.monotonic() - before)

    watching = asyncio.create_task(watch())
    values = ",".join(f"({each},1)" for each in range(10_000))
    rows = [{"a": each, "b": "x"} for each in range(20_000)]
    for sent in (
        said(http, f"INSERT INTO bag VALUES {values}"),
        said(http, "SELECT a FROM bag WHERE a IN (" + ",".join(map(str, range(150_000))) + ")"),
        said(http, "SELECT " + "(" * 400_000),
        http.post("/v1/tables/bag/rows", json={"rows": rows}),
    ):
        await sent
    watching.cancel()
    assert longest < GENEROUS
