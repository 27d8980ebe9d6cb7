"""Which rows of a base table conditions leave, as ranges of keys, and in which orders a table can be walked.

An index stands in the order of its columns and then of the primary key, in an encoding that sorts as SQL does
(``domains/language/encoding.py``). So the rows that are equal in its first columns, and in a range by the next one, lie
side by side, and in order::

    (a, id) < (7, 3)       boxes       {a < 7}                  {a = 7, id < 3}
    KEY (a), PRIMARY (id)  intervals   from behind NULL to 7    from 7 to 7 ‖ 3           = one, walked from its end

A *box* says what each of some columns is between; rows are in one of several. Boxes may hold more rows than the
conditions they are made of, never fewer: whoever walks them applies the conditions to what they find.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from domains.language.collating.collation import key_of
from domains.language.expressions import Call, Constant, Expression, Field
from domains.language.functions.comparands import comparand
from domains.language.ordered import NULL_BYTES, encode_value
from domains.language.types import Column, Kind, SqlType, TableSchema
from domains.plan.graph import Columns, OrderTerm

Edge = tuple[bytes, bool]
"""An encoded value, and whether rows that have it are meant."""
Bounds = tuple[Edge | None, Edge | None]
Box = Mapping[int, Bounds]
"""Bounds of some columns. NULL is in none of them."""
Boxes = tuple[Box, ...]
Interval = tuple[bytes, bytes | None]
"""Keys from the first one on, below the second; None: to the end."""

EVERYWHERE: Boxes = ({},)
MOST_BOXES = 64
"""Ranges that are walked one after another. Each is a step down a tree."""
_EXACT = frozenset({Kind.INTEGER, Kind.DECIMAL})
_MIRRORED = {"eq": "eq", "lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}
_AFTER_NULL = bytes((NULL_BYTES[0] + 1,))


@dataclass(frozen=True, slots=True)
class Walk:
    """Some of a table's rows in an order that it has."""

    order: Columns
    """One of the table's ``orders``."""
    intervals: tuple[Interval, ...]
    descending: bool = False


def orders_of(schema: TableSchema, indexes: Iterable[Columns]) -> tuple[Columns, ...]:
    """The columns by which a table with these indexes can be walked. Rows of a bag that are equal in an index's columns
    come as they lie."""
    key = schema.primary_key
    return (*((key,) if key else ()), *(columns + key for columns in indexes if columns != key))


# --- boxes ------------------------------------------------------------------------------------------------------


def exactly(encoded: bytes) -> Bounds:
    return (encoded, True), (encoded, True)


def both(one: Boxes, other: Boxes) -> Boxes:
    """The rows that are in a box of each."""
    if one == EVERYWHERE or other == EVERYWHERE:
        return other if one == EVERYWHERE else one
    if len(one) * len(other) > MOST_BOXES:
        return min(one, other, key=len)
    merged = (_merged(mine, its) for mine in one for its in other)
    return tuple(box for box in merged if box is not None)


def _merged(one: Box, other: Box) -> Box | None:
    """None: nothing is in both."""
    box = dict(one)
    for column, (low, high) in other.items():
        my_low, my_high = box.get(column, (None, None))
        lows = [edge for edge in (low, my_low) if edge is not None]
        highs = [edge for edge in (high, my_high) if edge is not None]
        low = max(lows, key=lambda edge: (edge[0], not edge[1]), default=None)
        high = min(highs, default=None)
        if low is not None and high is not None and (low[0], not (low[1] and high[1])) > (high[0], False):
            return None
        box[column] = low, high
    return box


def boxes_of(predicate: Expression, columns: Sequence[Column]) -> Boxes:
    """The rows for which a predicate over these columns may be true."""
    if not isinstance(predicate, Call):
        return EVERYWHERE
    arguments = predicate.arguments
    match predicate.function:
        case "and":
            found = EVERYWHERE
            for part in arguments:
                found = both(found, boxes_of(part, columns))
            return found
        case "or":
            return _any([boxes_of(part, columns) for part in arguments])
        case "in":
            return _any([_compared("eq", arguments[0], each, columns) for each in arguments[1:]])
        case "between":
            value, low, high = arguments
            if not all(_of_one_kind(value.type, each.type) for each in (low, high)):
                return EVERYWHERE  # All three are compared as something that is none of them.
            return both(_compared("ge", value, low, columns), _compared("le", value, high, columns))
        case "eq" | "lt" | "le" | "gt" | "ge":
            one, other = arguments
            if isinstance(one, Constant):
                return _compared(_MIRRORED[predicate.function], other, one, columns)
            return _compared(predicate.function, one, other, columns)
    return EVERYWHERE


def _any(parts: Sequence[Boxes]) -> Boxes:
    found = tuple(box for part in parts for box in part)
    return found if len(found) <= MOST_BOXES and all(found) else EVERYWHERE


def _of_one_kind(one: SqlType, other: SqlType) -> bool:
    return one.kind is other.kind or {one.kind, other.kind} <= _EXACT


