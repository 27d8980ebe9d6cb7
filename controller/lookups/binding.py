"""How a request's parameter values become what a reader is asked for: keys, seek values, a range, limit and offset."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from difflib import get_close_matches
from itertools import product
from random import getrandbits
from typing import Any
from uuid import uuid1

from controller.access.session import ANONYMOUS, Caller
from domains.errors import BadRequest, LimitExceeded, TypeViolation
from domains.language.coercion import coercer, exact_number
from domains.language.collating.collation import keyed
from domains.language.expressions import Constant
from domains.language.functions.comparands import Comparand, comparand
from domains.language.types import BIGINT, DOUBLE, TEXT, Kind, Row, SqlType, Value, decimal_type
from domains.plan.graph import Parameter, ParameterKind, RangeTerm, Reader
from migrations.query.expressions.drawing import is_drawn
from migrations.query.expressions.late import Given, late_value
from migrations.query.expressions.moments import HiddenParameter, at_moment, claim_value
from migrations.query.finish import Finish
from migrations.query.view import PlannedView
from worker.reader_map import BoundLookup, Parts, ReaderClient, ReaderLayout, ReaderSnapshot
from worker.reader_map.layout import Bound, Span

# A parameter's value is converted to a comparand: what the values of its column are compared with.
#
# It is not stored, so it need not fit the column: ``id = 7.5``, ``id = 99999999999`` and
# ``day = '2026-01-31 08:00:00'`` are true for no row, as in MySQL, and ``id > 7.5`` is true from 8 on.
# ``domains/language/functions/comparands.py`` places a value among those of a column, for every comparison; this file
# makes keys and ranges of a look-up from the result.
#
# A value that is no number, or no date, is refused; MySQL would compare with 0, or only warn. A number for a text
# column is refused too: many texts equal it (``'7'``, ``'07'``), and a look-up would find only one.

_PLAIN = 2**64
"""Whole numbers below this are taken as they are: 0.3 µs against 3."""


def comparand_maker(type: SqlType, name: str) -> Callable[[Any], Comparand]:
    """A converter for the values of one parameter, which come from a query string, JSON or a statement.

    It raises TypeViolation, with the parameter's name, for a value that is not of this kind.
    """
    if type.kind in (Kind.INTEGER, Kind.DECIMAL):
        return lambda given: _number(given, type, name)
    # A text that is too long for the column is equal to none of its values, and is compared like any other.
    wanted = replace(type, length=None, members=()) if type.length is not None or type.members else type
    convert = coercer(wanted, column=name, from_json=True)
    if type.kind is Kind.DATE:
        return lambda given: _among(Constant(None if convert(given) is None else str(given), TEXT), type)
    if type.collation is not None:
        key = keyed(type.collation)
        return lambda given: Comparand(key(convert(_no_number(given, type, name))))
    if type.kind in (Kind.TEXT, Kind.BLOB):
        return lambda given: Comparand(convert(_no_number(given, type, name)))
    return lambda given: Comparand(convert(given))


def _number(given: Any, type: SqlType, name: str) -> Comparand:
    if given is None or (type.kind is Kind.INTEGER and isinstance(given, int) and abs(given) < _PLAIN):
        return Comparand(None if given is None else int(given))
    number = exact_number(given, type, column=name)
    if isinstance(given, float):
        return _among(Constant(given, DOUBLE), type)
    return _among(Constant(number, decimal_type(0)), type)


def _among(constant: Constant, type: SqlType) -> Comparand:
    found = comparand(constant, type)
    assert found is not None, "numbers are compared with numbers here, and text and moments with days"
    return found


def _no_number(given: Any, type: SqlType, name: str) -> Any:
    if isinstance(given, (int, float, Decimal)):
        raise TypeViolation(
            f'{given!r} does not fit type {type} of column "{name}": a number is compared with the number in a text',
            hint=f'give the text itself, "{given}"; or ask SQL for {name} = {given}, which reads every row',
        )
    return given


KEYS_PER_LOOKUP = 10_000
"""The most keys, and the most seek values, that the IN lists of one look-up may name. An answer of more rows is a
download, not a page."""

COUNT_MAX = 2**63 - 1
"""The greatest LIMIT and OFFSET: that of a BIGINT, as in MySQL."""

_LOWER = (ParameterKind.GREATER, ParameterKind.GREATER_EQUAL)
_UPPER = (ParameterKind.LESS, ParameterKind.LESS_EQUAL)
_COUNTS = (ParameterKind.LIMIT, ParameterKind.OFFSET)


FEW_ROWS, FEW_BYTES = 500, 50_000
"""The most rows and bytes of a reader from which an answer is computed on the event loop: 2 ms. More go to a process
beside."""
PART_BYTES = 1_000_000
"""The bytes of one part of an answer that comes from the process beside."""


@dataclass(frozen=True, slots=True)
class FinishedLookup(BoundLookup):
    """A look-up of a view whose answer is worked out of its reader's rows, see ``migrations/query/finish.py``."""

    finish: Finish | None = field(default=None, compare=False, repr=False)
    values: tuple[Given, ...] = ()
    """The values of all parameters."""
    count: int | None = None
    start: int = 0
    """LIMIT and OFFSET of the answer; those of the look-up are for rows that are not worked on yet."""

    def page(self, client: ReaderClient | ReaderSnapshot, layout: ReaderLayout) -> bytes | None:
        if isinstance(client, ReaderSnapshot) and sum([client.count(layout, key) for key in self.keys]) > FEW_ROWS:
            return None
        return BoundLookup.page(self, client, layout)

    def finished(self, page: bytes) -> bytes | None:
        return self._whole(page) if len(page) <= FEW_BYTES else None

    def parts_of(self, page: bytes) -> Iterator[bytes]:
        """The answer, however long it takes."""
        whole = self._whole(page)
        for at in range(0, len(whole), PART_BYTES):
            yield whole[at : at + PART_BYTES]

    def _whole(self, page: bytes) -> bytes:
        assert self.finish is not None, "it is made for a finish"
        return self.finish.page(page, self.values, self.count, self.start)

    def listed(self, layout: ReaderLayout, parts: Parts) -> list[bytes]:
        assert self.finish is not None, "it is made for a finish"
        return self.finish.listed(self.joined(layout, parts), self.values, self.count, self.start)

    @property
    def ordered(self) -> bool:
        return self.finish is not None and bool(self.finish.queries[-1].order)

    @property
    def sent(self) -> BoundLookup:
        return BoundLookup(self.keys, self.seeks, self.low, self.high)


