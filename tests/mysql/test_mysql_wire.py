"""MySQL's protocol byte by byte: what no driver sends, and prepared statements in all their forms."""

from __future__ import annotations

import random
import socket
import struct
import zlib
from time import monotonic, sleep
from typing import Any

import pytest

from api.mysql.packets import LONGEST, CompressedFeed, PacketFeed, enveloped, framed, length_of
from domains.errors import BadRequest, LimitExceeded
from tests.mysql.conftest import MysqlServer
from tests.mysql.wire_client import COMPRESS, SECONDS, WireClient, name_of

# --- packets ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, 250, 251, 65_536, LONGEST - 1, LONGEST, LONGEST + 1, 2 * LONGEST])
def test_a_payload_comes_as_it_was_sent(size: int) -> None:
    payload = bytes(size)
    data, sequence = framed((payload,), 0)
    assert sequence == size // LONGEST + 1
    feed, draw = PacketFeed(1 << 30), random.Random(size)
    at = 0
    while at < len(data):
        assert feed.next() is None
        step = draw.randrange(1, max(2, len(data) // 5))
        feed.add(data[at : at + step])
        at += step
    assert feed.next() == payload
    assert feed.next() is None
    assert feed.size == 0


def test_packets_are_refused_before_they_are_kept() -> None:
    feed = PacketFeed(1_000)
    feed.add(framed((bytes(1_001),), 0)[0][:4])
    with pytest.raises(LimitExceeded, match="max_body_size"):
        feed.next()
    feed = PacketFeed(1_000)
    feed.add(framed((b"x",), 3)[0])
    with pytest.raises(BadRequest, match="order"):
        feed.next()


@pytest.mark.parametrize(("size", "head"), [(250, b"\xfa"), (251, b"\xfc\xfb\x00"), (70_000, b"\xfdp\x11\x01")])
def test_lengths_are_encoded(size: int, head: bytes) -> None:
    assert length_of(size) == head


# --- prepared statements ------------------------------------------------------------------------------------------


def test_parameters_have_their_types(db: Any, open_server: MysqlServer) -> None:
    wire = WireClient.connected(open_server.port)
    when = struct.pack("<BHBBBBBI", 11, 2026, 1, 31, 8, 0, 1, 500_000)
    span = struct.pack("<BBIBBB", 8, 1, 1, 2, 3, 4)
    given: list[tuple[int, bytes | None, str]] = [
        (1, b"\xfb", "-5"),
        (0x8001, b"\xfb", "251"),
        (2, struct.pack("<h", -300), "-300"),
        (3, struct.pack("<i", -70_000), "-70000"),
        (0x8008, struct.pack("<Q", 2**64 - 1), "18446744073709551615"),
        (5, struct.pack("<d", 7.0), "7"),
        (5, struct.pack("<d", 0.5), "0.5"),
        (246, b"\x0412.5", "12.5"),
        (253, b"\x06W\xc3\xa4ter", "Wäter"),
        (10, b"\x04" + struct.pack("<HBB", 2026, 1, 31), "2026-01-31"),
        (12, when, "2026-01-31 08:00:01.500000"),
        (11, span, "-26:03:04"),
        (6, None, ""),
    ]
    number, count = wire.prepare(f"SELECT CONCAT_WS('|', {', '.join('?' * len(given))}) AS found")
    assert count == len(given)
    for _ in range(2):
        (row,) = wire.rows(wire.execute(number, [(kind, value) for kind, value, _ in given]))
        expected = "|".join(text for _, _, text in given if text)
        assert row[2:].decode().removeprefix(chr(len(expected.encode()))) == expected
    wire.close()


def test_binary_rows_have_their_types(db: Any, open_server: MysqlServer) -> None:
    with db.cursor() as cursor:
        cursor.execute(
            "CREATE TABLE every (id BIGINT UNSIGNED PRIMARY KEY, tiny TINYINT, flag BOOL, ratio DOUBLE, "
            "price DECIMAL(10,2), day DATE, at DATETIME, span TIME, name VARCHAR(20), data BLOB)"
        )
        cursor.execute(
            "INSERT INTO every VALUES (18446744073709551615, -5, 1, 0.5, 1.5, '2026-01-31', '2026-01-31 08:00:01.5', "
            "'-26:03:04', 'Wäter', x'00ff'), "
            "(1, NULL, NULL, NULL, NULL, NULL, '2026-01-31 00:00:00', '00:00:00', '', NULL)"
        )
    wire = WireClient.connected(open_server.port)
    number, _ = wire.prepare("SELECT * FROM every ORDER BY id DESC")
    first, second = wire.rows(wire.execute(number))
    assert first == b"".join(
        (
            *(b"\0", b"\0\0", b"\xff" * 8, b"\xfb", b"\x01", struct.pack("<d", 0.5), b"\x041.50"),
            *(b"\x04" + struct.pack("<HBB", 2026, 1, 31), struct.pack("<BHBBBBBI", 11, 2026, 1, 31, 8, 0, 1, 500_000)),
            *(struct.pack("<BBIBBB", 8, 1, 1, 2, 3, 4), b"\x06W\xc3\xa4ter", b"\x02\x00\xff"),
        )
    )
    assert second == b"".join(
        (b"\0", b"\xf8\x08", struct.pack("<Q", 1), b"\x04" + struct.pack("<HBB", 2026, 1, 31), b"\0", b"\0")
    )
    wire.close()


def test_rows_are_fetched_by_a_cursor(db: Any, open_server: MysqlServer) -> None:
    with db.cursor() as cursor:
        cursor.execute("CREATE TABLE t (id INT PRIMARY KEY)")
        cursor.execute("INSERT INTO t VALUES (1), (2), (3)")
    wire = WireClient.connected(open_server.port)
    number, _ = wire.prepare("SELECT id FROM t ORDER BY id")
    first = wire.execute(number, cursor=True)
    wire.read()
    assert int.from_bytes(wire.read()[3:5], "little") & 64, "a cursor is open"
    assert first == b"\x01"
    fetch = b"\x1c" + struct.pack("<II", number, 2)
    wire.send(fetch)
    assert [row[2:] for row in wire.left()] == [b"\x01\0\0\0", b"\x02\0\0\0"]
    assert wire.status & 64
    wire.send(fetch)
    assert [row[2:] for row in wire.left()] == [b"\x03\0\0\0"]
    assert wire.status & 128, "the last row was sent"
    assert int.from_bytes(wire.command(fetch)[1:3], "little") == 1243
    wire.close()


def test_a_prepared_statement_goes_on_after_a_definition(db: Any, open_server: MysqlServer) -> None:
    with db.cursor() as cursor:
        cursor.execute("CREATE TABLE t (id INT PRIMARY KEY)")
        cursor.execute("INSERT INTO t VALUES (1)")
        wire = WireClient.connected(open_server.port)
        number, _ = wire.prepare("SELECT * FROM t WHERE id = ?")
        one = [(3, struct.pack("<i", 1))]
        assert wire.execute(number, one) == b"\x01"
        assert len(wire.rows(b"\x01")) == 1
        cursor.execute("ALTER TABLE t ADD COLUMN name VARCHAR(3) DEFAULT 'new'")
        assert wire.execute(number, one) == b"\x02", "its metadata is sent again"
        assert wire.rows(b"\x02") == [b"\0\0\x01\0\0\0\x03new"]
        cursor.execute("DROP TABLE t")
        assert int.from_bytes(wire.execute(number, one)[1:3], "little") == 1146
    wire.close()


def test_prepared_statements_are_limited_reset_and_closed(open_server: MysqlServer) -> None:
    wire = WireClient.connected(open_server.port)
    numbers = [wire.prepare("SELECT ?")[0] for _ in range(20)]
    refused = wire.command(b"\x16SELECT 1")
    assert int.from_bytes(refused[1:3], "little") == 1461
    assert b"max_prepared" in refused
    wire.send(b"\x19" + struct.pack("<I", numbers[0]))
    number, _ = wire.prepare("SELECT ?")
    wire.long_data(number, 0, b"gone")
    assert wire.command(b"\x1a" + struct.pack("<I", number))[0] == 0
    assert wire.rows(wire.execute(number, [(253, b"\x03new")]))[0].endswith(b"\x03new")
    for command in (b"\x17", b"\x1a", b"\x1c"):
        unknown = wire.command(command + struct.pack("<II", numbers[0], 1) + b"\0")
        assert int.from_bytes(unknown[1:3], "little") == 1243
    wire.close()


# --- what no driver sends -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\x00",
        b"\xfe",
        b"\x17",
        b"\x17\x01\x00\x00\x00",
        b"\x16",
        b"\x16SELECT ?; SELECT ?",
        b"\x18\x01",
        b"\x18\x09\0\0\0\xff\xff",
        b"\x1c\x01",
        b"\x04nothing",
        b"\x12" + bytes(10),
        b"\x03\xff\xff",
        b"\x03SELECT '" + b"(" * 5_000,
    ],
)
def test_a_strange_command_is_refused_and_the_connection_goes_on(open_server: MysqlServer, payload: bytes) -> None:
    wire = WireClient.connected(open_server.port)
    wire.prepare("SELECT ?")
    wire.send(payload)
    if not payload.startswith((b"\x18",)):
        assert wire.read()[0] == 0xFF
    assert wire.command(b"\x0e")[0] == 0
    wire.close()


