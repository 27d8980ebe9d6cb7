"""``headrace serve`` over TLS, and what it asks for before it listens where others reach it."""

from __future__ import annotations

import json
import signal
import socket
import ssl
import time
from pathlib import Path

import httpx
import pytest
from serving_process import SCHEMA, Launch, Process
from typer.testing import CliRunner

from headrace import connect, connect_async
from headrace.cli import app
from headrace.errors import BadRequest, ConnectionFailed, HostNotAllowed
from tests.kit.certificates import Authority

WITHIN = 60.0
SELECT = "SELECT id FROM stories"


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def files(pair: tuple[Path, Path]) -> list[str]:
    return ["--tls-cert", str(pair[0]), "--tls-key", str(pair[1])]


@pytest.fixture
def secured(launch_fake: Launch, authority: Authority) -> Process:
    process = launch_fake(*files(authority.certificate("server")))
    assert process.url.startswith("https://")
    return process


def serial(url: str, authority: Authority) -> str:
    """That of the certificate which a new connection is shown."""
    host, port = url.removeprefix("https://").split(":")
    with (
        socket.create_connection((host, int(port)), WITHIN) as plain,
        authority.trusting().wrap_socket(plain, server_hostname=host) as found,
    ):
        shown = found.getpeercert()
    assert shown is not None
    return str(shown["serialNumber"])


# --- clients ----------------------------------------------------------------------------------------------------------


async def test_clients_speak_tls(secured: Process, authority: Authority) -> None:
    with connect(secured.url, tls_ca=authority.path) as db:
        db.execute(SCHEMA)
        db.table("stories").insert({"id": 1, "title": "one"})
        assert db.view("StoriesWithVC").lookup(id=1)[0]["title"] == "one"
    async with connect_async(secured.url, tls_ca=str(authority.path)) as other:
        assert (await other.execute(SELECT)).rows == ((1,),)


def test_commands_speak_tls(secured: Process, authority: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    runner = CliRunner()
    monkeypatch.setenv("HEADRACE_URL", secured.url)
    for name in ("HEADRACE_TLS_CA", "SSL_CERT_FILE"):
        monkeypatch.setenv(name, str(authority.path))
        for words in (["sql", "SELECT 1"], ["status"], ["schema"]):
            done = runner.invoke(app, words)
            assert done.exit_code == 0, done.output
        monkeypatch.delenv(name)


def test_what_is_wrong_is_said(secured: Process, authority: Authority, tmp_path: Path) -> None:
    (tmp_path / "others").mkdir()
    stranger = Authority(tmp_path / "others")
    for trusted in (None, stranger.path):
        with connect(secured.url, tls_ca=trusted) as db, pytest.raises(ConnectionFailed, match="tls_ca"):
            db.execute(SELECT)
    plain = secured.url.replace("https", "http")
    with connect(plain) as db, pytest.raises(BadRequest, match="speaks TLS"):
        db.execute(SELECT)
    with pytest.raises(BadRequest, match="cannot take the certificates"):
        connect(secured.url, tls_ca=tmp_path / "none.pem")
    with pytest.raises(BadRequest, match="cannot take the certificate"):
        connect(secured.url, tls_ca=authority.path, tls_cert=authority.path)


def test_tls_to_a_plain_server_says_so(launch_fake: Launch, authority: Authority) -> None:
    process = launch_fake()
    url = process.url.replace("http", "https")
    with connect(url, tls_ca=authority.path) as db, pytest.raises(ConnectionFailed, match="http://"):
        db.execute(SELECT)


# --- files ------------------------------------------------------------------------------------------------------------


def test_certificates_are_read_again_on_sighup_and_connections_stay(secured: Process, authority: Authority) -> None:
    first = serial(secured.url, authority)
    with httpx.Client(base_url=secured.url, verify=authority.trusting(), timeout=WITHIN) as kept:
        assert kept.get("/healthz").status_code == 200

        def hang_up(says: str) -> None:
            secured.popen.send_signal(signal.SIGHUP)
            until = time.monotonic() + WITHIN
            while says not in secured.errors():
                assert time.monotonic() < until, secured.errors()
                time.sleep(0.02)

        certificate, key = authority.certificate("server")
        hang_up("again")
        renewed = serial(secured.url, authority)
        assert renewed != first

        key.write_text("no key")
        hang_up("are not taken")
        assert serial(secured.url, authority) == renewed
        certificate, key = authority.certificate("server")
        key.chmod(0o644)
        hang_up("0644")
        assert serial(secured.url, authority) == renewed
        certificate.unlink()
        key.chmod(0o600)
        hang_up("No such file")
        assert serial(secured.url, authority) == renewed

        network = kept.get("/healthz").extensions["network_stream"]
        assert str(network.get_extra_info("ssl_object").getpeercert()["serialNumber"]) == first
    secured.popen.send_signal(signal.SIGTERM)
    assert secured.finish()[0] == 0


def test_files_that_cannot_be_taken_keep_it_from_starting(launch_fake: Launch, authority: Authority) -> None:
    certificate, key = authority.certificate("server")
    other = authority.certificate("other")[1]

    def says(*words: str | Path) -> str:
        process = launch_fake(*map(str, words), wait=False)
        code, _, errors = process.finish()
        assert code == 1
        assert "Traceback" not in errors
        return errors

    assert "cannot read the key" in says("--tls-cert", certificate, "--tls-key", key.with_name("none"))
    assert "key values mismatch" in says("--tls-cert", certificate, "--tls-key", other)
    assert 'no "tls_cert"' in says("--tls-key", key)
    assert 'no "tls_cert"' in says("--tls-client-ca", certificate)
    assert "clients' CAs" in says("--tls-cert", certificate, "--tls-key", key, "--tls-client-ca", key)
    key.chmod(0o604)
    assert "(mode 0604)" in says("--tls-cert", certificate, "--tls-key", key)


def test_a_key_with_a_passphrase_is_refused_and_not_asked_for(launch_fake: Launch, authority: Authority) -> None:
    from cryptography.hazmat.primitives import serialization

    certificate, key = authority.certificate("server")
    private = serialization.load_pem_private_key(key.read_bytes(), None)
    key.write_bytes(
        private.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"word"),
        )
    )
    code, _, errors = launch_fake(*files((certificate, key)), wait=False).finish()
    assert code == 1
    assert "without a passphrase" in errors


