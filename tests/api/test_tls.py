"""TLS below the doors: they answer as they do plainly, and what goes wrong below them is bounded and counted."""

from __future__ import annotations

import asyncio
import shutil
import socket
import ssl
import subprocess
import threading
import warnings
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import uvloop
from served_bytes import INSERT, LOOKUP, MANY, PAGE, STATUS, WITHIN, Site, asked, one_answer, served

import api.doors.tls as tls_module
from api.doors.http_protocol import HttpProtocol
from api.doors.wire_http import WireHttp
from api.limits import Admission, Limits
from headrace.serving.certificates import context_of
from headrace.settings import load
from tests.kit.certificates import Authority

pytestmark = pytest.mark.filterwarnings("ignore:Overriding the .event_loop_policy")
WAYS = pytest.mark.parametrize("protocol", [HttpProtocol, WireHttp], ids=["long", "short"])
LAST = asked("GET /v1/views/ById?id=1", headers=["connection: close"])
WRONG = b"GET /v1/views/ById?id=1 HTTP/1.1\r\nhost: x\r\n\x01bad: header\r\n\r\n"
LONG = "x" * 3_000_000


@pytest.fixture(
    params=[asyncio.DefaultEventLoopPolicy, uvloop.EventLoopPolicy], ids=["asyncio", "uvloop"], scope="module"
)
def event_loop_policy(request: pytest.FixtureRequest) -> Any:
    """A server has uvloop's, where there is one."""
    return request.param()


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def of_server(authority: Authority, file: str = "server") -> ssl.SSLContext:
    certificate, key = authority.certificate(file)
    found = context_of(load(tls_cert=certificate, tls_key=key))
    assert found is not None
    return found


@asynccontextmanager
async def secured(authority: Authority, **given: Any) -> AsyncIterator[Site]:
    async with served(tls=(of_server(authority), authority.trusting()), **given) as site:
        yield site


def admission(site: Site) -> Admission:
    found = site.server.config.loaded_app.admission
    assert isinstance(found, Admission)
    return found


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(WITHIN):
        while not holds():
            await asyncio.sleep(0.005)


async def opened(site: Site, **given: Any) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", site.port, ssl=site.ssl, **given)


# --- as plainly -----------------------------------------------------------------------------------------------------


@WAYS
async def test_answers_are_those_of_a_plain_connection(authority: Authority, protocol: Any) -> None:
    said = [INSERT, PAGE, MANY, LOOKUP, STATUS, asked("POST /v1/sql", b'{"sql":"SELEC"}'), asked("GET /nowhere")]
    found = []
    async with served(protocol) as plain, secured(authority, protocol=protocol) as site:
        for each in (plain, site):
            answers = [*await each.say(*said, answers=len(said)), *await each.say(WRONG, answers=1)]
            found.append([*answers, *await each.say(LAST, answers=1)])
        assert plain.ways == site.ways
    assert found[0] == found[1]


@WAYS
@pytest.mark.parametrize("size", [1, 7, 64, 100_000])
async def test_answers_leave_in_order_whatever_the_records(authority: Authority, protocol: Any, size: int) -> None:
    requests = [INSERT, PAGE, STATUS, MANY, LOOKUP, STATUS, STATUS, PAGE, MANY, INSERT, PAGE]
    stream = b"".join(requests)
    parts = [stream[at : at + size] for at in range(0, len(stream), size)]
    async with served(protocol) as plain, secured(authority, protocol=protocol) as site:
        assert await plain.say(*parts, answers=11) == await site.say(*parts, answers=11)


@WAYS
async def test_long_bodies_and_long_answers_arrive_whole(authority: Authority, protocol: Any) -> None:
    body = b'{"rows":[{"id":1,"author":2,"title":"%s"}]}' % LONG.encode()
    async with secured(authority, protocol=protocol, limits=Limits()) as site:
        (written,) = await site.say(asked("POST /v1/tables/stories/rows", body), answers=1)
        assert written.startswith(b"HTTP/1.1 200")
        answers = await site.say(PAGE, PAGE, PAGE, answers=3)
        assert all(LONG.encode() in each for each in answers)
    await until(lambda: admission(site).connections == 0)
    assert (admission(site).received, admission(site).unsent) == (0, 0)


async def test_who_does_not_read_is_disconnected(authority: Authority) -> None:
    body = b'{"rows":[{"id":1,"author":2,"title":"%s"}]}' % LONG.encode()
    async with secured(authority, limits=Limits(request_timeout=0.5)) as site:
        await site.say(asked("POST /v1/tables/stories/rows", body), answers=1)
        reader, writer = await opened(site, limit=2**10)
        writer.write(PAGE * 20)
        await until(lambda: admission(site).unsent > 0)
        await until(lambda: admission(site).connections == 0)
        assert admission(site).refused["request_timeout"] >= 1
        assert admission(site).unsent == 0
        writer.transport.abort()
        del reader


