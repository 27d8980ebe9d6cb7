"""The pages for people need nothing from other hosts, and what they name is there."""

from __future__ import annotations

import re

import httpx
import pytest


@pytest.mark.parametrize("path", ["/", "/docs"])
async def test_a_page_and_all_that_it_loads_comes_from_here(http: httpx.AsyncClient, path: str) -> None:
    """``/docs`` named files on a content network, and was blank where that was not reached."""
    page = await http.get(path)
    assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert not re.search(r"https?:|//\w", re.sub(r"<!--.*?-->", "", page.text, flags=re.S))
    named = re.findall(r"(?:href|src)=\"([^\"]+)\"|url: '([^']+)'", page.text)
    for target in {one or other for one, other in named} - {"data:,"}:
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
