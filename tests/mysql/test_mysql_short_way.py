"""The short way of a SELECT that a view answers: it gives what the full way gives, and all that a session means holds.

Each case would give another answer if the short way did not look at what the case is about.
"""

from __future__ import annotations

import struct
from collections.abc import AsyncIterator, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from api.app import create_app
from api.limits import Admission, Limits
from api.mysql.commands import Commands
from api.mysql.packets import PacketFeed, framed
from api.mysql.proving import ClientAnswer
from api.mysql.shared import MysqlShared
from api.mysql.values import UTF8
from controller.access.session import OPEN
from controller.deployment import StatementResult
from controller.embedded.local import LocalDeployment
from controller.lookups.view_lookup import ViewLookup
from domains.plan.packets import Clock
from migrations.access.rights import Privilege, Rights
from tests.mysql.conftest import ADMINISTRATOR, PASSWORD, MysqlServer
from tests.mysql.wire_client import CAPABILITIES, SECONDS, WireClient

BY_AUTHOR = "SELECT id, title FROM stories WHERE author = "
INT, TEXT, DOUBLE, NULL = 3, 253, 5, 6


class Deployed(LocalDeployment):
    """Counts what takes the full way."""

    in_full = 0

    async def execute(self, *args: Any, **options: Any) -> tuple[list[StatementResult], Clock]:
        self.in_full += 1
        return await super().execute(*args, **options)


class Door:
    """A connection's commands without its socket."""

    id, address, is_full = 1, "127.0.0.1", False

    def __init__(self, deployment: Deployed, admission: Admission | None = None) -> None:
        self.deployment = deployment
        self.app = create_app(deployment, admission=admission)
        endpoints, requests = self.app.endpoints, self.app.requests
        self.shared = MysqlShared(deployment, endpoints, requests, version="8.0.36", max_prepared=20)
        answer = ClientAnswer(CAPABILITIES, 45, "root", b"", "", "")
        self.commands = Commands(self.shared, self, OPEN, answer, UTF8, secure=False)
        self.sent, self.sequence = b"", 1

    def send(self, payloads: Iterable[bytes]) -> None:
        data, self.sequence = framed(payloads, self.sequence)
        self.sent += data

    def write(self, data: bytes) -> None:
        self.sent += data

    async def drained(self) -> None: ...

    async def log_in(self, answer: ClientAnswer, nonce: bytes, *, secure: bool) -> None: ...

    def end(self) -> None: ...

    def give_up(self) -> None: ...

    async def answer(self, payload: bytes) -> bytes:
        self.sent, self.sequence = b"", 1
        task = self.commands.begin(payload)
        if task is not None:
            await task
        return self.sent

    async def say(self, sql: str) -> bytes:
        return await self.answer(b"\x03" + sql.encode())

    async def prepare(self, sql: str) -> int:
        return int.from_bytes((await self.answer(b"\x16" + sql.encode()))[5:9], "little")

    async def execute(self, number: int, *params: tuple[int, bytes]) -> bytes:
        head = struct.pack("<IBI", number, 0, 1)
        nulls = sum(1 << place for place, (kind, _) in enumerate(params) if kind == NULL)
        types, values = b"".join(struct.pack("<H", kind) for kind, _ in params), b"".join(each for _, each in params)
        return await self.answer(b"\x17" + head + nulls.to_bytes(1, "little") + b"\x01" + types + values)

    async def both(self, number: int, *params: tuple[int, bytes]) -> tuple[bytes, int]:
        """The answer, and how many statements took the full way for it."""
        before = self.deployment.in_full
        answer = await self.execute(number, *params)
        return answer, self.deployment.in_full - before


def whole(value: int) -> tuple[int, bytes]:
    return INT, struct.pack("<i", value)


def payloads(answer: bytes) -> list[bytes]:
    feed = PacketFeed(1 << 20)
    feed.sequence = 1
    feed.add(answer)
    return list(iter(feed.next, None))


def rows_of(answer: bytes) -> list[bytes]:
    """Of a result of text or binary rows, without its columns."""
    found = payloads(answer)
    assert found[0][0] not in (0, 0xFF), found
    return found[found[0][0] + 2 : -1]


