"""LIKE and REGEXP. A constant pattern is translated once, while the operator is compiled.

Case counts, but for a text with a collation. ``%`` and ``_`` are LIKE's wildcards, a backslash (or the third argument)
takes their meaning away. REGEXP finds anywhere in the text; a pattern that is no regular expression, or one that is not
done, is
refused where it is a constant and gives NULL where a row brings it. Neither backtracks, so a text is gone through
about once, whatever the pattern.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import re2

from domains.errors import HeadraceError, SqlError, Unsupported
from domains.language.collating.coercibility import met
from domains.language.collating.collation import Collation, alike
from domains.language.expressions import Call, Constant, Expression
from domains.language.functions.logic import boolean
from domains.language.functions.source import Emitter, Function, converted_constant, registry
from domains.language.functions.text import by_bytes
from domains.language.types import BLOB, TEXT, Kind, SqlType

# REGEXP's patterns, searched by RE2: in time that is linear in the text, whatever the pattern.
#
# ::
#
#     pattern ──► size ≤ MOST_SIZE? ──► RE2 compiles it? ──► search(text): bool
#                     │ no                 │ no
#                     └──────► a reason ◄──┘          a constant: refused when it is planned; from a row: NULL
#
# One thread runs all domains of a process, so an expression that backtracks (Python's ``re`` takes seconds for
# ``(a+)+$`` at 30 characters) is an outage, and a cluster tries the read again on the next worker. RE2 keeps a set of
# states instead. What needs backtracking (a group referred to again, a look ahead or behind, an atomic group) it does
# not know. The classes ``\w``, ``\d``, ``\s`` and POSIX's are of ASCII, as in Spark's judgement.

re2.set_fallback_notification(re2.FALLBACK_EXCEPTION)  # else it hands what it cannot do to Python's own engine

MOST_SIZE = 100
"""Characters that a pattern may ask for, counted repetitions written out. RE2's time is the text's length times this at
worst: 0.8 s for 64 KB, measured with ``a.{100}c``. Without it ``(.{30}){30}`` takes ten times as long."""

MOST_PATTERN = 1000
"""Characters of a pattern as it is written; brackets' contents and alternatives are free of ``MOST_SIZE``."""

_COMPILED_PATTERNS = 64
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


@lru_cache(_COMPILED_PATTERNS)
def _compiled(pattern: str) -> Any | HeadraceError:
    """RE2's pattern, or why there is none."""
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
        return re2.compile(pattern, re2.ASCII, max_mem=_MOST_MEMORY)
    except re2.error as error:
        reason = str(error)
    try:
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError):
        return SqlError(f'"{pattern}" is not a regular expression: {reason}')
    return Unsupported(
        f'the regular expression "{pattern}": {reason}',
        hint="references to groups, looking ahead or behind, and atomic groups are not done: they may take for ever",
    )


def searcher(pattern: str) -> Callable[[str], bool] | None:
    """Whether a text has the pattern somewhere; None if it is no pattern that is done."""
    compiled = compiled_pattern(pattern)
    return None if compiled is None else _search(compiled.contains)


def compiled_pattern(pattern: str) -> Any:
    """RE2's; None if it is no pattern that is done."""
    compiled = _compiled(pattern)
    return None if isinstance(compiled, HeadraceError) else compiled


def check(pattern: str) -> None:
    """:raises SqlError: it is no regular expression.
    :raises Unsupported: it is one that is not done.
    """
    compiled = _compiled(pattern)
    if isinstance(compiled, HeadraceError):
        raise compiled.with_traceback(None)


_MOST_PATTERNS = 1024
"""Patterns that come from rows are remembered; a column seldom has more different ones in use at a time."""


def _tokens(pattern: str, escape: str) -> list[tuple[str, bool]]:
    """The pattern's characters and whether each is a wildcard."""
    tokens: list[tuple[str, bool]] = []
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            tokens.append((next(characters, escape), False))
        else:
            tokens.append((character, character in "%_"))
    return tokens


@lru_cache(_MOST_PATTERNS)
def like_matcher(pattern: str, escape: str = "\\", collation: Collation | None = None) -> Callable[[str], object]:
    """A function of the text whose result is truthy where the text is LIKE the pattern."""
    tokens = _tokens(pattern, escape)
    if collation is None:
        return _matcher_of(tokens)
    matches = _matcher_of([(c if is_wild else alike(c, collation), is_wild) for c, is_wild in tokens])
    return lambda text: matches(alike(text, collation))


def _matcher_of(tokens: list[tuple[str, bool]]) -> Callable[[str], object]:
    wild = [i for i, (_, is_wild) in enumerate(tokens) if is_wild]
    literal = "".join(character for character, is_wild in tokens if not is_wild)
    if not wild:
        return literal.__eq__
    if all(tokens[i][0] == "%" for i in wild):
        last = len(tokens) - 1
        if wild == [last]:
            return lambda text: text.startswith(literal)
        if wild == [0]:
            return lambda text: text.endswith(literal)
        if wild == [0, last]:
            return lambda text: literal in text
    return _scanner(tokens)


