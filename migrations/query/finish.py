"""The rest of a view, which is done to its reader's rows when they are read: :class:`Finish`.

What of a view depends on a parameter that is no key (``relation.LateParts``) cannot be kept by the dataflow: each value
would be another answer. So the reader keeps what does not depend on it, under the keys that there are, and a look-up
does the rest::

    SELECT author, COUNT(*) FROM stories WHERE topic = ? AND (score > ? OR title LIKE ?) GROUP BY author

    reader by topic: author, score, title, COUNT(*) ─► σ score > 5 OR title LIKE 'x%' ─► γ author; SUM ─► answer

The operators are the engine's: expressions are compiled, and groups are summed by its accumulators. A look-up takes 2
to 5 µs for each row that the reader has for its key, and 0.3 ms where its values were not asked for lately.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from domains.errors import SqlError
from domains.language.coercion import json_encoder, json_row_coercer
from domains.language.collating.collation import collated
from domains.language.compile import compile_expression, compile_predicate
from domains.language.description import describe
from domains.language.encoding import encode_order
from domains.language.expressions import Constant, Expression, Field
from domains.language.functions import call
from domains.language.json_rows import page_values
from domains.language.types import BIGINT, DOUBLE, TEXT, Column, Delta, Row, Value
from domains.operators.accumulators import accumulator
from domains.plan.deltas import key_function
from migrations.query.expressions.drawing import extended_rows, is_drawn
from migrations.query.expressions.late import Given, key_of, parameters_in, replaced, with_values
from migrations.query.expressions.terms import conjunction
from migrations.query.relation import LateCall, LateGroups, LateMatch, LateParts, Sorting

Rows = list[Row]


@dataclass(frozen=True, slots=True)
class Finish:
    """Expressions are over the reader's rows, but those over groups: outputs, order and HAVING, where there are any."""

    stored: tuple[Column, ...]
    """The reader's columns; each has a name of its own, by which its JSON is read."""
    columns: tuple[Column, ...]
    """The answer's."""
    late: LateParts
    outputs: tuple[Expression, ...]
    order: tuple[Sorting, ...]
    places: tuple[tuple[str, int], ...]
    """The parameters of the view, by their keys in expressions."""
    limit: int | None = None
    offset: int = 0

    def page(self, page: bytes, values: Sequence[Given], limit: int | None, offset: int) -> bytes:
        """The answer's JSON out of the reader's; ``limit`` and ``offset`` are the look-up's own, else the view's."""
        return b",".join(self.listed(page, values, limit, offset))

    def listed(self, page: bytes, values: Sequence[Given], limit: int | None, offset: int) -> list[bytes]:
        """The same, row by row."""
        stored = list(map(json_row_coercer(self.stored), page_values(page, self.stored)))
        rows = self.answer(stored, values, limit, offset)
        return list(map(json_encoder(self.columns), rows))

    def answer(self, rows: Sequence[Row], values: Sequence[Given], limit: int | None = None, offset: int = 0) -> Rows:
        """``values`` are those of all of the view's parameters, in their order."""
        given = tuple((key, values[at]) for key, at in self.places if not is_drawn(key))
        found = _compiled(self, given)(rows, [(key, values[at]) for key, at in self.places if is_drawn(key)])
        count, start = self.limit if limit is None else limit, offset or self.offset
        return found[start : None if count is None else start + count]

    def described(self) -> list[str]:
        """What is done, for EXPLAIN: a line for each step, the last first."""
        stored, shown = [column.name for column in self.stored], [column.name for column in self.columns]
        groups, lines = self.late.groups, list[str]()
        names = stored
        for each in self.late.matches:
            lines.append(f"⟕ {_described(conjunction(each.conditions), names)}")
        if self.late.conditions:
            lines.append(f"σ {_described(conjunction(self.late.conditions), names)}")
        lines += [f"at most 1 {_described(count, names)}" for count in self.late.single]
        if groups is not None:
            by = ", ".join(_described(e, names) for e in groups.group) or "()"
            calls = [_call_text(call, names) for call in groups.calls]
            lines.append(f"γ {by}" + (f"; {', '.join(calls)}" if calls else ""))
            names = [*(_described(e, names) for e in groups.group), *calls]
            if groups.having:
                lines.append(f"σ {_described(conjunction(groups.having), names)}")
        texts = [_described(e, names) for e in self.outputs]
        if texts != shown:
            lines.append(f"π {', '.join(t if t == n else f'{t} → {n}' for t, n in zip(texts, shown, strict=True))}")
        if self.late.distinct:
            lines.append("δ")
        if self.order:
            terms = (f"{_described(t.expression, names)}{' DESC' if t.descending else ''}" for t in self.order)
            lines.append(f"by {', '.join(terms)}")
        return lines[::-1]