def _compared(function: str, one: Expression, other: Expression, columns: Sequence[Column]) -> Boxes:
    """``column function constant``"""
    if not isinstance(one, Field) or not isinstance(other, Constant) or not is_ordered(columns[one.position].type):
        return EVERYWHERE
    type = columns[one.position].type
    made = comparand(other, type) if type.equality is one.type.equality else None
    if made is None:
        return EVERYWHERE
    if made.value is None or (function == "eq" and not made.exact):
        return ()  # It is true for no row.
    encoded = encode_value(made.value if type.collation is None else key_of(made.value, type.collation))
    return ({one.position: bounded(function, encoded, made.exact)},)


def bounded(function: str, encoded: bytes, exact: bool = True) -> Bounds:
    """The values that ``function`` finds true beside a given one: it is the encoded one, or lies between that and the
    next one where it is not exactly that value."""
    match function:
        case "eq":
            return exactly(encoded)
        case "lt":
            return None, (encoded, not exact)
        case "le":
            return None, (encoded, True)
        case "gt":
            return (encoded, False), None
    return (encoded, exact), None


def is_ordered(type: SqlType) -> bool:
    """Whether its values are compared as their keys lie: JSON and the members of ENUM and SET are not."""
    return type.kind is not Kind.JSON and not type.members


# --- intervals --------------------------------------------------------------------------------------------------


def intervals(order: Columns, boxes: Boxes) -> tuple[Interval, ...]:
    """The keys by these columns that the boxes have, in order; those that meet are one."""
    found: list[Interval] = []
    for start, end in sorted((_interval(order, box) for box in boxes), key=lambda each: each[0]):
        if end is not None and end <= start:
            continue
        if found and (found[-1][1] is None or start <= found[-1][1]):
            last, stop = found[-1]
            found[-1] = last, None if end is None or stop is None else max(end, stop)
        else:
            found.append((start, end))
    return tuple(found)


def _interval(order: Columns, box: Box) -> Interval:
    begin = b""
    for column in order:
        bounds = box.get(column)
        if bounds is None:
            break
        low, high = bounds
        if low is not None and low == high:
            begin += low[0]
            continue
        start = begin + _AFTER_NULL if low is None else begin + low[0] if low[1] else _after(begin + low[0])
        if high is None:
            return start, _after(begin) if begin else None
        return start, _after(begin + high[0]) if high[1] else begin + high[0]
    return begin, _after(begin) if begin else None


def _after(encoded: bytes) -> bytes:
    """Above all that begin with whole values: none of those begins with ff."""
    return encoded + b"\xff"


def _used(order: Columns, box: Box) -> tuple[int, int]:
    """How many first columns a box fixes, and whether it has a range of the next one."""
    equal = 0
    for column in order:
        low, high = box.get(column, (None, None))
        if low is None or low != high:
            return equal, int(low is not None or high is not None)
        equal += 1
    return equal, 0


def is_covered(order: Columns, boxes: Boxes) -> bool:
    """Whether a walk by this order meets no row but those of the boxes."""
    return all(sum(_used(order, box)) == len(box) for box in boxes)


def narrowest(orders: Iterable[Columns], boxes: Boxes, *, ranged: bool = True) -> Walk | None:
    """A walk of the boxes alone; None where no order begins with a column of each of them. ``ranged``: and a range ends
    one of them, as keys alone are looked up."""
    best: tuple[tuple[int, int], Columns] | None = None
    for order in orders:
        used = [_used(order, box) for box in boxes]
        least = min(used, default=(0, 0))
        if least > (0, 0) and (best is None or least > best[0]):
            best = least, order
    if best is None or (ranged and not any(_used(best[1], box)[1] for box in boxes)):
        return None
    return Walk(best[1], intervals(best[1], boxes))


def walk_in_order(orders: Iterable[Columns], key: Columns, boxes: Boxes, terms: Sequence[OrderTerm]) -> Walk | None:
    """The walk by which rows come as ORDER BY wants them, of the least rows; ``key`` is the table's primary key."""
    first = boxes[0] if boxes else {}
    fixed = {
        column
        for column, (low, high) in first.items()
        if low is not None and low == high and all(box.get(column) == (low, high) for box in boxes)
    }
    best: tuple[tuple[int, int], Walk] | None = None
    for order in orders:
        descending = _direction(order, key, fixed, terms)
        if descending is None:
            continue
        used = min((_used(order, box) for box in boxes), default=(0, 0))
        if best is None or used > best[0]:
            best = used, Walk(order, intervals(order, boxes), descending)
    return None if best is None else best[1]


def _direction(order: Columns, key: Columns, fixed: set[int], terms: Sequence[OrderTerm]) -> bool | None:
    """Whether rows that have one value in each of the columns ``fixed`` come in this order if it is walked downwards;
    None if they come so neither way."""
    wanted = {term.column: term.descending for term in reversed(terms) if term.column not in fixed}
    rest = [term for term in dict.fromkeys(t.column for t in terms) if term in wanted]
    known, ways = set(fixed), set[bool]()
    for column in order:
        if not rest:
            break
        if column in known:
            continue
        if column != rest[0]:
            return None
        ways.add(wanted[rest.pop(0)])
        known.add(column)
    if len(ways) > 1 or (rest and not (key and known.issuperset(key))):
        return None
    return ways == {True}
