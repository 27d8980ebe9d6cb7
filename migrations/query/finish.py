"""The rest of a view, which is done to its reader's rows when they are read: :class:`Finish`.

What of a view depends on a parameter that is no key (``relation.LateParts``) cannot be kept by the dataflow: each value
would be another answer. So the reader keeps what does not depend on it, under the keys that there are, and a look-up
does the rest::

    SELECT author, COUNT(*) FROM stories WHERE topic = ? AND (score > ? OR title LIKE ?) GROUP BY author

    reader by topic: author, score, title, COUNT(*) ─► σ score > 5 OR title LIKE 'x%' ─► γ author; SUM ─► answer

The operators are the engine's: expressions are compiled, groups are summed by its accumulators, and windows are those
of its partitions. What queries around it do to the answer follows (``LateQuery``). A look-up takes 2 to 5 µs for each
row that the reader has for its key, and 0.3 ms where its values were not asked for lately.
"""

from __future__ import annotations

from collections import Counter
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
from domains.operators.over import Partition, Windows
from domains.plan.deltas import key_function
from migrations.query.expressions.drawing import extended_rows, is_drawn
from migrations.query.expressions.late import Filled, Given, LookedUp, key_of, parameters_in, replaced, with_values
from migrations.query.expressions.terms import conjunction
from migrations.query.plans.late_queries import LateCall, LateGroups, LateMatch, LateQuery, LateWindows
from migrations.query.relation import LateParts

Rows = list[Row]


@dataclass(frozen=True, slots=True)
class LateAnswer:
    """A query below, whose answer is a parameter of the one around: see ``plans/parts.py``."""

    key: str
    is_list: bool
    """Its rows, in the place of an IN list; else the value of its only row."""
    nothing: tuple[Constant, ...]
    """What it answers where no row is, if it is of a row then."""
    finish: Finish
    each: tuple[LateQuery, ...] | None = None
    """It answers a row for each key, which is its columns behind the first ``width``; without one, what these queries
    answer of no row: see ``plans/each_row.py``."""
    width: int = 1

    def given(self, rows: Sequence[Row], known: Sequence[tuple[str, Filled]]) -> tuple[str, Filled]:
        """The parameter's value out of the reader's rows, with those that come before it."""
        last, (column, *_) = self.finish.queries[-1], self.finish.columns
        found = _cut(_ready(self.finish, tuple(known))(rows, []), last.limit, last.offset)
        if self.each is not None:
            return self.key, self._for_each(found, self.each, known)
        values = tuple(dict.fromkeys(Constant(value, column.type) for (value,) in found)) or self.nothing
        if self.is_list:
            return self.key, values
        if len(found) > 1:
            raise SqlError("a subquery that is a value has more than one row")
        return self.key, values[0] if values else Constant(None, column.type)

    def _for_each(self, rows: Rows, of_nothing: tuple[LateQuery, ...], known: Sequence[tuple[str, Filled]]) -> LookedUp:
        keys = self.finish.columns[self.width :]
        key_of = key_function(tuple(range(len(keys))), collated([column.type.equality for column in keys]))
        shown = self.finish.columns[: self.width]
        nothing = Finish((), shown, LateParts(), of_nothing, ())
        found = _ready(nothing, tuple(known))([], []) if of_nothing else []
        missing = found[0] if found else (None,) * self.width
        by_key = {key_of(row[self.width :]): row[: self.width] for row in rows if None not in row[self.width :]}
        return LookedUp(by_key, missing, key_of)


@dataclass(frozen=True, slots=True)
class Finish:
    stored: tuple[Column, ...]
    """The reader's columns; each has a name of its own, by which its JSON is read."""
    columns: tuple[Column, ...]
    """The answer's."""
    late: LateParts
    """Its conditions, matches and ``single`` are over the reader's rows, and are done first."""
    queries: tuple[LateQuery, ...]
    """The first is over the reader's rows, each of the others over the answer of the one before; outputs, order and
    HAVING are over groups, where there are any."""
    places: tuple[tuple[str, int], ...]
    """The parameters of the view, by their keys in expressions."""
    answers: tuple[LateAnswer, ...] = ()
    """The queries below that are asked first, each with the values of those before it."""

    @property
    def gathers(self) -> bool:
        """Whether it goes through many rows that the dataflow, knowing the values, need not bring."""
        made = bool(self.late.matches) or len(self.queries) > 1 or self.queries[0].windows is not None
        return made or bool(self.answers)

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
        given: list[tuple[str, Filled]] = [(key, values[at]) for key, at in self.places if not is_drawn(key)]
        for below in self.answers:
            given.append(below.given(rows, given))
        found = _ready(self, tuple(given))(rows, [(key, values[at]) for key, at in self.places if is_drawn(key)])
        return _cut(found, self.queries[-1].limit if limit is None else limit, offset or self.queries[-1].offset)

    def described(self) -> list[str]:
        """What is done, for EXPLAIN: a line for each step, the last first."""
        names, lines = [column.name for column in self.stored], list[str]()
        for each in self.late.matches:
            lines.append(f"⟕ {_described(conjunction(each.conditions), names)}")
        if self.late.conditions:
            lines.append(f"σ {_described(conjunction(self.late.conditions), names)}")
        lines += [f"at most 1 {_described(count, names)}" for count in self.late.single]
        for query in self.queries:
            is_last = query is self.queries[-1]
            shown = [column.name for column in self.columns] if is_last else None
            more, names = _steps(query, names, shown)
            lines += more
        first = [f"for a subquery: {line}" for each in self.answers[::-1] for line in each.finish.described()]
        return lines[::-1] + first


