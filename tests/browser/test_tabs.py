"""The JavaScript client in a browser: more tabs than the browser allows connections."""

from __future__ import annotations

import time
from pathlib import Path

import httpx
from playwright.sync_api import Browser

from tests.browser.conftest import PATIENCE

CLIENT = Path(__file__).resolve().parents[2] / "clients" / "js" / "headrace.js"
TABS = 8
"""A browser allows six connections to a server."""

SCHEMA = """
CREATE TABLE points (id INT PRIMARY KEY, g INT);
CREATE VIEW by_group AS SELECT id FROM points WHERE g = ? ORDER BY id
"""
# What each tab shows: an answer that all of them show, and one of its own.
BEGIN = """async g => {
  const { connect } = await import("/headrace-client.js")
  const db = connect()
  window.live = db.live("by_group", { g: 1 })
  window.live.subscribe(() => {})
  window.own = db.live("by_group", { g })
  window.own.subscribe(() => {})
}"""
SHOWN = "text => live.now.state === 'live' && live.now.rows.map(each => each.id).join() === text"


def subscriptions(http: httpx.Client) -> int:
    return int(http.get("/v1/status").json()["live"]["subscriptions"])


def until_there_are(http: httpx.Client, count: int) -> None:
    """The server hears of a closed connection a moment later; then nothing of it is left."""
    deadline = time.monotonic() + PATIENCE / 1000
    while (found := subscriptions(http)) != count:
        assert time.monotonic() < deadline, f"{found} subscriptions, and not {count}"
        time.sleep(0.01)


def test_tabs_share_one_connection(browser: Browser, server: str, http: httpx.Client) -> None:
    http.post("/v1/sql", json={"sql": SCHEMA}).raise_for_status()
    http.post("/v1/tables/points/rows", json={"rows": [{"id": 1, "g": 1}]}).raise_for_status()
    context = browser.new_context(base_url=server)
    context.route(
        "**/headrace-client.js",
        lambda route: route.fulfill(body=CLIENT.read_text(), content_type="text/javascript"),
    )
    streams: list[str] = []
    context.on("request", lambda asked: streams.append(asked.url) if asked.url.endswith("/v1/live") else None)
    tabs = [context.new_page() for _ in range(TABS)]
    for group, tab in enumerate(tabs, 2):
        tab.goto("/console#/views")
        tab.evaluate(BEGIN, group)
    for tab in tabs:
        tab.wait_for_function(SHOWN, arg="1")
        tab.wait_for_function("own.now.state === 'live'")
    assert subscriptions(http) == 1 + TABS
    connected = len(streams)
    http.post("/v1/tables/points/rows", json={"rows": [{"id": 2, "g": 1}]}).raise_for_status()
    for tab in tabs:
        tab.wait_for_function(SHOWN, arg="1,2")
    tabs.pop(0).close()
    http.post("/v1/tables/points/rows", json={"rows": [{"id": 3, "g": 1}]}).raise_for_status()
    for tab in tabs:
        tab.wait_for_function(SHOWN, arg="1,2,3")
        tab.wait_for_function("own.now.state === 'live'")
    assert len(streams) > connected, "the next tab goes on where the first one was"
    until_there_are(http, TABS)
    context.close()
    until_there_are(http, 0)
