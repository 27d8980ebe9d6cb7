"""Plans as text: operators as σ π ⋈ ⟕ γ δ ∪ τ, expressions as SQL would write them, columns by their names.

A name that a row has twice is written with its position, ``id@4``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import assert_never

from domains.language.expressions import Call, Constant, Expression, Field
from domains.language.types import Column
from domains.plan.graph import (
    Aggregate,
    AggregateCall,
    Base,
    Egress,
    Filter,
    Ingress,
    Join,
    JoinKind,
    NodeIndex,
    Operator,
    OrderTerm,
    Project,
    Reader,
    TopK,
    Union,
)
from migrations.joint_graph.graph import JointGraph

_INFIX = {
    "eq": "=",
    "ne": "<>",
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
    "null_safe_eq": "<=>",
    "add": "+",
    "subtract": "-",
    "multiply": "*",
    "divide": "/",
    "quotient": "/",
    "int_divide": "DIV",
    "modulo": "%",
    "and": "AND",
    "or": "OR",
    "xor": "XOR",
    "like": "LIKE",
    "regexp": "REGEXP",
}
_LOOSE = frozenset({"and", "or", "xor"})
_POSTFIX = {
    "is_null": "IS NULL",
    "is_not_null": "IS NOT NULL",
    "is_true": "IS TRUE",
    "is_false": "IS FALSE",
}


def names_of(columns: Sequence[Column]) -> list[str]:
    """The columns' names, each with its position where it is not the only one of that name."""
    counts = Counter(column.name for column in columns)
    return [c.name if counts[c.name] == 1 else f"{c.name}@{i}" for i, c in enumerate(columns)]


def expression_text(expression: Expression, names: Sequence[str]) -> str:
    """An expression over a row whose columns have these names."""
    match expression:
        case Field(position):
            return names[position]
        case Constant(value):
            return constant_text(value)
        case Call(function, arguments, type):
            operands = [_operand(a, names, function) for a in arguments]
            return _call_text(function, operands, str(type), arguments, names)


def constant_text(value: object) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return f"x'{value.hex()}'" if isinstance(value, bytes) else str(value)


def _operand(expression: Expression, names: Sequence[str], within: str) -> str:
    text = expression_text(expression, names)
    if not isinstance(expression, Call) or expression.function not in _INFIX:
        return text
    binds_closer = within in _LOOSE and expression.function not in _LOOSE
    return text if binds_closer else f"({text})"


def _call_text(
    function: str, operands: list[str], type: str, arguments: Sequence[Expression], names: Sequence[str]
) -> str:
    if function in _INFIX and len(operands) > 1:
        return f" {_INFIX[function]} ".join(operands)
    if function in _POSTFIX:
        return f"{operands[0]} {_POSTFIX[function]}"
    if function == "not":
        return f"NOT {operands[0]}"
    if function == "in":
        return f"{operands[0]} IN ({', '.join(operands[1:])})"
    if function == "between":
        return f"{operands[0]} BETWEEN {operands[1]} AND {operands[2]}"
    inner = ", ".join(expression_text(argument, names) for argument in arguments)
    return f"cast({inner} as {type})" if function == "cast" else f"{function}({inner})"


def operator_text(operator: Operator, columns: Sequence[Column], parents: Sequence[Sequence[Column]]) -> str:
    """One operator on one line; ``columns`` are its own, ``parents`` those of its parents."""
    below = [names_of(parent) for parent in parents]
    match operator:
        case Base(table):
            return table
        case Filter(predicate):
            return f"σ {expression_text(predicate, below[0])}"
        case Project(expressions):
            return "π " + ", ".join(_output_text(e, c, below[0]) for e, c in zip(expressions, columns, strict=True))
        case Union():
            return "∪"
        case Join(kind, left_on, right_on, residual):
            both = names_of([*parents[0], *parents[1]])
            pairs = [f"{below[0][a]} = {below[1][b]}" for a, b in zip(left_on, right_on, strict=True)]
            pairs += [] if residual is None else [expression_text(residual, both)]
            symbol = ("⋈" if pairs else "×") if kind is JoinKind.INNER else "⟕"
            return " ".join([symbol, " AND ".join(pairs)]).strip()
        case Aggregate(group, calls, scalar):
            keys = ", ".join(below[0][i] for i in group)
            if not calls and not scalar:
                return f"δ {keys}"
            functions = ", ".join(_aggregate_text(call, below[0]) for call in calls)
            return f"γ {keys}; {functions}" if keys else f"γ {functions}" if scalar else f"γ (); {functions}"
        case TopK(group, order, limit, offset):
            per = f" per {', '.join(below[0][i] for i in group)}" if group else ""
            by = f" by {_order_text(order, below[0])}" if order else ""
            return f"τ {limit}{f' after {offset}' if offset else ''}{by}{per}"
        case Ingress(source):
            return f"ingress from {source}"
        case Egress():
            return "egress"
        case Reader(view=view, key=key):
            return f"reader {view}" + (f" by {', '.join(below[0][i] for i in key)}" if key else "")
    assert_never(operator)


def _output_text(expression: Expression, column: Column, names: Sequence[str]) -> str:
    text = expression_text(expression, names)
    is_same = isinstance(expression, Field) and names[expression.position].partition("@")[0] == column.name
    return text if is_same or text == column.name else f"{text} → {column.name}"


def _aggregate_text(call: AggregateCall, names: Sequence[str]) -> str:
    argument = "*" if call.argument is None else names[call.argument]
    name = str(call.function).removesuffix("_rows")
    order = f" by {_order_text(call.order, names)}" if call.order else ""
    separator = f" separator {constant_text(call.separator)}" if call.separator != "," else ""
    if name.endswith("_distinct"):
        name, argument = name.removesuffix("_distinct"), f"distinct {argument}"
    return f"{name}({argument}{order}{separator})"


def _order_text(order: Sequence[OrderTerm], names: Sequence[str]) -> str:
    return ", ".join(names[term.column] + (" desc" if term.descending else "") for term in order)


def render(graph: JointGraph, root: NodeIndex) -> str:
    """What a node is computed from, as a tree. A node that is read twice is drawn once and named ``#n`` after that."""
    reads = Counter(parent for index in graph.ancestors(root) for parent in graph.node(index).parents)
    lines: list[str] = []
    drawn: set[NodeIndex] = set()

    def draw(index: NodeIndex, first: str, rest: str) -> None:
        node = graph.node(index)
        if index in drawn:
            lines.append(f"{first}#{index}")
            return
        drawn.add(index)
        parents = [graph.node(parent).columns for parent in node.parents]
        shared = f"#{index} " if reads[index] > 1 and node.parents else ""
        lines.append(f"{first}{shared}{operator_text(node.operator, node.columns, parents)}")
        if not node.parents:
            drawn.discard(index)  # A base table is its name; drawing it again is shorter than referring to it.
        for i, parent in enumerate(node.parents):
            is_last = i == len(node.parents) - 1
            draw(parent, rest + ("└ " if is_last else "├ "), rest + ("  " if is_last else "│ "))

    draw(root, "", "")
    return "\n".join(lines)
