"""ORDER BY and LIMIT as they are written: directions, counts, and the two parameters that are no columns."""

from __future__ import annotations

from domains.errors import SqlError
from domains.graph import ParameterKind
from domains.types import BIGINT
from migrations.parse import exp, position, text_of
from migrations.query.relation import Slot


def sorting_direction(term: exp.Expr) -> bool:
    """Whether an ORDER BY term descends."""
    return bool(term.args.get("desc"))


def read_limit(node: exp.Expr) -> tuple[int | Slot | None, int | Slot]:
    """LIMIT and OFFSET; None and 0 where they are absent."""
    limit, offset = node.args.get("limit"), node.args.get("offset")
    count = None if limit is None else _count(limit.expression, ParameterKind.LIMIT)
    start = offset.expression if offset is not None else None
    return count, 0 if start is None else _count(start, ParameterKind.OFFSET)


def _count(node: exp.Expr, kind: ParameterKind) -> int | Slot:
    if isinstance(node, exp.Placeholder):
        name = str(node.this) if node.this else kind.value
        return Slot(name, kind, BIGINT, ((position(node),),), bool(node.this))
    if isinstance(node, exp.Literal) and not node.is_string and node.this.isdigit():
        return int(node.this)
    raise SqlError(f"{kind.value.upper()} wants a number or ?, not {text_of(node)}")
