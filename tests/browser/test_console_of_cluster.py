"""Each page of the console against a cluster of two workers, one of which dies."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import Picture, check_accessible, watched
from tests.told_process import FORKED_PARTS, ToldProcess

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(shutil.which("java") is None, reason="ZooKeeper needs Java"),
]
SCHEMA = """
CREATE TABLE locks (id INT PRIMARY KEY, level INT, name TEXT);
CREATE EXT VIEW LockById AS SELECT id, level, name FROM locks WHERE id = ?;
CREATE EXT VIEW Levels AS SELECT level, COUNT(*) AS n FROM locks WHERE level = ? GROUP BY level;
CREATE EXT VIEW AllLocks AS SELECT id, name FROM locks ORDER BY id
"""
ROWS = [{"id": each, "level": each % 3, "name": f"lock {each}"} for each in range(60)]
AWAY = "Failed to load resource: the server responded with a status of 503"
AGAIN = 60_000
"""Milliseconds until another worker serves what the one that died did."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("cluster")
    command = [str(FORKED_PARTS), "-m", "headrace", "up", "--workers", "2", "--controllers", "1", "--port", "0"]
    kept = ["--archive", str(folder / "archive"), "--archive-interval", "3600", "--backups", str(folder)]
    process = ToldProcess([*command, "--data", str(folder / "data"), *kept], {"NO_COLOR": "1"})
    try:
        url = process.read_until(r"answers at (https?://[^\s/]+)")[1]
        with httpx.Client(base_url=url, timeout=60) as http:
            http.post("/v1/sql", json={"sql": SCHEMA}).raise_for_status()
            http.post("/v1/tables/locks/rows", json={"rows": ROWS}).raise_for_status()
        yield url
    finally:
        process.popen.send_signal(signal.SIGINT)
        process.popen.wait(60)
        process.kill()


@pytest.fixture
def page(browser: Browser, cluster: str, picture: Picture, request: pytest.FixtureRequest) -> Iterator[Page]:
    with watched(browser, cluster, picture, (AWAY,) if request.node.get_closest_marker("refusals") else ()) as opened:
        yield opened


def test_each_page_shows_what_it_has(page: Page, picture: Picture) -> None:
    page.goto("/#/sql")
    editor = page.get_by_label("Statements, separated by ;")
    editor.fill("SELECT COUNT(*) AS n FROM locks; EXPLAIN Levels; UPDATE locks SET level = 7 WHERE id = 5")
    page.get_by_role("button", name="Run all").click()
    expect(page.locator(".result table").first).to_contain_text("60")
    expect(page.locator(".result svg .box").first).to_be_visible()
    expect(page.locator(".result").nth(2)).to_contain_text("1 row")
    expect(page.locator(".catalogue")).to_contain_text("LockById")
    picture(page, "sql")
    check_accessible(page)
    page.goto("/#/views")
    expect(page.get_by_role("link", name="Levels")).to_be_visible()
    picture(page, "views")
    check_accessible(page)
    page.goto("/#/views/LockById?id=5")
    expect(page.locator(".outcome")).to_be_visible()
    answer = page.locator(".views table").first
    expect(answer).to_contain_text("lock 5")
    page.get_by_label("A statement that writes").fill("UPDATE locks SET name = 'five' WHERE id = 5")
    page.get_by_role("button", name="Write").click()
    expect(page.locator("tr.changed")).to_contain_text("five")
    expect(page.locator(".facts").first).to_contain_text("since 20")
    page.get_by_role("button", name="Why is row 1 here?").click()
    expect(page.locator(".lineage")).to_contain_text("five")
    expect(page.locator("svg .box.reader")).to_be_visible()
    picture(page, "a view")
    check_accessible(page)
    page.get_by_role("button", name="Evict").click()
    expect(page.locator(".outcome.evicted")).to_contain_text("1 key")
    page.goto("/#/graph")
    expect(page.locator("svg .box")).to_have_count(4)
    picture(page, "graph")
    check_accessible(page)
    page.goto("/#/graph/Levels")
    expect(page.locator("svg .box.reader")).to_be_visible()
    page.locator("svg .box.reader").press("Enter")
    expect(page.locator(".facts")).to_contain_text("partial by (level)")
    picture(page, "graph of a view")
    check_accessible(page)


@pytest.mark.refusals
def test_a_worker_dies(page: Page, cluster: str, picture: Picture) -> None:
    """The operator sees it go, and another one come; the tour goes on at what was acknowledged."""
    page.goto("/#/tour")
    page.get_by_role("button", name="Make the tour's tables and views").click()
    page.get_by_role("button", name="Vote for it").click()
    expect(page.locator(".tour tbody td").last).to_have_text("4")
    page.get_by_role("button", name="Watch it, and vote").click()
    expect(page.locator(".outcome.live")).to_be_visible()
    picture(page, "tour")
    check_accessible(page)
    page.goto("/#/operate")
    expect(page.locator(".tile").first).to_be_visible()
    page.get_by_role("button", name="Archive now").click()
    expect(page.locator("#archive")).to_contain_text("archived up to")
    expect(page.locator("#archive")).to_contain_text("All writes are in it")
    late = {"rows": [{"id": 100, "level": 1, "name": "late"}]}
    httpx.post(f"{cluster}/v1/tables/locks/rows", json=late, timeout=60).raise_for_status()
    expect(page.locator("#archive")).to_contain_text("Not in it yet: 1 write,")
    expect(page.locator("#backups")).to_contain_text("no whole back-up")
    health = page.locator("#workers table").first.locator("tbody tr td:nth-child(2)")
    expect(health).to_have_text(["ok", "ok"])
    workers = httpx.get(f"{cluster}/v1/status", timeout=60).json()["workers"]
    victim = next(each["pid"] for each in workers if each["domains"])
    processes = page.locator("#workers table").first.locator("tbody tr td:nth-child(3)")
    expect(processes.filter(has_text=str(victim))).to_have_count(1)
    picture(page, "two workers")
    check_accessible(page)
    os.kill(victim, signal.SIGKILL)
    expect(processes.filter(has_text=str(victim))).to_have_count(0, timeout=AGAIN)
    picture(page, "one has died")
    expect(health).to_have_text(["ok", "ok"], timeout=AGAIN)
    expect(page.locator("#health")).to_have_text("serving", timeout=AGAIN)
    page.goto("/#/tour")
    page.get_by_role("button", name="Read the story").click()
    expect(page.locator(".tour tbody td").last).to_have_text("5")
    picture(page, "nothing is lost")
