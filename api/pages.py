"""The pages for people: where to go from ``/``, and the calls at ``/docs``, without anything from other hosts.

FastAPI's own page at ``/docs`` loads Swagger UI from a content network and is blank where that is not reached. Its
files are in ``swagger/`` with their licences, as npm's package ``swagger-ui-dist`` 5.35.0 has them but for the lines
that name source maps.
"""

from __future__ import annotations

from pathlib import Path

from fastapi import APIRouter
from fastapi.openapi.docs import get_swagger_ui_html
from fastapi.responses import FileResponse, HTMLResponse

from api.version import VERSION
from domains.errors import NotFound

router = APIRouter(include_in_schema=False)

SWAGGER = Path(__file__).with_name("swagger")
FILES = {"swagger-ui-bundle.js": "text/javascript", "swagger-ui.css": "text/css"}
ICON = "data:,"
"""None: without a word about it, browsers ask for one."""

FRONT = f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Headrace</title><link rel="icon" href="{ICON}">
<style>
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 40em; margin: 3em auto; padding: 0 1em }}
dt {{ font-weight: 600; margin-top: .8em }} dd {{ margin: 0 }} code {{ background: #8882; padding: 0 .3em }}
</style>
</head>
<body>
<h1>Headrace {VERSION}</h1>
<p>This server keeps the answers to SQL queries ready to read.</p>
<dl>
<dt><a href="docs">docs</a></dt><dd>every HTTP call, to be tried in the browser (for machines:
<a href="openapi.json">openapi.json</a>)</dd>
<dt><a href="healthz">healthz</a></dt><dd>whether it serves</dd>
<dt><a href="v1/status">v1/status</a></dt><dd>version, memory, counters (on a terminal:
<code>headrace status</code>)</dd>
<dt><a href="v1/tables">v1/tables</a>, <a href="v1/views">v1/views</a></dt>
<dd>what there is to write to and to read</dd>
<dt><a href="v1/graph">v1/graph</a></dt><dd>the dataflow behind the views</dd>
<dt><a href="metrics">metrics</a></dt><dd>for Prometheus</dd>
</dl>
</body>
</html>
"""


@router.get("/")
async def front() -> HTMLResponse:
    return HTMLResponse(FRONT)


@router.get("/docs")
async def docs() -> HTMLResponse:
    """All addresses are relative, so that it works behind a proxy that puts the server under a path of its own."""
    return get_swagger_ui_html(
        openapi_url="openapi.json",
        title="Headrace: HTTP",
        swagger_js_url="docs/swagger-ui-bundle.js",
        swagger_css_url="docs/swagger-ui.css",
        swagger_favicon_url=ICON,
    )


@router.get("/docs/{file}")
async def file_of_docs(file: str) -> FileResponse:
    if file not in FILES:
        raise NotFound(f'the documentation has no file "{file}"', hint="see /docs")
    return FileResponse(SWAGGER / file, media_type=FILES[file], headers={"cache-control": "max-age=86400"})