@pytest_asyncio.fixture
async def door(tmp_path: Path) -> AsyncIterator[Door]:
    deployment = await Deployed.open(tmp_path)
    assert isinstance(deployment, Deployed)
    door = Door(deployment)
    for statement in (
        "CREATE TABLE stories (id INT PRIMARY KEY, author INT, title VARCHAR(80))",
        "CREATE EXT VIEW ByAuthor AS SELECT id, title FROM stories WHERE author = ?",
        "CREATE EXT VIEW ByTitle AS SELECT id FROM stories WHERE title = ?",
        "INSERT INTO stories VALUES (1, 7, 'Wäter'), (2, 7, NULL), (3, 8, 'three')",
    ):
        assert (await door.say(statement))[4] == 0, door.sent
    yield door
    door.commands.leave()
    await deployment.close()


async def known(door: Door, *authors: int) -> int:
    """A prepared statement that takes the short way for these."""
    number = await door.prepare(BY_AUTHOR + "?")
    for author in authors:
        await door.execute(number, whole(author))
        _, in_full = await door.both(number, whole(author))
        assert not in_full
    return number


# --- it is what the full way gives --------------------------------------------------------------------------------


async def test_the_short_way_gives_what_the_full_one_gives(door: Door) -> None:
    number = await door.prepare(BY_AUTHOR + "?")
    for author in (7, 8, 9):
        full, in_full = await door.both(number, whole(author))
        assert in_full == 1, "a hole is filled, and a text is planned"
        assert await door.both(number, whole(author)) == (full, 0)
        text = await door.say(f"{BY_AUTHOR}{author}")
        before = door.deployment.in_full
        assert await door.say(f"{BY_AUTHOR}{author}") == text
        assert await door.say(f"{BY_AUTHOR} {author} -- and a remark") == text
        assert door.deployment.in_full == before
    assert [len(rows_of(await door.execute(number, whole(author)))) for author in (7, 8, 9)] == [2, 1, 0]


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ((TEXT, b"\x017"), 2),
        ((DOUBLE, struct.pack("<d", 7.5)), 0),
        ((8, struct.pack("<q", 2**40)), 0),
        ((TEXT, b"\x01x"), 0),
        ((NULL, b""), 0),
    ],
)
async def test_values_that_are_none_of_the_column_mean_what_they_mean_in_full(
    door: Door, given: tuple[int, bytes], found: int
) -> None:
    number = await known(door, 7)
    first, second = await door.execute(number, given), await door.execute(number, given)
    assert first == second
    assert len(rows_of(first)) == found


async def test_texts_and_their_nulls_are_looked_up(door: Door) -> None:
    number = await door.prepare("SELECT id FROM stories WHERE title = ?")
    first = await door.execute(number, (TEXT, b"\x06W\xc3\xa4ter"))
    assert len(rows_of(first)) == 1
    assert await door.both(number, (TEXT, b"\x06W\xc3\xa4ter")) == (first, 0)


async def test_what_is_changed_is_seen_at_once(door: Door) -> None:
    number = await known(door, 8)
    for title in ("four", "five"):
        await door.say(f"UPDATE stories SET title = '{title}' WHERE id = 3")
        assert title.encode() in await door.execute(number, whole(8))


async def test_a_key_that_was_evicted_is_filled(door: Door) -> None:
    number = await known(door, 7)
    assert await door.deployment.evict("ByAuthor", [[7]]) == 1
    answer, in_full = await door.both(number, whole(7))
    assert (in_full, len(rows_of(answer))) == (1, 2)


