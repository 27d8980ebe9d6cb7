"""A naive evaluator of planned graphs: recomputes every operator from base rows, straight from its equation.

It is the oracle of the planner's tests and of the engine's: bags are ``Counter`` of rows, nothing is incremental, and
nothing is shared with the engine but the compiled scalar expressions.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import ROUND_HALF_UP, Decimal
from fractions import Fraction
from functools import reduce
from typing import Any

from domains.language.compile import compile_predicate, compile_project_batch
from domains.language.functions.numeric import MASK
from domains.language.types import Kind, Row, Value
from domains.plan.graph import (
    Aggregate,
    AggregateCall,
    AggregateFunction,
    Base,
    BoundKind,
    Egress,
    Filter,
    FixedPoint,
    FrameBound,
    Ingress,
    Join,
    JoinKind,
    NodeIndex,
    OrderTerm,
    Over,
    ParameterKind,
    Project,
    RangeTerm,
    Reader,
    TopK,
    Union,
    WindowCall,
    WindowFunction,
)
from migrations.joint_graph.graph import JointGraph
from migrations.query.finish import Finish

Bag = Counter[Row]
Tables = Mapping[str, list[Row]]


def evaluate(graph: JointGraph, root: NodeIndex, tables: Tables) -> Bag:
    """The rows of a node, given the stored rows of the base tables."""
    results: dict[NodeIndex, Bag] = {}
    for index in graph.ancestors(root):
        node = graph.node(index)
        parents = [results[parent] for parent in node.parents]
        results[index] = _operator(node.operator, parents, tables, [graph.node(p).columns for p in node.parents])
    return results[root]


def answer(
    graph: JointGraph,
    root: NodeIndex,
    reader: Reader,
    tables: Tables,
    arguments: Sequence[Any],
    finish: Finish | None = None,
) -> list[Row]:
    """What a look-up in a view's reader answers, in order; one argument a parameter, a list for IN."""
    rows = evaluate(graph, root, tables)
    limit, offset = reader.limit, reader.offset
    rows = Counter({row: n for row, n in rows.items() if is_within(reader, row, arguments)})
    ranged = in_ranges(reader)
    for number, (parameter, argument) in enumerate(zip(reader.parameters, arguments, strict=True)):
        if number in ranged:
            continue
        if parameter.kind is ParameterKind.LIMIT:
            limit = argument
        elif parameter.kind is ParameterKind.OFFSET:
            offset = argument
        elif parameter.column is not None:
            admits = _TESTS[parameter.kind]
            column = parameter.column
            known = {r: n for r, n in rows.items() if r[column] is not None and argument is not None}
            rows = Counter({r: n for r, n in known.items() if admits(r[column], argument)})
    found = [row[: reader.visible] for row in sorted_rows(rows.elements(), reader.order)]
    if not found and reader.empty is not None:
        found = [reader.empty]
    if finish is not None:
        values = [tuple(each) if isinstance(each, list) else each for each in arguments]
        return finish.answer(found, values, limit, offset)
    return found[offset:] if limit is None else found[offset : offset + limit]


def in_ranges(reader: Reader) -> set[int]:
    """The parameters of the reader's ranges, by their numbers."""
    return {term.parameter for alternatives in reader.ranges for terms in alternatives for term in terms}


def is_within(reader: Reader, row: Row, arguments: Sequence[Any]) -> bool:
    """Whether the row meets the reader's ranges; no comparison with NULL is true."""

    def holds(term: RangeTerm) -> bool:
        value, argument = row[term.column], arguments[term.parameter]
        return value is not None and argument is not None and _TESTS[term.kind](value, argument)

    return all(any(all(map(holds, terms)) for terms in alternatives) for alternatives in reader.ranges)


_TESTS: dict[ParameterKind, Callable[[Any, Any], bool]] = {
    ParameterKind.EQUAL: lambda value, argument: value == argument,
    ParameterKind.IN: lambda value, argument: value in argument,
    ParameterKind.LESS: lambda value, argument: value < argument,
    ParameterKind.LESS_EQUAL: lambda value, argument: value <= argument,
    ParameterKind.GREATER: lambda value, argument: value > argument,
    ParameterKind.GREATER_EQUAL: lambda value, argument: value >= argument,
}


def sort_key(value: Value) -> tuple[Any, ...]:
    """NULL before everything, as in MySQL."""
    return (0,) if value is None else (1, value)


def sorted_rows(rows: Iterable[Row], order: Sequence[OrderTerm]) -> list[Row]:
    """By the terms, then by the whole row."""
    result = sorted(rows, key=lambda row: tuple(sort_key(value) for value in row))
    for term in reversed(order):
        result.sort(key=lambda row: sort_key(row[term.column]), reverse=term.descending)
    return result


ROUNDS_MOST = 200
"""Rounds of UNION ALL, in data that comes to an end."""