class Client:
    """A client's side of TLS by hand, step by step. The socket blocks: it is for a thread."""

    def __init__(self, site: Site) -> None:
        assert site.ssl is not None
        self.socket = socket.create_connection(("127.0.0.1", site.port), WITHIN)
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = site.ssl.wrap_bio(self._in, self._out, server_hostname="localhost")

    def step(self, act: Callable[..., Any], *given: Any) -> Any:
        while True:
            try:
                done = act(*given)
            except ssl.SSLWantReadError:
                self.leave()
                arrived = self.socket.recv(65_536)
                if not arrived:
                    self._in.write_eof()
                self._in.write(arrived)
            else:
                self.leave()
                return done

    def leave(self) -> None:
        self.socket.sendall(self._out.read())

    def say_end(self) -> None:
        try:
            self.tls.unwrap()
        except ssl.SSLWantReadError:
            self.leave()

    def answer(self) -> bytes:
        found = b""
        while piece := self._piece():
            found += piece
        return found

    def _piece(self) -> bytes:
        try:
            return bytes(self.step(self.tls.read, 65_536))
        except ssl.SSLZeroReturnError:
            return b""


@WAYS
async def test_who_has_said_all_is_still_answered(authority: Authority, protocol: Any) -> None:
    """A close_notify of the client is the end of what it says, as a closed half of a plain connection is."""
    async with secured(authority, protocol=protocol) as site:
        going = site.hold_inserts()

        def talk() -> bytes:
            client = Client(site)
            client.step(client.tls.do_handshake)
            client.step(client.tls.write, INSERT)
            client.say_end()
            site.server.config.loop_of_test.call_soon_threadsafe(going.set)  # type: ignore[attr-defined]
            return client.answer()

        site.server.config.loop_of_test = asyncio.get_running_loop()  # type: ignore[attr-defined]
        answer = await asyncio.to_thread(talk)
        assert answer.startswith(b"HTTP/1.1 200")
        await until(lambda: admission(site).connections == 0)


async def test_a_request_may_come_with_the_end_of_the_handshake(authority: Authority) -> None:
    async with secured(authority) as site:

        def talk() -> bytes:
            client = Client(site)
            while True:
                try:
                    client.tls.do_handshake()
                    break
                except ssl.SSLWantReadError:
                    client.leave()
                    client._in.write(client.socket.recv(65_536))
            client.tls.write(LAST)
            client.leave()
            return client.answer()

        assert (await asyncio.to_thread(talk)).startswith(b"HTTP/1.1 200")


async def test_a_stop_ends_idle_connections_and_half_handshakes(authority: Authority) -> None:
    async with secured(authority) as site:
        _, writer = await opened(site)
        half = socket.create_connection(("127.0.0.1", site.port))
        await until(lambda: admission(site).connections == 2)
        async with asyncio.timeout(WITHIN):
            await site.server.shutdown()
        assert admission(site).connections == 0
        half.close()
        writer.close()


# --- what is no TLS ---------------------------------------------------------------------------------------------------


async def test_plain_http_is_told_to_use_tls(authority: Authority) -> None:
    async with secured(authority) as site:
        site.ssl = None
        (answer,) = await site.say(PAGE, answers=1)
        assert answer.startswith(b"HTTP/1.1 400")
        assert b"this port speaks TLS" in answer
        assert b"https://" in answer
        await until(lambda: admission(site).connections == 0)
        assert admission(site).refused == {"tls_handshake": 1}


@pytest.mark.parametrize("noise", [b"\x16\x03\x01\x00\x05hello", b"\x16\x03\x01\xff\xff", b"\x16" * 300_000, b"\x00"])
async def test_noise_ends_the_connection_and_nothing_else(authority: Authority, noise: bytes) -> None:
    async with secured(authority, limits=Limits(request_timeout=0.3)) as site:
        reader, writer = await asyncio.open_connection("127.0.0.1", site.port)
        writer.write(noise)
        async with asyncio.timeout(WITHIN):
            with suppress(ConnectionResetError):
                await reader.read()
        writer.close()
        await until(lambda: admission(site).connections == 0)
        assert admission(site).refused == {"tls_handshake": 1}
        await site.say(STATUS, answers=1)


async def test_noise_after_the_handshake_ends_the_connection(authority: Authority) -> None:
    async with secured(authority) as site:

        def talk() -> bytes:
            client = Client(site)
            client.step(client.tls.do_handshake)
            client.step(client.tls.write, PAGE)
            client.socket.sendall(b"\x17\x03\x03\x00\x20" + b"no record of ours at all........")
            found = b""
            with suppress(ConnectionResetError):
                while piece := client.socket.recv(65_536):
                    found += piece
            return found

        await asyncio.to_thread(talk)
        await until(lambda: admission(site).connections == 0)
        await site.say(STATUS, answers=1)


# --- handshakes that hang -------------------------------------------------------------------------------------------