def test_old_versions_and_weak_ciphers_are_refused(secured: Process, authority: Authority) -> None:
    host, port = secured.url.removeprefix("https://").split(":")
    for ciphers in ("AES128-SHA", "ECDHE-ECDSA-AES128-SHA", "NULL:eNULL:@SECLEVEL=0"):
        client = authority.trusting()
        client.maximum_version = ssl.TLSVersion.TLSv1_2
        client.set_ciphers(ciphers)
        with socket.create_connection((host, int(port)), WITHIN) as plain, pytest.raises((ssl.SSLError, OSError)):
            client.wrap_socket(plain, server_hostname=host)


# --- whom it answers --------------------------------------------------------------------------------------------------

REFUSED = "there are no accounts"


def test_others_are_not_let_in_without_accounts(launch_local: Launch, tmp_path: Path) -> None:
    started = time.monotonic()
    code, _, errors = launch_local("--host", "0.0.0.0", wait=False).finish()
    assert code == 1
    assert REFUSED in errors
    assert "headrace admin NAME" in errors
    assert "--insecure" in errors
    assert not (tmp_path / "data").exists(), time.monotonic() - started

    process = launch_local("--host", "0.0.0.0", "--insecure")
    assert httpx.get(f"{process.url}/v1/tables", timeout=WITHIN).status_code == 200
    assert "--insecure" in process.errors()
    process.popen.send_signal(signal.SIGTERM)
    assert process.finish()[0] == 0

    data = tmp_path / "data"
    (data / "accounts.json").write_text('{"format": 1, "accounts": {}}')  # A file that has nobody in it.
    code, _, errors = launch_local("--host", "0.0.0.0", wait=False).finish()
    assert (code, REFUSED in errors) == (1, True)
    (data / "accounts.json").unlink()
    done = CliRunner().invoke(app, ["admin", "ann", "--data", str(data)], input="a long password\n")
    assert done.exit_code == 0, done.output
    process = launch_local("--host", "0.0.0.0")
    assert httpx.get(f"{process.url}/v1/tables", timeout=WITHIN).status_code == 401


def test_the_administrator_may_come_before_the_first_start(launch_local: Launch, tmp_path: Path) -> None:
    words = ["admin", "ann", "--data", str(tmp_path / "data")]
    made = CliRunner().invoke(app, words, input="a long password\n")
    assert made.exit_code == 0, made.output
    assert "it is made" in made.output
    assert (tmp_path / "data").stat().st_mode & 0o777 == 0o700
    process = launch_local("--host", "0.0.0.0")
    with connect(process.url, login=("ann", "a long password")) as db:
        db.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    words[-1] = str(tmp_path / "nowhere" / "data")
    refused = CliRunner().invoke(app, words, input="a long password\n")
    assert "there is no data directory" in str(refused.exception)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "127.0.0.2"])
def test_on_loopback_it_is_open_and_answers_to_its_own_names(launch_fake: Launch, host: str) -> None:
    process = launch_fake("--host", host)
    port = process.url.rpartition(":")[2]
    for own in (
        "localhost",
        f"LOCALHOST:{port}",
        "app.localhost:1",
        f"127.0.0.1:{port}",
        "[::1]:80",
        host,
        "localhost.",
    ):
        assert httpx.get(f"{process.url}/v1/tables", headers={"host": own}, timeout=WITHIN).status_code == 200, own
    for other in (
        "evil.example",
        f"evil.example:{port}",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "10.0.0.1",
        "",
    ):
        answer = httpx.get(f"{process.url}/v1/tables", headers={"host": other}, timeout=WITHIN)
        error = answer.json()["error"]
        assert (answer.status_code, error["code"]) == (421, "host_not_allowed"), other
        assert "--allowed-hosts" in error["hint"]
        probe = httpx.get(f"{process.url}/healthz", headers={"host": other}, timeout=WITHIN)
        assert json.loads(probe.content) == {"status": "ok"}


def test_names_are_allowed(launch_fake: Launch) -> None:
    process = launch_fake("--allowed-hosts", "app.example", "--allowed-hosts", "*.inner.example")

    def status(host: str) -> int:
        return httpx.get(f"{process.url}/v1/tables", headers={"host": host}, timeout=WITHIN).status_code

    assert [status(each) for each in ("app.example", "APP.example:443", "a.inner.example", "localhost")] == [200] * 4
    assert [status(each) for each in ("inner.example", "xapp.example", "evilinner.example")] == [421] * 3
    with connect(process.url.replace("127.0.0.1", "127.1"), timeout=WITHIN) as db, pytest.raises(HostNotAllowed):
        db.execute(SELECT)


def test_wrong_settings_are_refused(launch_fake: Launch) -> None:
    for words, says in (
        (["--allowed-hosts", "app.example:80"], "without a port"),
        (["--allowed-hosts", "http://app.example"], "like app.example.com"),
        (["--cors-origins", "app.example"], "https://app.example.com"),
        (["--cors-origins", "https://app.example/"], "https://app.example.com"),
        (["--cors-origins", "null"], "https://app.example.com"),
    ):
        code, _, errors = launch_fake(*words, wait=False).finish()
        assert code == 1
        assert says in errors