def _fixed_point(operator: FixedPoint, parents: list[Bag], columns: list[Any]) -> Bag:
    """All rounds from the beginning."""
    (seed, *further), own = parents, columns[0]

    def a_round(rows: Bag) -> Bag:
        sources, widths = [rows, *further], [own, *columns[1:]]
        for step in operator.steps:
            inputs = [sources[at] for at in step.inputs]
            sources.append(_operator(step.operator, inputs, {}, [widths[at] for at in step.inputs]))
            widths.append(step.columns)
        return sources[-1]

    if operator.distinct:
        there: Bag = Counter()
        while (now := _first_of(operator.best, +(seed + a_round(there)))) != there:
            there = now
        return there
    total, last = Counter(seed), Counter(seed)
    for _ in range(ROUNDS_MOST):
        last = a_round(last)
        if not last:
            return total
        total += last
    raise AssertionError("the recursion comes to no end")


def _first_of(best: OrderTerm | None, rows: Iterable[Row]) -> Bag:
    if best is None:
        return Counter(dict.fromkeys(rows, 1))
    first: dict[Row, Row] = {}
    for row in rows:
        alike = row[: best.column] + row[best.column + 1 :]
        value: Any = row[best.column]
        other: Any = first.setdefault(alike, row)[best.column]
        if value is not None and (other is None or (value > other if best.descending else value < other)):
            first[alike] = row
    return Counter(first.values())


def _operator(operator: Any, parents: list[Bag], tables: Tables, columns: list[Any]) -> Bag:
    match operator:
        case Base(table, positions):
            return Counter(tuple(row[i] for i in positions) for row in tables[table])
        case Filter(predicate):
            holds = compile_predicate(predicate)
            return Counter({row: n for row, n in parents[0].items() if holds(row)})
        case Project(expressions):
            result: Bag = Counter()
            for row, n in compile_project_batch(expressions)(list(parents[0].items())):
                result[row] += n
            return result
        case Union():
            return sum(parents, Counter())
        case Join():
            return _join(operator, parents[0], parents[1], len(columns[1]))
        case FixedPoint():
            return _fixed_point(operator, parents, columns)
        case Aggregate():
            return _aggregate(operator, parents[0])
        case TopK():
            return _top(operator, parents[0])
        case Over():
            return over(operator, parents[0])
        case Ingress() | Egress() | Reader():
            return parents[0]
    raise AssertionError(operator)


def _join(join: Join, left: Bag, right: Bag, right_width: int) -> Bag:
    matches = compile_predicate(join.residual) if join.residual is not None else lambda _row: True
    result: Bag = Counter()
    for ours, n in left.items():
        key = [ours[i] for i in join.left_on]
        found = False
        for theirs, m in right.items():
            if None not in key and key == [theirs[i] for i in join.right_on] and matches(ours + theirs):
                found = True
                if join.kind is not JoinKind.MARK:
                    result[ours + theirs] += n * m
        if join.kind is JoinKind.MARK:
            result[(*ours, int(found))] += n
        elif not found and join.kind is JoinKind.LEFT:
            result[ours + (None,) * right_width] += n
    return result


def _aggregate(operator: Aggregate, rows: Bag) -> Bag:
    groups: dict[Row, list[Row]] = {(): []} if operator.scalar else {}
    for row in rows.elements():
        groups.setdefault(tuple(row[i] for i in operator.group), []).append(row)
    return Counter(key + tuple(_summarise(call, members) for call in operator.calls) for key, members in groups.items())


def _summarise(call: AggregateCall, rows: list[Row]) -> Value:
    if call.function is AggregateFunction.COUNT_ROWS:
        return len(rows)
    assert call.argument is not None
    rows = [row for row in sorted_rows(rows, call.order) if row[call.argument] is not None]
    values: list[Any] = [row[call.argument] for row in rows]
    if not call.order:
        values.sort()
    function = str(call.function)
    if function.startswith("bit_"):
        combine = {"bit_and": int.__and__, "bit_or": int.__or__, "bit_xor": int.__xor__}[function]
        return reduce(combine, values, MASK if function == "bit_and" else 0)
    if function.endswith("_distinct"):
        values = list(dict.fromkeys(values))
        function = function.removesuffix("_distinct")
    if function == "count":
        return len(values)
    if not values:
        return None
    if function in ("min", "max"):
        least_or_greatest: Value = min(values) if function == "min" else max(values)
        return least_or_greatest
    if function == "json_arrayagg":
        return f"[{', '.join(values)}]"
    if function == "group_concat":
        return call.separator.join(values)
    if function.startswith(("var", "stddev")):
        return _spread(function, [Fraction(value) for value in values])
    total = sum(values)
    if function == "avg":
        return _average(total, len(values), call)
    return _scaled(total, call)