class RequestMoment:
    """The time of a request, which is that of all it asks, read when it is first wanted, and then the same; and who
    asks."""

    __slots__ = ("_text", "asker")

    def __init__(self, text: str = "", asker: Caller = ANONYMOUS) -> None:
        self._text = text
        self.asker = asker

    def at(self, clock: Callable[[], str]) -> str:
        if not self._text:
            self._text = clock()
        return self._text


class Binding:
    """The parameters of one view, compiled. ``clock`` gives the time where a look-up brings none, and is wanted where
    there are hidden parameters."""

    def __init__(
        self,
        view: str,
        reader: Reader,
        parameters: Sequence[Parameter],
        finish: Finish | None = None,
        hidden: Sequence[HiddenParameter] = (),
        clock: Callable[[], str] = str,
    ) -> None:
        self.view = view
        self.reader = reader
        self.parameters = tuple(parameters)
        self.finish = finish
        self._hidden = tuple(hidden)
        self._clock = clock
        self.of_now = bool(hidden)
        """Whether answers depend on the time, so that none may be kept."""
        self.of_time = any(not each.claim for each in hidden)
        self._names = [parameter.name for parameter in parameters]
        self._convert = [comparand_maker(parameter.type, parameter.name) for parameter in parameters]
        self._ranged = {term.parameter for some in reader.ranges for terms in some for term in terms}
        lower = {name.lower(): at for at, name in enumerate(self._names)}
        self._position = lower
        self.single_key = (
            finish is None
            and not hidden
            and len(parameters) == 1
            and parameters[0].kind is ParameterKind.EQUAL
            and reader.key == (parameters[0].column,)
        )
        """Whether the one parameter is an equality on the key. Most views are like this; they have short cuts."""
        self.single_integer = self.single_key and parameters[0].type.kind is Kind.INTEGER
        self.integers = self._integer_key()

    def _integer_key(self) -> tuple[tuple[int, int, int, bool], ...]:
        """(position of the parameter, least value, greatest value, whether it takes a list) for each key column, then
        for each seek column. Empty unless all parameters are = or IN over whole numbers.
        """
        by_column = {parameter.column: at for at, parameter in enumerate(self.parameters)}
        plain = all(
            parameter.kind in (ParameterKind.EQUAL, ParameterKind.IN) and parameter.type.kind is Kind.INTEGER
            for parameter in self.parameters
        )
        plain = plain and self.finish is None and not self._hidden
        wanted = (*self.reader.key, *self.reader.seek)
        if not plain or len(by_column) != len(self.parameters) or by_column.keys() != set(wanted):
            return ()
        places: list[tuple[int, int, int, bool]] = []
        for at in (by_column[column] for column in wanted):
            type, kind = self.parameters[at].type, self.parameters[at].kind
            if type.low is None or type.high is None:
                return ()
            places.append((at, type.low, type.high, kind is ParameterKind.IN))
        return tuple(places)

    # --- three shapes of a request ------------------------------------------------------------------------------

    @staticmethod
    def of(planned: PlannedView, clock: Callable[[], str], reader: Reader | None = None) -> Binding:
        return Binding(
            planned.name, reader or planned.reader, planned.parameters, planned.finish, planned.hidden, clock
        )

    def from_text(self, text: Mapping[str, Sequence[str]], moment: RequestMoment | None = None) -> BoundLookup:
        """Query-string values by parameter name; a repeated name is an IN list."""
        given: list[Any] = [[]] * len(self.parameters)
        for name, values in text.items():
            at = self._at(name)
            given[at] = [*given[at], *values]  # A name may come in several cases.
        return self._bind(given, moment)

    def from_json(self, key: Any, moment: RequestMoment | None = None) -> BoundLookup:
        """A list of values by position, or an object by name; an IN list is a list of values."""
        if isinstance(key, (list, tuple)):
            if len(key) != len(self.parameters):
                raise BadRequest(
                    f'a key of view "{self.view}" has {len(self.parameters)} values, not {len(key)}',
                    hint=self._hint(),
                )
            return self._bind(key, moment)
        if not isinstance(key, Mapping):
            raise BadRequest(f'a key of view "{self.view}" is a list or an object', hint=self._hint())
        given: list[Any] = [[]] * len(self.parameters)
        places = {self._at(name): value for name, value in key.items()}
        if len(places) < len(key):
            raise BadRequest(f'a key of view "{self.view}" names a parameter twice', hint=self._hint())
        for at, value in places.items():
            given[at] = value
        return self._bind(given, moment)

    def all_of(self, keys: Sequence[Any], moment: RequestMoment | None = None) -> list[BoundLookup]:
        """:meth:`from_json` of keys that are asked at one time."""
        moment = moment or RequestMoment()
        return [self.from_json(key, moment) for key in keys]

    def from_arguments(self, arguments: Sequence[Any], moment: RequestMoment | None = None) -> BoundLookup:
        """One argument for each parameter; a tuple or list is an IN list."""
        return self._bind([list(a) if isinstance(a, tuple) else a for a in arguments], moment)

    # --- how ----------------------------------------------------------------------------------------------------

    def _at(self, name: str) -> int:
        at = self._position.get(str(name).lower())
        if at is None:
            near = get_close_matches(str(name).lower(), list(self._position), n=1)
            hint = f'did you mean "{self._names[self._position[near[0]]]}"?' if near else self._hint()
            raise BadRequest(f'view "{self.view}" has no parameter "{name}"', hint=hint)
        return at

    def _hint(self) -> str:
        if not self._names:
            return "the view has no parameters"
        return "its parameters are " + ", ".join(f'"{name}"' for name in self._names)

    def _bind(self, given: Sequence[Any], moment: RequestMoment | None = None) -> BoundLookup:
        """``given`` has a value, or a list of values, for each parameter; an empty list if it is missing."""
        bound = self._of_integers(given) if self.integers else None
        if bound is not None:
            return bound
        hidden = self._hidden_values(moment or RequestMoment()) if self._hidden else ()
        return self._bind_any([each if isinstance(each, list) else [each] for each in given], hidden)

    def _hidden_values(self, moment: RequestMoment) -> list[Constant]:
        """Of the time, of what is drawn, and of who asks.

        :raises BadRequest: policies do not apply to who asks, and so there is nobody whose rows the view could show."""
        now, claims = moment.at(self._clock), moment.asker.policy_claims
        if claims is None and any(each.claim for each in self._hidden):
            raise BadRequest(
                f'view "{self.view}" shows the rows of a user, and the request says of none',
                hint=f"say for whom it is (Headrace-Claims), or ask by SQL, which shows all: SELECT … FROM {self.view}",
            )
        return [
            Constant(claim_value((claims or {}).get(each.claim), each.value.type), each.value.type)
            if each.claim
            else _drawn_or_at(each, now)
            for each in self._hidden
        ]

    def _of_integers(self, given: Sequence[Any]) -> BoundLookup | None:
        """The look-up if all values are whole numbers or lists of them, as most are: 0.1 µs a value instead of 5.

        None if a value is anything else, or out of its column's range.
        """
        lists: list[Collection[Value]] = []
        for at, low, high, is_list in self.integers:
            values = given[at]
            if type(values) is int:
                if not low <= values <= high:
                    return None
                lists.append((values,))
                continue
            if type(values) is not list or set(map(type, values)) != {int} or (len(values) > 1 and not is_list):
                return None
            if min(values) < low or max(values) > high:
                return None
            lists.append(dict.fromkeys(values))
        return BoundLookup(*self._places(lists))

    def _bind_any(self, given: Sequence[list[Any]], hidden: Sequence[Constant] = ()) -> BoundLookup:
        bound = self._bind_columns(given, hidden)
        if self.finish is None:
            return bound
        values = (*map(_given, self.parameters, given), *(constant.value for constant in hidden))
        return FinishedLookup(
            bound.keys,
            bound.seeks,
            bound.low,
            bound.high,
            finish=self.finish,
            values=values,
            count=bound.limit,
            start=bound.offset,
            spans=bound.spans,
        )

    def _compared(
        self, given: Sequence[list[Any]], hidden: Sequence[Constant]
    ) -> Iterator[tuple[Parameter, list[Comparand]]]:
        """The parameters that are compared with columns, and are none of a range, with what they are compared as."""
        for number, (parameter, values, convert) in enumerate(zip(self.parameters, given, self._convert, strict=True)):
            if not values:
                raise BadRequest(f'view "{self.view}" needs the parameter "{parameter.name}"', hint=self._hint())
            if len(values) > 1 and parameter.kind is not ParameterKind.IN:
                raise BadRequest(
                    f'parameter "{parameter.name}" of view "{self.view}" takes one value, not {len(values)}'
                )
            if parameter.column is not None and number not in self._ranged:
                yield parameter, list(map(convert, values))
        for own, constant in zip(self._hidden, hidden, strict=True):
            if own.parameter.column is not None:
                yield own.parameter, [claimed(own, constant) if own.claim else _among(constant, own.parameter.type)]

    def _bind_columns(self, given: Sequence[list[Any]], hidden: Sequence[Constant]) -> BoundLookup:
        if self.single_key and len(given[0]) == 1:
            made = self._convert[0](given[0][0])
            if made.value is not None and made.exact:
                return BoundLookup(((made.value,),))  # A third of what the general way below takes.
        equal: dict[int, list[Value]] = {}
        low: dict[int, Bound] = {}
        high: dict[int, Bound] = {}
        possible = True
        for parameter, compared in self._compared(given, hidden):
            kind = parameter.kind
            assert parameter.column is not None, "the others are not compared with columns"
            wanted = [made for made in compared if made.value is not None]
            if not wanted:
                possible = False  # A comparison with NULL is never true.
                continue
            # What is given lies between the value and the next one where it is not exactly that value.
            value, exact = wanted[0].value, wanted[0].exact
            if kind in _LOWER:
                bound = (value, exact and kind is ParameterKind.GREATER_EQUAL)
                low[parameter.column] = _tighter(low.get(parameter.column), bound, 1)
            elif kind in _UPPER:
                bound = (value, not exact or kind is ParameterKind.LESS_EQUAL)
                high[parameter.column] = _tighter(high.get(parameter.column), bound, -1)
            else:
                converted = [made.value for made in wanted if made.exact]
                known = equal.get(parameter.column)
                both = converted if known is None else [value for value in known if value in converted]
                equal[parameter.column] = list(dict.fromkeys(both))
        for column in equal:
            # A range of a key column says which keys are meant; within a key there is nothing left of it to seek.
            above, below = low.pop(column, None), high.pop(column, None)
            equal[column] = [value for value in equal[column] if _within(value, above, below)]
        counts = {p.kind: _count(p, own[0]) for p, own in zip(self.parameters, given, strict=True) if p.kind in _COUNTS}
        limit, offset = counts.get(ParameterKind.LIMIT), counts.get(ParameterKind.OFFSET, 0)
        ranged = {number: self._convert[number](given[number][0]) for number in self._ranged}
        spans = tuple(_spans(alternatives, ranged) for alternatives in self.reader.ranges)
        if not possible or not all(equal.values()) or not all(spans):
            return BoundLookup((), limit=limit, offset=offset)
        columns = (*self.reader.key, *(column for column in self.reader.seek if column in equal))
        keys, seeks = self._places([equal[column] for column in columns])
        assert len({*low, *high}) <= 1, "ranges of several columns, which the planner refuses"
        return BoundLookup(
            keys,
            seeks,
            low=next(iter(low.values()), None),
            high=next(iter(high.values()), None),
            limit=limit,
            offset=offset,
            spans=spans,
        )

    def _places(self, values: Sequence[Collection[Value]]) -> tuple[tuple[Row, ...], tuple[Row, ...]]:
        """The keys, and the seek values within each key, from the values of each column."""
        count = 1
        for each in values:
            count *= len(each)
        if count > KEYS_PER_LOOKUP:
            raise LimitExceeded(f"the look-up names {count} keys, and {KEYS_PER_LOOKUP} are allowed")
        width = len(self.reader.key)
        return tuple(product(*values[:width])), tuple(product(*values[width:]))


