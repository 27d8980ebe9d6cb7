"""What a web page can have its reader's browser do here: by which names it reaches this server, and what it may read.

A browser lets a page read the answers of the page's own origin only, and asks before it sends JSON to another. Two
settings move that line:

* **Hosts** (``allowed_hosts``). A page of ``evil.example`` may have that name's address changed to 127.0.0.1 once it is
  loaded (DNS rebinding): then this server is the page's own origin. Its requests still carry ``Host: evil.example``,
  and a request whose host is not one of the server's names is refused, with 421 (RFC 9110, 15.5.20). The bytes of a
  header that was admitted are remembered, so that a hit has no name to look at.
* **Origins** (``cors_origins``). Pages of these may call and read what their users may (CORS, by Starlette's
  middleware). A request with ``Origin`` always takes the long way, so there is one place that answers them.

* **WebSockets**. A browser opens one to any server, with a password that was typed there, and lets the page read what
  comes. So the server looks at ``Origin`` itself, which no page can set: its own pages may, and those of the above.

Probes of a balancer come by any name: ``/healthz`` and ``/readyz``, which are open to all, are answered for any host.
"""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import ip_address
from urllib.parse import urlsplit

from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Scope

from api.doors.opening import LIVE, READY
from api.statuses import METHODS
from domains.errors import Forbidden, HeadraceError, HostNotAllowed

ANY = "*"
PROBES = (LIVE, READY)
ADMITTED_MAX = 1_000
"""Headers that are remembered: a name below ``*.example.com`` may be any."""

READ_HEADERS = (
    *("etag", "headrace-token", "headrace-types", "location", "retry-after"),
    *("stream-cursor", "stream-next-offset", "stream-up-to-date"),
)
"""Answers' headers that a page may read, beside those that it always may."""
SENT_HEADERS = ("authorization", "content-type", "headrace-claims", "headrace-token", "last-event-id")
PREFLIGHT_SECONDS = 600


class AllowedHosts:
    """The names that this server answers to: exact ones, and ``*.example.com`` for all below a name."""

    def __init__(self, names: Sequence[str] = (ANY,)) -> None:
        self.admitted: set[bytes | None] | None = None if ANY in names else {None}
        """Headers that were admitted, as they came or in small letters; None: any is."""
        self._names = frozenset(map(_bare, (each for each in names if not each.startswith("*."))))
        self._below = tuple(each[1:].lower() for each in names if each.startswith("*."))

    def admit(self, header: bytes | None) -> bool:
        """``header``: the request's ``Host``. No browser leaves it out, so one that is missing tells of no page."""
        if self.admitted is None or header in self.admitted:
            return True
        assert header is not None
        name = _without_port(header.decode("latin-1"))
        if name not in self._names and not name.endswith(self._below):
            return False
        if len(self.admitted) >= ADMITTED_MAX:
            self.admitted.clear()
        self.admitted |= {None, header.lower()}
        return True

    def check(self, headers: Sequence[tuple[bytes, bytes]], path: str) -> None:
        """:raises HostNotAllowed:"""
        if self.admitted is None or path in PROBES:
            return
        hosts = [value for name, value in headers if name == b"host"]
        if len(hosts) > 1 or not self.admit(hosts[0] if hosts else None):
            raise self.refusal(hosts[-1])

    def refusal(self, header: bytes) -> HeadraceError:
        name = _without_port(header.decode("latin-1"))
        return HostNotAllowed(
            f'"{name}" is no name of this server',
            hint="if it is, start it with --allowed-hosts (setting allowed_hosts); * allows all",
        )


def _without_port(host: str) -> str:
    """The name or address in ``Host``, as names are compared."""
    host = host.strip().lower()
    if host.startswith("["):
        return _bare(host[1:].partition("]")[0])
    return _bare(host.partition(":")[0])


def _bare(name: str) -> str:
    """One writing of a name: small letters, no dot at the end, addresses as Python writes them."""
    name = name.lower().removesuffix(".")
    try:
        return str(ip_address(name))
    except ValueError:
        return name


class SocketOrigins:
    """Whose pages may open a WebSocket."""

    def __init__(self, origins: Sequence[str]) -> None:
        self._origins = origins

    def check(self, scope: Scope) -> bool:
        """Whether credentials count that the browser has by itself. :raises Forbidden: the page may not."""
        found = dict(scope["headers"])
        origin = found.get(b"origin")
        if origin is None:
            return True  # No browser.
        try:
            page = urlsplit(origin.decode("latin-1"))
        except ValueError:
            page = urlsplit("")  # No browser says so.
        schemes = ("https",) if scope["scheme"] == "wss" else ("http", "https")  # A proxy may end TLS.
        if page.scheme in schemes and page.netloc.lower() == found.get(b"host", b"").decode("latin-1").lower():
            return True
        if origin.decode("latin-1") in self._origins:
            return True
        if ANY in self._origins:
            return False
        raise Forbidden(
            f'a page of "{origin.decode("latin-1")}" may not open a WebSocket here',
            hint="if it may, start the server with --cors-origins (setting cors_origins)",
        )


def answering_pages(app: ASGIApp, origins: Sequence[str]) -> ASGIApp:
    """The application, with answers to pages of these origins that browsers let them read.

    Credentials that a browser has by itself (a password that its user typed, a client's certificate) go along for
    origins that are named, and not for ``*``: a page that nobody named has to know a key.
    """
    if not origins:
        return app
    return CORSMiddleware(
        app,
        allow_origins=list(origins),
        allow_methods=METHODS,
        allow_headers=SENT_HEADERS,
        allow_credentials=ANY not in origins,
        allow_private_network=True,
        expose_headers=READ_HEADERS,
        max_age=PREFLIGHT_SECONDS,
    )
