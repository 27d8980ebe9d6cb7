"""Window functions: from their syntax to calls of an ω, over expressions of the row at hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from domains.errors import SqlError, Unsupported
from domains.language.expressions import Constant, Expression
from domains.language.functions import call
from domains.language.functions.type_rules import common_type
from domains.language.types import BIGINT, DOUBLE, Kind, SqlType
from domains.plan.graph import AggregateFunction, BoundKind, Frame, FrameBound, WindowFunction
from migrations.parse.reading import exp, text_of
from migrations.query.expressions.aggregates import CALLED, is_operand, summary
from migrations.query.expressions.calls import spelled
from migrations.query.expressions.documents import sorting
from migrations.query.expressions.moments import own_nodes
from migrations.query.expressions.parameters import is_parameterised
from migrations.query.plans.late_queries import Sorting
from migrations.query.relation import sorting_direction

Translate = Callable[[exp.Expr], Expression]
OWN = frozenset(
    "row_number rank dense_rank percent_rank cume_dist ntile lag lead first_value last_value nth_value".split()  # noqa: SIM905
)
"""Functions that are nothing without OVER."""
_DOCUMENTS = ("json_arrayagg", "json_objectagg")
_NUMBERS = (Kind.INTEGER, Kind.DECIMAL, Kind.DOUBLE)
_TIMES = (Kind.DATE, Kind.DATETIME)


@dataclass(frozen=True, slots=True)
class FrameEnd:
    """The beginning or the end of a frame; ``bound`` is what RANGE compares with the order."""

    kind: BoundKind
    rows: int = 0
    bound: Expression | None = None


@dataclass(frozen=True, slots=True)
class WindowMeaning:
    """One function with its window, all over expressions of the row."""

    function: WindowFunction
    argument: Expression | None
    type: SqlType
    partition: tuple[Expression, ...]
    order: tuple[Sorting, ...]
    by_rows: bool = False
    start: FrameEnd = FrameEnd(BoundKind.UNBOUNDED_PRECEDING)
    end: FrameEnd = FrameEnd(BoundKind.CURRENT_ROW)
    number: int = 1
    default: Expression | None = None
    shown: SqlType | None = None
    """The type without the digits that are only computed with; None: it is ``type``."""

    def operands(self) -> list[Expression]:
        """All that has to be a column of the rows that the function goes over."""
        bounds = [end.bound for end in (self.start, self.end)]
        found = [*self.partition, *(t.expression for t in self.order), self.argument, self.default, *bounds]
        return [each for each in found if each is not None]

    def frame(self, place: Callable[[Expression], int]) -> Frame:
        def bound(end: FrameEnd) -> FrameBound:
            return FrameBound(end.kind, end.rows if end.bound is None else place(end.bound))

        return Frame(self.by_rows, bound(self.start), bound(self.end))


def windows_in(node: exp.Expr) -> list[exp.Window]:
    """The window functions of an expression, without those of its subqueries.

    :raises SqlError: one is inside another.
    """
    found = [part for part in own_nodes(node) if isinstance(part, exp.Window)]
    for window in found:
        if sum(isinstance(part, exp.Window) for part in own_nodes(window)) > 1:
            raise SqlError("a window function inside of a window function", hint="compute the inner one in a subquery")
    return found


def named_windows(select: exp.Expr) -> dict[str, exp.Window]:
    """What the WINDOW clause defines, by names in lower case."""
    found: dict[str, exp.Window] = {}
    for each in select.args.get("windows") or ():
        if each.name.lower() in found:
            raise SqlError(f'the window "{each.name}" is defined twice')
        found[each.name.lower()] = each
    return found


def window_meaning(node: exp.Window, names: Mapping[str, exp.Window], translate: Translate) -> WindowMeaning:
    """What a function with OVER means; ``translate`` gives expressions over the row at hand.

    :raises SqlError: the text is wrong. :raises Unsupported: what is not done, by its name.
    """
    if is_parameterised(node):
        raise Unsupported(
            "a parameter in a window function",
            hint="write the number, compare its result with ?, or compute its operand in a derived table",
        )
    partition, order, frame = _resolved(node, names, ())
    own = tuple(translate(each) for each in partition)
    terms = [sorting(translate(term.this), sorting_direction(term)) for term in order]
    meant = replace(
        _function(node, translate),
        partition=own,
        order=tuple(t for t in terms if not isinstance(t.expression, Constant)),
    )
    return meant if frame is None else _framed(meant, frame, order, translate)


def _resolved(
    node: exp.Window, names: Mapping[str, exp.Window], passed: tuple[str, ...]
) -> tuple[list[exp.Expr], list[exp.Expr], exp.WindowSpec | None]:
    """PARTITION BY, ORDER BY and the frame, with those of the window that is named."""
    partition = list(node.args.get("partition_by") or ())
    clause, frame = node.args.get("order"), node.args.get("spec")
    order = [] if clause is None else list(clause.expressions)
    alias = node.args.get("alias")
    if alias is None:
        return partition, order, frame
    name = alias.name.lower()
    if name not in names:
        raise SqlError(f'the window "{alias.name}" is not defined', hint="WINDOW name AS (…) comes before ORDER BY")
    if name in passed:
        raise SqlError(f'the window "{alias.name}" is defined by itself')
    theirs, their_order, their_frame = _resolved(names[name], names, (*passed, name))
    if partition:
        raise SqlError(f'PARTITION BY beside the window "{alias.name}"', hint="it has that of the window that it names")
    if order and their_order:
        raise SqlError(f'ORDER BY beside the window "{alias.name}", which has its own')
    extended = bool(order) or frame is not None
    if extended and their_frame is not None:
        raise SqlError(f'the window "{alias.name}" has a frame, and cannot be extended')
    return theirs, order or their_order, frame or their_frame


def _function(node: exp.Window, translate: Translate) -> WindowMeaning:
    """The function without its window."""
    function = node.this.this if isinstance(node.this, exp.RespectNulls) else node.this
    if not isinstance(function, exp.Anonymous):
        return _aggregate(function, translate)
    name, parts = spelled(function)
    if name in CALLED or name in _DOCUMENTS:
        return _aggregate(function, translate)
    if name not in OWN:
        others = "COUNT, SUM, AVG, MIN, MAX, STDDEV, VARIANCE, BIT_AND and its like and JSON_ARRAYAGG are there"
        raise Unsupported(f"{name.upper()}() OVER", hint=f"{', '.join(sorted(OWN)).upper()}, {others}")
    meant = WindowFunction(name)
    if meant in (WindowFunction.LAG, WindowFunction.LEAD):
        return _neighbour(meant, parts, translate)
    if meant is WindowFunction.NTILE:
        _count(name, parts, 1, 1)
        return WindowMeaning(meant, None, BIGINT, (), (), number=_number(parts[0], name, least=1))
    if meant in (WindowFunction.FIRST_VALUE, WindowFunction.LAST_VALUE, WindowFunction.NTH_VALUE):
        wanted = 2 if meant is WindowFunction.NTH_VALUE else 1
        _count(name, parts, wanted, wanted)
        argument = translate(parts[0])
        number = _number(parts[1], name, least=1) if wanted == 2 else 1
        return WindowMeaning(meant, argument, argument.type, (), (), number=number)
    _count(name, parts, 0, 0)
    is_share = meant in (WindowFunction.PERCENT_RANK, WindowFunction.CUME_DIST)
    return WindowMeaning(meant, None, DOUBLE if is_share else BIGINT, (), ())


def _neighbour(meant: WindowFunction, parts: Sequence[exp.Expr], translate: Translate) -> WindowMeaning:
    name = meant.value
    _count(name, parts, 1, 3)
    argument = translate(parts[0])
    number = _number(parts[1], name, least=0) if len(parts) > 1 else 1
    default = translate(parts[2]) if len(parts) > 2 else None
    if default is not None:
        type = common_type((argument.type, default.type))
        argument, default = (_as(each, type) for each in (argument, default))
    return WindowMeaning(meant, argument, argument.type, (), (), number=number, default=default)


def _as(e: Expression, type: SqlType) -> Expression:
    return e if (e.type.kind, e.type.scale) == (type.kind, type.scale) else call("cast", e, type=type)


def _aggregate(node: exp.Expr, translate: Translate) -> WindowMeaning:
    if isinstance(node.this, exp.Distinct):
        raise Unsupported("DISTINCT in a window function", hint="GROUP BY in a subquery")
    above = node.parent
    meant = summary(node, translate, is_operand=above is not None and is_operand(above))
    if meant.function is AggregateFunction.GROUP_CONCAT:
        raise Unsupported("GROUP_CONCAT() OVER", hint="GROUP BY in a subquery")
    if meant.order:
        raise Unsupported(
            "JSON_ARRAYAGG with an ORDER BY of its own and OVER", hint="OVER (… ORDER BY …) says the order"
        )
    return WindowMeaning(WindowFunction(meant.function.value), meant.argument, meant.type, (), (), shown=meant.shown)


def _count(name: str, parts: Sequence[exp.Expr], least: int, most: int) -> None:
    if not least <= len(parts) <= most:
        wanted = f"{least}" if least == most else f"{least} to {most}"
        raise SqlError(f"{name.upper()} wants {wanted} arguments, not {len(parts)}")


def _number(node: exp.Expr, name: str, *, least: int) -> int:
    """An argument that is a number in the text."""
    if isinstance(node, exp.Literal) and not node.is_string and node.this.isdigit() and int(node.this) >= least:
        return int(node.this)
    raise SqlError(f"{name.upper()} wants a whole number from {least} on, not {text_of(node)}")


def _framed(
    meant: WindowMeaning, spec: exp.WindowSpec, order: Sequence[exp.Expr], translate: Translate
) -> WindowMeaning:
    unit = str(spec.args["kind"]).upper()
    if unit not in ("ROWS", "RANGE"):
        raise Unsupported(f"{unit} as a frame", hint="ROWS and RANGE are there")
    by_rows = unit == "ROWS"
    start = _end(spec.args.get("start"), spec.args.get("start_side"), by_rows)
    written_end = spec.args.get("end")
    end = (
        FrameEnd(BoundKind.CURRENT_ROW)
        if written_end is None
        else _end(written_end, spec.args.get("end_side"), by_rows)
    )
    kinds = list(BoundKind)
    backwards = kinds.index(start.kind) > kinds.index(end.kind)
    if backwards or start.kind is BoundKind.UNBOUNDED_FOLLOWING or end.kind is BoundKind.UNBOUNDED_PRECEDING:
        raise SqlError(f"a frame from {start.kind.value} to {end.kind.value}")
    if by_rows:
        return replace(meant, by_rows=True, start=start, end=end)
    return _ranged(replace(meant, start=start, end=end), spec, order, translate)


def _end(value: object, side: object, by_rows: bool) -> FrameEnd:
    direction = str(side or "").upper()
    if value == "CURRENT ROW":
        return FrameEnd(BoundKind.CURRENT_ROW)
    if value == "UNBOUNDED":
        before = direction == "PRECEDING"
        return FrameEnd(BoundKind.UNBOUNDED_PRECEDING if before else BoundKind.UNBOUNDED_FOLLOWING)
    if direction not in ("PRECEDING", "FOLLOWING"):
        raise SqlError("a frame wants PRECEDING or FOLLOWING behind a number")
    kind = BoundKind.PRECEDING if direction == "PRECEDING" else BoundKind.FOLLOWING
    assert isinstance(value, exp.Expr), "a bound is a word or an expression"
    return FrameEnd(kind, _number(value, "ROWS", least=0) if by_rows else 0)


def _ranged(
    meant: WindowMeaning, spec: exp.WindowSpec, order: Sequence[exp.Expr], translate: Translate
) -> WindowMeaning:
    """A frame by RANGE: the bounds of each row as expressions of it, of the kind of the order."""
    bounds: list[Expression | None] = []
    for name, end in (("start", meant.start), ("end", meant.end)):
        if end.kind not in (BoundKind.PRECEDING, BoundKind.FOLLOWING):
            bounds.append(None)
            continue
        if len(order) != 1 or len(meant.order) != 1:
            raise SqlError("RANGE with a number wants an ORDER BY of one expression")
        bounds.append(_bound(order[0], spec.args[name], end.kind, translate))
    found = [bound for bound in bounds if bound is not None]
    if not found:
        return meant
    by = meant.order[0]
    type = common_type((by.expression.type, *(bound.type for bound in found)))
    start, behind = (None if bound is None else _as(bound, type) for bound in bounds)
    return replace(
        meant,
        order=(replace(by, expression=_as(by.expression, type)),),
        start=replace(meant.start, bound=start),
        end=replace(meant.end, bound=behind),
    )


def _bound(term: exp.Expr, by: exp.Expr, kind: BoundKind, translate: Translate) -> Expression:
    """The order's value, so much before or behind."""
    sorted_by = translate(term.this)
    is_interval = isinstance(by, exp.Interval)
    amount = by.this if is_interval else by
    if not isinstance(amount, exp.Literal) or (amount.is_string and not is_interval) or amount.name.startswith("-"):
        raise SqlError(f"RANGE wants a number or an INTERVAL that is not negative, not {text_of(by)}")
    if sorted_by.type.kind not in (_TIMES if is_interval else _NUMBERS):
        raise SqlError(
            f"RANGE with {text_of(by)} over an ORDER BY of {sorted_by.type}",
            hint="a number goes with numbers, an INTERVAL with dates",
        )
    towards = (kind is BoundKind.FOLLOWING) is not sorting_direction(term)
    moved = exp.Add if towards else exp.Sub
    return translate(moved(this=exp.Paren(this=term.this.copy()), expression=by.copy()))
