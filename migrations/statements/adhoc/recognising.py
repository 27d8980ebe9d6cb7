"""SELECTs that differ from an earlier one only in constants, known by their tokens: neither parsed nor planned again.

::

    SELECT name FROM items WHERE kind = 7 AND n > 3      the first: the full way, which tells that 7 became a parameter
      ──► kind = ‹int› AND n > ‹int›: of its constants the first one is a parameter; with "3" there is a plan
    SELECT name FROM items WHERE kind = 9 AND n > 3      the next: these tokens are known, and so is the other constant
      ──► the plan, [9]

A constant is a parameter where the full way made it one: in a comparison of a column under the WHERE's own ANDs
(``shapes_of_selects.py``). All others belong to what a plan is known by, letter by letter: ``1.0`` and ``1.00`` are
not of one type. A text with anything unusual (a backslash or a doubled quote in a text, a hint, a parameter, several
statements) is not looked at.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import Generic, TypeVar

from domains.language.types import Value
from migrations.statements.constants import Argument

Starts = tuple[int, ...]
"""The starts of a constant in its text, or of those of an IN list."""

SHAPES = 2_000
"""Shapes that are remembered, the latest learnt ones, with plans of them: some kB each."""
WHOLE_SHAPES = 200
"""The most shapes that have a view, or a plan, for any constants."""
CHARACTERS = 200_000
"""Characters of the tokens of shapes, and of plans: one takes some hundred bytes for each."""
MOST_DIGITS = 18
"""Digits of a number: a longer one may have no column that it fits."""

LAST_TEXTS = 100
"""The texts whose tokens are remembered, those asked latest: a text is looked at up to three times on its way, and many
are asked again. At worst some 60 kB each."""
LAST_CHARACTERS = 1_000
"""The most characters of one that is remembered."""
MOST_CHARACTERS = 10_000
"""Characters of a text that is looked at, for a tenth of a millisecond each thousand."""

_BEGINNING = re.compile(r"[\s(]*(?:SELECT|WITH|/\*|--|\#)", re.IGNORECASE)
_TOKEN = re.compile(
    r"""(?P<blank>(?:\s+|/\*(?![!+])(?:(?!/\*).)*?\*/|--[ \t][^\n]*(?:\n|$)|\#[^\n]*(?:\n|$))+)
      | (?P<text>'[^'\\]*'(?!'))
      | (?P<number>[0-9]+(?:\.[0-9]+)?(?![\w.$]))
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
    def argument(self) -> Argument:
        return self.values if self.is_list else self.values[0]


Scanned = tuple[str, Sequence[ConstantGroup]]


def scanned(sql: str) -> Scanned | None:
    """The text's tokens with a mark for each constant, and the constants; None where something in it is unusual."""
    return _scanned_lately(sql) if len(sql) <= LAST_CHARACTERS else _scanned(sql)


# What stands around the constants of a text is mostly that of one that came before: then its tokens are those of that
# one, with other constants in their places. That is found out in a third of the time, and only of texts in which just
# what looks like a constant is one (none stands in a comment or in a name with quotes), and that have no IN list.

_CONSTANT = re.compile(r"['0-9](?<![\w.$\x80-\uffff]['0-9])(?:(?<=')[^'\\]*'(?!')|(?<!')[0-9]*(?:\.[0-9]+)?(?![\w.$]))")
"""It begins with a few characters, for which Python looks in a fifth of the time."""
AROUND = 1_000
"""Texts between constants that are remembered."""
_tokens_around: dict[str, str] = {}
"""The text with a NUL and a mark for each constant → its tokens."""


def around_constants(sql: str) -> tuple[str, list[ConstantGroup]] | None:
    """The text with a NUL and a mark for each of its constants, and these; None where it is long, or something in it is
    unusual."""
    if len(sql) > LAST_CHARACTERS or "\0" in sql:
        return None
    pieces, groups, at = list[str](), list[ConstantGroup](), 0
    for found in _CONSTANT.finditer(sql):
        start, end = found.span()
        mark, value = _constant("text" if sql[start] == "'" else "number", found[0])
        if mark == "":
            return None
        pieces += (sql[at:start], "\0", mark)
        groups.append(ConstantGroup(start, end, (start,), (value,), is_list=False))
        at = end
    return "".join((*pieces, sql[at:])), groups


def _scanned(sql: str) -> Scanned | None:
    found = around_constants(sql)
    if found is None or not found[1]:
        return _scanned_whole(sql)
    around, groups = found
    tokens = _tokens_around.get(around)
    if tokens is not None:
        return tokens, groups
    whole = _scanned_whole(sql)
    if whole is not None and list(whole[1]) == groups:
        _tokens_around[around] = whole[0]
        if len(_tokens_around) > AROUND:
            del _tokens_around[next(iter(_tokens_around))]
    return whole


def _scanned_whole(sql: str) -> Scanned | None:
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
            if parts and at < size:
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


_scanned_lately = lru_cache(LAST_TEXTS)(_scanned)


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
    """The key with each IN list of constants of one kind as one."""
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


Recognised = tuple[str, list[Argument]]
"""A text with parameters, and their values."""

Plan = TypeVar("Plan")


@dataclass(slots=True)
class KnownShape:
    """A shape that is known by the places of its constants."""

    turned: tuple[int, ...]
    """The constants that become parameters by themselves, in the order of the parameters."""
    general: tuple[int, ...]
    """All that could be parameters of one view for the whole shape."""


@dataclass(slots=True)
class WholeShape(Generic[Plan]):
    """What holds for all texts of a shape with the same other constants than the general ones."""

    view: str | None
    """The view that is kept of it; None: its plan is evaluated."""
    plan: Plan | None
    """None: it was forgotten."""


