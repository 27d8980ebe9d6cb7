"""The short door, as ASGI: what becomes of an answer that cannot be sent."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from api.doors import asgi
from api.doors.asgi import AsgiDoor
from api.metrics import RequestMetrics

SCOPE = {"type": "http", "method": "GET", "path": "/v1/status", "headers": [], "query_string": b""}


def door(error: Exception) -> AsgiDoor:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        raise error

    return AsgiDoor(app, None, None, RequestMetrics(), 1000)  # type: ignore[arg-type]


def receiving(*messages: str) -> Any:
    left = list(messages)

    async def receive() -> dict[str, Any]:
        return {"type": left.pop(0) if len(left) > 1 else left[0]}

    return receive


async def send(message: Any) -> None:
    raise AssertionError("nothing is sent here")


async def test_nothing_is_wrong_when_whoever_asked_has_gone() -> None:
    await door(RuntimeError("the handler is closed"))(SCOPE, receiving("http.request", "http.disconnect"), send)


async def test_a_mistake_of_ours_is_still_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asgi, "GONE_SECONDS", 0.01)
    with pytest.raises(RuntimeError, match="of ours"):
        await door(RuntimeError("a mistake of ours"))(SCOPE, endless, send)


SQL_BODIES = (
    b'{"sql": "INSERT INTO stories (id, author, title) VALUES (?, ?, ?)", "params": [1, 2, "one"]}',
    b'{"sql": "UPDATE stories SET title = ? WHERE id = ?", "params": ["uno", 1]}',
    b'{"sql": "SELECT id, title FROM stories WHERE id = ?", "params": [1]}',
    b'{"sql": "INSERT INTO stories (id, author) VALUES (1, 2); SELECT 1"}',
    b'{"sql": "UPDATE stories SET nothing = 1"}',
    b'{"sql": "SELEC"}',
    b'{"sql": "SELECT id FROM stories WHERE id = ?", "params": []}',
    b'{"sql": 7}',
    b'{"params": []}',
    b"[]",
    b"{",
    b"",
)


async def test_sql_is_answered_as_by_its_route(http: httpx.AsyncClient) -> None:
    """What a browser sends goes to FastAPI. What was written before is written by neither."""
    said = []
    for headers in ({}, {"origin": "https://x.example", "content-type": "application/json"}):
        await http.post("/v1/sql", json={"sql": "DELETE FROM stories"})
        answers = [await http.post("/v1/sql", content=body, headers=headers) for body in SQL_BODIES]
        said.append([(each.status_code, each.headers["content-type"], without_token(each)) for each in answers])
    assert said[0] == said[1]
    assert [status for status, _, _ in said[0]][:3] == [200, 200, 200]


def without_token(answer: httpx.Response) -> Any:
    """It has moved on by the second time."""
    return {name: value for name, value in answer.json().items() if name != "token"}


async def endless() -> dict[str, Any]:
    await asyncio.Event().wait()
    raise AssertionError("it never comes")