def claimed(hidden: HiddenParameter, constant: Constant) -> Comparand:
    """A claim among the values of its column; NULL where it is none of their kind."""
    try:
        return comparand_maker(hidden.parameter.type, hidden.claim)(constant.value)
    except TypeViolation:
        return Comparand(None)


def _drawn_or_at(hidden: HiddenParameter, now: str) -> Constant:
    """The value of a hidden parameter: of RAND() and UUID() what their values start from."""
    name = hidden.parameter.name
    if not is_drawn(f"@{name}"):
        return at_moment(hidden.value, now)
    return Constant(drawing_start("uuid" if name.startswith("%uuid") else "rand"), BIGINT)


def drawing_start(function: str) -> int:
    """What the values of RAND() or UUID() in a request start from."""
    return uuid1(node=getrandbits(48) | 1 << 40).int if function == "uuid" else getrandbits(64)


def _spans(alternatives: Sequence[Sequence[RangeTerm]], given: Mapping[int, Comparand]) -> tuple[Span, ...]:
    """The alternatives that may be true with these values, of a condition of a reader's range."""
    found = (_span(terms, given) for terms in alternatives)
    return tuple(span for span in found if span is not None)


def _span(terms: Sequence[RangeTerm], given: Mapping[int, Comparand]) -> Span | None:
    values: dict[int, Value] = {}
    low: Bound | None = None
    high: Bound | None = None
    for term in terms:
        value, exact = given[term.parameter].value, given[term.parameter].exact
        if value is None:
            return None  # A comparison with NULL is never true.
        if term.kind is ParameterKind.EQUAL:
            if not exact or values.setdefault(term.column, value) != value:
                return None
        elif term.kind in _LOWER:
            low = _tighter(low, (value, exact and term.kind is ParameterKind.GREATER_EQUAL), 1)
        else:
            high = _tighter(high, (value, not exact or term.kind is ParameterKind.LESS_EQUAL), -1)
    return tuple(values.values()), low, high


