"""LIKE and REGEXP. A constant pattern is translated once, while the operator is compiled.

Binary collation: case counts. ``%`` and ``_`` are LIKE's wildcards, a backslash (or the third argument) takes their
meaning away. REGEXP finds anywhere in the text; POSIX classes are translated, and a pattern that is no regular
expression, an error in MySQL, gives NULL.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

from domains.expressions import Call, Constant, Expression
from domains.functions.logic import boolean
from domains.functions.source import Emitter, Function, converted_constant, registry
from domains.types import TEXT

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
def like_matcher(pattern: str, escape: str = "\\") -> Callable[[str], object]:
    """A function of the text whose result is truthy where the text is LIKE the pattern."""
    tokens = _tokens(pattern, escape)
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
    expression = "".join(
        (".*" if character == "%" else ".") if is_wild else re.escape(character) for character, is_wild in tokens
    )
    return re.compile(expression, re.DOTALL).fullmatch


def like(text: str, pattern: str, escape: str = "\\") -> int:
    return 1 if like_matcher(pattern, escape)(text) else 0


_POSIX_CLASSES = {
    "alpha": "a-zA-Z",
    "digit": "0-9",
    "alnum": "a-zA-Z0-9",
    "upper": "A-Z",
    "lower": "a-z",
    "space": r"\s",
    "blank": r" \t",
    "punct": r"!-/:-@\[-`{-~",
    "xdigit": "0-9A-Fa-f",
}
_POSIX = re.compile(r"\[:(\w+):\]")


@lru_cache(_MOST_PATTERNS)
def regexp_matcher(pattern: str) -> Callable[[str], object] | None:
    try:
        return re.compile(_POSIX.sub(lambda m: _POSIX_CLASSES.get(m[1], m[0]), pattern)).search
    except (re.error, OverflowError, RecursionError):
        return None


def regexp(text: str, pattern: str) -> int | None:
    matcher = regexp_matcher(pattern)
    return None if matcher is None else 1 if matcher(text) else 0


def _constant_text(e: Expression) -> str | None:
    if not isinstance(e, Constant):
        return None
    value = converted_constant(e, TEXT)
    assert value is None or isinstance(value, str)
    return value


def _matcher(call: Call) -> Callable[[str], object] | None:
    """The matcher of a pattern that is known now."""
    constants = [_constant_text(e) for e in call.arguments[1:]]
    known = [text for text in constants if text is not None]
    if len(known) < len(constants):
        return None
    return regexp_matcher(known[0]) if call.function == "regexp" else like_matcher(*known)


def _value(emitter: Emitter, call: Call) -> str:
    matcher = _matcher(call)
    if matcher is not None:
        text = emitter.as_type(call.arguments[0], TEXT)
        return emitter.strict([text], lambda x: f"1 if {emitter.bind(matcher)}({x}) else 0")
    function = emitter.bind(regexp if call.function == "regexp" else like)
    texts = [emitter.as_type(e, TEXT) for e in call.arguments]
    return emitter.strict(texts, lambda *names: f"{function}({', '.join(names)})")


def _truth(emitter: Emitter, call: Call) -> str:
    matcher = _matcher(call)
    if matcher is None:
        return _value(emitter, call)
    text = emitter.as_type(call.arguments[0], TEXT)
    return emitter.present([text], lambda x: f"{emitter.bind(matcher)}({x})")


def _falsity(emitter: Emitter, call: Call) -> str:
    matcher = _matcher(call)
    if matcher is None:
        return f"({_value(emitter, call)} == 0)"
    text = emitter.as_type(call.arguments[0], TEXT)
    return emitter.present([text], lambda x: f"not {emitter.bind(matcher)}({x})")


FUNCTIONS = registry(
    Function("like", (2, 3), boolean, _value, _truth, _falsity),
    Function("regexp", (2, 2), boolean, _value, _truth, _falsity),
)
