"""Tokens as settings ask for them: where their keys come from, what a start refuses, and a server that takes them."""

from __future__ import annotations

import asyncio
import gzip
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread

import httpx
import pytest
from serving_process import Launch

from controller.access.accounts import Account, administrator
from controller.access.keeper import Keeper
from controller.access.passwords import new_id
from headrace.errors import BadRequest
from headrace.serving.access import BYTES_MAX, KeyFile, KeyUrl, begin_tokens
from headrace.settings import SettingsError, load
from migrations.access.rights import Privilege, Rights
from tests.kit.issuer import AUDIENCE, NAME, Issuer
from zookeeper.accounts import FileAccounts

Respond = Callable[[BaseHTTPRequestHandler], None]


@contextmanager
def answering(respond: Respond) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            respond(self)

        def log_message(self, *args: object) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/keys"
    finally:
        server.shutdown()
        server.server_close()


def with_status(status: int, body: bytes = b"{}", **headers: str) -> Respond:
    def respond(request: BaseHTTPRequestHandler) -> None:
        request.send_response(status)
        for name, value in headers.items():
            request.send_header(name, value)
        request.end_headers()
        request.wfile.write(body)

    return respond


async def test_keys_over_http() -> None:
    with answering(with_status(200, b'{"keys": []}')) as url:
        assert await KeyUrl(url).read() == b'{"keys": []}'
    for status, headers in ((404, {}), (500, {}), (302, {"location": "/elsewhere"}), (204, {})):
        with answering(with_status(status, b"", **headers)) as url, pytest.raises(ValueError, match=f"status {status}"):
            await KeyUrl(url).read()
    with answering(with_status(200, b" " * (BYTES_MAX + 1))) as url, pytest.raises(ValueError, match="more than"):
        await KeyUrl(url).read()
    bomb = gzip.compress(b" " * 100_000_000)
    with answering(with_status(200, bomb, **{"content-encoding": "gzip"})) as url:
        assert await KeyUrl(url).read() == bomb, "nothing is unpacked"
    with pytest.raises(ValueError, match=r"."):
        await KeyUrl(url).read()  # Nobody listens there any more.


async def test_an_answer_that_drips_ends_with_the_time_limit() -> None:
    end = Event()

    def drip(request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.end_headers()
        while not end.wait(0.05):
            try:
                request.wfile.write(b" ")
            except OSError:
                return

    with answering(drip) as url:
        began = time.monotonic()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await KeyUrl(url).read()
        assert time.monotonic() - began < 2
        end.set()


async def test_keys_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    for path in (file, tmp_path):
        with pytest.raises(ValueError, match="no such file"):
            await KeyFile(path).read()
    file.write_bytes(b"{}")
    assert await KeyFile(file).read() == b"{}"


def wrong(tmp_path: Path, **given: object) -> str:
    async def begin() -> None:
        assert await begin_tokens(load(None, **given)) is None, "it begins"

    with pytest.raises((BadRequest, SettingsError)) as refused:
        asyncio.run(begin())
    return str(refused.value)


def test_settings_that_cannot_be(tmp_path: Path) -> None:
    whole = {"jwt_keys": "https://issuer.example/keys", "jwt_issuer": NAME, "jwt_audience": ["headrace"]}
    for missing in ("jwt_issuer", "jwt_audience"):
        assert "jwt_audience" in wrong(tmp_path, **{**whole, missing: None})
    for url in ("http://issuer.example/keys", "ftp://127.0.0.1/keys", "https:///keys", "file:///keys"):
        assert "is no https:// URL" in wrong(tmp_path, **{**whole, "jwt_keys": url})
    assert "HS256" in wrong(tmp_path, **whole, jwt_algorithms=["ES256", "HS256"])
    assert "by which no token may be signed" in wrong(tmp_path, **whole, jwt_algorithms=["none"])
    assert "there is no such file" in wrong(tmp_path, **{**whole, "jwt_keys": str(tmp_path / "absent")})
    empty = tmp_path / "empty"
    empty.write_text('{"keys": []}')
    assert "has no key" in wrong(tmp_path, **{**whole, "jwt_keys": str(empty)})


def test_an_issuer_that_is_down_keeps_no_server_from_starting() -> None:
    with answering(with_status(500)) as url:
        settings = load(None, jwt_keys=url, jwt_issuer=NAME, jwt_audience=["headrace"])

        async def begin() -> dict[str, object]:
            tokens = await begin_tokens(settings)
            assert tokens is not None
            async with asyncio.timeout(10):
                while not tokens.status()["key_failures"]:
                    await asyncio.sleep(0.01)
            shown = tokens.status()
            await tokens.close()
            return shown

        assert "status 500" in str(asyncio.run(begin())["key_error"])


async def _accounts(data: Path) -> None:
    keeper = Keeper(FileAccounts(data))
    await keeper.start()
    ann = administrator("ann", new_id(), await keeper.passwords.made("a long one"), None)
    await keeper.change("ann", lambda before: ann)
    rights = Rights({"titles": frozenset({Privilege.SELECT}), "*": frozenset({Privilege.METRICS})})
    reader = Account("reader", new_id(), is_role=True, rights=rights)
    await keeper.change("reader", lambda before: reader)
    await keeper.close()


def test_a_server_that_takes_tokens(launch_local: Launch, tmp_path: Path) -> None:
    issuer, keys, data = Issuer(), tmp_path / "keys.json", tmp_path / "data"
    keys.write_bytes(issuer.document())
    data.mkdir()
    asyncio.run(_accounts(data))
    process = launch_local("--jwt-keys", str(keys), "--jwt-issuer", NAME, "--jwt-audience", AUDIENCE)
    ann = ("ann", "a long one")
    with httpx.Client(base_url=process.url, timeout=60) as http:
        sql = "CREATE TABLE stories (id INT PRIMARY KEY, title TEXT); INSERT INTO stories VALUES (1, 'one');"
        sql += "CREATE VIEW Titles AS SELECT title FROM stories WHERE id = ?"
        assert http.post("/v1/sql", json={"sql": sql}, auth=ann).status_code == 200

        def status(token: str, path: str = "/v1/views/Titles?id=1") -> int:
            return http.get(path, headers={"authorization": f"Bearer {token}"}).status_code

        token = issuer.token()
        assert [status(token) for _ in range(3)] == [200] * 3
        assert status(token, "/v1/tables") == 200
        assert status(issuer.token(aud="other")) == 401
        told = http.get("/v1/status", headers={"authorization": f"Bearer {token}"}).json()["authentication"]
        assert (told["jwt"]["keys"], told["jwt"]["refused"]) == (1, {"audience": 1})
        shown = http.get("/metrics", headers={"authorization": f"Bearer {token}"}).text
        assert "headrace_authentication_jwt_refused_audience 1.0" in shown
        assert "headrace_authentication_jwt_key_failures 0.0" in shown
        issuer.rotate("second")
        keys.write_bytes(issuer.document())
        assert status(issuer.token("second")) == 200
        revoke = {"sql": "REVOKE SELECT ON Titles FROM reader"}
        assert http.post("/v1/sql", json=revoke, auth=ann).status_code == 200
        assert status(token) == 403


def test_a_server_does_not_start_with_keys_that_cannot_be_used(launch_local: Launch, tmp_path: Path) -> None:
    keys = tmp_path / "keys.json"
    keys.write_text("nothing")
    process = launch_local("--jwt-keys", str(keys), "--jwt-issuer", "x", "--jwt-audience", "y", wait=False)
    code, _, err = process.finish()
    assert code != 0
    assert "it is not JSON" in err
    assert "Traceback" not in err
