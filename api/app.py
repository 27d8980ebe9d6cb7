"""Puts the two doors together: the endpoints in front, FastAPI behind them, and the pages for people.

The console is in ``console/``: modules of JavaScript as a browser reads them, which know the server by its HTTP API
only. They are served with a policy that lets them load and ask nothing from elsewhere.

FastAPI's own page at ``/docs`` loads Swagger UI from a content network and is blank where that is not reached. Its
files are in ``swagger/`` with their licences, as npm's package ``swagger-ui-dist`` 5.35.0 has them but for the lines
that name source maps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.openapi.docs import get_swagger_ui_html
from fastapi.responses import FileResponse, HTMLResponse

from api.auditing import HttpAudit
from api.dependencies import FOR_ALL, answer, undeclared
from api.doors.asgi import AsgiDoor
from api.doors.browsers import ANY, AllowedHosts
from api.endpoints import Endpoints, RequestMetrics
from api.gate import Gate
from api.limits import Admission, Limits
from api.metrics import Metrics
from api.routes import ROUTERS
from api.schemas import ErrorAnswer
from api.statuses import answer_errors
from api.version import VERSION
from controller.access.authentication import Authentication
from controller.deployment import Deployment
from domains.errors import NotFound

DESCRIPTION = """Answers to SQL queries, kept ready to read.

A write's `token`, given to any read as the header `Headrace-Token`, makes that read wait until it reflects the write.
Every error is `{"error": {"code", "message", "hint"}}`."""

ERRORS: dict[int | str, dict[str, Any]] = {"4XX": {"model": ErrorAnswer}, "5XX": {"model": ErrorAnswer}}


def create_app(
    deployment: Deployment,
    *,
    admission: Admission | None = None,
    slow: float = 0.0,
    trusted: bool = False,
    proxies: Sequence[str] = (),
    hosts: Sequence[str] = (ANY,),
    origins: Sequence[str] = (),
    drills: Path | None = None,
    backups: Callable[[], list[dict[str, Any]]] | None = None,
) -> AsgiDoor:
    """The ASGI application for a deployment that is open. Closing it stays with the caller.

    ``trusted``: whoever can call it may do everything, whatever accounts there are. ``proxies``: see ``AsgiDoor``.
    ``hosts``, ``origins``: the server's names, and the origins whose pages may call it (``doors/browsers.py``).
    ``drills``: the directory of what drills have found. ``backups`` tells of those that there are, in a while.

    ``admission`` has the limits, those of the settings' defaults if not given. Requests that take ``slow`` seconds or
    longer are logged; 0: none."""
    requests = RequestMetrics(slow)
    admission = admission or Admission(Limits())
    authentication = Authentication(None if trusted else deployment.accounts)
    log = None if deployment.accounts is None else deployment.accounts.audit
    audit = None if log is None else HttpAudit(log, deployment.migration)
    endpoints = Endpoints(deployment, requests, admission, authentication, AllowedHosts(hosts), audit)
    deployment.read_within(admission.limits.of_sql(), endpoints.beside)
    deployment.live.limits = admission.limits.of_live()
    deployment.sessions.limits = admission.limits.of_transactions()
    fastapi = FastAPI(
        title="Headrace",
        version=VERSION,
        description=DESCRIPTION,
        responses=ERRORS,
        redirect_slashes=False,
        docs_url=None,  # See below.
        redoc_url=None,
    )
    fastapi.state.deployment = deployment
    fastapi.state.endpoints = endpoints
    fastapi.state.drills, fastapi.state.backups = drills, backups
    beside = {"authentication": authentication.status, "live": deployment.live.status}
    if log is not None:
        beside["audit"] = log.status
    fastapi.state.metrics = Metrics(deployment, requests, admission, beside)
    for router in (*ROUTERS, pages):
        fastapi.include_router(router)
    silent = undeclared([*fastapi.routes, *(route for router in (*ROUTERS, pages) for route in router.routes)])
    assert not silent, f"routes that do not say who may ask them: {', '.join(silent)}"
    fastapi.add_middleware(Gate, requests=requests, admission=admission)
    answer_errors(fastapi)
    return AsgiDoor(fastapi, endpoints, requests, proxies, origins, audit)


# The pages: the console at ``/``, and the calls at ``/docs``, without anything from other hosts.

pages = APIRouter(include_in_schema=False, dependencies=FOR_ALL)

SWAGGER = Path(__file__).with_name("swagger")
FILES = {"swagger-ui-bundle.js": "text/javascript", "swagger-ui.css": "text/css"}
ICON = "data:,"
"""None: without a word about it, browsers ask for one."""

CONSOLE = Path(__file__).with_name("console")
KINDS = {".html": "text/html", ".js": "text/javascript", ".css": "text/css"}
GUARDED = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-cache",
}
"""Of the console's files: nothing is run or fetched but what is ours, and no page frames it."""
HELLO = {"headrace": VERSION, "console": "console", "docs": "docs", "openapi": "openapi.json", "ready": "readyz"}


@pages.get("/")
async def front(request: Request) -> Response:
    """The console for a browser, and where to go for any other."""
    if "text/html" in request.headers.get("accept", ""):
        return _of_console("index.html", {"vary": "accept"})
    return answer(HELLO, headers={"vary": "accept"})


@pages.get("/console")
async def console() -> Response:
    return _of_console("index.html")


@pages.get("/console/{file}")
async def file_of_console(file: str) -> Response:
    if file not in {path.name for path in CONSOLE.iterdir()}:
        raise NotFound(f'the console has no file "{file}"', hint="see /console")
    return _of_console(file)


def _of_console(file: str, more: dict[str, str] | None = None) -> Response:
    path = CONSOLE / file
    return FileResponse(path, media_type=KINDS[path.suffix], headers={**GUARDED, **(more or {})})


@pages.get("/docs")
async def docs() -> HTMLResponse:
    """All addresses are relative, so that it works behind a proxy that puts the server under a path of its own."""
    return get_swagger_ui_html(
        openapi_url="openapi.json",
        title="Headrace: HTTP",
        swagger_js_url="docs/swagger-ui-bundle.js",
        swagger_css_url="docs/swagger-ui.css",
        swagger_favicon_url=ICON,
    )


@pages.get("/docs/{file}")
async def file_of_docs(file: str) -> FileResponse:
    if file not in FILES:
        raise NotFound(f'the documentation has no file "{file}"', hint="see /docs")
    return FileResponse(SWAGGER / file, media_type=FILES[file], headers={"cache-control": "max-age=86400"})