def _given(parameter: Parameter, values: Sequence[Any]) -> Given:
    """A parameter's value for a finish, which takes it as given: it is not converted to a column's type."""
    if parameter.kind in _COUNTS:
        return None
    made = [late_value(each, parameter.type, parameter.name) for each in values]
    return tuple(made) if parameter.kind is ParameterKind.IN else made[0]


def _count(parameter: Parameter, given: Any) -> int:
    made = comparand_maker(BIGINT, parameter.name)(given)
    if not isinstance(made.value, int) or not made.exact or not 0 <= made.value <= COUNT_MAX:
        raise BadRequest(f'parameter "{parameter.name}" must be a whole number from 0')
    return made.value


def _within(value: Any, low: Bound | None, high: Bound | None) -> bool:
    if low is not None and (value < low[0] or (value == low[0] and not low[1])):
        return False
    return high is None or value < high[0] or (value == high[0] and high[1])


def _tighter(known: Bound | None, new: Bound, sign: int) -> Bound:
    """The narrower of two bounds; ``sign`` is 1 for lower bounds and -1 for upper ones."""
    if known is None or known[0] is None:
        return new
    if known[0] == new[0]:
        return (new[0], known[1] and new[1])
    greater = new[0] > known[0]  # type: ignore[operator]
    return new if greater == (sign > 0) else known
