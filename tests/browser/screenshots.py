"""Takes the README's pictures of the console, over the demo's data: ``make screenshots``."""

from __future__ import annotations

import sys
import tempfile

from playwright.sync_api import Page, expect, sync_playwright

from tests.browser.conftest import CHROMIUM
from tests.told_process import ROOT, ToldProcess

IMAGES = ROOT / "docs" / "img"
SIZE = {"width": 1180, "height": 760}
LARGEST = 200_000
"""Bytes of a picture, at most: each clone of the repository has all of them."""


def tour(page: Page) -> None:
    page.get_by_role("button", name="Read the story").click()
    expect(page.locator(".outcome").first).to_be_visible()
    page.get_by_role("button", name="Vote for it").click()
    expect(page.locator(".box.lit").first).to_be_visible()
    expect(page.locator("#said")).to_contain_text("flowed through")


def worksheet(page: Page) -> None:
    page.get_by_label("Statements, separated by ;").fill("EXPLAIN story_by_short_id")
    page.get_by_role("button", name="Run EXPLAIN").click()
    expect(page.locator(".result svg")).to_be_visible()


def whole(page: Page) -> None:
    expect(page.locator("svg .box, .tile").first).to_be_visible()


PICTURES = {"tour": ("#/tour", tour), "sql": ("#/sql", worksheet), "graph": ("#/graph/frontpage_ids", whole)}


def main() -> None:
    if CHROMIUM is None:
        sys.exit("there is no Chromium: install Debian's package chromium")
    with tempfile.TemporaryDirectory() as data, sync_playwright() as playwright:
        demo = ToldProcess(["-m", "headrace", "demo", "--port", "0", "--scale", "0.1", "--data", f"{data}/demo"], {})
        url = demo.read_until(r"All calls: (http\S+)/docs")[1]
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        for name, (path, prepare) in PICTURES.items():
            page = chromium.new_page(viewport=SIZE)  # type: ignore[arg-type]
            page.goto(f"{url}/{path}")
            prepare(page)
            picture = IMAGES / f"console-{name}.png"
            page.screenshot(path=picture)
            page.close()
            assert picture.stat().st_size <= LARGEST, f"{picture.name} has {picture.stat().st_size:,} bytes"
            print(f"docs/img/{picture.name}: {picture.stat().st_size:,} bytes")
        chromium.close()
        demo.kill()


if __name__ == "__main__":
    main()
