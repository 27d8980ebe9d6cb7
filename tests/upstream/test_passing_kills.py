"""Who passes on while the upstream, the follower or a statement is killed, and whose account may pass on what."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from random import Random
from threading import Thread
from time import monotonic, sleep
from typing import Any

import pymysql  # type: ignore[import-untyped]
import pytest

from headrace import connect
from loadgen.bench import servers
from tests.mysql.wire_client import WireClient
from tests.told_process import ROOT
from tests.upstream.passing_site import APP, BY_AUTHOR, COUNTED, PASSWORD, VIEWS, PassingSite, rows
from tests.upstream.upstream_server import until

pytestmark = pytest.mark.skipif(servers.mariadbd() is None, reason="MariaDB is not installed")
_LONG, _STRING = 3, 253


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PassingSite]:
    made = PassingSite(tmp_path_factory.mktemp("killed"), "--mysql-upstream-connections", "12")
    try:
        made.define(*VIEWS)
        yield made
    finally:
        made.give_up()


def test_a_lost_upstream_ends_a_transaction_and_views_go_on(site: PassingSite) -> None:
    sql = BY_AUTHOR.format(1)
    with site.connect() as opens, site.connect() as idle:
        site.until_here(idle, sql)
        rows(idle, "SET @@lock_wait_timeout = 77")
        rows(opens, "BEGIN")
        rows(opens, "INSERT INTO plain VALUES (50, 'lost')")
        site.upstream.kill()
        assert len(rows(idle, sql)) >= 5, "views answer without it"
        with pytest.raises(pymysql.err.OperationalError, match=r"2006|2013"):
            rows(opens, "INSERT INTO plain VALUES (51, 'must not be alone')")
        with pytest.raises((pymysql.err.OperationalError, pymysql.err.InterfaceError)):
            rows(opens, "INSERT INTO plain VALUES (52, 'nor this')")
        with pytest.raises(pymysql.err.OperationalError, match="2003"):
            rows(idle, "SELECT word FROM plain WHERE id = 1")
        assert len(rows(idle, sql)) >= 5
        site.upstream.start()
        assert rows(idle, "SELECT @@lock_wait_timeout, (SELECT word FROM plain WHERE id = 1)") == [(77, "one")]
        assert site.upstream.run("SELECT * FROM plain WHERE id >= 50") == []
        site.until_here(idle, sql)


def test_what_only_the_lost_session_had_is_not_pretended(site: PassingSite) -> None:
    with site.connect() as db:
        rows(db, "SELECT @a := 7")
        site.upstream.kill()
        site.upstream.start()
        with pytest.raises(pymysql.err.OperationalError, match="2006"):
            rows(db, "SELECT @a")


def test_without_a_follower_the_upstream_answers(site: PassingSite) -> None:
    with site.connect() as db:
        site.until_here(db, COUNTED + "2")
        site.unfollow()
        ((before,),) = rows(db, COUNTED + "2")
        for user in range(500, 503):
            rows(db, f"INSERT INTO votes VALUES ({user}, 2)")
            began = monotonic()
            assert rows(db, COUNTED + "2") == [(user - 499 + before,)]
            assert 0.4 < monotonic() - began < 5
        with site.connect() as other:
            until(lambda: not site.answered_here(other, COUNTED + "2"), "the follower counts as gone", 40)
        site.follow()
        site.until_here(db, COUNTED + "2")
        assert rows(db, COUNTED + "2") == [(before + 3,)]


def test_kill_reaches_the_upstream(site: PassingSite) -> None:
    with site.connect() as db, site.connect() as other:
        ((number,),) = rows(db, "SELECT CONNECTION_ID()")
        raised: list[BaseException] = []

        def sleeps() -> None:
            try:
                rows(db, "SELECT SLEEP(60), COUNT(*) FROM stories")
            except pymysql.err.MySQLError as error:
                raised.append(error)

        thread = Thread(target=sleeps)
        thread.start()
        until(lambda: _sleeping(site) == 1, "it sleeps upstream")
        rows(other, f"KILL QUERY {number}")
        thread.join(30)
        assert not thread.is_alive()
        assert raised == [] or raised[0].args[0] == 1317
        assert rows(db, "SELECT 5") == [(5,)]
        until(lambda: _sleeping(site) == 0, "nothing sleeps upstream")


def test_a_client_that_leaves_is_not_worked_for(site: PassingSite) -> None:
    db = site.connect()
    thread = Thread(target=lambda: _left(db))
    thread.start()
    until(lambda: _sleeping(site) == 1, "it sleeps upstream")
    db._sock.shutdown(2)
    thread.join(30)
    until(lambda: _sleeping(site) == 0, "nobody is left upstream")


def _left(db: Any) -> None:
    with suppress(pymysql.err.MySQLError, OSError):
        rows(db, "SELECT SLEEP(60) FROM stories")


def _sleeping(site: PassingSite) -> int:
    sql = "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE INFO LIKE 'SELECT SLEEP%'"
    return int(site.upstream.run(sql)[0][0])


def test_connections_to_it_are_limited(site: PassingSite) -> None:
    until(lambda: _connects(site), "those of the tests before are gone")
    opened = []
    try:
        for _ in range(12):
            opened.append(site.connect())
            rows(opened[-1], "SELECT 1 + 1")
        with pytest.raises(pymysql.err.OperationalError, match=r"1040.*mysql_upstream_connections"):
            site.connect()
    finally:
        for each in opened:
            each.close()
    until(lambda: _connects(site), "there is room again")


def _connects(site: PassingSite) -> bool:
    with suppress(pymysql.err.OperationalError), site.connect() as db:
        return rows(db, "SELECT 2 + 1") == [(3,)]
    return False


def test_prepared_statements(site: PassingSite) -> None:
    client = WireClient(site.port)
    client.command(b"\x02shop")
    view, _ = client.prepare("SELECT COUNT(*) AS n FROM votes WHERE story = ?")
    write, _ = client.prepare("INSERT INTO votes VALUES (?, ?)")
    read, _ = client.prepare("SELECT title FROM stories WHERE id = ? AND title LIKE ?")

    def counted(story: int) -> int:
        (row,) = client.rows(client.execute(view, [(_LONG, story.to_bytes(4, "little"))]))
        return int.from_bytes(row[2:], "little")

    before = counted(30)
    with site.connect() as db:
        until(lambda: _moves(site, 0, lambda: counted(30)), "a view answers it", 30)
        for user in range(600, 640):
            sent = [(_LONG, each.to_bytes(4, "little")) for each in (user, 30)]
            assert client.execute(write, sent)[0] == 0
            assert counted(30) == user - 599 + before
        rows(db, "SELECT 1")
    client.long_data(read, 1, b"story ")
    client.long_data(read, 1, b"3%")
    (row,) = client.rows(client.execute(read, [(_LONG, (3).to_bytes(4, "little")), (_STRING, None)]))
    assert row.endswith(b"story 3")
    # Its rows by a cursor, three at a time.
    listed, _ = client.prepare("SELECT id FROM stories WHERE id <= 7 ORDER BY id")
    assert client.execute(listed, cursor=True) == b"\x01"
    client.read()
    assert int.from_bytes(client.read()[3:5], "little") & 64, "a cursor is open"
    fetched = [_fetched(client, listed) for _ in range(3)]
    assert [len(each) for each in fetched] == [3, 3, 1]
    client.close()


def _fetched(client: WireClient, number: int) -> list[bytes]:
    client.send(b"\x1c" + number.to_bytes(4, "little") + (3).to_bytes(4, "little"))
    return client.left()


def _moves(site: PassingSite, place: int, work: Any) -> bool:
    before = site.counts()[place]
    work()
    return site.counts()[place] > before


def test_no_read_is_stale_in_thousands(site: PassingSite) -> None:
    """Several sessions write and read by turns, while the follower is killed twice."""
    wrong: list[str] = []
    done = [0] * 3

    def session(number: int) -> None:
        random, story = Random(number), 40 + number
        with site.connect() as db:
            ((count,),) = rows(db, COUNTED + str(story))
            for user in range(1_000, 2_000):
                if random.random() < 0.8:
                    rows(db, f"INSERT INTO votes VALUES ({user}, {story})")
                    count += 1
                elif count > 5:
                    rows(db, "BEGIN")
                    with db.cursor() as cursor:
                        count -= cursor.execute(f"DELETE FROM votes WHERE story = {story} AND user >= 1000 LIMIT 3")
                    rows(db, "COMMIT")
                ((found,),) = rows(db, COUNTED + str(story))
                if found != count:
                    wrong.append(f"{story}: {found} and not {count}")
                    return
                done[number] += 1

    threads = [Thread(target=session, args=(number,)) for number in range(3)]
    before = site.counts()
    for each in threads:
        each.start()
    for _ in range(2):
        sleep(4)
        site.unfollow()
        sleep(1)
        site.follow()
    for each in threads:
        each.join(240)
    assert not wrong
    assert done == [1_000] * 3
    assert site.counts()[0] - before[0] > 500, "views answer many of them"


def test_accounts_pass_on_what_they_may(site: PassingSite, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Last: afterwards nobody gets in without an account."""
    directory = tmp_path_factory.mktemp("accounts")
    file = directory / "accounts.toml"
    file.write_text(f'root_of = "{APP}:{PASSWORD}"\nann = "{APP}:{PASSWORD}"\n')
    file.chmod(0o600)
    site.settings = (*site.settings, "--mysql-upstream-accounts", str(file))
    site.unfollow()
    site.server.popen.send_signal(signal.SIGTERM)
    site.server.finish(60)
    admin = [sys.executable, "-m", "headrace", "admin", "boss", "--data", str(site.directory / "data")]
    env = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT}/clients/python"}
    subprocess.run(admin, input="a long one\n", env=env, text=True, check=True, capture_output=True)
    site.start()
    made = "IDENTIFIED WITH mysql_native_password BY 'a long one'"
    with connect(site.url, login=("boss", "a long one")) as boss:
        for each in (
            f"CREATE USER root_of {made}",
            "GRANT ALL ON * TO root_of",
            f"CREATE USER ann {made}",
            f"CREATE USER bob {made}",
            "GRANT QUERY ON * TO ann",
            "GRANT SELECT ON stories TO ann",
            "GRANT SELECT, QUERY ON * TO bob",
            "CREATE POLICY own ON votes USING (user = CURRENT_CLAIM('sub'))",
        ):
            boss.execute(each)
    password = {"password": "a long one"}
    with site.connect(user="root_of", **password) as owner:
        assert rows(owner, "SELECT COUNT(*) > 0 FROM votes /*! */") == [(1,)]
        rows(owner, "CREATE OR REPLACE VIEW seen AS SELECT * FROM plain")
    with site.connect(user="ann", **password) as ann:
        one = "SELECT title FROM stories WHERE id = 1"
        assert rows(ann, one) == [("story 1",)]
        assert len(rows(ann, BY_AUTHOR.format(3))) == 5
        for sql in (
            "SELECT * FROM seen",
            "SELECT * FROM plain",
            "SELECT * FROM votes",
            "SELECT title FROM stories WHERE id IN (SELECT user FROM votes)",
            "INSERT INTO stories (id) VALUES (900)",
            "UPDATE stories SET title = 'x'",
            "SELECT * FROM mysql.user",
            "SELECT title FROM stories /*! UNION SELECT user FROM votes */",
            "SELECT title FROM stories /*M! UNION SELECT user FROM votes */",
            "SELECT LOAD_FILE('/etc/passwd')",
            "CALL something()",
            "DROP TABLE stories",
            "CREATE USER eve",
        ):
            with pytest.raises(pymysql.err.MySQLError) as raised:
                rows(ann, sql)
            assert raised.value.args[0] == 1142, (sql, raised.value)
        rows(ann, "SET sql_mode = 'NO_BACKSLASH_ESCAPES'")
        with pytest.raises(pymysql.err.MySQLError, match="1142"):
            rows(ann, one)
        rows(ann, "SET sql_mode = DEFAULT")
        assert rows(ann, one) == [("story 1",)]
    with site.connect(user="bob", database=None, **password) as bob:  # Whose statements are performed here.
        assert len(rows(bob, BY_AUTHOR.format(3))) == 5
        with pytest.raises(pymysql.err.MySQLError, match="1146"):
            rows(bob, "SELECT word FROM plain")
