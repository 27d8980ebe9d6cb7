"""What a web page can have a browser do: names of this server, and origins that may call it, on both ways in."""

from __future__ import annotations

import re
from typing import Any

import pytest
from served_bytes import INSERT, STATUS, Site, asked, served

from api.doors.browsers import AllowedHosts
from api.doors.http_protocol import HttpProtocol
from api.doors.wire_http import WireHttp

OWN = ("app.example", "*.inner.example", "::1", "127.0.0.1")
PAGES = "https://pages.example"
JSON = ["content-type: application/json"]


@pytest.fixture(params=[HttpProtocol, WireHttp], ids=["long", "short"])
def protocol(request: pytest.FixtureRequest) -> Any:
    return request.param


def to(host: str, line: str = "GET /v1/views/ById?id=1") -> bytes:
    return f"{line} HTTP/1.1\r\nhost: {host}\r\n\r\n".encode()


def status(answer: bytes) -> int:
    return int(answer.split()[1])


def headers_of(answer: bytes) -> dict[str, str]:
    lines = answer.partition(b"\r\n\r\n")[0].decode().split("\r\n")[1:]
    return {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}


# --- hosts ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "admitted"),
    [
        ("app.example", True),
        ("APP.Example:8080", True),
        ("app.example.", True),
        ("a.inner.example", True),
        ("a.b.inner.example:1", True),
        ("[::1]:8080", True),
        ("[0:0:0:0:0:0:0:1]", True),
        ("127.0.0.1:8080", True),
        ("inner.example", False),
        ("evil.example", False),
        ("app.example.evil.example", False),
        ("evilapp.example", False),
        ("evilinner.example", False),
        ("127.0.0.1.evil.example", False),
        ("127.0.0.2", False),
        ("", False),
        ("[", False),
        ("]", False),
        ("app.example@evil.example", False),
        ("\xff", False),
    ],
)
def test_names(host: str, admitted: bool) -> None:
    assert AllowedHosts(OWN).admit(host.encode("latin-1")) == admitted
    assert AllowedHosts().admit(host.encode("latin-1"))


async def test_another_name_is_refused_on_both_ways(protocol: Any) -> None:
    async with served(protocol, hosts=OWN) as site:
        await site.say(INSERT.replace(b"host: x", b"host: app.example"), answers=1)
        requests = [to("evil.example"), to("app.example"), to("evil.example"), to("evil.example", "GET /v1/tables")]
        found = await site.say(*requests, to("app.example"), answers=5)
        assert [status(each) for each in found] == [421, 200, 421, 421, 200]
        assert b'"code":"host_not_allowed"' in found[0]
        assert b"--allowed-hosts" in found[0]
        twice = b"GET /v1/views/ById?id=1 HTTP/1.1\r\nhost: app.example\r\nhost: evil.example\r\n\r\n"
        none = b"GET /v1/views/ById?id=1 HTTP/1.1\r\naccept: a\r\n\r\n"
        assert [status(each) for each in await site.say(twice, none, answers=2)] == [421, 200]


async def test_a_write_by_another_name_is_not_done(protocol: Any) -> None:
    async with served(protocol, hosts=OWN) as site:
        (refused,) = await site.say(INSERT, answers=1)
        assert status(refused) == 421
        (page,) = await site.say(to("app.example"), answers=1)
        assert b"one" not in page


async def test_probes_are_answered_for_any_name(protocol: Any) -> None:
    async with served(protocol, hosts=OWN) as site:
        found = await site.say(STATUS, asked("GET /readyz"), answers=2)
        assert [status(each) for each in found] == [200, 200]


async def test_hits_by_a_known_name_stay_on_the_short_way() -> None:
    async with served(hosts=OWN) as site:
        known = [to("app.example"), to("a.inner.example"), to("APP.example:80")]
        for each in known:
            await site.say(each, answers=1)
        assert len(site.ways) == 3
        site.ways.clear()
        await site.say(*known * 3, answers=9)
        assert site.ways == []
        for _ in range(2):
            (answer,) = await site.say(to("evil.example"), answers=1)
            assert status(answer) == 421
        assert len(site.ways) == 2


