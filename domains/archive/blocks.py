"""Blocks: a run of plain values as bytes, for rows between the tasks of a bulk job, for states in files and commands.

``marshal`` of a list, 0.1 µs a row of three values; format 2, which is pinned and is a function of the content alone.
It holds None, integers of any size, floats, texts (also half a surrogate pair), bytes, and tuples of them. What it
cannot hold, Decimal, is a *list* of one text, which nothing else is; a block that has one begins with another byte, so
that all others are decoded without a look at their values.

A block comes from a process of our own, in a file with a digest or over a connection of our own: like ``marshal``
itself, it trusts its input, and is no format for strangers.
"""

from __future__ import annotations

import marshal
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from itertools import islice
from typing import Any, TypeVar

BLOCK_ITEMS = 1_000
"""Items of a block, at most: a step that loads one takes some milliseconds, so that reads and writes between two of
them do not notice."""
VERSION = 2
PLAIN, WITH_DECIMALS = b"p", b"d"

Item = TypeVar("Item")


def encode_block(items: Sequence[Any]) -> bytes:
    """The bytes of a list of plain values."""
    try:
        return PLAIN + marshal.dumps(list(items), VERSION)
    except ValueError:
        return WITH_DECIMALS + marshal.dumps([_without_decimals(item) for item in items], VERSION)


def decode_block(data: bytes) -> list[Any]:
    items: list[Any] = marshal.loads(data[1:])
    return items if data[:1] == PLAIN else [_with_decimals(item) for item in items]


def blocks_of(items: Iterable[Item], size: int = BLOCK_ITEMS) -> Iterator[list[Item]]:
    """Items in runs of ``size``, the last one shorter; none where there are no items."""
    rest = iter(items)
    while block := list(islice(rest, size)):
        yield block


def _without_decimals(value: Any) -> Any:
    if isinstance(value, Decimal):
        return [str(value)]
    return tuple([_without_decimals(each) for each in value]) if type(value) is tuple else value


def _with_decimals(value: Any) -> Any:
    if type(value) is list:
        return Decimal(value[0])
    return tuple([_with_decimals(each) for each in value]) if type(value) is tuple else value
