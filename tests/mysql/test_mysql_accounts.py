"""Who is let in by MySQL's protocol, what they may, and what is recorded: the same as over HTTP."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from functools import partial
from time import monotonic, sleep
from typing import Any

import httpx
import pymysql
import pytest

from api.mysql.proving import NATIVE, SHA2, fits, new_nonce
from controller.access.passwords import verifier
from tests.attack.who_may import STATEMENTS
from tests.mysql.conftest import ADMINISTRATOR, PASSWORD, MysqlServer
from tests.mysql.wire_client import SECONDS

DENIED = 1045


@pytest.fixture
def ann(closed_server: MysqlServer) -> Iterator[Any]:
    with closed_server.secured(ADMINISTRATOR, PASSWORD) as db:
        yield db


def rows(db: Any, sql: str, *params: Any) -> tuple[Any, ...]:
    with db.cursor() as cursor:
        cursor.execute(sql, params or None)
        return tuple(cursor.fetchall())


def refused(run: Any) -> int:
    with pytest.raises(pymysql.MySQLError) as raised:
        run()
    assert "abracadabra" not in str(raised.value)
    return int(raised.value.args[0])


# --- who is let in ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("plugin", [SHA2, NATIVE])
def test_a_proof_fits_its_password_alone(plugin: str) -> None:
    from pymysql import _auth

    nonce, kept = new_nonce(), verifier(plugin, "right")
    make = _auth.scramble_caching_sha2 if plugin == SHA2 else _auth.scramble_native_password
    assert fits(plugin, make(b"right", nonce), nonce, kept)
    assert not fits(plugin, make(b"wrong", nonce), nonce, kept)
    assert not fits(plugin, make(b"right", nonce), new_nonce(), kept)
    for proof in (b"", b"x", make(b"right", nonce)[:-1], make(b"right", nonce) + b"\0"):
        assert not fits(plugin, proof, nonce, kept)


@pytest.mark.parametrize(("user", "password"), [("sha", "of sha"), ("native", "of native")])
@pytest.mark.parametrize("tls", [False, True])
def test_a_verifier_is_enough(closed_server: MysqlServer, user: str, password: str, tls: bool) -> None:
    connect = closed_server.secured if tls else closed_server.connect
    with connect(user, password) as db:
        assert rows(db, "SELECT 1") == ((1,),)


def test_a_password_is_taken_over_tls_only(closed_server: MysqlServer) -> None:
    with closed_server.secured("plain", "of plain") as db:
        assert rows(db, "SELECT 1") == ((1,),)
    assert refused(lambda: closed_server.connect("plain", "of plain")) == DENIED


@pytest.mark.parametrize("user", ["sha", "plain", "native", "nobody", "root", "", ADMINISTRATOR])
def test_a_wrong_password_is_refused_like_an_unknown_name(closed_server: MysqlServer, user: str) -> None:
    """On an address of its own, which counts its failures."""
    number = ("sha", "plain", "native", "nobody", "root", "", ADMINISTRATOR).index(user)
    source = f"127.0.1.{number + 1}"

    def connect(**options: Any) -> Any:
        given = {"host": "127.0.0.1", "port": closed_server.port, "user": user, "password": "wrong", **options}
        return pymysql.connect(ssl_disabled="ssl_ca" not in options, bind_address=source, **given)

    assert refused(connect) == DENIED
    assert refused(lambda: connect(password="")) == DENIED
    assert closed_server.authority is not None
    assert refused(lambda: connect(ssl_ca=str(closed_server.authority.path))) == DENIED


def test_who_guesses_waits(closed_server: MysqlServer) -> None:
    options = {
        "host": "127.0.0.1",
        "port": closed_server.port,
        "user": "sha",
        "bind_address": "127.0.2.1",
        "ssl_disabled": True,
    }
    numbers = [refused(partial(pymysql.connect, password=f"guess {each}", **options)) for each in range(11)]
    assert numbers == [DENIED] * 10 + [1129]
    assert refused(lambda: pymysql.connect(password="of sha", **options)) == 1129, "also with the right one"
    with closed_server.connect("sha", "of sha") as db:
        assert rows(db, "SELECT 1") == ((1,),)
    closed_server.until_audited(tried="sha", address="127.0.2.1")


def test_without_accounts_there_is_root_alone(open_server: MysqlServer) -> None:
    assert refused(lambda: open_server.connect("bob")) == DENIED
    assert refused(lambda: open_server.connect("root", "a password")) == DENIED


# --- what they may ------------------------------------------------------------------------------------------------


def test_rights_are_those_of_http(ann: Any, closed_server: MysqlServer) -> None:
    with closed_server.connect("sha", "of sha") as db:
        for statement in (
            "SELECT word FROM secrets",
            "SELECT word FROM secrets WHERE id = 1",
            "INSERT INTO stories VALUES (2, 7, 'two')",
            "DROP TABLE stories",
            "CREATE TABLE more (id INT)",
            "SHOW GRANTS FOR ann",
            "KILL 1",
        ):
            assert refused(partial(rows, db, statement)) == 1142, statement
    closed_server.until_audited(kind="refusal", statement="secrets", account="sha")
    assert all("abracadabra" not in str(each) for each in closed_server.audited())


def test_policies_apply(ann: Any, closed_server: MysqlServer) -> None:
    assert rows(ann, "SELECT title FROM stories") == (("one",),), "an administrator bypasses them"
    with closed_server.connect("sha", "of sha") as db:
        assert rows(db, "SELECT title FROM stories") == ()
        assert rows(db, "SELECT id, title FROM stories WHERE author = 7") == ()


def test_every_statement_needs_its_rights(ann: Any, closed_server: MysqlServer) -> None:
    """The table of who may what, with no right at all: the same refusals as over HTTP."""
    rows(ann, "CREATE USER bare IDENTIFIED WITH caching_sha2_password BY 'of bare'")
    with (
        closed_server.connect("bare", "of bare") as db,
        httpx.Client(base_url=closed_server.url, verify=False, auth=("bare", "of bare"), timeout=SECONDS) as http,
    ):
        for statement, needed in STATEMENTS:
            if needed and ";" not in statement:
                answer = http.post("/v1/sql", json={"sql": statement})
                assert answer.status_code == 403, (statement, answer.text)
                assert refused(partial(rows, db, statement)) == 1142, statement


def test_rights_are_looked_up_again_and_a_connection_ends_with_its_account(
    ann: Any, closed_server: MysqlServer
) -> None:
    rows(ann, "CREATE USER later IDENTIFIED WITH caching_sha2_password BY 'of later'")
    with closed_server.connect("later", "of later") as db:
        assert refused(lambda: rows(db, "SELECT id FROM secrets")) == 1142
        rows(ann, "GRANT SELECT ON secrets TO later")
        rows(ann, "GRANT QUERY ON * TO later")
        assert rows(db, "SELECT id FROM secrets") == ((1,),)
        rows(ann, "REVOKE SELECT ON secrets FROM later")
        assert refused(lambda: rows(db, "SELECT id FROM secrets")) == 1142
        rows(ann, "DROP USER later")
        assert refused(lambda: rows(db, "SELECT 1")) == DENIED
        with pytest.raises(pymysql.MySQLError):
            rows(db, "SELECT 1")


def test_another_user_may_take_a_connection(closed_server: MysqlServer) -> None:
    """COM_CHANGE_USER: with the right proof only, and nothing of the first one's stays."""
    from pymysql import _auth

    for password, number in (("of sha", 0), ("wrong", DENIED)):
        with closed_server.connect("native", "of native") as db:
            assert refused(lambda: rows(db, "SELECT title FROM stories")) == 1142
            db._execute_command(0x11, b"sha\0\0\0\x2d\0caching_sha2_password\0")
            asked = db._read_packet()
            assert asked.is_auth_switch_request()
            asked.read_uint8()
            assert asked.read_string() == b"caching_sha2_password"
            nonce = asked.read_all().removesuffix(b"\0")
            db.write_packet(_auth.scramble_caching_sha2(password.encode(), nonce))
            if number:
                assert refused(db._read_packet) == number
            else:
                assert db._read_packet().is_extra_auth_data()
                assert db._read_packet().is_ok_packet()
                assert rows(db, "SELECT title FROM stories") == ()


