"""The state of an aggregate function for a group, and how a batch of deltas changes it.

All are exact: a sum of doubles is kept as a whole number of 2⁻¹⁰⁷⁴ (the least double) and a decimal one without
rounding, so that retractions cancel to the last bit and the order of updates does not show. A variance is made of the
exact sums Σx and Σx² and rounded once, so that the difference of two great sums loses nothing.

MIN and MAX keep the extremum and how often it stands there; when a retraction takes the last copy, the group must be
computed anew from the parent (rule 8). The functions that need every value (DISTINCT, GROUP_CONCAT, JSON_ARRAYAGG and
JSON_OBJECTAGG) keep a multiset.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from decimal import ROUND_HALF_UP, Context, Decimal
from operator import gt, lt
from typing import Any

from domains.language.collating.collation import Keyed, collated, keyed
from domains.language.documents import member_of, object_text, sorted_members
from domains.language.encoding import encode_order
from domains.language.functions.conversion import text_of
from domains.language.functions.numeric import MASK
from domains.language.types import TEXT, Delta, Kind, SqlType, Value
from domains.plan.deltas import key_function
from domains.plan.graph import AggregateCall, AggregateFunction

EXACT = Context(prec=120)
"""Digits enough for sums of DECIMAL(65, 30) values with any weights that fit in memory."""
_SQUARES = Context(prec=280)
"""Digits enough for sums of their squares."""
_LEAST_DOUBLE = 2**1074
"""One over the least positive double: every finite double is a whole multiple of it."""


class Accumulator(ABC):
    """One aggregate function over one column; its state is a list that it alone changes."""

    def __init__(self, call: AggregateCall, parent: Sequence[SqlType]) -> None:
        """``parent`` are the types of the rows that it is computed of."""
        type = TEXT if call.argument is None else parent[call.argument]
        self.call = call
        self.kind = type.kind
        self.column = -1 if call.argument is None else call.argument
        self.key: Keyed | None = None if type.equality is None else keyed(type.equality)

    @abstractmethod
    def start(self) -> list[Any]:
        """The state of an empty group."""

    @abstractmethod
    def update(self, state: list[Any], deltas: Sequence[Delta]) -> bool:
        """Apply deltas of one group; False when the state no longer knows and must be computed anew."""

    @abstractmethod
    def result(self, state: list[Any], rows: int) -> Value:
        """The function's value over a group of ``rows`` rows."""


class CountRows(Accumulator):
    def start(self) -> list[Any]:
        return []

    def update(self, state: list[Any], deltas: Sequence[Delta]) -> bool:
        return True

    def result(self, state: list[Any], rows: int) -> Value:
        return rows


class Count(Accumulator):
    def start(self) -> list[Any]:
        return [0]

    def update(self, state: list[Any], deltas: Sequence[Delta]) -> bool:
        column = self.column
        state[0] += sum(weight for row, weight in deltas if row[column] is not None)
        return True

    def result(self, state: list[Any], rows: int) -> Value:
        count: int = state[0]
        return count


class Sum(Accumulator):
    """``[how many are not NULL, their exact total]``."""

    def start(self) -> list[Any]:
        return [0, Decimal(0) if self.kind is Kind.DECIMAL else 0]

    def update(self, state: list[Any], deltas: Sequence[Delta]) -> bool:
        column, plus, kind = self.column, self.plus, self.kind
        count, total = state
        add, subtract = EXACT.add, EXACT.subtract
        for row, weight in deltas:
            value: Any = row[column]
            if value is None:
                continue
            count += weight
            if kind is not Kind.DECIMAL or (weight != 1 and weight != -1):
                total = plus(total, value, weight)
            else:  # 0.2 µs, where a call and a product took 2: TPC-H 1 has eight sums of each row.
                total = add(total, value) if weight == 1 else subtract(total, value)
        state[0], state[1] = count, total
        return True

    def plus(self, total: Any, value: Any, weight: int) -> Any:
        if self.kind is Kind.INTEGER:
            return total + value * weight
        if self.kind is Kind.DECIMAL:
            return EXACT.add(total, EXACT.multiply(value, weight))
        return total + _in_least_doubles(value) * weight

    def result(self, state: list[Any], rows: int) -> Value:
        count, total = state
        return sum_value(self.kind, total) if count else None


class Average(Sum):
    def result(self, state: list[Any], rows: int) -> Value:
        count, total = state
        return average_value(self.kind, total, count, self.call.type.scale) if count else None


