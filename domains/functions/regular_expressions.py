"""REGEXP's patterns, searched by RE2: in time that is linear in the text, whatever the pattern.

::

    pattern ──► size ≤ MOST_SIZE? ──► RE2 compiles it? ──► search(text): bool
                    │ no                 │ no
                    └──────► a reason ◄──┘          a constant: refused when it is planned; from a row: NULL

One thread runs all domains of a process, so an expression that backtracks (Python's ``re`` takes seconds for
``(a+)+$`` at 30 characters) is an outage, and a cluster tries the read again on the next worker. RE2 keeps a set of
states instead. What needs backtracking (a group referred to again, a look ahead or behind, an atomic group) it does
not know. The classes ``\\w``, ``\\d``, ``\\s`` and POSIX's are of ASCII, as in Spark's judgement.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

import re2

from domains.errors import HeadraceError, SqlError, Unsupported

re2.set_fallback_notification(re2.FALLBACK_EXCEPTION)  # else it hands what it cannot do to Python's own engine

MOST_SIZE = 100
"""Characters that a pattern may ask for, counted repetitions written out. RE2's time is the text's length times this at
worst: 0.8 s for 64 KB, measured with ``a.{100}c``. Without it ``(.{30}){30}`` takes ten times as long."""

MOST_PATTERN = 1000
"""Characters of a pattern as it is written; brackets' contents and alternatives are free of ``MOST_SIZE``."""

_MOST_PATTERNS = 64
"""Patterns that come from rows are remembered; each may come to hold ``_MOST_MEMORY``."""
_MOST_MEMORY = 1 << 22
"""Bytes of a pattern's states. With less, RE2 goes over to its slower engine for patterns such as ``.{100}c``."""

_PIECES = re.compile(
    r"""\\[pP]\{[^}]*\} | \\x\{[^}]*\} | \\.                           # an escape: one character
      | \[\^?\]?(?:\[:\^?\w+:\]|\\.|[^\]\\])*\]                     # a class: one character
      | \{(?P<least>\d+)(?:,(?P<most>\d*))?\}                       # a counted repetition of what stands before it
      | (?P<open>\((?:\?(?:P?<\w+>|<?[=!>]|[a-zA-Z-]*:?))?) | (?P<close>\))
      | [*+?|^$]                                                    # these ask for no character more
      | .""",
    re.VERBOSE | re.DOTALL,
)


def _size(pattern: str) -> int:
    """How many characters the pattern asks for, each counted repetition at its greatest."""
    sums, last = [0], 0
    for piece in _PIECES.finditer(pattern):
        if piece["least"] is not None:
            sums[-1] -= last
            last *= max(int(piece["least"]), int(piece["most"] or 0), 1)
        elif piece["open"] is not None:
            sums.append(0)
            continue
        elif piece["close"] is not None and len(sums) > 1:
            last = sums.pop()
        elif piece[0] in "*+?|^$":
            continue
        else:
            last = 1
        sums[-1] += last
    return sum(sums)


def _search(contains: Callable[[str], bool]) -> Callable[[str], bool]:
    def search(text: str) -> bool:
        try:
            return contains(text)
        except UnicodeEncodeError:  # half of a surrogate pair; RE2 reads UTF-8, which has none
            return contains(text.encode("utf-8", "replace").decode("utf-8"))

    return search


@lru_cache(_MOST_PATTERNS)
def _compiled(pattern: str) -> Callable[[str], bool] | HeadraceError:
    if len(pattern) > MOST_PATTERN:
        return Unsupported(
            f"a regular expression of {len(pattern)} characters", hint=f"at most {MOST_PATTERN} are done"
        )
    if (size := _size(pattern)) > MOST_SIZE:
        return Unsupported(
            f'the regular expression "{pattern}", which asks for {size} characters',
            hint=f"at most {MOST_SIZE} are done, counted repetitions written out",
        )
    try:
        return _search(re2.compile(pattern, re2.ASCII, max_mem=_MOST_MEMORY).contains)
    except re2.error as error:
        reason = str(error)
    try:
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError):
        return SqlError(f'"{pattern}" is no regular expression: {reason}')
    return Unsupported(
        f'the regular expression "{pattern}": {reason}',
        hint="references to groups, looking ahead or behind, and atomic groups are not done: they may take for ever",
    )


def searcher(pattern: str) -> Callable[[str], bool] | None:
    """Whether a text has the pattern somewhere; None if it is no pattern that is done."""
    compiled = _compiled(pattern)
    return None if isinstance(compiled, HeadraceError) else compiled


def check(pattern: str) -> None:
    """:raises SqlError: it is no regular expression.
    :raises Unsupported: it is one that is not done.
    """
    compiled = _compiled(pattern)
    if isinstance(compiled, HeadraceError):
        raise compiled.with_traceback(None)
