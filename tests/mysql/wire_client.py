"""A client of MySQL's protocol that sends what it is told to, byte by byte."""

from __future__ import annotations

import socket
import struct
import zlib
from collections.abc import Sequence

from api.mysql.packets import LONGEST, enveloped, framed

SECONDS = 60.0
COMPRESS = 1 << 5
CAPABILITIES = 1 | 1 << 2 | 1 << 9 | 1 << 13 | 1 << 15 | 1 << 19


def name_of(definition: bytes) -> bytes:
    """The name of a column, behind those of its catalog, database and tables."""
    at = 0
    for _ in range(4):
        at += 1 + definition[at]
    return definition[at + 1 : at + 1 + definition[at]]


class WireClient:
    """A connection of bytes. ``error``: the number of the one that ended its login; 0: it is open."""

    def __init__(self, port: int, *, user: str = "root", collation: int = 45, more: int = 0) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), SECONDS)
        self._sequence = 0
        self._opened: bytearray | None = None
        """What has come in envelopes, once both sides compress."""
        self.envelopes: list[bytes] = []
        """Their heads."""
        self.greeting = self.read()
        head = struct.pack("<IIB23x", CAPABILITIES | more, 1 << 24, collation)
        said = self.answer(head + user.encode() + b"\0\0caching_sha2_password\0")
        self.error = int.from_bytes(said[1:3], "little") if said[0] == 0xFF else 0
        if more & COMPRESS:
            self._opened = bytearray()

    @classmethod
    def connected(cls, port: int, *, collation: int = 45, more: int = 0) -> WireClient:
        found = cls(port, collation=collation, more=more)
        assert not found.error
        return found

    def read(self) -> bytes:
        whole = b""
        while True:
            head = self._take(4)
            self._sequence = head[3] + 1 & 0xFF
            part = self._take(int.from_bytes(head[:3], "little"))
            whole += part
            if len(part) < LONGEST:
                return whole

    def _take(self, size: int) -> bytes:
        if self._opened is None:
            return self._received(size)
        while len(self._opened) < size:
            head = self._received(7)
            self.envelopes.append(head)
            body = self._received(int.from_bytes(head[:3], "little"))
            self._opened += zlib.decompress(body) if any(head[4:]) else body
        found = bytes(self._opened[:size])
        del self._opened[:size]
        return found

    def _received(self, size: int) -> bytes:
        found = bytearray()
        while len(found) < size:
            more = self.socket.recv(min(1 << 20, size - len(found)))
            if not more:
                raise ConnectionError("the server has closed the connection")
            found += more
        return bytes(found)

    def send(self, payload: bytes, sequence: int = 0) -> None:
        data, self._sequence = framed((payload,), sequence)
        self.socket.sendall(data if self._opened is None else enveloped(data, 0)[0])

    def answer(self, payload: bytes) -> bytes:
        self.send(payload, self._sequence)
        return self.read()

    def command(self, payload: bytes) -> bytes:
        self.send(payload)
        return self.read()

    def prepare(self, sql: str) -> tuple[int, int]:
        """Its number, and how many parameters it has."""
        number, count, _ = self.prepared(sql)
        return number, count

    def prepared(self, sql: str) -> tuple[int, int, list[bytes]]:
        """The same, and the definitions of its columns."""
        head = self.command(b"\x16" + sql.encode())
        assert head[0] == 0, head
        columns, count = struct.unpack_from("<HH", head, 5)
        marks, own = ([self.read() for _ in range(each and each + 1)][:-1] for each in (count, columns))
        assert len(marks) == count
        return int.from_bytes(head[1:5], "little"), count, own

    def long_data(self, number: int, place: int, data: bytes) -> None:
        for at in range(0, len(data), 1 << 20):
            self.send(b"\x18" + struct.pack("<IH", number, place) + data[at : at + (1 << 20)])

    def execute(self, number: int, params: Sequence[tuple[int, bytes | None]] = (), *, cursor: bool = False) -> bytes:
        """``params``: type and bytes of each; None: NULL, or sent before."""
        head = b"\x17" + struct.pack("<IBI", number, cursor, 1)
        nulls = sum(1 << place for place, (_, value) in enumerate(params) if value is None)
        types = b"".join(struct.pack("<H", kind) for kind, _ in params)
        values = b"".join(value for _, value in params if value is not None)
        if not params:
            return self.command(head)
        return self.command(head + nulls.to_bytes((len(params) + 7) // 8, "little") + b"\x01" + types + values)

    def rows(self, first: bytes) -> list[bytes]:
        """The rows behind the first packet of a result, as they are."""
        for _ in range(first[0] + 1):
            self.read()
        return self.left()

    def left(self) -> list[bytes]:
        found = []
        while (row := self.read())[0] != 0xFE or len(row) > 8:
            assert row[0] != 0xFF, row
            found.append(row)
        self.status = int.from_bytes(row[3:5], "little")
        return found

    def is_closed(self) -> bool:
        """Whether the server ends it, within a while."""
        try:
            while self.socket.recv(1 << 16):
                pass
        except TimeoutError:
            return False
        except ConnectionError:
            pass
        return True

    def close(self) -> None:
        self.socket.close()
