"""``& | ^ ~ << >>`` over 64 unsigned bits, as in MySQL: a negative operand is its two's complement."""

from __future__ import annotations

from collections.abc import Callable

from domains.functions.source import Function, implemented, registry
from domains.functions.type_rules import UNSIGNED
from domains.types import BIGINT

MASK = 2**64 - 1


def _shift_left(x: int, count: int) -> int:
    return (x & MASK) << count & MASK if 0 <= count < 64 else 0


def _shift_right(x: int, count: int) -> int:
    return (x & MASK) >> count if 0 <= count < 64 else 0


def _binary(name: str, implementation: Callable[[int, int], int]) -> Function:
    return implemented(name, [BIGINT, BIGINT], UNSIGNED, implementation)


FUNCTIONS = registry(
    _binary("bit_and", lambda x, y: x & y & MASK),
    _binary("bit_or", lambda x, y: (x | y) & MASK),
    _binary("bit_xor", lambda x, y: (x ^ y) & MASK),
    _binary("shift_left", _shift_left),
    _binary("shift_right", _shift_right),
    implemented("bit_not", [BIGINT], UNSIGNED, lambda x: ~x & MASK),
)