def named_apart(columns: Sequence[Column]) -> tuple[Column, ...]:
    """The columns, each under a name of its own: JSON has no name twice."""
    taken: set[str] = set()
    found = []
    for column in columns:
        name, count = column.name, 1
        while name in taken:
            count += 1
            name = f"{column.name}_{count}"
        taken.add(name)
        found.append(Column(name, column.type))
    return tuple(found)


def _described(e: Expression, names: Sequence[str]) -> str:
    marks = replaced(e, lambda each: Field(len(names), each.type))
    return describe(marks, [*names, "?"])


def _call_text(call: LateCall, names: Sequence[str]) -> str:
    argument = "*" if call.argument is None else _described(call.argument, names)
    return f"{call.call.function.value.upper()}({argument})"


# From the steps to functions, which are remembered: a view is read again and again, most often with values of late.

MOST_COMPILED = 512
"""Look-ups' values, each with functions of some kB."""


@lru_cache(MOST_COMPILED)
def _compiled(
    finish: Finish, given: tuple[tuple[str, Given], ...]
) -> Callable[[Sequence[Row], Sequence[tuple[str, Given]]], Rows]:
    values: dict[str, Given | Field] = dict(given)
    drawn = [key for key, _ in finish.places if is_drawn(key)]
    values |= {key: Field(len(finish.stored) + at, DOUBLE) for at, key in enumerate(drawn)}
    matches = [_match(each, values) for each in finish.late.matches]
    draws = [e for e in finish.late.conditions if _draws(e)]
    keeps = _condition([e for e in finish.late.conditions if e not in draws], values)
    stays = _condition(draws, values)
    is_ordered_first = bool(drawn) and not any(_draws(term.expression) for term in finish.order)
    counts = [call("gt", count, Constant(1, BIGINT)) for count in finish.late.single]
    several = compile_predicate(call("or", *counts)) if counts else None
    grouped = None if finish.late.groups is None else _grouping(finish.late.groups, values)
    outputs = [_value(each, values) for each in finish.outputs]
    order = [_value(term.expression, values) for term in finish.order]
    descending = tuple(term.descending for term in finish.order)
    outputs_apart = _Apart(finish.outputs)
    order_of = _Apart([term.expression for term in finish.order]).key_of

    def extended(rows: Sequence[Row], seeds: Sequence[tuple[str, Given]]) -> Rows:
        """With what is drawn for each row, in the order of the answer where that does not depend on it."""
        if order and is_ordered_first:
            rows = sorted(rows, key=lambda row: encode_order(order_of(tuple([e(row) for e in order])), descending))
        found = extended_rows(rows, seeds)
        return found if stays is None else [row for row in found if stays(row)]

    def answer(rows: Sequence[Row], seeds: Sequence[tuple[str, Given]]) -> Rows:
        for match in matches:
            rows = match(rows)
        found = rows if keeps is None else [row for row in rows if keeps(row)]
        if several is not None and any(map(several, found)):
            raise SqlError("a subquery that is a value has more than one row")
        if grouped is not None:
            found = grouped(found)
        if seeds:
            found = extended(found, seeds)
        shown = [(tuple([compute(row) for compute in outputs]), row) for row in found]
        if finish.late.distinct:
            told = outputs_apart.told([output for output, _ in shown])
            rows_of = {outputs_apart.key_of(output): row for output, row in shown}
            shown = [(output, rows_of[key]) for key, output in told.items()]
        if order:
            ranks = {
                id(row): encode_order(order_of(tuple([compute(row) for compute in order])), descending)
                for _, row in shown
            }
            shown.sort(key=lambda pair: (ranks[id(pair[1])], encode_order(pair[0], (False,) * len(pair[0]))))
        return [output for output, _ in shown]

    return answer