def test_names_that_are_remembered_are_few() -> None:
    hosts = AllowedHosts(OWN)
    for number in range(3_000):
        assert hosts.admit(b"%d.inner.example" % number)
        assert not hosts.admit(b"%d.evil.example" % number)
    assert hosts.admitted is not None
    assert len(hosts.admitted) <= 1_000
    assert hosts.admit(None)


# --- origins --------------------------------------------------------------------------------------------------------


def preflight(origin: str, method: str = "POST", more: tuple[str, ...] = ()) -> bytes:
    lines = [f"origin: {origin}", f"access-control-request-method: {method}", *more]
    return asked("OPTIONS /v1/tables/stories/rows", headers=lines)


async def test_without_a_setting_no_page_of_another_origin_may_call(protocol: Any) -> None:
    async with served(protocol) as site:
        for request in (preflight(PAGES), asked("GET /v1/views/ById?id=1", headers=[f"origin: {PAGES}"])):
            (answer,) = await site.say(request, answers=1)
            assert not [name for name in headers_of(answer) if name.startswith("access-control")]


async def test_pages_of_named_origins_may_call_and_read(protocol: Any) -> None:
    async with served(protocol, origins=[PAGES]) as site:
        asks = ("access-control-request-headers: authorization, content-type, headrace-token, headrace-claims",)
        (answer,) = await site.say(preflight(PAGES, "PATCH", asks), answers=1)
        told = headers_of(answer)
        assert status(answer) == 200
        assert told["access-control-allow-origin"] == PAGES
        assert told["access-control-allow-credentials"] == "true"
        assert "PATCH" in told["access-control-allow-methods"]
        assert "Headrace-Token".lower() in told["access-control-allow-headers"].lower()
        assert "Origin" in told["vary"]

        origin = f"origin: {PAGES}"
        written = asked("POST /v1/tables/stories/rows", INSERT.partition(b"\r\n\r\n")[2], [origin, *JSON])
        for request, code in (
            (written, 200),
            (written, 409),
            (asked("GET /v1/views/ById?id=1", headers=[origin]), 200),
            (asked("GET /v1/views/Nothing?id=1", headers=[origin]), 404),
            (asked("GET /v1/tables", headers=[origin]), 200),
            (asked("POST /v1/sql", b'{"sql":"SELECT 1"}', [origin]), 400),  # A form's, which is not declared as JSON.
        ):
            (answer,) = await site.say(request, answers=1)
            told = headers_of(answer)
            assert (status(answer), told["access-control-allow-origin"]) == (code, PAGES), request
            assert "Origin" in told["vary"]


async def test_pages_of_other_origins_may_not(protocol: Any) -> None:
    async with served(protocol, origins=[PAGES]) as site:
        for other in ("https://evil.example", "http://pages.example", f"{PAGES}.evil.example", f"{PAGES}:444", "null"):
            (answer,) = await site.say(preflight(other), answers=1)
            assert status(answer) == 400
            assert "access-control-allow-origin" not in headers_of(answer)
            (page,) = await site.say(asked("GET /v1/views/ById?id=1", headers=[f"origin: {other}"]), answers=1)
            assert "access-control-allow-origin" not in headers_of(page)


async def test_pages_of_any_origin_have_no_credentials(protocol: Any) -> None:
    async with served(protocol, origins=["*"]) as site:
        for request in (preflight("https://a.example"), asked("GET /v1/tables", headers=["origin: https://a.example"])):
            (answer,) = await site.say(request, answers=1)
            told = headers_of(answer)
            assert told["access-control-allow-origin"] == "*"
            assert "access-control-allow-credentials" not in told


async def test_both_ways_give_the_same_bytes() -> None:
    requests = [
        preflight(PAGES),
        preflight("https://evil.example"),
        asked("GET /v1/views/ById?id=1", headers=[f"origin: {PAGES}"]),
        asked("GET /v1/views/ById?id=1", headers=["origin: https://evil.example"]),
        to("evil.example"),
    ]
    hosts = (*OWN, "x")
    async with (
        served(HttpProtocol, hosts=hosts, origins=[PAGES]) as long,
        served(WireHttp, hosts=hosts, origins=[PAGES]) as short,
    ):
        said = [await _said(site, requests) for site in (long, short)]
    assert said[0] == said[1]


async def _said(site: Site, requests: list[bytes]) -> list[bytes]:
    return [re.sub(rb"date: [^\r]*\r\n", b"", (await site.say(each, answers=1))[0]) for each in requests]
