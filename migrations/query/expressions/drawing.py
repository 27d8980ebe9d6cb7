"""RAND() and UUID() of a SELECT without a view: another value for each row of the answer, drawn when it is made.

Such a call is a parameter (``late.py``) that stands in no node of the dataflow. Whoever binds the look-up gives a seed,
and the view's finish appends the values that follow from it to its rows, one column for each call in the text::

    SELECT id, RAND() FROM t ORDER BY UUID()    =    π id, r (by u (rows of t × (r, u)))

So a value is drawn once for each row. RAND(n) starts from n, and has the values that MySQL and MariaDB have.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count
from uuid import UUID

from domains.language.types import Row, Value

PREFIX = "@%"
"""How the keys of these parameters begin; behind it are the function, its place in the text, and the n of RAND(n)."""
_MOST = 0x3FFFFFFF
_FIRST, _SECOND, _APART = 0x10001, 0x10000001, 55555555
"""How MySQL makes two seeds of the one in RAND(n)."""


def drawn_name(function: str, position: int, seed: int | None) -> str:
    return f"%{function} {position}" + ("" if seed is None else f" {seed}")


def is_drawn(key: str) -> bool:
    return key.startswith(PREFIX)


def extended_rows(rows: Sequence[Row], draws: Sequence[tuple[str, object]]) -> list[Row]:
    """The rows with a drawn value for each key behind them; a draw is a key and what was bound for it."""
    columns = [_drawn(key, seed) for key, seed in draws]
    return [(*row, *map(next, columns)) for row in rows]


def drawn_one(function: str, seed: int | None, bound: int) -> Value:
    """The value of a call that stands for one row alone."""
    return next(_drawn(f"@{drawn_name(function, 0, seed)}", bound))


def _drawn(key: str, bound: object) -> Iterator[Value]:
    function, _, *seeds = key.removeprefix(PREFIX).split()
    assert isinstance(bound, int), "a seed is bound"
    if function == "uuid":
        return _uuids(bound)
    if seeds:
        seed = int(seeds[0])
        return _numbers((seed * _FIRST + _APART) & 0xFFFFFFFF, (seed * _SECOND) & 0xFFFFFFFF)
    return _numbers(bound & _MOST, (bound >> 32) & _MOST)


def _numbers(first: int, second: int) -> Iterator[Value]:
    """MySQL's ``my_rnd``."""
    first, second = first % _MOST, second % _MOST
    while True:
        first = (first * 3 + second) % _MOST
        second = (first + second + 33) % _MOST
        yield first / _MOST


def _uuids(bound: int) -> Iterator[Value]:
    """UUIDs of version 1, each a tick of 100 ns after the one before."""
    start = UUID(int=bound)
    for number in count():
        at = start.time + number
        time = at & 0xFFFFFFFF, (at >> 32) & 0xFFFF, (at >> 48) & 0x0FFF | 0x1000
        yield str(UUID(fields=(*time, start.clock_seq_hi_variant, start.clock_seq_low, start.node)))
