"""A connection to the upstream, as a client of MySQL's protocol: what it answers is passed on as it came.

No driver stands between: one would make values of the rows, of which packets would have to be made again, and would not
tell what an OK packet says beside (warnings, the session's changes). So column definitions and rows are the upstream's,
byte by byte. What is read is only what packets begin and end with::

    OK ───► what it says of the session (``session_track_…``): variables, database, the last GTID; passed on without
    rows ─► passed on; the packet at their end says the same. A client that still wants EOF packets is given them
    ERR ──► passed on

The capabilities are those of the client, but for these two: the session's changes are always asked for, and EOF packets
never, which could not tell them. So the GTID of a write costs no question of its own.
"""

from __future__ import annotations

import asyncio
import hashlib
import ssl
import struct
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from api.mysql.packets import (
    CLIENT_CONNECT_WITH_DB,
    CLIENT_DEPRECATE_EOF,
    CLIENT_FOUND_ROWS,
    CLIENT_LONG_FLAG,
    CLIENT_MULTI_RESULTS,
    CLIENT_MULTI_STATEMENTS,
    CLIENT_PLUGIN_AUTH,
    CLIENT_PROTOCOL_41,
    CLIENT_PS_MULTI_RESULTS,
    CLIENT_SECURE_CONNECTION,
    CLIENT_SSL,
    CLIENT_TRANSACTIONS,
    LONGEST,
    STATUS_AUTOCOMMIT,
    STATUS_IN_TRANSACTION,
    STATUS_MORE_RESULTS,
    PacketFeed,
    PayloadReader,
    eof,
    framed,
)
from api.mysql.proving import NATIVE, SHA2
from domains.errors import LimitExceeded, Unavailable

CLIENT_SESSION_TRACK = 1 << 23
STATUS_SESSION_CHANGED = 1 << 14
ALWAYS = (
    1  # CLIENT_LONG_PASSWORD, without which MariaDB takes its own extensions to be meant
    | CLIENT_LONG_FLAG
    | CLIENT_PROTOCOL_41
    | CLIENT_TRANSACTIONS
    | CLIENT_SECURE_CONNECTION
    | CLIENT_MULTI_RESULTS
    | CLIENT_PS_MULTI_RESULTS
    | CLIENT_PLUGIN_AUTH
    | CLIENT_SESSION_TRACK
    | CLIENT_DEPRECATE_EOF
)
_AS_THE_CLIENT = CLIENT_FOUND_ROWS | CLIENT_MULTI_STATEMENTS | (1 << 8)  # CLIENT_IGNORE_SPACE, which is of sql_mode
CONNECT_SECONDS = 10.0
LARGEST = 1 << 30
"""Bytes of a packet: the greatest ``max_allowed_packet``."""
READ_BYTES = 1 << 16
GTID = "last_gtid"
TRACKED = ("character_set_client", "character_set_results", "sql_mode", "sql_select_limit", "time_zone")
"""The variables by which a text or an answer means something else than it does here."""
_ERR, _OK, _END = 0xFF, 0x00, 0xFE


@dataclass(frozen=True, slots=True)
class UpstreamServer:
    """Where an upstream is, who is who there, and how much of it is asked."""

    host: str
    port: int
    database: str
    source: str
    """What its tables here say that they follow."""
    owner: tuple[str, str]
    """Name and password there of who owns a deployment without accounts."""
    accounts: dict[str, tuple[str, str]] = field(default_factory=dict)
    """The same by the names of accounts here."""
    tls: ssl.SSLContext | None = None
    connections: int = 100
    wait: float = 0.5
    """Seconds that a read waits for the session's own write to arrive here."""


class UpstreamRefused(Unavailable):
    """The upstream answers one of our own questions with an error."""

    packet: bytes

    @classmethod
    def of(cls, packet: bytes) -> UpstreamRefused:
        own = cls(f"the upstream refuses: {packet[9:].decode('utf-8', 'replace')}")
        own.packet = packet
        return own


class UpstreamLost(Unavailable):
    """Nobody knows what became of what it was asked."""


def lost() -> UpstreamLost:
    return UpstreamLost("Lost connection to MySQL server: the upstream is gone, and what it has done is not known")


