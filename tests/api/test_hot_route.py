"""The short door, as ASGI: what becomes of an answer that cannot be sent."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from api.app import create_app
from api.doors import asgi
from api.doors.asgi import AsgiDoor
from api.endpoints import Endpoints, RequestMetrics
from api.limits import Admission, Limits
from controller.access.authentication import Authentication
from controller.deployment import Deployment

SCOPE = {"type": "http", "method": "GET", "path": "/v1/status", "headers": [], "query_string": b""}


def door(error: Exception) -> AsgiDoor:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        raise error

    requests = RequestMetrics()
    nothing: Any = SimpleNamespace(sessions=SimpleNamespace(others=None))
    endpoints = Endpoints(nothing, requests, Admission(Limits()), Authentication(None))
    return AsgiDoor(app, endpoints, requests)


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


async def test_sql_is_answered_as_by_its_route(deployment: Deployment) -> None:
    door = create_app(deployment)
    said = []
    for app in (door, door.app):
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://headrace") as http:
            await http.post("/v1/sql", json={"sql": "DELETE FROM stories"})
            answers = [await http.post("/v1/sql", content=body) for body in SQL_BODIES]
            said.append([(each.status_code, each.headers["content-type"], without_token(each)) for each in answers])
    assert said[0] == said[1]
    assert [status for status, _, _ in said[0]][:3] == [200, 200, 200]


CALLS = (
    ("POST", "/v1/tables/stories/rows", b'{"rows": [{"id": 1, "author": 2, "title": "one"}]}'),
    ("POST", "/v1/tables/stories/rows", b'{"rows": [{"id": 1}], "upon": 1}'),
    ("PATCH", "/v1/tables/stories/rows", b'{"key": {"id": 1}, "set": {"title": "uno"}}'),
    ("GET", "/v1/views/ByTitle?title=uno", b""),
    ("GET", "/v1/views/ByTitle?nothing=uno", b""),
    ("POST", "/v1/views/ByTitle/lookup", b'{"keys": [["uno"], ["one"]]}'),
    ("POST", "/v1/views/ByTitle/lookup", b'{"keys": 1}'),
    ("POST", "/v1/lookups", b'{"lookups": [{"view": "ByTitle", "keys": [["uno"]]}]}'),
    ("POST", "/v1/lookups", b'{"lookups": [{"view": "Nothing", "keys": []}]}'),
    ("DELETE", "/v1/tables/stories/rows", b'{"key": {"id": 1}}'),
    ("DELETE", "/v1/tables/stories/rows", b'{"key": 1}'),
    ("GET", "/v1/views/By%2FTitle", b""),
)


async def test_each_endpoint_is_answered_as_by_its_route(deployment: Deployment) -> None:
    """And counted once, under the route's name, whichever way it came."""
    door = create_app(deployment)
    said = []
    for app in (door, door.app):
        answers: list[httpx.Response] = []
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://headrace") as http:
            for method, path, body in CALLS:
                answers.append(await http.request(method, path, content=body))
                if "token" in answers[-1].json():
                    http.headers["headrace-token"] = answers[-1].json()["token"]
            counted = (await http.get("/metrics")).text
        types = [each.headers.get("headrace-types") for each in answers]
        said.append(([(each.status_code, without_token(each)) for each in answers], types))
    assert said[0] == said[1]
    assert [status for status, _ in said[0][0]] == [200, 400, 200, 200, 400, 200, 400, 200, 404, 200, 400, 404]
    for route in ("GET /v1/views/{view}", "POST /v1/lookups"):
        assert f'headrace_http_requests_total{{route="{route}",status="200"}} 2.0' in counted


async def test_a_browser_is_refused_alike_by_both_doors(deployment: Deployment) -> None:
    door = create_app(deployment)
    headers = {"origin": "https://x.example", "content-type": "text/plain"}
    for app in (door, door.app):
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://headrace") as http:
            answer = await http.post("/v1/sql", content=b'{"sql": "SELECT 1"}', headers=headers)
        assert answer.status_code == 400
        assert answer.json()["error"]["message"] == 'a browser sent "text/plain"'


def without_token(answer: httpx.Response) -> Any:
    """It has moved on by the second time."""
    return {name: value for name, value in answer.json().items() if name != "token"}


async def endless() -> dict[str, Any]:
    await asyncio.Event().wait()
    raise AssertionError("it never comes")