Known = tuple[str, tuple[str, ...]]
"""The tokens of a text, and the constants that are no parameters."""


class KnownShapes(Generic[Plan]):
    """What was learnt of texts that took the full way. Lives on one event loop."""

    def __init__(self) -> None:
        self._shapes: dict[str, KnownShape] = {}
        """Keyed by their tokens."""
        self._plans: dict[Known, Plan] = {}
        self._whole: dict[Known, WholeShape[Plan]] = {}
        self._characters = [0, 0]
        """Characters of the tokens of shapes, and of plans."""

    def recognised(self, sql: str, most_items: int) -> tuple[Plan, list[Argument]] | None:
        """The plan of the text, and the values of its parameters; None where it is not known, or a list has more items
        than may be."""
        found = scanned(sql)
        shape = None if found is None else self._shapes.get(found[0])
        if found is None or shape is None:
            return None
        tokens, groups = found
        if groups and max(len(group.values) for group in groups) > most_items:
            return None
        whole = self._whole.get((tokens, _rest(sql, groups, shape.general))) if self._whole else None
        if whole is not None and whole.plan is not None:
            return whole.plan, _values(groups, shape.general)
        plan = self._plans.get((tokens, _rest(sql, groups, shape.turned)))
        return None if plan is None else (plan, _values(groups, shape.turned))

    def learn(
        self,
        sql: str,
        turned: Sequence[Starts],
        general: Callable[[], Sequence[Starts]],
        arguments: Sequence[Argument],
        plan: Plan,
    ) -> None:
        """The plan of a text holds for all that differ from it in the constants that are ``turned``, which are its
        ``arguments``; see ``comparands`` for ``general``. Nothing is learnt where the tokens say something else."""
        found = scanned(sql)
        if found is None:
            return
        tokens, groups = found
        places = {group.starts: number for number, group in enumerate(groups)}
        numbers = tuple(places[starts] for starts in turned if starts in places)
        if len(numbers) < len(turned) or [_distinct(each) for each in _values(groups, numbers)] != list(arguments):
            return
        known = self._shapes.get(tokens)
        if known is None or len(known.turned) < len(numbers):
            self._forget_shape(tokens)
            self._shapes[tokens] = KnownShape(numbers, _numbers(groups, general()))
            self._characters[0] += len(tokens)
        elif known.turned != numbers:
            return  # A constant of this text was none of its column's type.
        self._plans[tokens, _rest(sql, groups, numbers)] = plan
        self._characters[1] += len(tokens)
        while len(self._shapes) > SHAPES or self._characters[0] > CHARACTERS:
            self._forget_shape(next(iter(self._shapes)))
        while len(self._plans) > SHAPES or self._characters[1] > CHARACTERS:
            self._characters[1] -= len(next(iter(self._plans))[0])
            del self._plans[next(iter(self._plans))]

    def _forget_shape(self, tokens: str) -> None:
        if self._shapes.pop(tokens, None) is not None:
            self._characters[0] -= len(tokens)

    def forget_plans(self) -> None:
        """The schema is another."""
        self._plans.clear()
        self._characters[1] = 0
        self._whole = {known: WholeShape(whole.view, None) for known, whole in self._whole.items() if whole.view}

    # --- one view for all of a shape ----------------------------------------------------------------------------

    def general(self, sql: str) -> Recognised | None:
        """The text with all parameters that its shape could have; None where these are those that it has."""
        found = scanned(sql)
        shape = None if found is None else self._shapes.get(found[0])
        if found is None or shape is None or set(shape.general) <= set(shape.turned):
            return None
        return _with_parameters(sql, found[1], shape.general)

    def waits_for_plan(self, sql: str) -> bool:
        """Whether there is a view for all of its shape, whose plan was forgotten."""
        known = self._known_whole(sql)
        whole = None if known is None else self._whole.get(known)
        return whole is not None and whole.plan is None

    def keep(self, sql: str, view: str | None, plan: Plan) -> None:
        """The shape of this text has a plan, or a view, for all of it from now on."""
        known = self._known_whole(sql)
        if known is not None:
            self._whole[known] = WholeShape(view, plan)
            if len(self._whole) > WHOLE_SHAPES:
                del self._whole[next(iter(self._whole))]

    def _known_whole(self, sql: str) -> Known | None:
        found = scanned(sql)
        shape = None if found is None else self._shapes.get(found[0])
        return None if found is None or shape is None else (found[0], _rest(sql, found[1], shape.general))

    def forget(self, view: str) -> None:
        for known in [each for each, whole in self._whole.items() if whole.view == view]:
            del self._whole[known]


def _values(groups: Sequence[ConstantGroup], numbers: Sequence[int]) -> list[Argument]:
    return [groups[number].argument for number in numbers]


def _rest(sql: str, groups: Sequence[ConstantGroup], numbers: Sequence[int]) -> tuple[str, ...]:
    """The constants that stand for themselves, as they are written."""
    return tuple([sql[group.start : group.end] for number, group in enumerate(groups) if number not in numbers])


def _distinct(argument: Argument) -> Argument:
    return tuple(dict.fromkeys(argument)) if isinstance(argument, tuple) else argument


def _numbers(groups: Sequence[ConstantGroup], wanted: Sequence[Starts]) -> tuple[int, ...]:
    return tuple(number for number, group in enumerate(groups) if group.starts in set(wanted))


def _with_parameters(sql: str, groups: Sequence[ConstantGroup], numbers: Sequence[int]) -> Recognised:
    chosen = [groups[number] for number in numbers]
    return rewritten(sql, chosen), [group.argument for group in chosen]
