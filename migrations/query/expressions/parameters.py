"""Which conditions are parameters: ``column = ?`` and its like, told from all other uses of a ``?``.

A moment or a claim (``moments.py``) stands wherever a ``?`` does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from domains.errors import Unsupported
from domains.language.types import SqlType
from domains.plan.graph import ParameterKind
from migrations.parse.policies import is_claim
from migrations.parse.reading import exp, position, text_of
from migrations.query.expressions.calls import asks_time, is_drawn
from migrations.query.expressions.moments import claim_call, is_moment, moment_of, own_nodes
from migrations.query.relation import Slot

_KINDS: dict[type[exp.Expr], ParameterKind] = {
    exp.EQ: ParameterKind.EQUAL,
    exp.LT: ParameterKind.LESS,
    exp.LTE: ParameterKind.LESS_EQUAL,
    exp.GT: ParameterKind.GREATER,
    exp.GTE: ParameterKind.GREATER_EQUAL,
}
_MIRRORED = {
    ParameterKind.EQUAL: ParameterKind.EQUAL,
    ParameterKind.LESS: ParameterKind.GREATER,
    ParameterKind.LESS_EQUAL: ParameterKind.GREATER_EQUAL,
    ParameterKind.GREATER: ParameterKind.LESS,
    ParameterKind.GREATER_EQUAL: ParameterKind.LESS_EQUAL,
}


@dataclass(frozen=True, slots=True)
class Comparison:
    """``operand kind ?``."""

    operand: exp.Expr
    kind: ParameterKind
    placeholder: exp.Expr
    """A placeholder, a moment or a claim."""

    def slot(self, column: str, type: SqlType) -> Slot:
        """The parameter of a comparison with a column of that name and type."""
        if is_claim(self.placeholder):
            claim, name = claim_call(self.placeholder, type)
            return Slot(name, self.kind, claim.type, (), moment=claim)
        if not isinstance(self.placeholder, exp.Placeholder):
            moment = moment_of(self.placeholder)
            return Slot(text_of(self.placeholder), self.kind, moment.type, (), moment=moment)
        written = self.placeholder.this
        marks = ((position(self.placeholder),),)
        return Slot(str(written or column), self.kind, type, marks, bool(written))


def is_parameterised(node: exp.Expr) -> bool:
    """Whether a condition has a ``?`` or a claim of its own, asks for the time, or draws (those of its subqueries are
    theirs)."""
    asks = (asks_time, is_drawn, is_claim)
    return any(isinstance(part, exp.Placeholder) or any(ask(part) for ask in asks) for part in own_nodes(node))


def _is_given(node: exp.Expr) -> bool:
    return isinstance(node, exp.Placeholder) or is_claim(node) or is_moment(node)


def has_query(node: exp.Expr) -> bool:
    """Whether there is a subquery in an expression."""
    return any(isinstance(part, exp.Query) for part in own_nodes(node))


Taken = tuple[list[Comparison], list[exp.Expr]]


def read_comparisons(node: exp.Expr) -> Taken | None:
    """A condition with a ``?`` as comparisons, and conditions without one that are left of it (of BETWEEN).

    None where it is something else, which is applied when a view is read.

    :raises Unsupported: ``column IN (?, ?)``.
    """
    kind = _KINDS.get(type(node))
    if kind is not None:
        one, other = _bare(node.this), _bare(node.args["expression"])
        if isinstance(one, exp.Tuple) and isinstance(other, exp.Tuple) and kind is ParameterKind.EQUAL:
            return _row_comparisons(one.expressions, other.expressions)
        if _is_given(other) and not is_parameterised(one):
            return [Comparison(one, kind, other)], []
        if _is_given(one) and not is_parameterised(other):
            return [Comparison(other, _MIRRORED[kind], one)], []
    if isinstance(node, exp.In) and node.args.get("query") is None and not is_parameterised(node.this):
        values = [_bare(value) for value in node.expressions]
        if len(values) == 1 and isinstance(values[0], exp.Placeholder):
            return [Comparison(node.this, ParameterKind.IN, values[0])], []
        if all(isinstance(value, exp.Placeholder) for value in values):
            # An earlier build took this for one list, and recipes that it wrote mean that: see ``replaying.py``.
            raise Unsupported("an IN list of parameters alone", hint="IN (?) takes a list of any length")
    if isinstance(node, exp.Between) and not is_parameterised(node.this):
        return _bounds(node)
    return None


def leading_bound(node: exp.Expr) -> Comparison | None:
    """What ``(a, b) < (?, ?)`` says of a alone, ``a <= ?``: the range in which its rows are sought."""
    kind = _KINDS.get(type(node), ParameterKind.EQUAL)
    if kind is ParameterKind.EQUAL:
        return None
    one, other = _bare(node.this), _bare(node.args["expression"])
    if not isinstance(one, exp.Tuple) or not isinstance(other, exp.Tuple) or not one.expressions:
        return None
    first, against = _bare(one.expressions[0]), _bare(other.expressions[0]) if other.expressions else one
    if _is_given(first):
        first, against, kind = against, first, _MIRRORED[kind]
    if not _is_given(against) or is_parameterised(first):
        return None
    return Comparison(first, _CLOSED[kind], against)


_CLOSED = {
    ParameterKind.LESS: ParameterKind.LESS_EQUAL,
    ParameterKind.LESS_EQUAL: ParameterKind.LESS_EQUAL,
    ParameterKind.GREATER: ParameterKind.GREATER_EQUAL,
    ParameterKind.GREATER_EQUAL: ParameterKind.GREATER_EQUAL,
}


def _bare(node: exp.Expr) -> exp.Expr:
    while isinstance(node, exp.Paren):
        node = node.this
    return node


def _row_comparisons(ours: Sequence[exp.Expr], theirs: Sequence[exp.Expr]) -> Taken | None:
    comparisons: list[Comparison] = []
    rest: list[exp.Expr] = []
    for one, other in zip(ours, theirs, strict=False):
        pair = exp.EQ(this=one.copy(), expression=other.copy())
        if is_parameterised(pair):
            found = read_comparisons(pair)
            if found is None:
                return None
            comparisons += found[0]
        else:
            rest.append(pair)
    return comparisons, rest


def _bounds(node: exp.Between) -> Taken | None:
    comparisons: list[Comparison] = []
    rest: list[exp.Expr] = []
    sides = (("low", ParameterKind.GREATER_EQUAL, exp.GTE), ("high", ParameterKind.LESS_EQUAL, exp.LTE))
    for side, kind, operator in sides:
        bound = _bare(node.args[side])
        if _is_given(bound):
            comparisons.append(Comparison(node.this, kind, bound))
        elif is_parameterised(bound):
            return None
        else:
            rest.append(operator(this=node.this.copy(), expression=bound.copy()))
    return comparisons, rest
