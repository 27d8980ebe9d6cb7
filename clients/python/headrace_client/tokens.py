"""Tokens: how far a write has come, as text that a read carries to wait for it.

To a caller a token is opaque; two of them merge with ``a | b``. It is ``h1.`` and a clock (the position of each shard)
as compact JSON in URL-safe base64. The prefix is the format's version, so that a later one can be told apart. Tokens
are not signed: a forged one can only make its own read wait until it times out.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from json.encoder import encode_basestring

from headrace_client.errors import BadRequest

PREFIX = "h1."

Clock = dict[str, int]


class Token(str):
    """``a | b`` is the token of both: a read that carries it reflects what was written under either."""

    __slots__ = ()

    def __or__(self, other: str) -> Token:
        return encode(merge(decode(self), decode(other)))

    __ror__ = __or__


def encode(clock: Mapping[str, int]) -> Token:
    # Each write has one: the library takes three times as long for it.
    members = ",".join([f"{encode_basestring(shard)}:{clock[shard]}" for shard in sorted(clock)])
    text = base64.urlsafe_b64encode(b"{%b}" % members.encode())
    return Token(PREFIX + text.rstrip(b"=").decode("ascii"))


def decode(token: str) -> Clock:
    """The clock in a token; raises BadRequest for anything that ``encode`` would not have made."""
    try:
        body = token.removeprefix(PREFIX)
        clock = json.loads(base64.b64decode(body + "=" * (-len(body) % 4), altchars=b"-_", validate=True))
    except (binascii.Error, ValueError, RecursionError):
        clock = None
    if (
        not token.startswith(PREFIX)
        or not isinstance(clock, dict)
        or not all(type(at) is int and at >= 0 for at in clock.values())
    ):
        raise BadRequest("malformed token", hint='send the "token" of a write\'s answer unchanged as Headrace-Token')
    return clock


def merge(*clocks: Mapping[str, int]) -> Clock:
    """The earliest clock that is not before any of these."""
    merged: Clock = {}
    for clock in clocks:
        for shard, position in clock.items():
            if position > merged.get(shard, -1):
                merged[shard] = position
    return merged
