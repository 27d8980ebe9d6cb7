"""SELECTs that differ from an earlier one only in constants, known by their tokens: neither parsed nor planned again.

::

    SELECT name FROM items WHERE kind = 7 AND n > 3      the first: the full way, which tells that 7 became a parameter
      ──► kind = ‹int› AND n > ‹int›: of its constants the first one is a parameter
    SELECT name FROM items WHERE kind = 9 AND n > 3      the next: these tokens are known
      ──► SELECT name FROM items WHERE kind = ? AND n > 3, [9]

What comes out is a text with the user's own ``?``, which means the same as the constants do there: a comparison of a
column under the WHERE's own ANDs (``shapes_of_selects.py``). It is prepared as any text, so what is remembered of it is
known by all other constants, which stay in it. A text with anything unusual (a backslash or a doubled quote in a text,
a hint, a parameter, several statements) is not looked at.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal

from domains.language.types import Value

SHAPES = 2_000
"""That are remembered, the latest learnt ones: some kB each."""
MOST_DIGITS = 18
"""Of a number: a longer one may have no column that it fits."""

MOST_CHARACTERS = 10_000
"""Of a text that is looked at, for a tenth of a millisecond each thousand."""

_BEGINNING = re.compile(r"[\s(]*(?:SELECT|WITH|/\*|--|\#)", re.IGNORECASE)
_TOKEN = re.compile(
    r"""(?P<blank>(?:\s+|/\*(?![!+])(?:(?!/\*).)*?\*/|--[ \t][^\n]*(?:\n|$)|\#[^\n]*(?:\n|$))+)
      | (?P<text>'[^'\\]*'(?!'))
      | (?P<number>\d+(?:\.\d+)?(?![\w.$]))
      | (?P<word>[A-Za-z_$\x80-\uffff][\w$]*(?:\.[A-Za-z_$\x80-\uffff][\w$]*)*|`[^`\\]*`)
      | (?P<sign>(?!/\*)[-+*/%=<>!|&^~(),.])""",
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class ConstantGroup:
    """A constant of a text, or those of an IN list."""

    start: int
    end: int
    starts: tuple[int, ...]
    values: tuple[Value, ...]
    is_list: bool

    @property
    def argument(self) -> Value | tuple[Value, ...]:
        return self.values if self.is_list else self.values[0]


def scanned(sql: str) -> tuple[str, list[ConstantGroup]] | None:
    """The text's tokens with a mark for each constant, and the constants; None where something in it is unusual."""
    if len(sql) > MOST_CHARACTERS or _BEGINNING.match(sql) is None:
        return None
    parts: list[str] = []
    groups: list[ConstantGroup] = []
    at, size = 0, len(sql)
    while at < size:
        found = _TOKEN.match(sql, at)
        if found is None:
            return None
        kind, text, start, at = found.lastgroup, found[0], at, found.end()
        if kind == "blank":
            parts.append(" ")
            continue
        if kind == "text" or kind == "number":
            mark, value = _constant(kind, text)
            if mark == "":
                return None
            groups.append(ConstantGroup(start, at, (start,), (value,), is_list=False))
            text = mark
        parts.append(text)
    return _listed("".join(parts), groups)


def _constant(kind: str, text: str) -> tuple[str, Value]:
    """Its mark, which no text has that was scanned, and its value; no mark where it is unusual."""
    if kind == "text":
        return "?s", text[1:-1]
    if len(text) > MOST_DIGITS:
        return "", None
    return ("?d", Decimal(text)) if "." in text else ("?i", int(text))


_LIST = re.compile(r"(\bIN ?\( ?)(\?[ids])((?: ?, ?\2)*)( ?\))", re.IGNORECASE)
_MARK = re.compile(r"\?[ids]")


def _listed(key: str, groups: list[ConstantGroup]) -> tuple[str, list[ConstantGroup]]:
    """With each IN list of constants of one kind as one."""
    found: list[ConstantGroup] = []
    shape: list[str] = []
    at = number = 0
    for listed in _LIST.finditer(key):
        before = len(_MARK.findall(key, at, listed.start()))
        found += groups[number : number + before]
        number += before
        members = groups[number : number + 1 + listed[3].count("?")]
        number += len(members)
        starts, values = (tuple(each.start for each in members), tuple(each.values[0] for each in members))
        found.append(ConstantGroup(members[0].start, members[-1].end, starts, values, is_list=True))
        shape += (key[at : listed.start()], listed[1], listed[2], "+", listed[4])
        at = listed.end()
    return "".join((*shape, key[at:])), [*found, *groups[number:]]


def rewritten(sql: str, groups: Sequence[ConstantGroup]) -> str:
    """The text with a ``?`` for each of these constants."""
    return "".join(_pieces(sql, groups))


def _pieces(sql: str, groups: Sequence[ConstantGroup]) -> Iterator[str]:
    at = 0
    for group in groups:
        yield _without_comments(sql[at : group.start])
        yield "?"
        at = group.end
    yield _without_comments(sql[at:])


def _without_comments(part: str) -> str:
    """Whoever asks may put another one before each query."""
    if "--" not in part and "#" not in part and "/*" not in part:
        return part
    return "".join(" " if each.lastgroup == "blank" else each[0] for each in _TOKEN.finditer(part))


Recognised = tuple[str, list[Value | tuple[Value, ...]]]
"""A text with parameters, and their values."""


class KnownShapes:
    """What was learnt of texts that took the full way."""

    def __init__(self) -> None:
        self._turned: dict[str, tuple[int, ...] | None] = {}
        """By shape, which of its constants are parameters; None where it takes the full way always."""

    def recognised(self, sql: str, most_items: int) -> Recognised | None:
        """The text with parameters that means the same; None where it is not known, or a list has more items than may
        be."""
        found = scanned(sql)
        turned = None if found is None else self._turned.get(found[0])
        if found is None or not turned:
            return None
        groups = [found[1][number] for number in turned]
        if max(len(group.values) for group in found[1]) > most_items:
            return None
        return rewritten(sql, groups), [group.argument for group in groups]

    def unlearnt(self, sql: str, turned: Sequence[tuple[int, ...]]) -> Recognised | None:
        """The first text of a shape as it will be recognised, for whoever compares what comes of it; None where that
        was done before, or there is nothing to learn. ``turned``: where the constants start that became parameters."""
        found = scanned(sql)
        if found is None or found[0] in self._turned:
            return None
        wanted = set(turned)
        groups = [group for group in found[1] if group.starts in wanted]
        return (rewritten(sql, groups), [group.argument for group in groups]) if groups else None

    def learn(self, sql: str, turned: Sequence[tuple[int, ...]] | None) -> None:
        """``turned`` of :meth:`unlearnt`; None where another view would come of it."""
        found = scanned(sql)
        assert found is not None, "it was looked at before"
        wanted = set(turned or ())
        numbers = tuple(number for number, group in enumerate(found[1]) if group.starts in wanted)
        self._turned[found[0]] = None if turned is None else numbers
        if len(self._turned) > SHAPES:
            del self._turned[next(iter(self._turned))]
