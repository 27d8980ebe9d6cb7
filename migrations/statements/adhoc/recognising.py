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

Starts = tuple[int, ...]
"""Where a constant starts in its text, or those of an IN list."""

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


@dataclass(slots=True)
class KnownShape:
    """By the places of its constants."""

    turned: tuple[int, ...]
    """Those that become parameters by themselves; none: it takes the full way."""
    general: tuple[int, ...]
    """All that could be parameters of one view for the whole shape."""
    view: str | None = None
    """That view, where it is kept."""


class KnownShapes:
    """What was learnt of texts that took the full way."""

    def __init__(self) -> None:
        self._shapes: dict[str, KnownShape] = {}
        """By their tokens."""
        self._sent: dict[str, str] = {}
        """By a text that came out, the latest one of which it did."""
        self._met: dict[str, None] = {}
        """Tokens of texts that came once."""

    def recognised(self, sql: str, most_items: int) -> Recognised | None:
        """The text with parameters that means the same; None where it is not known, or a list has more items than may
        be."""
        found = scanned(sql)
        shape = None if found is None else self._shapes.get(found[0])
        if found is None or shape is None:
            return None
        numbers = shape.turned if shape.view is None else shape.general
        if not numbers or max(len(group.values) for group in found[1]) > most_items:
            return None
        text, values = _with_parameters(sql, found[1], numbers)
        self._sent[text] = sql
        if len(self._sent) > SHAPES:
            del self._sent[next(iter(self._sent))]
        return text, values

    def meets(self, sql: str) -> bool:
        """Whether the text is not the first of its shape: learning it costs as much as planning it."""
        found = scanned(sql)
        if found is None or found[0] in self._met:
            return found is not None
        self._met[found[0]] = None
        if len(self._met) > SHAPES:
            del self._met[next(iter(self._met))]
        return False

    def unlearnt(self, sql: str, turned: Sequence[Starts]) -> Recognised | None:
        """The first text of a shape as it will be recognised, for whoever compares what comes of it; None where that
        was done before, or there is nothing to learn. ``turned``: the constants that became parameters."""
        found = scanned(sql)
        if found is None or found[0] in self._shapes:
            return None
        return _with_parameters(sql, found[1], _numbers(found[1], turned))

    def learn(self, sql: str, turned: Sequence[Starts], general: Sequence[Starts]) -> None:
        """``general``: see ``comparands``."""
        found = scanned(sql)
        assert found is not None, "it was looked at before"
        key, groups = found
        self._shapes[key] = KnownShape(_numbers(groups, turned), _numbers(groups, general))
        if len(self._shapes) > SHAPES:
            del self._shapes[next(iter(self._shapes))]

    # --- one view for all of a shape ----------------------------------------------------------------------------

    def general(self, text: str) -> Recognised | None:
        """A text, as it was sent or came out of here, with all parameters that its shape could have; None where these
        are those that it has."""
        sql = self._sent.get(text, text)
        found = scanned(sql)
        shape = None if found is None else self._shapes.get(found[0])
        if found is None or shape is None or set(shape.general) <= set(shape.turned):
            return None
        return _with_parameters(sql, found[1], shape.general)

    def keep(self, text: str, view: str) -> None:
        """The shape of this text has a view for all of it from now on."""
        found = scanned(self._sent.get(text, text))
        shape = None if found is None else self._shapes.get(found[0])
        if shape is not None:
            shape.view = view

    def forget(self, view: str) -> None:
        for shape in self._shapes.values():
            if shape.view == view:
                shape.view = None


def _numbers(groups: Sequence[ConstantGroup], wanted: Sequence[Starts]) -> tuple[int, ...]:
    return tuple(number for number, group in enumerate(groups) if group.starts in set(wanted))


def _with_parameters(sql: str, groups: Sequence[ConstantGroup], numbers: Sequence[int]) -> Recognised:
    chosen = [groups[number] for number in numbers]
    return rewritten(sql, chosen), [group.argument for group in chosen]