def _steps(query: LateQuery, names: list[str], shown: list[str] | None) -> tuple[list[str], list[str]]:
    """What one query does, a line each, and what its columns are called; ``shown`` are the names of the answer's."""
    groups, lines = query.groups, list[str]()
    if query.conditions:
        lines.append(f"σ {_described(conjunction(query.conditions), names)}")
    if groups is not None:
        by = ", ".join(_described(e, names) for e in groups.group if not isinstance(e, Constant)) or "()"
        calls = [_call_text(call, names) for call in groups.calls]
        lines.append(f"γ {by}" + (f"; {', '.join(calls)}" if calls else ""))
        names = [*(_described(e, names) for e in groups.group), *calls]
        if groups.having:
            lines.append(f"σ {_described(conjunction(groups.having), names)}")
    if query.windows is not None:
        names = [_described(e, names) for e in query.windows.row]
        for over in query.windows.overs:
            calls = [each.function.value for each in over.calls]
            by = ", ".join(names[at] for at in over.partition) or "()"
            order = ", ".join(f"{names[term.column]}{' DESC' if term.descending else ''}" for term in over.order)
            lines.append(f"ω {by}; {order}; {', '.join(calls)}")
            names += calls
    texts = [_described(e, names) for e in query.outputs]
    if shown is not None and texts != shown:
        lines.append(f"π {', '.join(t if t == n else f'{t} → {n}' for t, n in zip(texts, shown, strict=True))}")
    if query.distinct:
        lines.append("δ")
    if query.order and (shown is not None or query.limit is not None):
        terms = (f"{_described(t.expression, names)}{' DESC' if t.descending else ''}" for t in query.order)
        lines.append(f"by {', '.join(terms)}")
    if shown is None and query.limit is not None:
        lines.append(f"the first {query.limit}")
    return lines, texts


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
Steps = Callable[[Sequence[Row], Sequence[tuple[str, Given]]], Rows]


def _ready(finish: Finish, given: tuple[tuple[str, Filled], ...]) -> Steps:
    """What has looked up rows of an answer is of this look-up alone, and is not remembered."""
    is_own = any(isinstance(value, LookedUp) for _, value in given)
    return _compile(finish, given) if is_own else _compiled(finish, given)


@lru_cache(MOST_COMPILED)
def _compiled(finish: Finish, given: tuple[tuple[str, Filled], ...]) -> Steps:
    return _compile(finish, given)


def _compile(finish: Finish, given: tuple[tuple[str, Filled], ...]) -> Steps:
    values: dict[str, Filled | Field] = dict(given)
    drawn = [key for key, _ in finish.places if is_drawn(key)]
    values |= {key: Field(len(finish.stored) + at, DOUBLE) for at, key in enumerate(drawn)}
    matches = [_match(each, values) for each in finish.late.matches]
    draws = [e for e in finish.late.conditions if _draws(e)]
    keeps = _condition([e for e in finish.late.conditions if e not in draws], values)
    stays = _condition(draws, values)
    counts = [call("gt", count, Constant(1, BIGINT)) for count in finish.late.single]
    several = compile_predicate(call("or", *counts)) if counts else None
    first, *others = (_Query(each, values) for each in finish.queries)
    inside = [(each.limit, each.offset) for each in finish.queries[:-1]]

    def answer(rows: Sequence[Row], seeds: Sequence[tuple[str, Given]]) -> Rows:
        for match in matches:
            rows = match(rows)
        found = rows if keeps is None else [row for row in rows if keeps(row)]
        if several is not None and any(map(several, found)):
            raise SqlError("a subquery that is a value has more than one row")
        found = first.answer(found, seeds, stays)
        for query, (limit, offset) in zip(others, inside, strict=True):
            found = query.answer(_cut(found, limit, offset))
        return found

    return answer


def _cut(rows: Rows, limit: int | None, offset: int) -> Rows:
    return rows[offset : None if limit is None else offset + limit]


