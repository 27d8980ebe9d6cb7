"""The pages for people need nothing from other hosts, and what they name is there."""

from __future__ import annotations

import re
from pathlib import Path

import httpx
import pytest

import headrace
from api import app

CONSOLE = Path(app.__file__).with_name("console")


async def test_who_asks_for_the_front(http: httpx.AsyncClient) -> None:
    hello = (await http.get("/")).json()
    assert hello["headrace"] == headrace.__version__
    for name in ("console", "docs", "openapi", "ready"):
        assert (await http.get(f"/{hello[name]}")).status_code == 200
    page = await http.get("/", headers={"accept": "text/html,*/*;q=0.8"})
    assert page.headers["vary"] == "accept"
    assert page.content == (await http.get("/console")).content == (CONSOLE / "index.html").read_bytes()


async def test_the_files_of_the_console_are_guarded(http: httpx.AsyncClient) -> None:
    for path in CONSOLE.iterdir():
        file = await http.get(f"/console/{path.name}")
        assert file.content == path.read_bytes()
        assert file.headers["x-content-type-options"] == "nosniff"
        assert "script-src 'self';" in file.headers["content-security-policy"]
    for missing in ("/console/nothing.js", "/console/..%2fapp.py", "/console/"):
        assert (await http.get(missing)).status_code == 404


def test_the_console_has_the_client_that_is_published() -> None:
    client = Path(headrace.__file__).parents[1] / "clients" / "js" / "headrace.js"
    assert (CONSOLE / client.name).resolve() == client


def test_the_console_writes_text_and_no_markup() -> None:
    """A name or value never becomes an element, and nothing is asked of another host."""
    for path in CONSOLE.glob("*.js"):
        text = path.read_text("utf-8").replace('"http://www.w3.org/2000/svg"', "")
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|https?://", text), (
            path.name
        )
        assert re.match(r"/\*\*\n \* \w|/\*\* \w|// \w", text), f"{path.name} does not say what it is for"


@pytest.mark.parametrize("path", ["/console", "/docs"])
async def test_a_page_and_all_that_it_loads_comes_from_here(http: httpx.AsyncClient, path: str) -> None:
    """``/docs`` named files on a content network, and was blank where that was not reached."""
    page = await http.get(path)
    assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert not re.search(r"https?:|//\w", re.sub(r"<!--.*?-->", "", page.text, flags=re.S))
    named = re.findall(r"(?:href|src)=\"([^\"]+)\"|url: '([^']+)'", page.text)
    for target in {one or other for one, other in named} - {"data:,"}:
        if target.startswith("#"):
            continue
        answer = await http.get(f"/{target}")
        assert answer.status_code == 200, target
        assert answer.content


async def test_swagger_comes_with_its_types(http: httpx.AsyncClient) -> None:
    script = await http.get("/docs/swagger-ui-bundle.js")
    assert script.headers["content-type"].startswith("text/javascript")
    assert b"SwaggerUIBundle" in script.content
    assert (await http.get("/docs/swagger-ui.css")).headers["content-type"].startswith("text/css")
    for missing in ("/docs/nothing.js", "/docs/..%2fapp.py", "/redoc"):
        assert (await http.get(missing)).status_code == 404