def test_packets_out_of_order_and_too_large_end_the_connection(open_server: MysqlServer) -> None:
    for data, number in (
        (framed((b"\x0e",), 5)[0], 1210),
        (b"\xff\xff\xff\x00" + bytes(LONGEST) + b"\xff\xff\xff\x01" + bytes(LONGEST) + b"\xff\xff\xff\x02", 1153),
    ):
        wire = WireClient.connected(open_server.port)
        wire.socket.sendall(data)
        assert int.from_bytes(wire.read()[1:3], "little") == number
        assert wire.is_closed()


def test_garbage_before_the_login_gets_nothing(open_server: MysqlServer) -> None:
    draw = random.Random(1)
    for size in (1, 4, 5, 40, 4_000, 70_000):
        for _ in range(5):
            with socket.create_connection(("127.0.0.1", open_server.port), SECONDS) as plain:
                plain.sendall(b"GET / HTTP/1.1\r\n\r\n" if size == 1 else draw.randbytes(size))
                plain.shutdown(socket.SHUT_WR)
                said = bytearray()
                try:
                    while more := plain.recv(1 << 16):
                        said += more
                except ConnectionError:
                    pass
                assert len(said) < 500
    with open_server.connect() as db, db.cursor() as cursor:
        assert cursor.execute("SELECT 1") == 1


