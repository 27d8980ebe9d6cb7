"""Tokens: a write's position as opaque text, ``h1.`` and the clock as compact JSON in URL-safe base64.

The prefix is the format's version, so that a later one can be told apart. Tokens are not signed: a forged one can only
make its own read wait until it times out.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import TYPE_CHECKING

import orjson

from domains.errors import BadRequest

if TYPE_CHECKING:
    from domains.packets import Clock  # A client has no use for packets.

PREFIX = "h1."


def encode(clock: Mapping[str, int]) -> str:
    text = orjson.dumps(dict(clock), option=orjson.OPT_SORT_KEYS)
    return PREFIX + base64.urlsafe_b64encode(text).rstrip(b"=").decode("ascii")


def decode(token: str) -> Clock:
    """The clock in a token; raises BadRequest for anything that ``encode`` would not have made."""
    body = token[len(PREFIX) :]
    if not token.startswith(PREFIX):
        raise _malformed()
    try:
        clock = orjson.loads(base64.b64decode(body + "=" * (-len(body) % 4), altchars=b"-_", validate=True))
    except (binascii.Error, ValueError) as error:
        raise _malformed() from error
    if not isinstance(clock, dict) or not all(type(at) is int and at >= 0 for at in clock.values()):
        raise _malformed()
    return clock


def merge(*clocks: Mapping[str, int]) -> Clock:
    """The earliest clock that is not before any of these."""
    merged: Clock = {}
    for clock in clocks:
        for shard, position in clock.items():
            if position > merged.get(shard, -1):
                merged[shard] = position
    return merged


def _malformed() -> BadRequest:
    return BadRequest("malformed token", hint='send the "token" of a write\'s answer unchanged as Headrace-Token')