class _Apart:
    """Rows of these values, told apart as their collations tell texts apart."""

    def __init__(self, values: Sequence[Expression]) -> None:
        self._collations = collated([e.type.equality for e in values])
        self.key_of = key_function(tuple(range(len(values))), self._collations)

    def told(self, rows: Sequence[Row]) -> dict[Row, Row]:
        """The rows by their keys, each once, with the least spelling of each text."""
        found: dict[Row, Row] = {}
        for row in rows:
            known = found.setdefault(self.key_of(row), row)
            if known is not row and self._collations:
                least = list(known)
                for at, _ in self._collations:
                    if least[at] is not None:
                        least[at] = min(str(least[at]), str(row[at]))
                found[self.key_of(row)] = tuple(least)
        return found


def _draws(e: Expression) -> bool:
    return any(is_drawn(key_of(parameter)) for parameter in parameters_in(e))


def _value(e: Expression, values: Mapping[str, Given | Field]) -> Callable[[Row], Value]:
    return compile_expression(with_values(e, values))


def _condition(conditions: Sequence[Expression], values: Mapping[str, Given | Field]) -> Callable[[Row], bool] | None:
    return compile_predicate(with_values(conjunction(conditions), values)) if conditions else None


def _match(match: LateMatch, values: Mapping[str, Given | Field]) -> Callable[[Sequence[Row]], Rows]:
    """Without the rows of both sides that do not match, and without those of the left side alone that have a match."""
    is_alone = compile_predicate(call("is_null", match.matched))
    meets = _condition(match.conditions, values)
    assert meets is not None, "a match asks for a parameter"
    left = [compile_expression(e) for e in match.left]

    def matched(rows: Sequence[Row]) -> Rows:
        found = [row for row in rows if is_alone(row) or meets(row)]
        met = {tuple([e(row) for e in left]) for row in found if not is_alone(row)}
        return [row for row in found if not is_alone(row) or tuple([e(row) for e in left]) not in met]

    return matched


def _grouping(groups: LateGroups, values: Mapping[str, Given | Field]) -> Callable[[Sequence[Row]], Rows]:
    keys = [_value(e, values) for e in groups.group]
    apart = _Apart(groups.group)
    having = _condition(groups.having, values)
    results = [_result(call, values) for call in groups.calls]

    def grouped(rows: Sequence[Row]) -> Rows:
        members: dict[Row, list[Row]] = {(): []} if groups.scalar else {}
        shown = [tuple([key(row) for key in keys]) for row in rows]
        for row, key in zip(rows, map(apart.key_of, shown), strict=True):
            members.setdefault(key, []).append(row)
        told = apart.told(shown) or {(): ()}
        found = [(*told[key], *(result(own) for result in results)) for key, own in members.items()]
        return found if having is None else [row for row in found if having(row)]

    return grouped


def summarised(late: LateCall, rows: Sequence[Row]) -> Value:
    """An aggregate of rows that are there."""
    return _result(late, {})(rows)


def _result(late: LateCall, values: Mapping[str, Given | Field]) -> Callable[[Sequence[Row]], Value]:
    """The aggregate's value over the rows of a group."""
    argument = None if late.argument is None else _value(late.argument, values)
    order = [_value(e, values) for e in late.order]
    weight = None if late.weight is None else _value(late.weight, values)
    types = [TEXT if late.argument is None else late.argument.type, *(e.type for e in late.order)]
    call = replace(late.call, argument=None if argument is None else 0)
    sums = accumulator(call, types, full=True)

    def result(rows: Sequence[Row]) -> Value:
        deltas: list[Delta] = []
        for row in rows:
            count = 1 if weight is None else weight(row)
            assert isinstance(count, int), "rows are counted"
            first = None if argument is None else argument(row)
            deltas.append(((first, *(compute(row) for compute in order)), count))
        if not deltas:
            return late.of_nothing
        state = sums.start()
        sums.update(state, deltas)
        return sums.result(state, sum(count for _, count in deltas))

    return result