def test_definitions_are_recorded(ann: Any, closed_server: MysqlServer) -> None:
    rows(ann, "CREATE TABLE recorded (id INT)")
    rows(ann, "ALTER USER native IDENTIFIED WITH mysql_native_password BY 'of native'")
    closed_server.until_audited(kind="definition", statement="recorded", route="COM_QUERY")
    closed_server.until_audited(kind="data", account=ADMINISTRATOR, route="COM_QUERY")
    assert all("of native" not in str(each) and PASSWORD not in str(each) for each in closed_server.audited())


# --- TLS ----------------------------------------------------------------------------------------------------------


def test_who_asks_for_tls_and_does_not_speak_it_is_hung_up_on(closed_server: MysqlServer) -> None:
    asked = (1 << 9 | 1 << 11 | 1 << 15).to_bytes(4, "little") + bytes(28)
    for behind in (b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\xff\xff" + bytes(200), b"\x16"):
        with socket.create_connection(("127.0.0.1", closed_server.port), SECONDS) as plain:
            plain.recv(1 << 16)
            plain.sendall(b"\x20\0\0\x01" + asked + behind)
            plain.shutdown(socket.SHUT_WR)
            said = bytearray()
            while more := plain.recv(1 << 16):
                said += more
            assert len(said) < 100


def test_a_connection_in_a_transaction_is_closed_when_it_is_idle_for_too_long(tmp_path: Any) -> None:
    from tests.mysql.conftest import started, stopped

    server = started(tmp_path, "--transaction-idle", "0.3")
    try:
        with server.connect() as quiet, server.connect() as db:
            rows(db, "CREATE TABLE t (id INT PRIMARY KEY)")
            rows(quiet, "SELECT 1")
            with server.connect(autocommit=False) as open_one:
                rows(open_one, "INSERT INTO t VALUES (1)")
                deadline = monotonic() + SECONDS
                while rows(db, "SHOW TRANSACTIONS"):
                    assert monotonic() < deadline
                    sleep(0.02)
                with pytest.raises(pymysql.MySQLError):
                    rows(open_one, "SELECT 1")
            assert rows(quiet, "SELECT COUNT(*) FROM t") == ((0,),)
    finally:
        stopped(server)
