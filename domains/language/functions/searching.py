"""REGEXP_REPLACE, REGEXP_SUBSTR and REGEXP_INSTR: the places where a text has a pattern, from a position on.

::

    matches(t, p, at)         m₁, m₂, …: the first from ``at`` on, then the first from the end of the one before on
                              (a character further, where that one was empty)
    REGEXP_INSTR(t, p, at, n)    where mₙ begins (or is over); 0 without one
    REGEXP_SUBSTR(t, p, at, n)   mₙ; NULL without one
    REGEXP_REPLACE(t, p, r, at, n)   t with r instead of mₙ, or of all where n is 0

A position outside of the text is NULL, where MySQL fails. A replacement is ICU's, as in MySQL 8: ``$1`` is a group, and
a backslash takes the meaning of what follows it away. Patterns are those of REGEXP (``matching.py``), but for ``\\B``,
which RE2 finds within a character of several bytes, too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from itertools import islice
from typing import Any

from domains.errors import SqlError, Unsupported
from domains.language.collating.coercibility import met
from domains.language.expressions import Call, Expression
from domains.language.functions.matching import compiled_pattern, constant_text, regexp_type
from domains.language.functions.source import Emitter, Function, Types, registry
from domains.language.functions.text import MAX_TEXT
from domains.language.types import BIGINT, TEXT, SqlType

Template = tuple[str | int, ...]
"""The parts of a replacement: texts, and the numbers of groups."""

_TEMPLATES = 1024
"""Replacements that come from rows are remembered."""


def matches(text: str, pattern: str, position: int) -> Iterator[Any] | None:
    """None: there is no such position in the text, or the pattern is not done."""
    compiled = compiled_pattern(pattern)
    if compiled is None or "\\B" in pattern or not 1 <= position <= len(text) + 1:
        return None
    try:
        text.encode()
    except UnicodeEncodeError:  # half of a surrogate pair; RE2 reads UTF-8, which has none
        return None
    return _one_at_each_place(compiled.finditer(text, position - 1))


def _one_at_each_place(found: Iterator[Any]) -> Iterator[Any]:
    """RE2 goes on from an empty match byte by byte, and so may find it again before the next character."""
    last = None
    for match in found:
        if last is not None and last.start() != match.start():
            yield last
        last = match
    if last is not None:
        yield last


def _nth(found: Iterator[Any], occurrence: int) -> Any:
    return next(islice(found, max(occurrence, 1) - 1, None), None)


def regexp_instr(text: str, pattern: str, position: int = 1, occurrence: int = 1, ends: int = 0) -> int | None:
    found = matches(text, pattern, position)
    if found is None or ends not in (0, 1):
        return None
    match = _nth(found, occurrence)
    return 0 if match is None else match.span()[ends] + 1


def regexp_substr(text: str, pattern: str, position: int = 1, occurrence: int = 1) -> str | None:
    found = matches(text, pattern, position)
    match = None if found is None else _nth(found, occurrence)
    return None if match is None else str(match.group())


def regexp_replace(text: str, pattern: str, by: str, position: int = 1, occurrence: int = 0) -> str | None:
    found = matches(text, pattern, position)
    if found is None:
        return None
    if occurrence > 0:
        found = islice(found, occurrence - 1, occurrence)
    pieces, at, size = list[str](), 0, len(text)
    for match in found:
        template = template_of(by, match.re.groups)
        if template is None:
            return None
        start, end = match.span()
        new = "".join(part if isinstance(part, str) else match.group(part) or "" for part in template)
        size += len(new) - (end - start)
        if size > MAX_TEXT:
            return None
        pieces += (text[at:start], new)
        at = end
    return "".join((*pieces, text[at:]))


_PARTS = re.compile(r"\\(?P<plain>[^uU])|\$(?P<group>\d+)|(?P<text>[^\\$]+)|(?P<end>\\$)|(?P<wrong>[\\$])", re.DOTALL)


@lru_cache(_TEMPLATES)
def template_of(by: str, groups: int) -> Template | None:
    """None: it names a group that is not there, or is no replacement."""
    parts: list[str | int] = []
    for piece in _PARTS.finditer(by):
        if piece["wrong"]:
            return None
        if piece["group"]:
            # As many of the digits as are a group's number, as in ICU: $12 is group 1 and a 2 where there are two.
            digits = piece["group"]
            number, used = int(digits[0]), 1
            while used < len(digits) and number * 10 + int(digits[used]) <= groups:
                number, used = number * 10 + int(digits[used]), used + 1
            if number > groups:
                return None
            parts += (number, digits[used:])
        else:
            parts.append(piece["plain"] or piece["text"] or "")
    return tuple(parts)


# --- as functions -----------------------------------------------------------------------------------------------------


def _searching(
    name: str, implementation: Callable[..., object], parameters: tuple[SqlType, ...], least: int, result: SqlType
) -> Function:
    def value(emitter: Emitter, call: Call) -> str:
        collation = met(call.arguments[:2], name.upper())
        function = implementation if collation is None else partial(_ignoring_case, implementation)
        sources = [emitter.as_type(e, type) for e, type in zip(call.arguments, parameters, strict=False)]
        return emitter.strict(sources, lambda *names: f"{emitter.bind(function)}({', '.join(names)})")

    def result_type(_types: Types) -> SqlType:
        return result

    def refine(arguments: tuple[Expression, ...]) -> SqlType:
        """Looks at a constant pattern and a constant replacement while they are planned."""
        regexp_type(arguments)
        pattern = constant_text(arguments[1])
        if pattern is not None and "\\B" in pattern:
            raise Unsupported(f"{name.upper()} by \\B", hint="\\b is there, and REGEXP_LIKE takes \\B, too")
        by = constant_text(arguments[2]) if name == "regexp_replace" else None
        compiled = None if pattern is None else compiled_pattern(pattern)
        if by is not None and compiled is not None and template_of(by, compiled.groups) is None:
            raise SqlError(
                f'"{by}" is no replacement of "{pattern}"',
                hint="$1 is a group of the pattern; a backslash before $ makes it a sign",
            )
        return result

    return Function(name, (least, len(parameters)), result_type, value, refine=refine)


def _ignoring_case(implementation: Callable[..., object], text: str, pattern: str, *more: object) -> object:
    return implementation(text, f"(?i){pattern}", *more)


FUNCTIONS = registry(
    _searching("regexp_instr", regexp_instr, (TEXT, TEXT, BIGINT, BIGINT, BIGINT), 2, BIGINT),
    _searching("regexp_substr", regexp_substr, (TEXT, TEXT, BIGINT, BIGINT), 2, TEXT),
    _searching("regexp_replace", regexp_replace, (TEXT, TEXT, TEXT, BIGINT, BIGINT), 3, TEXT),
)
