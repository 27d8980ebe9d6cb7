"""Of PostgreSQL, what would lose rows, or break its application, is refused before, or stops the follower: by name."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from threading import Thread
from typing import Any

import pytest

from headrace.errors import BadRequest, NotFound
from headrace.upstream.address import UpstreamAddress
from headrace.upstream.columns import Stopped
from headrace.upstream.following import drop_follow
from tests.upstream.conftest import NUMBERS, FollowedPostgres
from tests.upstream.postgres_server import PostgresServer, postgres_programs

KEY = "id INT PRIMARY KEY"


@pytest.mark.parametrize(
    ("definition", "problem"),
    [
        ("(a INT)", "no PRIMARY KEY"),
        (f"({KEY}, a NUMERIC)", "a: numeric without a precision"),
        (f"({KEY}, a NUMERIC(100, 2))", r"a: type numeric\(100,2\) is wider"),
        (f"({KEY}, a INT[])", r"a: type integer\[\] has no equal"),
        (f"({KEY}, a INT4RANGE)", "a: type int4range"),
        (f"({KEY}, a pair)", "a: type pair"),
        (f"({KEY}, a whole)", "a: type whole"),
        (f"({KEY}, a INTERVAL, b INET, c TIMETZ, d MONEY, e XML)", "a: type interval.*b: type inet.*d: type money"),
        (f"({KEY}, a INT GENERATED ALWAYS AS (id + 1) STORED)", "a: it is generated"),
        ("(a FLOAT8 PRIMARY KEY)", "a: type double precision in a PRIMARY KEY"),
        ("(id INT PRIMARY KEY, a INT) PARTITION BY HASH (id)", "partitioned"),
    ],
)
def test_what_cannot_be_here_is_named_before_anything_is_done(pg: Any, definition: str, problem: str) -> None:
    table = f"t_{pg.name}"
    pg.run("CREATE TYPE pair AS (a INT, b INT)", "CREATE DOMAIN whole AS INT", f"CREATE TABLE {table} {definition}")
    with pytest.raises(BadRequest, match=problem):
        pg.import_(table)
    assert table not in [each["name"] for each in pg.here.tables()]
    assert pg.kept() == (0, 0)


@pytest.mark.parametrize(
    ("act", "problem"),
    [
        ("ALTER TABLE {0} REPLICA IDENTITY NOTHING", "REPLICA IDENTITY"),
        ("ALTER TABLE {0} REPLICA IDENTITY USING INDEX other", "REPLICA IDENTITY"),
        ("ALTER TABLE {0} SET UNLOGGED", "UNLOGGED"),
        ("CREATE TABLE child () INHERITS ({0})", "inherits"),
    ],
)
def test_a_table_whose_changes_are_not_told_is_refused(pg: Any, act: str, problem: str) -> None:
    table = f"t_{pg.name}"
    pg.run(f"CREATE TABLE {table} ({KEY}, a INT NOT NULL)", f"CREATE UNIQUE INDEX other ON {table} (a)")
    pg.run(act.format(table))
    with pytest.raises(BadRequest, match=problem):
        pg.import_(table)


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("FLOAT8", "'NaN'"),
        ("REAL", "'-Infinity'"),
        ("NUMERIC(9,2)", "'NaN'"),
        ("DATE", "'infinity'"),
        ("TIMESTAMPTZ", "'-infinity'"),
        ("DATE", "'0044-03-15 BC'"),
        ("TIMESTAMP", "'12000-01-01'"),
    ],
)
def test_a_value_without_an_equal_stops_by_name(pg: Any, column: str, value: str) -> None:
    table = f"t_{pg.name}"
    pg.run(f"CREATE TABLE {table} ({KEY}, odd {column})", f"INSERT INTO {table} VALUES (1, NULL)")
    pg.import_()
    pg.run(f"INSERT INTO {table} VALUES (2, {value})")
    with pytest.raises(Stopped, match=r'"odd" has .*no equal here'):
        pg.follow()
    assert pg.here.execute(f"SELECT COUNT(*) FROM {table}").rows == ((1,),)


@pytest.mark.parametrize(
    ("act", "word"),
    [
        ("DROP TABLE {0}", "not in the publication any more"),
        ("ALTER TABLE {0} RENAME TO other", "not in the publication any more"),
        ("ALTER TABLE {0} REPLICA IDENTITY NOTHING", "REPLICA IDENTITY NOTHING"),
        (
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = '{1}'",
            "no replication slot",
        ),
        ("DO $$BEGIN EXECUTE (SELECT 'DROP PUBLICATION ' || pubname FROM pg_publication); END$$", "not told whole"),
    ],
)
def test_what_ends_the_telling_stops_by_name(pg: Any, act: str, word: str) -> None:
    table = f"t_{pg.name}"
    pg.run(f"CREATE TABLE {table} ({KEY})")
    pg.import_()
    pg.upstream.run(act.format(table, pg.name), database=pg.name, user="postgres")
    with pytest.raises(Stopped, match=word):
        pg.follow()


def test_a_table_is_left_out_and_all_is_dropped(pg: Any) -> None:
    one, two = f"one_{pg.name}", f"two_{pg.name}"
    pg.run(f"CREATE TABLE {one} ({KEY})", f"CREATE TABLE {two} ({KEY})")
    pg.import_()
    assert pg.kept() == (1, 1)
    pg.run(f"DROP TABLE {one}", f"INSERT INTO {two} VALUES (1)")
    pg.follow(leave_out=(one,))
    assert pg.equals(two)
    assert drop_follow(pg.here, pg.asked) == [two]
    assert pg.kept() == (0, 0)
    pg.here.execute(f"INSERT INTO {two} VALUES (7)")
    with pytest.raises(NotFound):
        pg.follow()


def test_an_application_goes_on_while_it_is_followed(pg: Any) -> None:
    """A table without a key in a publication would refuse its UPDATEs."""
    table, keyless = f"t_{pg.name}", f"k_{pg.name}"
    pg.run(f"CREATE TABLE {table} ({KEY})", f"CREATE TABLE {keyless} (a INT)", f"INSERT INTO {keyless} VALUES (1)")
    pg.import_(table)
    pg.run(f"UPDATE {keyless} SET a = 2", f"DELETE FROM {keyless}")


def test_a_read_waits_for_a_position(pg: Any) -> None:
    table = f"t_{pg.name}"
    pg.run(f"CREATE TABLE {table} ({KEY}, n INT)", f"INSERT INTO {table} VALUES (1, 1)")
    pg.import_()
    ((position,),) = pg.run(f"UPDATE {table} SET n = 2", "SELECT pg_current_wal_insert_lsn()::text")
    tokens: list[str] = []
    waiting = Thread(target=lambda: tokens.append(pg.here.upstream_token(pg.name, position)))
    waiting.start()
    pg.follow()
    waiting.join(30)
    assert pg.here.execute(f"SELECT n FROM {table}", token=tokens[0]).rows == ((2,),)
    told = pg.here.status()["upstreams"][pg.name]
    assert told["held"] >= 0
    assert 0 <= told["lag"] < 10
    with pytest.raises(BadRequest, match="no position of"):
        pg.here.upstream_token(pg.name, "0-1-1")


def test_logs_of_others_writes_are_not_kept(pg: Any) -> None:
    """A table that rests, while others are written to: what the slot keeps goes on with their log."""
    table, busy = f"t_{pg.name}", f"b_{pg.name}"
    pg.run(f"CREATE TABLE {table} ({KEY})", f"CREATE TABLE {busy} (a TEXT)")
    pg.import_(table)
    pg.run(f"INSERT INTO {busy} SELECT repeat('x', 900) FROM generate_series(1, 3000)")
    pg.follow()
    pg.follow()
    ((behind,),) = pg.run(
        "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), confirmed_flush_lsn) FROM pg_replication_slots"
        f" WHERE database = '{pg.name}'"
    )
    assert behind < 1_000_000


@pytest.fixture
def own(here: Any) -> Iterator[FollowedPostgres]:
    if postgres_programs() is None:
        pytest.skip("PostgreSQL is not installed")
    server = PostgresServer("max_slot_wal_keep_size=2MB")
    try:
        yield FollowedPostgres(server, here, f"p{next(NUMBERS)}")
    finally:
        server.close()


def test_a_server_that_is_behind_or_has_lost_its_log_or_is_another_is_refused(own: FollowedPostgres) -> None:
    table = f"t_{own.name}"
    own.run(f"CREATE TABLE {table} ({KEY}, a TEXT)")
    own.import_()
    server = own.upstream
    server.run("CHECKPOINT", database="postgres", user="postgres")
    server.kill()
    copy = server.directory / "copy"
    shutil.copytree(server.data, copy)
    server.start()
    own.run(f"INSERT INTO {table} SELECT i, repeat('x', 100) FROM generate_series(1, 100) i")
    own.follow()
    assert own.equals(table)
    server.kill()
    kept = server.data.rename(server.directory / "kept")
    copy.rename(server.data)
    for path in (server.data, *server.data.rglob("*")):
        shutil.chown(path, *owner_of(kept))
    server.start()
    with pytest.raises(Stopped, match="behind our position"):
        own.follow()
    server.kill()
    server.data.rename(copy)
    kept.rename(server.data)
    server.start()
    for _ in range(3):
        own.run("CREATE TABLE junk AS SELECT repeat('x', 900) FROM generate_series(1, 20000)", "DROP TABLE junk")
        server.run("SELECT pg_switch_wal()", "CHECKPOINT", database="postgres", user="postgres")
    with pytest.raises(Stopped, match="changes are lost"):
        own.follow()


def owner_of(path: Any) -> tuple[int, int]:
    found = path.stat()
    return found.st_uid, found.st_gid


def test_another_server_is_refused(pg: Any, own: FollowedPostgres) -> None:
    table = f"t_{pg.name}"
    pg.run(f"CREATE TABLE {table} ({KEY})")
    pg.import_()
    own.upstream.make(pg.name)
    own.upstream.run(f"CREATE TABLE {table} ({KEY})", database=pg.name)
    address = UpstreamAddress.parse(own.upstream.url_of(pg.name))
    pg.asked = replace(pg.asked, address=address)
    with pytest.raises(Stopped, match="is another"):
        pg.follow()
