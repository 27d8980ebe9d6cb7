"""Frames: four bytes of length, most significant first, then as many bytes of content.

The content is an *envelope*, ``(number, message)``: number 0 is a notice, a positive number a request, and its negative
the answer to that request. A frame without content is a *beat*: a sign of life that is sent back.
"""

from __future__ import annotations

from struct import Struct
from typing import Any

from domains.errors import LimitExceeded
from worker.protocol.messages import ProtocolError
from worker.wire import codec

FRAME_MAX = 64 << 20
"""Bytes of one frame. The largest command of a migration and a page of 100,000 rows are well below. A larger message
would hold up all others of its connection for a second, and take twice its size in memory on both sides."""
GREETING_MAX = 4096
"""Bytes of the first frame: a Hello has 100. The first four bytes of other protocols are larger numbers (those of an
HTTP request, a thousand million)."""
NUMBER_MAX = 1 << 62
"""The greatest number of a request. At one a microsecond it is reached in a hundred thousand years."""

_LENGTH = Struct(">I")
HEADER = _LENGTH.size
BEAT = _LENGTH.pack(0)


def framed(number: int, message: object) -> bytes:
    """A whole frame. LimitExceeded if the other side would refuse its length."""
    body = codec.pack((number, codec.pack_object(message)))
    if len(body) > FRAME_MAX:
        raise LimitExceeded(
            f'a "{type(message).__name__}" of {len(body)} bytes is over the limit of {FRAME_MAX} bytes for one message',
            hint="ask for less at once, or write fewer rows at once",
        )
    return _LENGTH.pack(len(body)) + body


def opened(body: bytes) -> tuple[int, Any]:
    """Number and packed message of a frame's content, for ``codec.unpack_object``. ProtocolError if it is no
    envelope."""
    envelope = codec.unpack(body)
    # A number has a limit since error messages name it, and Python does not print integers of any length.
    if type(envelope) is not tuple or len(envelope) != 2 or type(n := envelope[0]) is not int or abs(n) > NUMBER_MAX:
        raise ProtocolError("the received bytes are not a message of headrace")
    return envelope


class Cutter:
    """Cuts what arrives into the contents of frames. ``limit`` may be changed between two calls."""

    def __init__(self, limit: int = FRAME_MAX) -> None:
        self.limit = limit
        self._rest = bytearray()

    def cut(self, data: bytes) -> list[bytes]:
        """The contents of the frames that are complete now; empty for a beat.

        Raises ProtocolError for a frame over the limit, but hands out the complete frames before it first.
        """
        rest = self._rest
        rest += data
        contents: list[bytes] = []
        at = 0
        while len(rest) - at >= HEADER:
            (length,) = _LENGTH.unpack_from(rest, at)
            if length > self.limit:
                if contents:
                    break
                raise ProtocolError(
                    f"a frame of {length} bytes is over the limit of {self.limit}",
                    hint="is it another program, or another version of headrace, that connects here?",
                )
            if len(rest) - at - HEADER < length:
                break
            contents.append(bytes(rest[at + HEADER : at + HEADER + length]))
            at += HEADER + length
        del rest[:at]
        return contents
