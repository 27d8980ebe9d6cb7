"""MySQL's packets: four bytes of head, a payload, and the few forms that payloads are made of.

A payload of 16,777,215 bytes or more goes in several packets of that length, with a shorter one (or an empty one) at
the end. ``PacketFeed`` puts them together, and refuses what passes its limit before it is kept.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable

from domains.errors import BadRequest, LimitExceeded

LONGEST = 0xFFFFFF
"""Bytes of a packet's payload; one of just this length is continued."""
HEAD = 4
NULL = b"\xfb"

CLIENT_FOUND_ROWS = 1 << 1
CLIENT_LONG_FLAG = 1 << 2
CLIENT_CONNECT_WITH_DB = 1 << 3
CLIENT_COMPRESS = 1 << 5
CLIENT_PROTOCOL_41 = 1 << 9
CLIENT_SSL = 1 << 11
CLIENT_TRANSACTIONS = 1 << 13
CLIENT_SECURE_CONNECTION = 1 << 15
CLIENT_MULTI_STATEMENTS = 1 << 16
CLIENT_MULTI_RESULTS = 1 << 17
CLIENT_PS_MULTI_RESULTS = 1 << 18
CLIENT_PLUGIN_AUTH = 1 << 19
CLIENT_CONNECT_ATTRS = 1 << 20
CLIENT_PLUGIN_AUTH_LENENC_CLIENT_DATA = 1 << 21
CLIENT_DEPRECATE_EOF = 1 << 24

SERVER_CAPABILITIES = (
    1  # CLIENT_LONG_PASSWORD
    | CLIENT_FOUND_ROWS
    | CLIENT_LONG_FLAG
    | CLIENT_CONNECT_WITH_DB
    | CLIENT_COMPRESS
    | CLIENT_PROTOCOL_41
    | CLIENT_TRANSACTIONS
    | CLIENT_SECURE_CONNECTION
    | CLIENT_MULTI_STATEMENTS
    | CLIENT_MULTI_RESULTS
    | CLIENT_PS_MULTI_RESULTS
    | CLIENT_PLUGIN_AUTH
    | CLIENT_CONNECT_ATTRS
    | CLIENT_PLUGIN_AUTH_LENENC_CLIENT_DATA
    | CLIENT_DEPRECATE_EOF
)

STATUS_IN_TRANSACTION = 1
STATUS_AUTOCOMMIT = 2
STATUS_MORE_RESULTS = 8
STATUS_CURSOR_EXISTS = 64
STATUS_LAST_ROW_SENT = 128


class PacketFeed:
    """The payloads in what has arrived, one after the other."""

    def __init__(self, most: int) -> None:
        """``most``: bytes of a payload that is taken."""
        self.most = most
        self.sequence = 0
        """The number of the next packet that is expected; a command begins with 0."""
        self._held = bytearray()
        self._parts: list[bytes] = []
        self._size = 0

    def add(self, data: bytes) -> None:
        self._held += data

    @property
    def size(self) -> int:
        """Bytes that are held."""
        return len(self._held) + self._size

    def rest(self) -> bytes:
        """What has arrived and was not taken: it is in another protocol."""
        rest, self._held = bytes(self._held), bytearray()
        return rest

    def next(self) -> bytes | None:
        """A payload that is there whole; None where more of it has to come.

        :raises BadRequest: its packets are not in order. :raises LimitExceeded: it is too large."""
        held = self._held
        while len(held) >= HEAD:
            length = int.from_bytes(held[:3], "little")
            if held[3] != self.sequence:
                raise BadRequest("packets are out of order")
            if self._size + length > self.most:
                raise too_large(self.most)
            if len(held) < HEAD + length:
                return None
            payload = bytes(held[HEAD : HEAD + length])
            del held[: HEAD + length]
            self.sequence = (self.sequence + 1) & 0xFF
            if length < LONGEST and not self._parts:
                return payload
            self._parts.append(payload)
            self._size += length
            if length < LONGEST:
                whole, self._parts, self._size = b"".join(self._parts), [], 0
                return whole
        return None


class CompressedFeed(PacketFeed):
    """The payloads in what has arrived compressed: packets in envelopes, of which one is opened when it is asked for.

    An envelope has seven bytes of head (its length, its number, and the length of what is in it, 0 where that is as it
    is), and parts of packets as they come: one of them may begin in the middle of a packet."""

    def __init__(self, most: int, arrived: bytes = b"") -> None:
        super().__init__(most)
        self._envelopes = bytearray(arrived)
        self.envelope = 0
        """The number of the next one."""

    def add(self, data: bytes) -> None:
        self._envelopes += data

    @property
    def size(self) -> int:
        return super().size + len(self._envelopes)

    def next(self) -> bytes | None:
        held = self._envelopes
        while (payload := super().next()) is None:
            length = int.from_bytes(held[:3], "little")
            if len(held) < ENVELOPE_HEAD or len(held) < ENVELOPE_HEAD + length:
                return None
            whole, packed = int.from_bytes(held[4:7], "little"), bytes(held[ENVELOPE_HEAD : ENVELOPE_HEAD + length])
            self.envelope = held[3] + 1 & 0xFF
            del held[: ENVELOPE_HEAD + length]
            super().add(self._opened(packed, whole) if whole else packed)
        return payload

    def _opened(self, packed: bytes, whole: int) -> bytes:
        """:raises BadRequest: there is not what its head says. :raises LimitExceeded: it would be too large."""
        if whole > self.most + HEAD:
            raise too_large(self.most)
        opening = zlib.decompressobj()
        try:
            found = opening.decompress(packed, whole + 1)
        except zlib.error:
            raise malformed() from None
        if len(found) != whole or not opening.eof:
            raise malformed()
        return found


