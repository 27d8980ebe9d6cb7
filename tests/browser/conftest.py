"""A real browser, headless, beside a server of its own; without a browser these tests are skipped."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.told_process import ROOT, ToldProcess

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
PATIENCE = 20_000
"""Milliseconds that an element may take: the machine may be busy with other tests."""

PICTURES = ROOT / "pictures"
"""Each step of each test as it was seen, from the last run; ``.ci/run`` says where."""
Picture = Callable[[Page, str], None]
REFUSED = (
    "Failed to load resource: the server responded with a status of 4",
    "Executing inline event handler violates",
)
"""What Chromium says of every answer that is a refusal, whatever the page does with it, and of its own refusals."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """It ends with a file's tests: as long as it is there, Playwright runs an event loop in this thread, and no
    test elsewhere could run one."""
    if CHROMIUM is None:
        pytest.skip("there is no Chromium: install Debian's package chromium")
    expect.set_options(timeout=PATIENCE)
    with sync_playwright() as playwright:
        # A test may run as root, in a container: there Chromium's own sandbox cannot be made.
        chromium = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        yield chromium
        chromium.close()


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of ``headrace serve``, one for all tests of a process."""
    data = tmp_path_factory.mktemp("console") / "data"
    process = ToldProcess(["-m", "headrace", "serve", "--port", "0", "--data", str(data)], {"NO_COLOR": "1"})
    yield process.read_until(r"answers at (https?://\S+)")[1]
    process.kill()


@pytest.fixture
def http(server: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server, timeout=60) as client:
        yield client


@pytest.fixture
def picture(request: pytest.FixtureRequest) -> Picture:
    """Takes a picture of a step, by its name, into a folder of the test."""
    folder = PICTURES / re.sub(r"[^a-z0-9]+", "-", request.node.name.lower()).strip("-")
    shutil.rmtree(folder, ignore_errors=True)
    taken: list[str] = []

    def take(page: Page, name: str) -> None:
        taken.append(name)
        folder.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=folder / f"{len(taken):02} {name}.jpg", type="jpeg", quality=60)

    return take


@contextmanager
def watched(browser: Browser, url: str, picture: Picture, allowed: tuple[str, ...] = ()) -> Iterator[Page]:
    """A page that is watched: at the end it has said no error but what is allowed, and asked nobody but the server."""
    context = browser.new_context(viewport={"width": 1200, "height": 900}, base_url=url)
    context.set_default_timeout(PATIENCE)
    opened = context.new_page()
    wrong: list[str] = []
    opened.on("pageerror", lambda error: wrong.append(str(error)))
    opened.on("console", lambda said: wrong.append(said.text) if said.type in ("error", "warning") else None)
    opened.on("request", lambda asked: wrong.append(asked.url) if not asked.url.startswith((url, "data:")) else None)
    yield opened
    picture(opened, "at the end")
    context.close()
    assert [each for each in wrong if not each.startswith(allowed or ("\0",))] == []


def check_accessible(page: Page, rules: tuple[str, ...] = ()) -> None:
    """By axe: all that it knows, or some rules. Only violations are described, which takes less time."""
    options: dict[str, Any] = {"resultTypes": ["violations"], **({"runOnly": list(rules)} if rules else {})}
    found = Axe().run(page, options=options)
    assert found.violations_count == 0, f"{page.url}: {found.generate_report()}"


@pytest.fixture
def page(browser: Browser, server: str, request: pytest.FixtureRequest, picture: Picture) -> Iterator[Page]:
    with watched(browser, server, picture, REFUSED if request.node.get_closest_marker("refusals") else ()) as opened:
        yield opened