def sum_value(kind: Kind, total: Any) -> Value:
    if kind is Kind.DOUBLE:
        return _as_double(total, _LEAST_DOUBLE)
    value: Value = total
    return value


def average_value(kind: Kind, total: Any, count: int, scale: int) -> Value:
    if kind is Kind.DOUBLE:
        return _as_double(total, _LEAST_DOUBLE * count)
    quotient = EXACT.divide(Decimal(total), Decimal(count))
    return quotient.quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP, EXACT)


class Spread(Accumulator):
    """``[n, Σx, Σx²]`` of what is not NULL; doubles count in 2⁻¹⁰⁷⁴ here, too.

    The sum of the squared distances from the mean is Σx² − (Σx)²/n. VARIANCE divides it by n, or by n − 1 for a sample,
    and STDDEV is the root of that.
    """

    def __init__(self, call: AggregateCall, parent: Sequence[SqlType]) -> None:
        super().__init__(call, parent)
        self.is_sample = call.function in (AggregateFunction.VAR_SAMP, AggregateFunction.STDDEV_SAMP)
        self.is_root = call.function in (AggregateFunction.STDDEV_POP, AggregateFunction.STDDEV_SAMP)

    def start(self) -> list[Any]:
        zero: Any = Decimal(0) if self.kind is Kind.DECIMAL else 0
        return [0, zero, zero]

    def update(self, state: list[Any], deltas: Sequence[Delta]) -> bool:
        column, kind = self.column, self.kind
        count, total, squares = state
        for row, weight in deltas:
            value: Any = row[column]
            if value is None:
                continue
            count += weight
            if kind is Kind.DECIMAL:
                weighed = _SQUARES.multiply(value, Decimal(weight))
                total = _SQUARES.add(total, weighed)
                squares = _SQUARES.add(squares, _SQUARES.multiply(value, weighed))
                continue
            if kind is Kind.DOUBLE:
                value = _in_least_doubles(value)
            total += value * weight
            squares += value * value * weight
        state[:] = count, total, squares
        return True

    def result(self, state: list[Any], rows: int) -> Value:
        count, total, squares = state
        divisor = count - 1 if self.is_sample else count
        if divisor < 1:
            return None
        if self.kind is Kind.DECIMAL:
            (total, scale), (squares, finer) = total.as_integer_ratio(), squares.as_integer_ratio()
            above, below = squares * scale * scale * count - total * total * finer, finer * scale * scale
        else:
            above, below = squares * count - total * total, _LEAST_DOUBLE**2 if self.kind is Kind.DOUBLE else 1
        below *= count * divisor
        return _root(above, below) if self.is_root else _as_double(above, below)


def _root(numerator: int, denominator: int) -> float | None:
    """√(numerator / denominator), also where the quotient itself is out of a double's range."""
    power = (numerator.bit_length() - denominator.bit_length()) // 2
    near_one = (numerator << max(-2 * power, 0)) / (denominator << max(2 * power, 0))
    try:
        return math.ldexp(math.sqrt(near_one), power)
    except OverflowError:
        return None