ENVELOPE_HEAD = 7
COMPRESSED_FROM = 150
"""Bytes from which on an answer is compressed: what is shorter has little to gain, and MySQL has 50."""
LEVEL = 1
"""zlib's. The answer is written while others wait: 10 ms a MB, where its usual level takes four times as long."""


def enveloped(data: bytes, number: int) -> tuple[bytes, int]:
    """Packets in envelopes, numbered from ``number`` on, and the number after them."""
    pieces: list[bytes] = []
    for at in range(0, len(data), LONGEST):
        part = data[at : at + LONGEST]
        packed = zlib.compress(part, LEVEL) if len(part) >= COMPRESSED_FROM else part
        is_shorter = len(packed) < len(part)
        body = packed if is_shorter else part
        whole = (len(part) if is_shorter else 0).to_bytes(3, "little")
        pieces += (len(body).to_bytes(3, "little"), bytes((number,)), whole, body)
        number = (number + 1) & 0xFF
    return b"".join(pieces), number


def framed(payloads: Iterable[bytes], sequence: int) -> tuple[bytes, int]:
    """The payloads as packets, numbered from ``sequence`` on, and the number after them."""
    pieces: list[bytes] = []
    for payload in payloads:
        at, size = 0, len(payload)
        while size - at >= LONGEST:
            pieces += (b"\xff\xff\xff", bytes((sequence,)), payload[at : at + LONGEST])
            at += LONGEST
            sequence = (sequence + 1) & 0xFF
        pieces += ((size - at).to_bytes(3, "little"), bytes((sequence,)), payload[at:] if at else payload)
        sequence = (sequence + 1) & 0xFF
    return b"".join(pieces), sequence


# --- what payloads are made of ------------------------------------------------------------------------------------


_SHORT_LENGTHS = [bytes((size,)) for size in range(251)]


def length_of(size: int) -> bytes:
    """A length-encoded integer."""
    if size < 251:
        return _SHORT_LENGTHS[size]
    if size < 1 << 16:
        return b"\xfc" + size.to_bytes(2, "little")
    if size < 1 << 24:
        return b"\xfd" + size.to_bytes(3, "little")
    return b"\xfe" + size.to_bytes(8, "little")


def text_of(value: bytes) -> bytes:
    """A length-encoded string."""
    size = len(value)
    return (_SHORT_LENGTHS[size] if size < 251 else length_of(size)) + value


class PayloadReader:
    """Reads a payload from its beginning. What it lacks is an error of the client."""

    def __init__(self, payload: bytes, at: int = 0) -> None:
        self.payload = payload
        self.at = at

    @property
    def is_over(self) -> bool:
        return self.at >= len(self.payload)

    def take(self, size: int) -> bytes:
        """:raises BadRequest: there are fewer."""
        end = self.at + size
        if size < 0 or end > len(self.payload):
            raise malformed()
        found, self.at = self.payload[self.at : end], end
        return found

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "little")

    def length(self) -> int:
        first = self.number(1)
        if first < 251:
            return first
        if first not in (0xFC, 0xFD, 0xFE):
            raise malformed()
        return self.number({0xFC: 2, 0xFD: 3, 0xFE: 8}[first])

    def text(self) -> bytes:
        return self.take(self.length())

    def until_nul(self) -> bytes:
        """To the next NUL, or the end."""
        end = self.payload.find(b"\0", self.at)
        found = self.payload[self.at :] if end < 0 else self.payload[self.at : end]
        self.at += len(found) + 1
        return found

    def rest(self) -> bytes:
        found, self.at = self.payload[self.at :], len(self.payload)
        return found


def too_large(most: int) -> LimitExceeded:
    return LimitExceeded(
        f'a packet exceeds "max_body_size", {most} bytes',
        hint="send the rows in several statements, or start the server with a greater max_body_size",
    )


def malformed() -> BadRequest:
    return BadRequest("the packet is malformed")


# --- payloads -----------------------------------------------------------------------------------------------------


def ok(
    affected: int = 0, first_id: int = 0, status: int = STATUS_AUTOCOMMIT, warnings: int = 0, *, head: int = 0
) -> bytes:
    """An OK packet; with ``head`` 0xFE the one at the end of rows."""
    return bytes((head,)) + length_of(affected) + length_of(first_id) + struct.pack("<HH", status, warnings)


def eof(status: int, warnings: int = 0) -> bytes:
    return struct.pack("<BHH", 0xFE, warnings, status)


def refusal(number: int, state: str, message: str) -> bytes:
    """An ERR packet. MySQL's messages have at most 512 bytes; ours may be longer, as a client's buffers allow."""
    return struct.pack("<BH", 0xFF, number) + b"#" + state.encode() + message.encode("utf-8", "replace")[:8_192]


def greeting(version: str, connection: int, nonce: bytes, plugin: str, collation: int, *, tls: bool) -> bytes:
    """The handshake's first packet. ``nonce``: 20 bytes, none of them NUL."""
    capabilities = SERVER_CAPABILITIES | (CLIENT_SSL if tls else 0)
    return b"".join(
        (
            b"\x0a" + version.encode() + b"\0",
            struct.pack("<I", connection & 0xFFFFFFFF),
            nonce[:8] + b"\0",
            struct.pack("<HBHHB", capabilities & 0xFFFF, collation, STATUS_AUTOCOMMIT, capabilities >> 16, 21),
            bytes(10),
            nonce[8:] + b"\0",
            plugin.encode() + b"\0",
        )
    )
