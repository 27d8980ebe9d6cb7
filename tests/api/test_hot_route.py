"""The short door, as ASGI: what becomes of an answer that cannot be sent."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from api import hot_route
from api.hot_route import HotRoute
from api.metrics import Requests

SCOPE = {"type": "http", "method": "GET", "path": "/v1/status", "headers": [], "query_string": b""}


def door(error: Exception) -> HotRoute:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        raise error

    return HotRoute(app, None, None, Requests(), 1000)  # type: ignore[arg-type]


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
    monkeypatch.setattr(hot_route, "GONE_SECONDS", 0.01)
    with pytest.raises(RuntimeError, match="of ours"):
        await door(RuntimeError("a mistake of ours"))(SCOPE, endless, send)


async def endless() -> dict[str, Any]:
    await asyncio.Event().wait()
    raise AssertionError("it never comes")