def _in_least_doubles(value: float) -> int:
    numerator, denominator = value.as_integer_ratio()
    return numerator * (_LEAST_DOUBLE // denominator)


def _as_double(numerator: int, denominator: int) -> float | None:
    """Correctly rounded; NULL where the sum is beyond the greatest double."""
    try:
        return numerator / denominator
    except OverflowError:
        return None


def better(key: Keyed | None, *, greatest: bool) -> Callable[[Any, Any], bool]:
    """Whether one value is less, or greater, than another. Of texts that a collation finds equal the one that is least
    by code points stands for all, as the least and as the greatest."""
    compare = gt if greatest else lt
    if key is None:
        return compare

    def is_better(value: Any, than: Any) -> bool:
        one, other = key(value), key(than)
        return bool(value < than if one == other else compare(one, other))

    return is_better


class Extremum(Accumulator):
    """``[the least or greatest value, how often]``; None while there is none."""

    def __init__(self, call: AggregateCall, parent: Sequence[SqlType]) -> None:
        super().__init__(call, parent)
        self.is_better = better(self.key, greatest=call.function is AggregateFunction.MAX)

    def start(self) -> list[Any]:
        return [None, 0]

    def update(self, state: list[Any], deltas: Sequence[Delta]) -> bool:
        column, is_better = self.column, self.is_better
        best, copies = state
        for row, weight in deltas:
            value: Any = row[column]
            if value is None:
                continue
            if best is not None and value == best:
                copies += weight
            elif best is None or is_better(value, best):
                # A retraction of what is better than the best cancels an insertion later in this batch: ask anew.
                if weight < 0:
                    return False
                best, copies = value, weight
        if best is not None and copies <= 0:
            return False
        state[0], state[1] = best, copies
        return True

    def result(self, state: list[Any], rows: int) -> Value:
        best: Value = state[0]
        return best


class KeptExtremum(Extremum):
    """The extremum where the state is full: ``[it, value → how often]``, so that no retraction asks the parent.

    A full state's group may be NULL, by which no parent can be looked up; and who keeps all groups can afford it.
    """

    def start(self) -> list[Any]:
        return [None, {}]

    def update(self, state: list[Any], deltas: Sequence[Delta]) -> bool:
        best, values = state
        column, is_better = self.column, self.is_better
        for row, weight in deltas:
            value: Any = row[column]
            if value is None:
                continue
            total = values.get(value, 0) + weight
            if total:
                values[value] = total
            else:
                del values[value]
            if best is None or is_better(value, best):
                best = value
        if best not in values:
            best = next(iter(values), None)
            for value in values:
                if is_better(value, best):
                    best = value
        state[0] = best
        return True


class Multiset(Accumulator):
    """``[value → how often]`` for the functions over distinct values; of texts with a collation, and of documents, by
    their keys."""

    def __init__(self, call: AggregateCall, parent: Sequence[SqlType]) -> None:
        super().__init__(call, parent)
        self._parent = parent

    def start(self) -> list[Any]:
        return [{}]

    def update(self, state: list[Any], deltas: Sequence[Delta]) -> bool:
        values, column, key = state[0], self.column, self.key
        for row, weight in deltas:
            value: Any = row[column]
            if value is not None:
                self._add(values, value if key is None else key(value), weight)
        return True

    def _add(self, values: dict[Any, int], value: Any, weight: int) -> None:
        total = values.get(value, 0) + weight
        if total:
            values[value] = total
        else:
            del values[value]

    def result(self, state: list[Any], rows: int) -> Value:
        values = state[0]
        function = self.call.function
        if function is AggregateFunction.COUNT_DISTINCT:
            return len(values)
        if not values:
            return None
        adder = Sum(self.call, self._parent)
        total: Any = adder.start()[1]
        for value in values:
            total = adder.plus(total, value, 1)
        if function is AggregateFunction.SUM_DISTINCT:
            return sum_value(self.kind, total)
        assert function is AggregateFunction.AVG_DISTINCT, f"{function} is not of distinct values"
        return average_value(self.kind, total, len(values), self.call.type.scale)


class Bits(Multiset):
    """``[bit → how many values have it, how many values are not NULL]``: a value that goes takes its bits with it."""

    def start(self) -> list[Any]:
        return [{}, 0]

    def update(self, state: list[Any], deltas: Sequence[Delta]) -> bool:
        bits, column = state[0], self.column
        for row, weight in deltas:
            value: Any = row[column]
            if value is None:
                continue
            state[1] += weight
            while value:
                lowest = value & -value
                self._add(bits, lowest, weight)
                value ^= lowest
        return True

    def result(self, state: list[Any], rows: int) -> Value:
        bits: dict[int, int] = state[0]
        values: int = state[1]
        if self.call.function is AggregateFunction.BIT_OR:
            return sum(bits)
        assert self.call.function is AggregateFunction.BIT_AND, f"{self.call.function} does not count bits"
        return sum(bit for bit, count in bits.items() if count == values) if values else MASK


class Parity(Accumulator):
    """``[the bits]`` of BIT_XOR: a value that comes or goes twice leaves them as they were."""

    def start(self) -> list[Any]:
        return [0]

    def update(self, state: list[Any], deltas: Sequence[Delta]) -> bool:
        for row, weight in deltas:
            value: Any = row[self.column]
            if value is not None and weight % 2:
                state[0] ^= value
        return True

    def result(self, state: list[Any], rows: int) -> Value:
        bits: int = state[0]
        return bits


class GroupConcat(Multiset):
    """The multiset holds ``(order, value)``, of which the text is made in order. The order's values are encoded as they
    come, so that a change sorts bytes: 0.3 µs an element in place of 1.4."""

    def __init__(self, call: AggregateCall, parent: Sequence[SqlType]) -> None:
        super().__init__(call, parent)
        columns = [term.column for term in call.order]
        collations = collated([parent[column].equality for column in columns])
        self._ordered = key_function(tuple(range(len(columns))), collations) if collations else None

    def _in_order(self, values: dict[Any, int]) -> list[Any]:
        key = self.key
        return sorted(values) if key is None else sorted(values, key=lambda item: (item[0], key(item[1]), item[1]))

    def update(self, state: list[Any], deltas: Sequence[Delta]) -> bool:
        values, column = state[0], self.column
        order = [term.column for term in self.call.order]
        descending = [term.descending for term in self.call.order]
        ordered = self._ordered
        for row, weight in deltas:
            if row[column] is not None:
                by = tuple([row[c] for c in order])
                encoded = encode_order(by if ordered is None else ordered(by), descending)
                self._add(values, (encoded, row[column]), weight)
        return True

    def result(self, state: list[Any], rows: int) -> Value:
        values = state[0]
        if not values:
            return None
        parts: list[Any] = []
        distinct = self.call.function is AggregateFunction.GROUP_CONCAT_DISTINCT
        seen: set[Any] = set()
        for item in self._in_order(values):
            if distinct:
                key = item[-1] if self.key is None else self.key(item[-1])
                if key not in seen:
                    seen.add(key)
                    parts.append(item[-1])
            else:
                parts.extend([item[-1]] * values[item])
        if self.kind is Kind.BLOB:
            return self.call.separator.encode().join(parts)
        return self.call.separator.join(map(text_of, parts))


class JsonArray(GroupConcat):
    """An element is never NULL: it is JSON's ``null`` then. Without an order they are sorted by their texts."""

    def __init__(self, call: AggregateCall, parent: Sequence[SqlType]) -> None:
        super().__init__(call, parent)
        self.key = None

    def result(self, state: list[Any], rows: int) -> Value:
        values = state[0]
        if not values:
            return None
        texts: list[str] = []
        for item in self._in_order(values):
            texts.extend([item[-1]] * values[item])
        return f"[{', '.join(texts)}]"


class JsonObject(Multiset):
    """The multiset holds members, ``"key": value``; of several with one key the last in the order of texts counts."""

    def result(self, state: list[Any], rows: int) -> Value:
        members = dict(map(member_of, sorted(state[0])))
        return object_text(sorted_members(members)) if members else None


_ACCUMULATORS: dict[AggregateFunction, type[Accumulator]] = {
    AggregateFunction.COUNT_ROWS: CountRows,
    AggregateFunction.COUNT: Count,
    AggregateFunction.COUNT_DISTINCT: Multiset,
    AggregateFunction.SUM: Sum,
    AggregateFunction.SUM_DISTINCT: Multiset,
    AggregateFunction.AVG: Average,
    AggregateFunction.AVG_DISTINCT: Multiset,
    AggregateFunction.MIN: Extremum,
    AggregateFunction.MAX: Extremum,
    AggregateFunction.VAR_POP: Spread,
    AggregateFunction.VAR_SAMP: Spread,
    AggregateFunction.STDDEV_POP: Spread,
    AggregateFunction.STDDEV_SAMP: Spread,
    AggregateFunction.BIT_AND: Bits,
    AggregateFunction.BIT_OR: Bits,
    AggregateFunction.BIT_XOR: Parity,
    AggregateFunction.GROUP_CONCAT: GroupConcat,
    AggregateFunction.GROUP_CONCAT_DISTINCT: GroupConcat,
    AggregateFunction.JSON_ARRAYAGG: JsonArray,
    AggregateFunction.JSON_OBJECTAGG: JsonObject,
}


def accumulator(call: AggregateCall, parent: Sequence[SqlType], *, full: bool) -> Accumulator:
    """``parent`` are the types of the rows that it is computed of; ``full``: whether the node's state is."""
    chosen = _ACCUMULATORS[call.function]
    return (KeptExtremum if full and chosen is Extremum else chosen)(call, parent)


def spelling(column: int, *, full: bool) -> Accumulator:
    """The least by code points of a group's texts in a column, which are equal by its collation."""
    call = AggregateCall(AggregateFunction.MIN, column, TEXT)
    return (KeptExtremum if full else Extremum)(call, (TEXT,) * (column + 1))
