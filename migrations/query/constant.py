"""SELECT without FROM: its one row is computed at once."""

from __future__ import annotations

from dataclasses import dataclass

from domains.errors import LimitExceeded, SqlError, Unsupported
from domains.language.compile import compile_expression, compile_predicate
from domains.language.expressions import Expression
from domains.language.types import Column, Row
from migrations.parse.reading import exp
from migrations.query.expressions.scalar import Setting, scalar
from migrations.query.expressions.scope import Scope
from migrations.query.relation import read_limit
from migrations.query.select import output_name


@dataclass(frozen=True, slots=True)
class ConstantRows:
    """The answer of a query that reads nothing."""

    columns: tuple[Column, ...]
    rows: tuple[Row, ...]


def reads_nothing(relation: exp.Expr) -> bool:
    """Whether a statement is a SELECT without FROM (or FROM DUAL), so that :func:`constant_select` answers it."""
    if not isinstance(relation, exp.Select):
        return False
    clause = relation.args.get("from_")
    return clause is None or (
        isinstance(clause.this, exp.Table) and clause.this.name.lower() == "dual" and not relation.args.get("joins")
    )


def constant_select(relation: exp.Expr, setting: Setting = Setting()) -> ConstantRows:
    """The row of ``SELECT 1 + 1``. ``setting`` says what a ``?`` and NOW() are.

    :raises Unsupported: it reads a table, or aggregates.
    """
    if not isinstance(relation, exp.Select) or not reads_nothing(relation):
        raise Unsupported("a query that is not a SELECT without FROM as a constant")
    if relation.args.get("group") or relation.args.get("having"):
        raise Unsupported("GROUP BY without FROM")
    try:
        return _evaluated(relation, setting)
    except RecursionError:
        raise LimitExceeded("the expression nests too deep") from None


def _evaluated(relation: exp.Select, setting: Setting) -> ConstantRows:
    if not relation.expressions:
        raise SqlError("the SELECT list is empty")
    scope = Scope(())
    expressions: list[Expression] = []
    names: list[str] = []
    for item in relation.expressions:
        if isinstance(item, exp.Star):
            raise SqlError("SELECT * without FROM")
        expressions.append(scalar(item, scope, setting))
        names.append(output_name(item))
    columns = tuple(Column(name, e.type) for name, e in zip(names, expressions, strict=True))
    row = tuple(compile_expression(e)(()) for e in expressions)
    where = relation.args.get("where")
    limit, offset = read_limit(relation)
    stays = where is None or compile_predicate(scalar(where.this, scope, setting))(())
    return ConstantRows(columns, (row,) if stays and limit != 0 and offset == 0 else ())
