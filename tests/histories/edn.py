"""As much of EDN as histories use: maps, vectors, lists, sets, keywords, strings, numbers, nil, true, false, comments.

A keyword is read as a text without its colon, and written back with one where it is a map's key or one of ``KEYWORDS``;
a tag (``#jepsen.history.Op``) is read over.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

TOKENS = re.compile(r'[\s,]+|;[^\n]*|("(?:\\.|[^"\\])*")|(#?\{|[\[\](){}])|(#[\w./-]+)|([^\s,()\[\]{}";]+)')
CLOSING = {"[": "]", "(": ")", "{": "}", "#{": "}"}
CONSTANTS: dict[str, Any] = {"nil": None, "true": True, "false": False}
ESCAPED = {"n": "\n", "t": "\t", "r": "\r"}
KEYWORDS = {"append", "r", "w", "invoke", "ok", "fail", "info", "txn"}


class EdnError(ValueError):
    """The text is no EDN."""


def values(text: str) -> Iterator[Any]:
    """Each value of the text, one after the other."""
    tokens = _tokens(text)
    for token in tokens:
        yield _value(token, tokens)


def _tokens(text: str) -> Iterator[str]:
    at = 0
    while at < len(text):
        found = TOKENS.match(text, at)
        if found is None:
            raise EdnError(f"no EDN at {text[at : at + 40]!r}")
        at = found.end()
        if found.lastindex is not None and found[3] is None:
            yield found[0]


def _value(token: str, tokens: Iterator[str]) -> Any:
    if token not in CLOSING:
        return _atom(token)
    inner = []
    for each in tokens:
        if each == CLOSING[token]:
            break
        inner.append(_value(each, tokens))
    else:
        raise EdnError(f"a {token} is not closed")
    if token != "{":
        return inner
    if len(inner) % 2:
        raise EdnError(f"a map has a key without a value: {inner[-1]!r}")
    return dict(zip(inner[::2], inner[1::2], strict=True))


def _atom(token: str) -> Any:
    if token in CONSTANTS:
        return CONSTANTS[token]
    if token[0] == ":":
        return token[1:]
    if token[0] == '"':
        return re.sub(r"\\(.)", lambda found: ESCAPED.get(found[1], found[1]), token[1:-1])
    for number in (int, float):
        try:
            return number(token.rstrip("NM"))
        except ValueError:
            continue
    raise EdnError(f"{token!r} is no value that a history has")


def text_of(value: Any) -> str:
    match value:
        case None:
            return "nil"
        case bool():
            return "true" if value else "false"
        case dict():
            return "{" + ", ".join(f":{key} {text_of(each)}" for key, each in value.items()) + "}"
        case list() | tuple():
            return "[" + " ".join(map(text_of, value)) + "]"
        case str():
            escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
            return f":{value}" if value in KEYWORDS else f'"{escaped}"'
        case _:
            return str(value)