def test_a_client_that_leaves_in_the_middle_leaves_nothing_behind(db: Any, open_server: MysqlServer) -> None:
    with db.cursor() as cursor:
        cursor.execute("CREATE TABLE t (id INT PRIMARY KEY)")
        for _ in range(20):
            wire = WireClient.connected(open_server.port)
            wire.command(b"\x03BEGIN")
            wire.command(b"\x03INSERT INTO t VALUES (1)")
            wire.send(b"\x03SELECT COUNT(*) FROM t a, t b")
            wire.close()
        deadline = monotonic() + SECONDS
        while True:
            cursor.execute("SHOW TRANSACTIONS")
            if not cursor.fetchall():
                break
            assert monotonic() < deadline, "transactions of connections that are gone stay open"
            sleep(0.02)
        cursor.execute("SELECT COUNT(*) FROM t")
        assert cursor.fetchall() == ((0,),)


def test_commands_that_come_at_once_are_answered_in_turn(open_server: MysqlServer) -> None:
    wire = WireClient.connected(open_server.port)
    ping = framed((b"\x0e",), 0)[0]
    query = framed((b"\x03SELECT 7",), 0)[0]
    wire.socket.sendall((query + ping) * 50)
    for _ in range(50):
        assert wire.rows(wire.read()) == [b"\x017"]
        assert wire.read()[0] == 0
    wire.close()