class UpstreamConnection:
    """One of one session; see :meth:`connect`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._feed = PacketFeed(LARGEST)
        self.version, self.id = "", 0
        self._capabilities = 0
        self.status = STATUS_AUTOCOMMIT
        self.tracked: dict[str, str] = {}
        """Variables, as far as they were told; ``schema`` is the database."""
        self.gtid = ""
        """The last one of this session."""
        self.first_id = 0
        self.has_failed = False
        """The last answer was an error."""
        self.is_broken = False

    @classmethod
    async def greeted(cls, server: UpstreamServer) -> UpstreamConnection:
        """:raises Unavailable: it does not answer."""
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                own = cls(*await asyncio.open_connection(server.host, server.port, limit=4 * READ_BYTES))
                own._read_greeting(await own._next())
        except (OSError, TimeoutError, UpstreamLost) as error:
            raise Unavailable(
                f"Can't connect to MySQL server: the upstream {server.host}:{server.port} does not answer",
                hint=str(error),
            ) from error
        return own

    @classmethod
    async def connect(
        cls, server: UpstreamServer, login: tuple[str, str], capabilities: int, collation: int, schema: bytes
    ) -> UpstreamConnection:
        """:raises Unavailable: it does not answer. :raises UpstreamRefused: it lets us not in."""
        own = await cls.greeted(server)
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                await own._log_in(server, login, capabilities & _AS_THE_CLIENT | ALWAYS, collation, schema)
                await own._begin()
        except BaseException as error:
            own.close()
            if isinstance(error, OSError | TimeoutError | UpstreamLost):
                raise Unavailable("Can't connect to MySQL server: the upstream is gone", hint=str(error)) from error
            raise
        return own

    def close(self) -> None:
        self.is_broken = True
        self._writer.close()

    @property
    def is_lost(self) -> bool:
        gone = self._reader.at_eof() or self._reader.exception() is not None
        return self.is_broken or gone or self._writer.is_closing()

    @property
    def in_transaction(self) -> bool:
        return bool(self.status & STATUS_IN_TRANSACTION) or not self.status & STATUS_AUTOCOMMIT

    # --- packets --------------------------------------------------------------------------------------------------

    async def _next(self) -> bytes:
        while (payload := self._feed.next()) is None:
            try:
                data = await self._reader.read(READ_BYTES)
            except OSError:
                data = b""
            if not data:
                self.is_broken = True
                raise lost()
            self._feed.add(data)
        return payload

    async def send(self, payload: bytes) -> None:
        """A command. It is sent once."""
        data, _ = framed((payload,), 0)
        self._feed.sequence = 1
        self._writer.write(data)
        try:
            await self._writer.drain()
        except OSError as error:
            self.is_broken = True
            raise lost() from error

    # --- its beginning --------------------------------------------------------------------------------------------

    def _read_greeting(self, payload: bytes) -> None:
        if payload[:1] == b"\xff":
            raise UpstreamRefused.of(payload[:3] + b"#HY000" + payload[3:])  # It has no SQLSTATE yet.
        reader = PayloadReader(payload, 1)
        self.version = reader.until_nul().decode("utf-8", "replace")
        self.id, nonce = reader.number(4), reader.take(8)
        reader.take(1)
        capabilities = reader.number(2)
        reader.take(3)
        self._capabilities = capabilities | reader.number(2) << 16
        reader.take(11)
        self._nonce = nonce + reader.take(12)

    async def _log_in(
        self, server: UpstreamServer, login: tuple[str, str], capabilities: int, collation: int, schema: bytes
    ) -> None:
        user, password = login[0].encode(), login[1].encode()
        capabilities |= CLIENT_CONNECT_WITH_DB if schema else 0
        sequence = self._feed.sequence
        if server.tls is not None:
            if not self._capabilities & CLIENT_SSL:
                raise Unavailable("the upstream has no TLS", hint="its URL says ssl_ca: have it have a certificate")
            capabilities |= CLIENT_SSL
            head = struct.pack("<IIB", capabilities, LARGEST, collation & 0xFF) + bytes(23)
            data, sequence = framed((head,), sequence)
            self._writer.write(data)
            await self._writer.start_tls(server.tls, server_hostname=server.host)
        proof = native_proof(password, self._nonce)
        parts = (user + b"\0", bytes((len(proof),)) + proof, schema + b"\0" if schema else b"", NATIVE.encode() + b"\0")
        head = struct.pack("<IIB", capabilities, LARGEST, collation & 0xFF) + bytes(23)
        await self._answer_login(head + b"".join(parts), sequence)
        payload = await self._next()
        if payload[:1] == b"\xfe":
            plugin, _, nonce = payload[1:].partition(b"\0")
            payload = await self._switched(plugin.decode("ascii", "replace"), password, nonce[:20], server)
        while payload[:1] == b"\x01":  # caching_sha2_password: it is known, or the password itself is wanted.
            if payload == b"\x01\x04":
                await self._answer_login(_plain(password, server), self._feed.sequence)
            payload = await self._next()
        if payload[:1] == b"\xff":
            raise UpstreamRefused.of(payload)

    async def _switched(self, plugin: str, password: bytes, nonce: bytes, server: UpstreamServer) -> bytes:
        if plugin == NATIVE:
            proof = native_proof(password, nonce)
        elif plugin == SHA2:
            proof = sha2_proof(password, nonce)
        elif plugin == "mysql_clear_password":
            proof = _plain(password, server)
        else:
            raise Unavailable(f"the upstream wants {plugin} of the account", hint=f"{NATIVE} and {SHA2} are there")
        await self._answer_login(proof, self._feed.sequence)
        return await self._next()

    async def _answer_login(self, payload: bytes, sequence: int) -> None:
        data, self._feed.sequence = framed((payload,), sequence)
        self._writer.write(data)
        await self._writer.drain()

    async def _begin(self) -> None:
        """Have the session's changes told from now on, and learn what it begins with."""
        await self.ask(f"SET SESSION session_track_system_variables = '{','.join((*TRACKED, GTID))}'".encode())
        names = (*TRACKED, "system_time_zone")
        (row,) = await self.ask(f"SELECT {', '.join(f'@@{name}' for name in names)}, DATABASE()".encode())
        self.tracked = dict(zip((*names, "schema"), row, strict=True))

    async def ask(self, sql: bytes) -> list[list[str]]:
        """Our own question; NULL is "".

        :raises UpstreamRefused, UpstreamLost"""
        rows: list[list[str]] = []
        columns = -1
        await self.send(b"\x03" + sql)
        async for payload in self._payloads():
            if payload[0] == _ERR:
                raise UpstreamRefused.of(payload)
            if columns < 0:
                columns = 0 if payload[0] == _OK else PayloadReader(payload).length()
                skipped = columns
            elif skipped:
                skipped -= 1
            elif payload[0] != _END:
                reader = PayloadReader(payload)
                rows.append([_value(reader) for _ in range(columns)])
        return rows

    # --- answers --------------------------------------------------------------------------------------------------

    async def answer(self, client: int) -> AsyncIterator[list[bytes]]:
        """The answer to what was sent, for a client of these capabilities, as far as it is there.

        :raises UpstreamLost"""
        whole, found, size = bool(client & CLIENT_DEPRECATE_EOF), list[bytes](), 0
        columns, rows = 0, -1
        async for payload in self._payloads():
            kind = payload[0]
            if rows < 0:
                columns, rows = (0, -1) if kind in (_OK, _ERR) else (PayloadReader(payload).length(), 0)
                found.append(self._stripped(payload) if kind == _OK else payload)
            elif columns:
                columns -= 1
                found.append(payload)
            elif (kind == _END and len(payload) < LONGEST) or kind == _ERR:
                if not whole and not rows:
                    found.append(eof(self.status & ~(STATUS_SESSION_CHANGED | STATUS_MORE_RESULTS)))
                found.append(payload if kind == _ERR else self._stripped(payload, end=not whole))
                rows = -1
            else:
                if not rows and not whole:
                    found.append(eof(self.status & (STATUS_AUTOCOMMIT | STATUS_IN_TRANSACTION)))
                rows += 1
                found.append(payload)
            size += len(payload)
            if size > READ_BYTES:
                yield found
                found, size = [], 0
        yield found

    async def _payloads(self) -> AsyncIterator[bytes]:
        """All of an answer, of which what is said of the session is remembered."""
        while True:
            first = await self._next()
            self.has_failed = first[0] == _ERR
            if first[0] == _OK:
                self._hear(first)
            yield first
            if first[0] == _OK or self.has_failed:
                if self.has_failed or not self.status & STATUS_MORE_RESULTS:
                    return
                continue
            for _ in range(PayloadReader(first).length()):
                yield await self._next()
            while True:
                payload = await self._next()
                is_last = payload[0] == _ERR or (payload[0] == _END and len(payload) < LONGEST)
                if is_last:
                    self.has_failed = payload[0] == _ERR
                    if not self.has_failed:
                        self._hear(payload)
                yield payload
                if is_last:
                    break
            if self.has_failed or not self.status & STATUS_MORE_RESULTS:
                return

    async def gathered(self, most: int) -> tuple[list[bytes], list[bytes] | None]:
        """A result whole: what stands before its rows, and these; None: it has none.

        :raises LimitExceeded: it has more than so many bytes. :raises UpstreamLost"""
        head, rows, columns, size = list[bytes](), list[bytes](), -1, 0
        async for payload in self._payloads():
            if columns < 0 and payload[0] in (_OK, _ERR):
                return [payload if payload[0] == _ERR else self._stripped(payload)], None
            if columns < 0:
                columns = PayloadReader(payload).length()
                head.append(payload)
            elif len(head) <= columns:
                head.append(payload)
            elif payload[0] == _ERR:
                return [payload], None
            elif payload[0] != _END or len(payload) >= LONGEST:
                rows.append(payload)
            size += len(payload)
            if size > most:
                raise LimitExceeded(f'the answer exceeds "max_answer_size", {most} bytes', hint="ask for fewer rows")
        return head, rows

    async def prepared(self, client: int) -> tuple[list[bytes], int, int]:
        """The answer to COM_STMT_PREPARE, the statement's number and that of its parameters; 0 where it is an error."""
        first = await self._next()
        if first[0] == _ERR:
            return [first], 0, 0
        number, columns, parameters = struct.unpack("<IHH", first[1:9])
        found = [first]
        for count in (parameters, columns):
            found += [await self._next() for _ in range(count)]
            if count and not client & CLIENT_DEPRECATE_EOF:
                found.append(eof(self.status & (STATUS_AUTOCOMMIT | STATUS_IN_TRANSACTION)))
        return found, number, parameters

    async def plain(self) -> bytes:
        """An answer that is one packet, OK or ERR."""
        payload = await self._next()
        self.has_failed = payload[0] == _ERR
        if not self.has_failed:
            self._hear(payload)
            payload = self._stripped(payload)
        return payload

    def _hear(self, payload: bytes) -> None:
        """What the end of a result says of the session."""
        reader = PayloadReader(payload, 1)
        reader.length()
        first_id = reader.length()
        self.status = reader.number(2)
        self.first_id = first_id or self.first_id
        reader.number(2)
        if not self.status & STATUS_SESSION_CHANGED or reader.is_over:
            return
        reader.text()
        changes = PayloadReader(reader.text())
        while not changes.is_over:
            kind, told = changes.number(1), PayloadReader(changes.text())
            if kind == 0:
                while not told.is_over:
                    name, value = (told.text().decode("utf-8", "replace") for _ in range(2))
                    if name == GTID:
                        self.gtid = value
                    else:
                        self.tracked[name] = value
            elif kind == 1:
                self.tracked["schema"] = told.text().decode("utf-8", "replace")

    def _stripped(self, payload: bytes, *, end: bool = False) -> bytes:
        """As a client has it that did not ask for the session's changes; ``end``: as an EOF packet."""
        reader = PayloadReader(payload, 1)
        reader.length()
        reader.length()
        counts = payload[1 : reader.at]
        status, warnings = reader.number(2) & ~STATUS_SESSION_CHANGED, reader.number(2)
        if end:
            return eof(status, warnings)
        info = b"" if reader.is_over else reader.text()
        return payload[:1] + counts + struct.pack("<HH", status, warnings) + info


def _value(reader: PayloadReader) -> str:
    if reader.payload[reader.at] == 0xFB:
        reader.at += 1
        return ""
    return reader.text().decode("utf-8", "replace")


def _plain(password: bytes, server: UpstreamServer) -> bytes:
    if server.tls is None:
        raise Unavailable("the upstream wants the password itself", hint="over TLS: ssl_ca in its URL")
    return password + b"\0"


def native_proof(password: bytes, nonce: bytes) -> bytes:
    if not password:
        return b""
    once = hashlib.sha1(password).digest()
    return _xor(once, hashlib.sha1(nonce + hashlib.sha1(once).digest()).digest())


def sha2_proof(password: bytes, nonce: bytes) -> bytes:
    if not password:
        return b""
    once = hashlib.sha256(password).digest()
    return _xor(once, hashlib.sha256(hashlib.sha256(once).digest() + nonce).digest())


def _xor(one: bytes, other: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(one, other, strict=True))


def with_number(packet: bytes, number: int) -> bytes:
    """COM_STMT_…, or its answer, about another number."""
    return packet[:1] + number.to_bytes(4, "little") + packet[5:]