def hello(site: Site) -> bytes:
    """The first flight of a client."""
    assert site.ssl is not None
    out = ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        site.ssl.wrap_bio(ssl.MemoryBIO(), out, server_hostname="localhost").do_handshake()
    return out.read()


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0], ids=["nothing", "half", "no end"])
async def test_a_handshake_that_hangs_counts_and_ends(authority: Authority, share: float) -> None:
    async with secured(authority, limits=Limits(request_timeout=0.4)) as site:
        said = hello(site)
        reader, writer = await asyncio.open_connection("127.0.0.1", site.port)
        writer.write(said[: int(len(said) * share)])
        await until(lambda: admission(site).connections == 1)
        async with asyncio.timeout(WITHIN):
            with suppress(ConnectionResetError):
                await reader.read()
        writer.close()
        await until(lambda: admission(site).connections == 0)
        assert admission(site).refused == {"tls_handshake": 1}


async def test_handshakes_that_hang_fill_the_limit_and_the_next_client_reads_why(authority: Authority) -> None:
    async with secured(authority, limits=Limits(max_connections_per_address=3)) as site:
        hanging = [socket.create_connection(("127.0.0.1", site.port)) for _ in range(3)]
        await until(lambda: admission(site).connections == 3)
        reader, writer = await opened(site)
        async with asyncio.timeout(WITHIN):
            answer = await one_answer(reader)
        assert answer.startswith(b"HTTP/1.1 429")
        assert b"max_connections_per_address" in answer
        writer.close()
        for each in hanging:
            each.close()
        await until(lambda: admission(site).connections == 0)
        await site.say(STATUS, answers=1)


async def test_others_are_answered_while_handshakes_are_computed(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, going, began = tls_module._handshake, threading.Event(), threading.Event()

    async with secured(authority) as site:
        reader, writer = await opened(site)
        writer.write(PAGE)
        await one_answer(reader)  # Its handshake is over on both sides.

        def slow(connection: ssl.SSLObject) -> bool:
            began.set()
            assert going.wait(WITHIN)
            return real(connection)

        monkeypatch.setattr(tls_module, "_handshake", slow)
        coming = [asyncio.create_task(opened(site)) for _ in range(50)]
        await asyncio.to_thread(began.wait, WITHIN)
        for _ in range(20):
            writer.write(PAGE)
            async with asyncio.timeout(WITHIN):
                assert (await one_answer(reader)).startswith(b"HTTP/1.1 200")
        assert not any(each.done() for each in coming)
        going.set()
        for _, each in await asyncio.gather(*coming):
            each.close()
        writer.close()


async def test_a_client_that_leaves_during_its_handshake(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    real, going = tls_module._handshake, threading.Event()
    monkeypatch.setattr(tls_module, "_handshake", lambda connection: going.wait(WITHIN) and real(connection))
    async with secured(authority) as site:
        client = socket.create_connection(("127.0.0.1", site.port))
        client.sendall(hello(site))
        await until(lambda: admission(site).connections == 1)
        await asyncio.sleep(0.05)
        client.close()
        await until(lambda: admission(site).connections == 0)
        going.set()
        await site.say(STATUS, answers=1)


# --- what is spoken -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_versions_of_today_are_spoken(authority: Authority, version: ssl.TLSVersion) -> None:
    async with secured(authority) as site:
        assert site.ssl is not None
        site.ssl.minimum_version = site.ssl.maximum_version = version
        _, writer = await opened(site)
        assert writer.get_extra_info("ssl_object").version() == version.name.replace("_", ".")
        writer.close()
        await site.say(STATUS, answers=1)


async def test_older_versions_are_not(authority: Authority) -> None:
    async with secured(authority) as site:
        assert site.ssl is not None
        with warnings.catch_warnings(action="ignore"):
            site.ssl.minimum_version = ssl.TLSVersion.TLSv1
            site.ssl.maximum_version = ssl.TLSVersion.TLSv1_1
        site.ssl.set_ciphers("ALL:@SECLEVEL=0")
        with pytest.raises(ssl.SSLError):
            await opened(site)
        await until(lambda: admission(site).refused == {"tls_handshake": 1})


@pytest.mark.skipif(shutil.which("openssl") is None, reason="there is no openssl")
async def test_a_client_cannot_have_keys_negotiated_again(authority: Authority) -> None:
    """Each would be a handshake on the event loop."""
    async with secured(authority) as site:
        address = f"127.0.0.1:{site.port}"
        words = ["openssl", "s_client", "-connect", address, "-tls1_2", "-CAfile", str(authority.path)]
        client = await asyncio.create_subprocess_exec(
            *words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        assert client.stdin is not None
        client.stdin.write(b"R\n")
        async with asyncio.timeout(WITHIN):
            said, _ = await client.communicate()
        assert b"RENEGOTIATING" in said
        assert b"no renegotiation" in said.lower()
        await until(lambda: admission(site).connections == 0)


async def test_a_new_certificate_is_for_new_connections(authority: Authority) -> None:
    async with secured(authority) as site:
        reader, writer = await opened(site)
        first = writer.get_extra_info("ssl_object").getpeercert()["serialNumber"]
        assert site.tls is not None
        site.tls.context = of_server(authority, "renewed")
        _, other = await opened(site)
        assert other.get_extra_info("ssl_object").getpeercert()["serialNumber"] != first
        writer.write(PAGE)
        async with asyncio.timeout(WITHIN):
            assert (await one_answer(reader)).startswith(b"HTTP/1.1 200")
        other.close()
        writer.close()