class _Query:
    """One query, compiled."""

    def __init__(self, query: LateQuery, values: Mapping[str, Filled | Field]) -> None:
        self._keeps = _condition(query.conditions, values)
        self._grouped = None if query.groups is None else _grouping(query.groups, values)
        self._windowed = None if query.windows is None else _windowing(query.windows, values)
        self._outputs = [_value(each, values) for each in query.outputs]
        self._order = [_value(term.expression, values) for term in query.order]
        self._descending = tuple(term.descending for term in query.order)
        self._is_distinct = query.distinct
        self._outputs_apart = _Apart(query.outputs)
        self._order_of = _Apart([term.expression for term in query.order]).key_of
        self._is_ordered_first = not any(_draws(term.expression) for term in query.order)

    def answer(
        self,
        rows: Sequence[Row],
        seeds: Sequence[tuple[str, Given]] = (),
        stays: Callable[[Row], bool] | None = None,
    ) -> Rows:
        """In order, and not cut. ``seeds`` and ``stays`` are of what is drawn for each row."""
        found = rows if self._keeps is None else [row for row in rows if self._keeps(row)]
        if self._grouped is not None:
            found = self._grouped(found)
        if self._windowed is not None:
            found = self._windowed(found)
        if seeds:
            found = self._drawn(found, seeds)
            found = found if stays is None else [row for row in found if stays(row)]
        shown = [(tuple([compute(row) for compute in self._outputs]), row) for row in found]
        if self._is_distinct:
            told = self._outputs_apart.told([output for output, _ in shown])
            rows_of = {self._outputs_apart.key_of(output): row for output, row in shown}
            shown = [(output, rows_of[key]) for key, output in told.items()]
        if self._order:
            ranks = {id(row): self._rank(row) for _, row in shown}
            shown.sort(key=lambda pair: (ranks[id(pair[1])], encode_order(pair[0], (False,) * len(pair[0]))))
        return [output for output, _ in shown]

    def _drawn(self, rows: Sequence[Row], seeds: Sequence[tuple[str, Given]]) -> Rows:
        """With what is drawn for each row, in the order of the answer where that does not depend on it."""
        if self._order and self._is_ordered_first:
            rows = sorted(rows, key=self._rank)
        return extended_rows(rows, seeds)

    def _rank(self, row: Row) -> bytes:
        return encode_order(self._order_of(tuple([compute(row) for compute in self._order])), self._descending)


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


def _value(e: Expression, values: Mapping[str, Filled | Field]) -> Callable[[Row], Value]:
    made = with_values(e, values)
    return compile_expression.__wrapped__(made) if _looks_up([e], values) else compile_expression(made)


def _condition(conditions: Sequence[Expression], values: Mapping[str, Filled | Field]) -> Callable[[Row], bool] | None:
    if not conditions:
        return None
    made = with_values(conjunction(conditions), values)
    return compile_predicate.__wrapped__(made) if _looks_up(conditions, values) else compile_predicate(made)


def _looks_up(expressions: Sequence[Expression], values: Mapping[str, Filled | Field]) -> bool:
    """Whether they hold rows of an answer, which are not to be remembered with them."""
    return any(isinstance(values[key_of(p)], LookedUp) for e in expressions for p in parameters_in(e))


def _match(match: LateMatch, values: Mapping[str, Filled | Field]) -> Callable[[Sequence[Row]], Rows]:
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


def _grouping(groups: LateGroups, values: Mapping[str, Filled | Field]) -> Callable[[Sequence[Row]], Rows]:
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


def _windowing(windows: LateWindows, values: Mapping[str, Filled | Field]) -> Callable[[Sequence[Row]], Rows]:
    """Each row with its functions' values, which partitions of all of them have that are made for it alone."""
    row = [_value(e, values) for e in windows.row]
    columns = [Column("", e.type) for e in windows.row]
    overs = list[Windows]()
    for over in windows.overs:
        overs.append(Windows(over, columns))
        columns += [Column("", each.type) for each in over.calls]

    def windowed(rows: Sequence[Row]) -> Rows:
        found = [tuple([compute(each) for compute in row]) for each in rows]
        for over in overs:
            parts: dict[Row, Counter[Row]] = {}
            for each in found:
                parts.setdefault(over.key_of(each), Counter())[each] += 1
            changes = [Partition(over).change(list(part.items()), over)[0] for part in parts.values()]
            found = [each for part in changes for each, weight in part for _ in range(weight)]
        return found

    return windowed


def summarised(late: LateCall, rows: Sequence[Row]) -> Value:
    """An aggregate of rows that are there."""
    return _result(late, {})(rows)


def _result(late: LateCall, values: Mapping[str, Filled | Field]) -> Callable[[Sequence[Row]], Value]:
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