def _spread(function: str, values: list[Fraction]) -> Value:
    divisor = len(values) - function.endswith("_samp")
    if not divisor:
        return None
    mean = sum(values) / len(values)
    variance = float(sum((value - mean) ** 2 for value in values) / divisor)
    return math.sqrt(variance) if function.startswith("stddev") else variance


def _average(total: Any, count: int, call: AggregateCall) -> Value:
    if call.type.kind is Kind.DOUBLE:
        return float(total) / count
    return (Decimal(total) / count).quantize(Decimal(1).scaleb(-call.type.scale), ROUND_HALF_UP)


def _scaled(total: Any, call: AggregateCall) -> Value:
    return Decimal(total).quantize(Decimal(1).scaleb(-call.type.scale)) if call.type.kind is Kind.DECIMAL else total  # type: ignore[no-any-return]


def _top(operator: TopK, rows: Bag) -> Bag:
    groups: dict[Row, list[Row]] = {}
    for row in rows.elements():
        groups.setdefault(tuple(row[i] for i in operator.group), []).append(row)
    kept: Bag = Counter()
    for members in groups.values():
        kept.update(sorted_rows(members, operator.order)[operator.offset : operator.offset + operator.limit])
    return kept


def over(operator: Over, rows: Bag) -> Bag:
    """Each row with its window functions, each by its definition over the whole partition."""
    partitions: dict[Row, list[Row]] = {}
    for row in rows.elements():
        partitions.setdefault(tuple(row[i] for i in operator.partition), []).append(row)
    result: Bag = Counter()
    for members in partitions.values():
        members = sorted_rows(members, operator.order)
        for place, row in enumerate(members):
            result[row + tuple(_windowed(call, operator.order, members, place) for call in operator.calls)] += 1
    return result


def _windowed(call: WindowCall, order: Sequence[OrderTerm], rows: list[Row], place: int) -> Value:
    row, count = rows[place], len(rows)
    keys = [tuple(sort_key(each[term.column]) for term in order) for each in rows]
    first, end = keys.index(keys[place]), count - keys[::-1].index(keys[place])
    match call.function:
        case WindowFunction.ROW_NUMBER:
            return place + 1
        case WindowFunction.RANK:
            return first + 1
        case WindowFunction.DENSE_RANK:
            return len(set(keys[:end]))
        case WindowFunction.PERCENT_RANK:
            return first / (count - 1) if count > 1 else 0.0
        case WindowFunction.CUME_DIST:
            return end / count
        case WindowFunction.NTILE:
            tiles = [
                tile for tile in range(call.number) for _ in range(count // call.number + (tile < count % call.number))
            ]
            return tiles[place] + 1
        case WindowFunction.LAG | WindowFunction.LEAD:
            at = place + (call.number if call.function is WindowFunction.LEAD else -call.number)
            assert call.argument is not None
            if 0 <= at < count:
                return rows[at][call.argument]
            return None if call.default is None else row[call.default]
    seen = [each for at, each in enumerate(rows) if _is_framed(call, order, rows, place, at, (first, end))]
    if call.function in (WindowFunction.FIRST_VALUE, WindowFunction.LAST_VALUE, WindowFunction.NTH_VALUE):
        assert call.argument is not None
        at = {WindowFunction.FIRST_VALUE: 0, WindowFunction.LAST_VALUE: len(seen) - 1}.get(
            call.function, call.number - 1
        )
        return seen[at][call.argument] if 0 <= at < len(seen) else None
    if call.function is WindowFunction.JSON_ARRAYAGG:
        assert call.argument is not None
        parts = [str(each[call.argument]) for each in seen if each[call.argument] is not None]
        return f"[{', '.join(parts)}]" if parts else None
    return _summarise(AggregateCall(AggregateFunction(call.function.value), call.argument, call.type), seen)


def _is_framed(
    call: WindowCall, order: Sequence[OrderTerm], rows: list[Row], place: int, at: int, peers: tuple[int, int]
) -> bool:
    """Whether the row at ``at`` is in the frame of that at ``place``."""

    def distance(bound: FrameBound) -> float:
        """How far behind the bound the row is; negative before it."""
        if bound.kind is BoundKind.UNBOUNDED_PRECEDING:
            return 1
        if bound.kind is BoundKind.UNBOUNDED_FOLLOWING:
            return -1
        if bound.kind is BoundKind.CURRENT_ROW:
            if call.frame.rows:
                return at - place
            return 0 if peers[0] <= at < peers[1] else at - place
        if call.frame.rows:
            return at - place - (bound.by if bound.kind is BoundKind.FOLLOWING else -bound.by)
        term = order[0]
        value, limit = sort_key(rows[at][term.column]), sort_key(rows[place][bound.by])
        if value == limit:
            return 0
        return -1 if (value < limit) is not term.descending else 1

    return distance(call.frame.start) >= 0 and distance(call.frame.end) <= 0
