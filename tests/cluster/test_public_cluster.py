"""A cluster that others reach: it wants an account and speaks TLS."""

from __future__ import annotations

import os
import re
import signal
import socket
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from running_cluster import DEADLINE, Running, alive, until
from typer.testing import CliRunner

from headrace import connect
from headrace.cli import app
from headrace.errors import BadRequest
from tests.kit.certificates import Authority

pytestmark = pytest.mark.cluster

SMALL = ("--host", "0.0.0.0", "--workers", "1", "--controllers", "1", "--shards", "1")


def test_it_wants_an_account_and_speaks_tls(
    launch: Callable[..., Running], elsewhere: tuple[str, str], tmp_path: Path
) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.certificate("server")
    public = (*SMALL, *elsewhere, "--tls-cert", str(certificate), "--tls-key", str(key))
    code, _, errors = launch(*public, "--tls-client-ca", str(authority.path)).finish()
    assert code == 1
    assert "there are no accounts" in errors
    assert elsewhere[1] in errors
    assert "--insecure" in errors

    told = re.search(r"headrace admin NAME (.*?)\)", errors)
    assert told is not None
    made = CliRunner().invoke(app, ["admin", "ann", *told[1].split()], input="a long password\n")
    assert made.exit_code == 0, made.output
    running = launch(*public, "--tls-client-ca", str(authority.path)).serves()
    assert running.url.startswith("https://127.0.0.1:")
    with connect(running.url, tls_ca=authority.path, login=("ann", "a long password")) as db:
        db.execute("CREATE TABLE t (id INT PRIMARY KEY); CREATE VIEW V AS SELECT id FROM t WHERE id = ?")
        db.execute("CREATE USER app IDENTIFIED WITH ssl_certificate CN 'app'; GRANT SELECT ON V TO app")
        db.execute("GRANT INSERT ON t TO app")
    client = authority.certificate("client", "app")
    with connect(running.url, tls_ca=authority.path, tls_cert=client[0], tls_key=client[1]) as db:
        token = db.table("t").insert({"id": 1}).token
        assert db.view("V").lookup(id=1, token=token) == [{"id": 1}]
    with connect(running.url.replace("https", "http")) as plain, pytest.raises(BadRequest, match="TLS"):
        plain.tables()

    def serial() -> str:
        host, port = running.url.removeprefix("https://").split(":")
        with (
            socket.create_connection((host, int(port)), DEADLINE) as tcp,
            authority.trusting().wrap_socket(tcp, server_hostname=host) as found,
        ):
            shown = found.getpeercert()
        assert shown is not None
        return str(shown["serialNumber"])

    before, api = serial(), running.pids()["api-1"]
    authority.certificate("server")
    running.popen.send_signal(signal.SIGHUP)
    until(lambda: serial() != before)
    assert running.pids()["api-1"] == api
    # One that is started again has the files of now.
    os.kill(api, signal.SIGKILL)
    until(lambda: running.pids().get("api-1", api) != api and alive(running.pids()["api-1"]))
    with httpx.Client(verify=authority.trusting(), timeout=DEADLINE) as http:
        until(lambda: http.get(f"{running.url}/readyz?exclude=storage,shards").is_success)
    assert serial() != before
    assert running.stop()[0] == 0