def _scanner(tokens: list[tuple[str, bool]]) -> Callable[[str], bool]:
    """Looks for what stands between the ``%``, one after the other, each at the first place where it is.

    The first place is enough: what follows can only have more room. So nothing is looked for twice, where a
    backtracking ``.*`` would try every place of each with every place of all others.
    """
    between: list[list[tuple[str, bool]]] = [[]]
    for token in tokens:
        if token == ("%", True):
            between.append([])
        else:
            between[-1].append(token)
    pieces = [_Piece(each) for each in between]
    head, tail = pieces[0], pieces[-1]
    if head is tail:
        return lambda text: len(text) == head.length and head.stands_at(text, 0)
    looked_for = [piece for piece in pieces[1:-1] if piece.length]

    def matches(text: str) -> bool:
        end = len(text) - tail.length
        if end < head.length or not head.stands_at(text, 0) or not tail.stands_at(text, end):
            return False
        position = head.length
        for piece in looked_for:
            position = piece.end_of_first(text, position, end)
            if position < 0:
                return False
        return True

    return matches


class _Piece:
    """Characters and ``_`` without a ``%`` between them: as many characters as it has tokens."""

    __slots__ = ("_found", "_literal", "_stands", "length")

    def __init__(self, tokens: list[tuple[str, bool]]) -> None:
        self.length = len(tokens)
        self._literal = None if any(wild for _, wild in tokens) else "".join(character for character, _ in tokens)
        expression = re.compile("".join("." if wild else re.escape(c) for c, wild in tokens), re.DOTALL)
        self._found, self._stands = expression.search, expression.match

    def stands_at(self, text: str, position: int) -> bool:
        if self._literal is not None:
            return text.startswith(self._literal, position)
        return self._stands(text, position) is not None

    def end_of_first(self, text: str, start: int, end: int) -> int:
        """The end of its first occurrence within ``text[start:end]``; -1 if it has none."""
        if self._literal is not None:
            found = text.find(self._literal, start, end)
            return found + self.length if found >= 0 else -1
        match = self._found(text, start, end)
        return match.end() if match else -1


def like(text: str, pattern: str, escape: str = "\\", collation: Collation | None = None) -> int:
    return 1 if like_matcher(pattern, escape, collation)(text) else 0


def regexp(text: str, pattern: str, collation: Collation | None = None) -> int | None:
    matcher = searcher(_ignoring_case(pattern, collation))
    return None if matcher is None else 1 if matcher(text) else 0


def _ignoring_case(pattern: str, collation: Collation | None) -> str:
    """The pattern that ignores case but not accents, as in MySQL."""
    return pattern if collation is None else f"(?i){pattern}"


def _collation(call: Call) -> Collation | None:
    return met(call.arguments[:2], call.function.upper()) if _type(call) is TEXT else None


def _function(call: Call, type: SqlType) -> Callable[..., object]:
    collation = _collation(call)
    if call.function == "regexp":
        return regexp if collation is None else partial(regexp, collation=collation)
    if collation is not None:
        return partial(like, collation=collation)
    return like if type is TEXT else by_bytes(like)


def constant_text(e: Expression, type: SqlType = TEXT) -> str | None:
    """The constant as text; of a BLOB, each byte is a character."""
    if not isinstance(e, Constant):
        return None
    value = converted_constant(e, type)
    assert value is None or isinstance(value, str | bytes)
    return value.decode("latin-1") if isinstance(value, bytes) else value


def _type(call: Call) -> SqlType:
    """The type by which the call compares. To LIKE, a BLOB makes bytes of everything; REGEXP knows text only."""
    is_binary = call.function == "like" and any(e.type.kind is Kind.BLOB for e in call.arguments)
    return BLOB if is_binary else TEXT


def _matcher(call: Call) -> Callable[[Any], object] | None:
    """The matcher of a pattern that is known now."""
    type = _type(call)
    constants = [constant_text(e, type) for e in call.arguments[1:]]
    known = [text for text in constants if text is not None]
    if len(known) < len(constants):
        return None
    collation = _collation(call)
    if call.function == "regexp":
        matcher: Callable[[str], object] | None = searcher(_ignoring_case(known[0], collation))
    else:
        matcher = like_matcher(known[0], *(known[1:] or ["\\"]), collation)
    return matcher if type is TEXT or matcher is None else by_bytes(matcher)


def _value(emitter: Emitter, call: Call) -> str:
    matcher, type = _matcher(call), _type(call)
    if matcher is not None:
        text = emitter.as_type(call.arguments[0], type)
        return emitter.strict([text], lambda x: f"1 if {emitter.bind(matcher)}({x}) else 0")
    function = emitter.bind(_function(call, type))
    texts = [emitter.as_type(e, type) for e in call.arguments]
    return emitter.strict(texts, lambda *names: f"{function}({', '.join(names)})")


def _truth(emitter: Emitter, call: Call) -> str:
    matcher = _matcher(call)
    if matcher is None:
        return _value(emitter, call)
    text = emitter.as_type(call.arguments[0], _type(call))
    return emitter.present([text], lambda x: f"{emitter.bind(matcher)}({x})")


def _falsity(emitter: Emitter, call: Call) -> str:
    matcher = _matcher(call)
    if matcher is None:
        return f"({_value(emitter, call)} == 0)"
    text = emitter.as_type(call.arguments[0], _type(call))
    return emitter.present([text], lambda x: f"not {emitter.bind(matcher)}({x})")


def regexp_type(arguments: tuple[Expression, ...]) -> SqlType:
    """Looks at a constant pattern while it is planned.

    :raises SqlError: it is no regular expression.
    :raises Unsupported: it is one that is not done.
    """
    pattern = constant_text(arguments[1])
    if pattern is not None:
        check(pattern)
    return boolean(tuple(argument.type for argument in arguments))


FUNCTIONS = registry(
    Function("like", (2, 3), boolean, _value, _truth, _falsity),
    Function("regexp", (2, 2), boolean, _value, _truth, _falsity, refine=regexp_type),
)