async def test_a_definition_is_seen_by_what_was_prepared_before(door: Door) -> None:
    number = await known(door, 7)
    await door.say("DROP VIEW ByAuthor")
    answer, in_full = await door.both(number, whole(7))
    assert (in_full, len(rows_of(answer))) == (1, 2)
    await door.say("DROP VIEW ByTitle")
    await door.say("DROP TABLE stories")
    assert payloads(await door.execute(number, whole(7)))[0][:3] == b"\xff" + (1146).to_bytes(2, "little")
    await door.say("CREATE TABLE stories (title DOUBLE, id BIGINT, author INT)")
    await door.say("CREATE EXT VIEW ByAuthor AS SELECT id, title FROM stories WHERE author = ?")
    await door.say("INSERT INTO stories VALUES (0.5, 5000000000, 7)")
    for _ in range(2):
        assert rows_of(await door.execute(number, whole(7))) == [b"\0\0" + struct.pack("<qd", 5_000_000_000, 0.5)]


async def test_what_is_asked_is_counted(door: Door) -> None:
    number = await known(door, 7)
    lookup, shapes, times = door.deployment.prepare("ByAuthor"), door.deployment.selects.shapes, door.shared.times
    hits, calls, answered = lookup.hits, sum(each.calls for each in shapes.known.values()), times.statuses[200]
    for _ in range(5):
        await door.execute(number, whole(7))
    assert lookup.hits == hits + 5
    assert sum(each.calls for each in shapes.known.values()) == calls + 5
    assert times.statuses[200] == answered + 5


# --- what a session means -----------------------------------------------------------------------------------------


