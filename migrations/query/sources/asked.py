"""What a stage's expressions ask of the reader: parameters, the time, and what is drawn for each row."""

from __future__ import annotations

from collections.abc import Callable

from domains.language.expressions import Expression
from domains.language.types import Kind, SqlType
from domains.plan.graph import ParameterKind
from migrations.parse.policies import is_claim
from migrations.parse.reading import exp, position
from migrations.query.expressions.late import has_parameter, late_parameter, parameter_call, parameters_in, takes_list
from migrations.query.expressions.moments import NOW, NOW_NAME, claim_beside, is_claimed, is_sought, moment_of
from migrations.query.expressions.parameters import Comparison, leading_bound, read_comparisons
from migrations.query.expressions.terms import conditions_of, positions
from migrations.query.relation import Slot
from migrations.query.stage import SelectStage, Wide

Translate = Callable[[exp.Expr], Expression]


def read_parameters(
    part: exp.Expr, translate: Translate, stage: SelectStage, *, is_condition: bool = False
) -> list[Expression]:
    """Take a condition with ``?`` into the stage; what is left of it are plain conditions.

    What compares columns is carried, to be a key; what else it may be is applied when the answer is read.
    """
    taken, early = read_comparisons(part), list[Expression]()
    comparisons, rest = taken or ([], [])
    operands = [translate(comparison.operand) for comparison in comparisons]
    if taken is None or not all(map(_is_key, comparisons, operands)):
        early, late = _parted(translate(part))
        stage.late += late
        if not is_condition:
            stage.missing |= frozenset[int]().union(*map(positions, late))
        bound = leading_bound(part)
        comparisons, rest = [] if bound is None else [bound], []
        operands = [translate(comparison.operand) for comparison in comparisons]
        if not all(map(_is_key, comparisons, operands)):
            return early
    for comparison, operand in zip(comparisons, operands, strict=True):
        name = comparison.operand.name if isinstance(comparison.operand, exp.Column) else "parameter"
        stage.carried.append(Wide(operand, comparison.slot(name, operand.type), is_condition))
    return [*early, *(translate(condition) for condition in rest)]


def _parted(condition: Expression) -> tuple[list[Expression], list[Expression]]:
    """What a condition says without its parameters, and what is left: a join that each branch of an OR repeats beside
    them, as TPC-H 19 does, is one before the answer is read."""
    found = conditions_of(condition)
    early, late = ([e for e in found if has_parameter(e) is asks] for asks in (False, True))
    asked = {parameter for e in late for parameter in parameters_in(e)}
    return early, late if asked == set(parameters_in(condition)) else [condition]


def _is_key(comparison: Comparison, operand: Expression) -> bool:
    """Whether rows may be looked up by what is compared. JSON is no key: 1 and 1.0 are equal documents."""
    if not positions(operand) or operand.type.kind is Kind.JSON:
        return False
    if is_claim(comparison.placeholder):
        return is_claimed(operand.type)
    moment = None if isinstance(comparison.placeholder, exp.Placeholder) else moment_of(comparison.placeholder)
    return moment is None or is_sought(moment, [operand.type])


def late_moment(stage: SelectStage) -> Callable[[], Expression]:
    """NOW() in an expression of this stage, which knows of it as of a parameter from then on."""

    def placed() -> Expression:
        slot = Slot(NOW_NAME, ParameterKind.EQUAL, NOW.type, (), moment=NOW)
        if slot not in stage.slots:
            stage.slots.append(slot)
        return NOW

    return placed


def late_claim(stage: SelectStage, translate: Translate) -> Callable[[exp.Expr], Expression]:
    """CURRENT_CLAIM() in an expression of this stage."""

    def placed(node: exp.Expr) -> Expression:
        call, name = claim_beside(node, translate)
        slot = Slot(name, ParameterKind.EQUAL, call.type, (), moment=call)
        if slot not in stage.slots:
            stage.slots.append(slot)
        return call

    return placed


def late_drawn(stage: SelectStage) -> Callable[[str, SqlType], Expression]:
    """RAND() and UUID() in an expression of this stage."""

    def placed(name: str, type: SqlType) -> Expression:
        call = parameter_call(f"@{name}", type, exact=False)
        slot = Slot(name, ParameterKind.EQUAL, type, (), moment=call)
        if slot not in stage.slots:
            stage.slots.append(slot)
        return call

    return placed


def late_placeholder(stage: SelectStage, translate: Translate) -> Callable[[exp.Placeholder], Expression]:
    """What a ``?`` in an expression of this stage becomes; the stage knows of the parameter from then on."""

    def placed(node: exp.Placeholder) -> Expression:
        call, name = late_parameter(node, translate)
        kind = ParameterKind.IN if takes_list(node) else ParameterKind.EQUAL
        slot = Slot(name, kind, call.type, ((position(node),),), bool(node.this))
        if slot not in stage.slots:
            stage.slots.append(slot)
        return call

    return placed
