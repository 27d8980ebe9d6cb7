"""What MySQL's clients ask of Headrace and no view answers, answered by the MariaDB that its tables follow."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from threading import Event, Thread
from typing import Any

import pymysql  # type: ignore[import-untyped]
import pytest

from loadgen.bench import servers
from tests.upstream.passing_site import BY_AUTHOR, COUNTED, VIEWS, PassingSite, rows
from tests.upstream.upstream_server import until

pytestmark = pytest.mark.skipif(servers.mariadbd() is None, reason="MariaDB is not installed")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PassingSite]:
    made = PassingSite(tmp_path_factory.mktemp("passing"))
    try:
        made.define(*VIEWS)
        yield made
        made.end()
    finally:
        made.give_up()


@pytest.fixture
def db(site: PassingSite) -> Iterator[Any]:
    with site.connect() as made:
        yield made


@pytest.fixture
def plain(site: PassingSite) -> Iterator[Any]:
    """The same client of MariaDB itself."""
    with site.upstream.connect() as made:
        yield made


def test_a_view_answers_and_the_upstream_everything_else(site: PassingSite, db: Any, plain: Any) -> None:
    for author in (3, 4):
        sql = BY_AUTHOR.format(author)
        site.until_here(db, sql)
        assert rows(db, sql) == rows(plain, sql)
    assert site.answered_here(db, "SELECT title FROM ByAuthor WHERE author = 3 AND id = 3")
    assert rows(db, COUNTED + "5") == rows(plain, COUNTED + "5")
    assert not site.answered_here(db, "SELECT word FROM plain WHERE id = 1")
    assert not site.answered_here(db, "SELECT title FROM stories WHERE id = 1")
    assert rows(db, "SELECT word FROM plain") == [("one",)]


def test_an_answer_of_the_upstream_is_its_own_to_the_byte(db: Any, plain: Any) -> None:
    sql = "SELECT id+1 AS x, title, made, NULL, 1.50, SUM(author) FROM stories WHERE id < 9 GROUP BY id"
    described = []
    for each in (db, plain):
        with each.cursor() as cursor:
            cursor.execute(sql)
            fields = cursor._result.fields
            described.append(([vars(field) | {"_data": field._data} for field in fields], cursor.fetchall()))
    mine, theirs = described
    assert mine == theirs


def test_own_writes_are_read_from_views(site: PassingSite, db: Any) -> None:
    site.until_here(db, COUNTED + "1")
    before = site.counts()
    for user in range(100, 400):
        rows(db, f"INSERT INTO votes VALUES ({user}, 1)")
        ((count,),) = rows(db, COUNTED + "1")
        assert count == user - 100 + 2
    here = site.counts()[0] - before[0]
    assert here > 100, "views answer most of them"


def test_reads_in_a_transaction_go_upstream(site: PassingSite, db: Any) -> None:
    sql = BY_AUTHOR.format(2)
    site.until_here(db, sql)
    for begin in ("BEGIN", "SET autocommit = 0"):
        rows(db, begin)
        rows(db, "UPDATE stories SET title = 'changed' WHERE author = 2")
        assert {title for _, title in rows(db, sql)} == {"changed"}
        rows(db, "ROLLBACK")
        rows(db, "SET autocommit = 1")
        assert "changed" not in {title for _, title in rows(db, sql)}


def test_what_is_set_holds_on_both_sides(site: PassingSite, db: Any) -> None:
    sql = BY_AUTHOR.format(6)
    site.until_here(db, sql)
    rows(db, "SET time_zone = '+02:00'")
    assert not site.answered_here(db, sql), "times would be others"
    rows(db, "SET time_zone = '+00:00', @a = 7")
    assert rows(db, "SELECT @a, @@time_zone") == [(7, "+00:00")]
    site.until_here(db, sql)
    rows(db, "SET sql_select_limit = 1")
    assert len(rows(db, sql)) == 1
    rows(db, "SET sql_select_limit = DEFAULT")
    rows(db, "USE mysql")
    with pytest.raises(pymysql.err.ProgrammingError, match="1146"):
        rows(db, sql)
    rows(db, "USE shop")
    rows(db, "INSERT INTO stories (author, title) VALUES (6, 'Grün')")
    (last,) = rows(db, sql)[-1:]
    assert last == (rows(db, "SELECT LAST_INSERT_ID()")[0][0], "Grün")
    rows(db, "SET NAMES latin1")
    db.encoding = "latin1"
    site.until_here(db, sql)
    with db.cursor() as cursor:
        cursor.execute(sql)
        assert cursor._result.fields[1].charsetnr == 8
    rows(db, "CREATE TEMPORARY TABLE stories (id INT, author INT, title TEXT)")
    assert rows(db, sql) == []


def test_what_is_asked_of_the_statement_before(site: PassingSite, db: Any) -> None:
    sql = BY_AUTHOR.format(7)
    site.until_here(db, sql)
    assert rows(db, "SELECT FOUND_ROWS()") == [(len(rows(db, sql)),)]
    rows(db, sql)
    assert rows(db, "SHOW WARNINGS") == []
    rows(db, "SELECT 1 / 0")
    assert [row[1] for row in rows(db, "SHOW WARNINGS")] == [1365]
    with db.cursor() as cursor:
        assert cursor.execute("UPDATE stories SET title = title WHERE author = 7") == 5 - 5
    assert rows(db, "SELECT ROW_COUNT()") == [(0,)]


def test_several_statements(site: PassingSite) -> None:
    from pymysql.constants import CLIENT  # type: ignore[import-untyped]

    with site.connect(client_flag=CLIENT.MULTI_STATEMENTS) as db, db.cursor() as cursor:
        cursor.execute(f"SELECT 1; INSERT INTO votes VALUES (900, 9); {COUNTED}9")
        found = [cursor.fetchall()]
        while cursor.nextset():
            found.append(cursor.fetchall())
        assert [list(each) for each in found] == [[(1,)], [], [(2,)]]
        assert rows(db, COUNTED + "9") == [(2,)]


def test_an_error_is_the_upstreams(db: Any, plain: Any) -> None:
    for sql in ("SELECT * FROM nothing", "INSERT INTO plain VALUES (1, 'two')", "SELEC 1"):
        said = []
        for each in (db, plain):
            with pytest.raises(pymysql.err.MySQLError) as raised:
                rows(each, sql)
            said.append(raised.value.args)
        assert said[0] == said[1]


def test_a_hot_query_becomes_a_view_while_it_is_asked(site: PassingSite) -> None:
    """``headrace advise`` names it; nothing changes for who asks, before its view comes and after it."""
    sql = "SELECT story, COUNT(*) AS n FROM votes WHERE user = {} GROUP BY story ORDER BY story"
    told: list[str] = []
    wrong: list[Any] = []
    ended = Event()

    def asks() -> None:
        with site.connect() as own, site.upstream.connect() as plain:
            while not ended.is_set():
                for user in range(7):
                    mine, theirs = rows(own, sql.format(user)), rows(plain, sql.format(user))
                    if mine != theirs:
                        wrong.append((mine, theirs))

    asking, before = Thread(target=asks), site.counts()[0]
    asking.start()
    try:
        until(lambda: _advised(site, told), "it is named")
        assert site.counts()[0] == before, "no view has answered"
        site.define(told[0].replace("VIEW name", "VIEW ByUser").rstrip(";"))
        until(lambda: site.counts()[0] > before + 50, "the view answers")
    finally:
        ended.set()
        asking.join(60)
    assert not wrong


def _advised(site: PassingSite, told: list[str]) -> bool:
    done = site.headrace("advise")
    _, said, _ = done.finish(60)
    lines = said.splitlines()
    found = [
        statement
        for why, statement in pairwise(lines)
        if "passed on" in why and statement.startswith("CREATE EXT VIEW") and "FROM votes WHERE user" in statement
    ]
    told[:] = found
    return bool(found)