def test_a_statement_is_killed_by_the_number_of_its_connection(db: Any, open_server: MysqlServer) -> None:
    with db.cursor() as cursor:
        cursor.execute("CREATE TABLE many (id INT PRIMARY KEY)")
        cursor.executemany("INSERT INTO many VALUES (%s)", [(each,) for each in range(1_500)])
        wire = WireClient.connected(open_server.port)
        number = int.from_bytes(wire.greeting[wire.greeting.index(b"\0") + 1 :][:4], "little")
        wire.send(b"\x03SELECT SUM(a.id * b.id + c.id) FROM many a, many b, many c")
        deadline = monotonic() + SECONDS
        while True:
            cursor.execute("SHOW PROCESSLIST")
            if str(number) in {row[0] for row in cursor.fetchall()}:
                break
            assert monotonic() < deadline
            sleep(0.01)
        cursor.execute(f"KILL QUERY {number}")
        assert int.from_bytes(wire.read()[1:3], "little") == 1317
        assert wire.command(b"\x0e")[0] == 0
    wire.close()


# --- compression --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 200, LONGEST, LONGEST + 5])
@pytest.mark.parametrize("random_bytes", [False, True])
def test_what_is_enveloped_is_opened(size: int, random_bytes: bool) -> None:
    draw = random.Random(size)
    payload = draw.randbytes(size) if random_bytes else bytes(size)
    data, number = enveloped(framed((payload,), 0)[0], 0)
    assert number == 1 + (size > LONGEST - 5)
    feed = CompressedFeed(1 << 30)
    for at in range(0, len(data), 100_003):
        feed.add(data[at : at + 100_003])
        found = feed.next()
    assert found == payload
    assert (feed.size, feed.envelope) == (0, number)


def test_an_envelope_is_not_trusted() -> None:
    packed = zlib.compress(bytes(10_000))

    def refused(body: bytes, whole: int, error: type[Exception]) -> None:
        feed = CompressedFeed(5_000)
        feed.add(len(body).to_bytes(3, "little") + b"\0" + whole.to_bytes(3, "little") + body)
        with pytest.raises(error):
            feed.next()

    refused(packed, 10_000, LimitExceeded)
    refused(packed, 4_000, BadRequest)
    refused(packed, 5_003, BadRequest)
    refused(zlib.compress(bytes(10)), 11, BadRequest)
    refused(b"no zlib at all", 100, BadRequest)


def test_packets_are_compressed_where_a_client_asks_for_it(db: Any, open_server: MysqlServer) -> None:
    with db.cursor() as cursor:
        cursor.execute("CREATE TABLE t (id INT PRIMARY KEY, word TEXT)")
        cursor.execute("CREATE EXT VIEW ById AS SELECT id, word FROM t WHERE id = ?")
    wire = WireClient.connected(open_server.port, more=COMPRESS)
    long = "x" * 50_000
    assert wire.command(f"\x03INSERT INTO t VALUES (1, '{long}'), (2, 'short')".encode())[0] == 0
    number, _ = wire.prepare("SELECT id, word FROM t WHERE id = ?")
    for _ in range(3):
        for id, word in ((1, long), (2, "short")):
            wire.envelopes.clear()
            (row,) = wire.rows(wire.execute(number, [(3, struct.pack("<i", id))]))
            assert row.endswith(word.encode())
            (head,) = wire.envelopes
            assert int.from_bytes(head[:3], "little") < 1_000
            assert head[3] == 1, "it is numbered behind the command's"
    assert wire.command(b"\x0e")[0] == 0
    wire.close()


