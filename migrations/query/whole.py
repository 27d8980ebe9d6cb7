"""A whole query: WITH, and what follows it."""

from __future__ import annotations

from domains.errors import SqlError, Unsupported
from migrations.parse import exp
from migrations.query.relation import Context, Relation, bounded
from migrations.query.select import plan_select
from migrations.query.setops import plan_union, sorted_and_limited
from migrations.query.source import named_columns


def plan_query(node: exp.Expr, context: Context) -> Relation:
    """The relation that a SELECT, a UNION or a query in parentheses means, with all names resolved.

    :raises SqlError: the text is wrong.
    :raises Unsupported: right SQL that is not done.
    """
    clause = node.args.get("with_")
    if clause is not None:
        context = _with_ctes(clause, context)
    if isinstance(node, exp.Select):
        return plan_select(node, context, plan_query)
    if isinstance(node, exp.SetOperation):
        return plan_union(node, context, plan_query)
    if isinstance(node, exp.Subquery):
        return _in_parentheses(node, context)
    raise Unsupported(f"{type(node).__name__.upper()} as a query", hint="use SELECT")


def _in_parentheses(node: exp.Subquery, context: Context) -> Relation:
    relation = plan_query(node.this, context)
    modified = [key for key in ("order", "limit", "offset") if node.args.get(key) is not None]
    return sorted_and_limited(bounded(relation), node) if modified else relation


def _with_ctes(clause: exp.With, context: Context) -> Context:
    if clause.args.get("recursive"):
        raise Unsupported("WITH RECURSIVE", hint="views are not recursive; unroll the levels that you need")
    names: set[str] = set()
    for cte in clause.expressions:
        name = cte.alias
        if name.lower() in names:
            raise SqlError(f'the name "{name}" stands twice in WITH')
        names.add(name.lower())
        if not isinstance(cte.this, exp.Query):
            raise Unsupported(f'WITH "{name}" that is no SELECT')
        relation = plan_query(cte.this, context)
        context = context.with_cte(name, named_columns(relation, [c.name for c in cte.args["alias"].columns], name))
    return context