async def test_a_session_waits_for_its_own_writes(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    number = await known(door, 7)
    monkeypatch.setattr(ViewLookup, "has_reached", lambda self, token, bounds: not token)
    door.commands.session.forget_writes()
    assert (await door.both(number, whole(7)))[1] == 0
    await door.say("INSERT INTO stories VALUES (4, 7, 'four')")
    answer, in_full = await door.both(number, whole(7))
    assert (in_full, len(rows_of(answer))) == (1, 3), "the view is not known to have reached the write"
    before = door.deployment.in_full
    await door.say(f"{BY_AUTHOR}7")
    await door.say(f"{BY_AUTHOR}7")
    assert door.deployment.in_full == before + 2


async def test_a_transaction_sees_itself(door: Door) -> None:
    number = await known(door, 8)
    await door.say("BEGIN")
    await door.say("UPDATE stories SET title = 'mine' WHERE id = 3")
    assert b"mine" in await door.execute(number, whole(8))
    assert b"mine" in await door.say(f"{BY_AUTHOR}8")
    await door.say("ROLLBACK")
    assert b"three" in await door.execute(number, whole(8))


async def test_a_session_that_does_not_commit_by_itself_begins_a_transaction(door: Door) -> None:
    number = await known(door, 8)
    await door.say("SET autocommit = 0")
    last = payloads(await door.execute(number, whole(8)))[-1]
    assert int.from_bytes(last[3:5], "little") & 1, "a transaction is open"
    await door.say("ROLLBACK")


async def test_a_text_is_in_the_character_set_of_its_session(door: Door) -> None:
    number = await known(door, 7)
    assert "Wäter".encode() in await door.execute(number, whole(7))
    await door.say("SET NAMES latin1")
    for answer in (await door.execute(number, whole(7)), await door.say(f"{BY_AUTHOR}7")):
        assert "Wäter".encode("latin-1") in answer
        assert "Wäter".encode() not in answer
    await door.say("SET NAMES utf8mb4")
    assert "Wäter".encode() in await door.execute(number, whole(7))


async def test_a_name_means_what_the_schema_says(door: Door) -> None:
    asked = "SELECT support FROM engines WHERE engine = 'InnoDB'"
    for statement in (
        "CREATE TABLE engines (engine VARCHAR(20), support VARCHAR(20))",
        "CREATE EXT VIEW ByEngine AS SELECT support FROM engines WHERE engine = ?",
        "INSERT INTO engines VALUES ('InnoDB', 'of water')",
    ):
        await door.say(statement)
    number = await door.prepare(asked.replace("'InnoDB'", "?"))
    for _ in range(2):
        assert b"of water" in await door.say(asked)
        assert b"of water" in await door.execute(number, (TEXT, b"\x06InnoDB"))
    await door.say("USE information_schema")
    assert b"DEFAULT" in await door.say(asked)
    assert b"DEFAULT" in await door.execute(number, (TEXT, b"\x06InnoDB"))


async def test_a_text_is_of_the_database_of_its_session(door: Door) -> None:
    number = await known(door, 8)
    assert b"three" in await door.say(f"{BY_AUTHOR}8")
    for statement in (
        "CREATE DATABASE shop",
        "USE shop",
        "CREATE TABLE stories (id INT PRIMARY KEY, author INT, title VARCHAR(80))",
        "CREATE EXT VIEW ByAuthor AS SELECT id, title FROM stories WHERE author = ?",
        "INSERT INTO stories VALUES (1, 8, 'of the shop')",
    ):
        assert (await door.say(statement))[4] == 0, door.sent
    for _ in range(3):
        assert b"of the shop" in await door.execute(number, whole(8))
        assert b"of the shop" in await door.say(f"{BY_AUTHOR}8")
    assert (await door.both(number, whole(8)))[1] == 0, "it is as short there"
    await door.say("USE headrace")
    assert b"three" in await door.execute(number, whole(8))
    assert b"three" in await door.say(f"{BY_AUTHOR}8")


async def test_the_next_statement_asks_about_this_one(door: Door) -> None:
    number = await known(door, 7)
    await door.say("SELEC")
    await door.execute(number, whole(7))
    assert rows_of(await door.say("SELECT FOUND_ROWS(), ROW_COUNT()")) == [b"\x012\x02-1"]
    await door.say("SELEC")
    await door.execute(number, whole(7))
    assert rows_of(await door.say("SHOW WARNINGS")) == []


async def test_user_variables_are_those_of_the_moment(door: Door) -> None:
    for author, count in ((7, 2), (8, 1), (7, 2)):
        await door.say(f"SET @author = {author}")
        for _ in range(2):
            assert len(rows_of(await door.say(f"{BY_AUTHOR}@author"))) == count


async def test_an_answer_that_is_too_large_is_refused(tmp_path: Path) -> None:
    deployment = await Deployed.open(tmp_path)
    assert isinstance(deployment, Deployed)
    door = Door(deployment, Admission(Limits(max_answer_size=1_000)))
    await door.say("CREATE TABLE t (id INT PRIMARY KEY, a INT, word VARCHAR(600))")
    await door.say("CREATE EXT VIEW ByA AS SELECT id, word FROM t WHERE a = ?")
    await door.say(f"INSERT INTO t VALUES (1, 1, '{'x' * 500}'), (2, 1, '{'y' * 500}'), (3, 2, 'short')")
    for _ in range(3):
        for a, head in ((1, 0xFF), (2, 2)):
            answer = await door.say(f"SELECT id, word FROM t WHERE a = {a}")
            assert payloads(answer)[0][0] == head
    assert b"max_answer_size" in await door.say("SELECT id, word FROM t WHERE a = 1")
    door.commands.leave()
    await deployment.close()


async def test_many_rows_are_written_in_pieces(door: Door) -> None:
    many = ", ".join(f"({n}, 9, 'x')" for n in range(10, 1_010))
    await door.say(f"INSERT INTO stories VALUES {many}")
    number = await door.prepare(BY_AUTHOR + "?")
    for _ in range(2):
        answer, in_full = await door.both(number, whole(9))
        assert in_full == 1
        assert len(rows_of(answer)) == 1_000


# --- who asks, and what is told of it -----------------------------------------------------------------------------


def rows(db: Any, sql: str) -> tuple[Any, ...]:
    with db.cursor() as cursor:
        cursor.execute(sql)
        return tuple(cursor.fetchall())


def test_policies_show_what_they_let_through(closed_server: MysqlServer) -> None:
    asked = "SELECT id, title FROM stories WHERE author = 7"
    with closed_server.secured(ADMINISTRATOR, PASSWORD) as ann, closed_server.connect("sha", "of sha") as sha:
        for _ in range(3):
            assert rows(ann, asked) == ((1, "one"),), "who bypasses them"
            assert rows(sha, asked) == ()


def test_rights_are_those_of_now_and_each_statement_is_recorded(closed_server: MysqlServer) -> None:
    asked = "SELECT word FROM said WHERE id = 1"
    with closed_server.secured(ADMINISTRATOR, PASSWORD) as ann:
        for statement in (
            "CREATE TABLE said (id INT PRIMARY KEY, word TEXT)",
            "CREATE EXT VIEW ById AS SELECT word FROM said WHERE id = ?",
            "INSERT INTO said VALUES (1, 'aloud')",
            "CREATE USER listener IDENTIFIED WITH caching_sha2_password BY 'of listener'",
            "GRANT QUERY ON * TO listener",
            "GRANT SELECT ON said TO listener",
        ):
            rows(ann, statement)
        with closed_server.connect("listener", "of listener") as db:
            for _ in range(4):
                assert rows(db, asked) == (("aloud",),)
            rows(ann, "REVOKE SELECT ON said FROM listener")
            with pytest.raises(Exception, match="no SELECT") as raised:
                rows(db, asked)
            assert raised.value.args[0] == 1142  # type: ignore[attr-defined]
    closed_server.until_audited(account="ann", statement="REVOKE SELECT ON said")
    told = [each for each in closed_server.audited() if each.get("account") == "listener" and each["kind"] == "data"]
    assert sum("FROM said" in each["statement"] for each in told) == 4


async def test_rights_are_asked_of_each_who_asks(door: Door) -> None:
    text, number = f"{BY_AUTHOR}7", await known(door, 7)
    await door.say(text)
    caller = replace(OPEN, account="ann", rights=Rights({"*": frozenset((Privilege.QUERY,))}))
    assert door.deployment.try_select(text, (), {}, OPEN) is not None
    assert number
    for sql, params in ((text, ()), (BY_AUTHOR + "?", (7,))):
        assert door.deployment.try_select(sql, params, {}, caller) is None
        held = Rights({"*": frozenset((Privilege.QUERY,)), "stories": frozenset((Privilege.SELECT,))})
        assert door.deployment.try_select(sql, params, {}, replace(caller, rights=held)) is not None


# --- over a socket ------------------------------------------------------------------------------------------------


def prepared(open_server: MysqlServer, db: Any) -> tuple[WireClient, bytes, bytes]:
    """A connection, an execution that takes the short way, and its answer."""
    rows(db, "CREATE TABLE t (id INT PRIMARY KEY, word TEXT)")
    rows(db, "CREATE EXT VIEW ById AS SELECT id, word FROM t WHERE id = ?")
    rows(db, f"INSERT INTO t VALUES (1, '{'x' * 50_000}'), (2, 'two')")
    wire = WireClient.connected(open_server.port)
    number, _ = wire.prepare("SELECT id, word FROM t WHERE id = ?")
    for id in (1, 1, 2, 2):
        assert len(wire.rows(wire.execute(number, [(INT, struct.pack("<i", id))]))) == 1
    execution = b"\x17" + struct.pack("<IBI", number, 0, 1) + b"\0\x01\x03\0"
    return wire, framed((execution + struct.pack("<i", 1),), 0)[0], framed((execution + struct.pack("<i", 2),), 0)[0]


def test_commands_that_come_together_are_answered_in_their_order(db: Any, open_server: MysqlServer) -> None:
    wire, _, short = prepared(open_server, db)
    ping = b"\x01\0\0\0\x0e"
    wire.socket.sendall((short + ping) * 500)
    for _ in range(500):
        assert wire.rows(wire.read()) == [b"\0\0\x02\0\0\0\x03two"]
        assert wire.read()[0] == 0
    wire.close()


def test_a_client_that_does_not_read_is_not_written_to_without_end(db: Any, open_server: MysqlServer) -> None:
    wire, long, _ = prepared(open_server, db)
    wire.socket.settimeout(2)
    with pytest.raises(TimeoutError):
        wire.socket.sendall(long * 2_000_000)
    with db.cursor() as cursor:
        cursor.execute("SELECT 1")
        assert cursor.fetchall() == ((1,),), "others are answered"
    wire.socket.settimeout(SECONDS)
    for _ in range(100):
        assert len(wire.rows(wire.read())) == 1, "and so is it, once it reads"
    wire.close()