# --- prepared statements: what they will answer -------------------------------------------------------------------


def test_a_prepared_statement_tells_its_columns(db: Any, open_server: MysqlServer) -> None:
    with db.cursor() as cursor:
        cursor.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, day DATE, word VARCHAR(9))")
    wire = WireClient.connected(open_server.port)
    for sql, names in (
        ("SELECT id, word AS w FROM t WHERE id = ? AND day > ? ORDER BY id LIMIT ?", [b"id", b"w"]),
        ("SELECT COUNT(*) AS n FROM t", [b"n"]),
        ("SELECT ? AS given", [b"given"]),
        ("SHOW TABLES", [b"Tables_in_headrace"]),
        ("INSERT INTO t VALUES (?, ?, ?)", []),
        ("SET @a = ?", []),
    ):
        _, _, columns = wire.prepared(sql)
        assert list(map(name_of, columns)) == names, sql
    for sql, number in (("SELECT id FROM nothing", 1146), ("SELECT nothing FROM t WHERE id = ?", 1054)):
        assert int.from_bytes(wire.command(b"\x16" + sql.encode())[1:3], "little") == number
    wire.close()


def test_a_statement_that_is_prepared_again_tells_what_there_is_by_then(db: Any, open_server: MysqlServer) -> None:
    wire = WireClient.connected(open_server.port)
    with db.cursor() as cursor:
        cursor.execute("CREATE TABLE t (id INT PRIMARY KEY)")
        _, _, before = wire.prepared("SELECT * FROM t")
        cursor.execute("ALTER TABLE t ADD COLUMN word TEXT")
        _, _, now = wire.prepared("SELECT * FROM t")
        cursor.execute("DROP TABLE t")
    assert (len(before), now[:1], len(now)) == (1, before, 2)
    wire.close()


# --- the ends of others -------------------------------------------------------------------------------------------


def connection_of(db: Any) -> int:
    with db.cursor() as cursor:
        cursor.execute("SELECT CONNECTION_ID()")
        return int(cursor.fetchall()[0][0])


def test_an_idle_connection_is_killed(db: Any, open_server: MysqlServer) -> None:
    with open_server.connect() as idle, db.cursor() as cursor:
        number = connection_of(idle)
        cursor.execute(f"KILL QUERY {number}")
        assert connection_of(idle) == number, "nothing ran, and it stays"
        cursor.execute(f"KILL {number}")
        with pytest.raises(Exception, match=r"Lost connection|gone away|closed"):
            connection_of(idle)
        with pytest.raises(Exception, match=str(number)) as raised:
            cursor.execute(f"KILL {number}")
        assert raised.value.args[0] == 1094


def test_a_connection_may_kill_itself(db: Any, open_server: MysqlServer) -> None:
    wire = WireClient.connected(open_server.port)
    (row,) = wire.rows(wire.command(b"\x03SELECT CONNECTION_ID()"))
    number = int(row[1:])
    wire.send(b"\x0c" + number.to_bytes(4, "little"))
    assert wire.is_closed()


# --- long texts ---------------------------------------------------------------------------------------------------


def test_many_rows_of_pymysql_go_in_texts_of_a_megabyte(db: Any) -> None:
    """``executemany`` writes as many rows into one INSERT as 1,024,000 bytes hold."""
    with db.cursor() as cursor:
        cursor.execute("CREATE TABLE t (id INT PRIMARY KEY, word VARCHAR(300))")
        assert cursor.max_stmt_length == 1_024_000
        count = 9_000
        assert cursor.executemany("INSERT INTO t VALUES (%s, %s)", [(n, "x" * 200) for n in range(count)]) == count
        assert len(cursor._executed) > 850_000
        cursor.execute("SELECT COUNT(*), SUM(id) FROM t")
        assert cursor.fetchall() == ((count, count * (count - 1) // 2),)
