"""Whole queries: WITH, UNION, ORDER BY with LIMIT; and a view as the judge has it computed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from domains.errors import SqlError, Unsupported
from domains.language.functions import common_type
from domains.language.functions.comparands import are_alike
from domains.language.types import Column, SqlType
from domains.plan.graph import ParameterKind
from migrations.catalog import Catalog
from migrations.parse.namespaces import groups_of, reads_itself
from migrations.parse.reading import exp
from migrations.query.expressions.aggregates import aggregates_in
from migrations.query.plans.monotone import measured_in
from migrations.query.plans.recursion import RecursiveMember, members_of
from migrations.query.relation import Slot, read_limit, sorting_direction
from migrations.spark_sql.block import BlockWriter
from migrations.spark_sql.source import SparkRounds, Term, WriterContext, WrittenQuery, fresh_context
from migrations.spark_sql.values import converted, refuse_told_apart


@dataclass(frozen=True, slots=True)
class Judged:
    """A view for Spark. ``text`` has the visible columns c0 … and the parameters' columns p0 …"""

    text: str
    nothing: str
    """The rows where the parameters find none: of an aggregate without GROUP BY, its one row over nothing."""
    columns: tuple[Column, ...]
    parameters: tuple[Slot, ...]
    """The slots of p0 …, in the order in which the statement names them; LIMIT ? and OFFSET ? are not among them."""
    counts_nothing: bool
    """Some SELECT aggregates without GROUP BY: only then ``nothing`` can have rows."""
    rounds: tuple[SparkRounds, ...] = ()
    """The recursions that both texts read, which are carried out before."""


def judged(catalog: Catalog, tables: dict[str, str], query: exp.Query) -> Judged:
    """A view's query over ``catalog``; ``tables`` has the name in Spark of each base table, by its lower-case name.

    :raises Unsupported: something in it cannot be said in Spark's SQL so that it means the same.
    """
    context, nobody = fresh_context(catalog, tables), fresh_context(catalog, tables, nothing=True)
    try:
        answer = _outermost(compile_query(query, context))
        nothing = _outermost(compile_query(query, nobody))
    except RecursionError:
        raise Unsupported("a query that nests too deep for the judge") from None
    places = sorted(range(len(answer.slots)), key=lambda i: answer.slots[i].rank)
    columns = [f"c{i}" for i in range(len(answer.columns))]
    keys = [f"p{place} AS p{i}" for i, place in enumerate(places)]
    text = f"SELECT {', '.join([*columns, *keys])} FROM ({answer.text})"
    slots = tuple(answer.slots[place] for place in places)
    rounds = (*context.rounds, *nobody.rounds)
    return Judged(text, nothing.text, answer.columns, slots, _counts_nothing(catalog, query), rounds)


def in_order(catalog: Catalog, tables: dict[str, str], query: exp.Query) -> WrittenQuery:
    """A query without parameters, with its ORDER BY and LIMIT carried out: its text has the columns c0 …

    :raises Unsupported: see :func:`judged`.
    """
    context = fresh_context(catalog, tables)
    try:
        answer = compile_query(query, context)
    except RecursionError:
        raise Unsupported("a query that nests too deep for Spark") from None
    if context.rounds:
        raise Unsupported("WITH RECURSIVE in a query of Spark's")
    if answer.slots or isinstance(answer.limit, Slot) or isinstance(answer.offset, Slot):
        raise Unsupported("a query of Spark's with parameters")
    columns = [f"c{i}" for i in range(len(answer.columns))]
    text = f"SELECT {', '.join(columns)} FROM ({answer.text})"
    if answer.order or answer.limit is not None:
        text += f" ORDER BY {', '.join(_terms(answer.order, columns))}"
    if answer.limit is not None:
        text += f" LIMIT {answer.limit} OFFSET {answer.offset}"
    return WrittenQuery(text, answer.columns)


def _counts_nothing(catalog: Catalog, query: exp.Expr) -> bool:
    for select in query.find_all(exp.Select):
        if select.args.get("group") is None and any(True for item in select.expressions for _ in aggregates_in(item)):
            return True
    inner = (catalog.views.get(table.name.lower()) for table in query.find_all(exp.Table))
    return any(view is not None and _counts_nothing(catalog, view.relation) for view in inner)


def _outermost(answer: WrittenQuery) -> WrittenQuery:
    """A constant LIMIT holds within a key where a key is one value of every parameter; else it is one of reading, and
    what the reader holds has all rows."""
    is_constant = isinstance(answer.limit, int) and isinstance(answer.offset, int)
    if is_constant and all(slot.kind is ParameterKind.EQUAL for slot in answer.slots):
        return bounded(answer)
    return replace(answer, limit=None, offset=0)


def compile_query(node: exp.Expr, context: WriterContext) -> WrittenQuery:
    """The query, with its outermost ORDER BY and LIMIT noted."""
    clause = node.args.get("with_")
    if clause is not None:
        is_recursive = clause.args.get("recursive")
        for group in groups_of(clause):
            if is_recursive and reads_itself(group):
                context = _with_rounds(group, context)
                continue
            (cte,) = group
            answer = compile_bounded(cte.this, context)
            names = [c.name for c in cte.args["alias"].columns]
            if names:
                answer = replace(
                    answer, columns=tuple(Column(n, c.type) for n, c in zip(names, answer.columns, strict=True))
                )
            context = context.with_cte(cte.alias, answer)
    if isinstance(node, exp.Select):
        return BlockWriter(node, context, compile_bounded).write()
    if isinstance(node, exp.SetOperation):
        return _union(node, context)
    if isinstance(node, exp.Subquery):
        modified = any(node.args.get(key) is not None for key in ("order", "limit", "offset"))
        answer = compile_query(node.this, context)
        return _sorted(bounded(answer), node, context) if modified else answer
    raise Unsupported(f"{type(node).__name__.upper()} as a query, which the judge does not know")


def compile_bounded(node: exp.Expr, context: WriterContext) -> WrittenQuery:
    """The query as others read it: with its LIMIT carried out."""
    return bounded(compile_query(node, context))


def bounded(answer: WrittenQuery) -> WrittenQuery:
    """τ, for each combination of the parameters' values; ties go by the row, so that the answer follows from the
    data."""
    if answer.limit is None:
        return replace(answer, order=())
    if isinstance(answer.limit, Slot) or isinstance(answer.offset, Slot):
        raise Unsupported("LIMIT ? inside of a query")
    columns = [f"c{i}" for i in range(len(answer.columns))]
    keys = [f"p{i}" for i in range(len(answer.slots))]
    terms = _terms(answer.order, columns)
    by = f"PARTITION BY {', '.join(keys)} " if keys else ""
    rank = f"row_number() OVER ({by}ORDER BY {', '.join(terms)}) AS rank"
    window = f"rank > {answer.offset} AND rank <= {answer.offset + answer.limit}"
    text = f"SELECT {', '.join([*columns, *keys])} FROM (SELECT *, {rank} FROM ({answer.text})) WHERE {window}"
    return WrittenQuery(text, answer.columns, answer.slots)


def _terms(order: Sequence[Term], columns: Sequence[str]) -> list[str]:
    """Ties go by the row."""
    return [*map(_term, order), *(f"{column} ASC NULLS FIRST" for column in columns)]


def _term(term: Term) -> str:
    return f"{term.column} DESC NULLS LAST" if term.descending else f"{term.column} ASC NULLS FIRST"


# --- WITH RECURSIVE -----------------------------------------------------------------------------------------------

# Spark has no UNION of it. So there is a text of what it begins with and one of what a further round comes to, over
# temporary views of what there is; :mod:`migrations.backfill.spark.rounds` does so until nothing more comes.


def _with_rounds(ctes: Sequence[exp.CTE], context: WriterContext) -> WriterContext:
    """The context with the queries of a recursion, which it notes.

    :raises Unsupported: one of them has no first part, or MIN stands beside parts without it."""
    members, is_distinct = members_of(ctes)
    begun: list[WrittenQuery] = []
    inside = context
    for member in members:
        if member.first is None:
            raise Unsupported(f'a query "{member.name}" of a recursion that has no part to begin with')
        first = compile_bounded(member.first, context)
        names = member.named or [column.name for column in first.columns]
        columns = tuple(Column(name, column.type) for name, column in zip(names, first.columns, strict=True))
        if is_distinct:
            refuse_told_apart([column.type for column in columns])
        begun.append(replace(first, columns=columns))
        view = f"{'nothing' if context.nothing else 'recursion'}_{context.aliases()}"
        inside = inside.with_cte(member.name, WrittenQuery(f"SELECT * FROM {view}", columns, first.slots))
    views = tuple(inside.ctes[member.name.lower()].text.rpartition(" ")[2] for member in members)
    firsts = [_as_first(first, first) for first in begun]
    rounds = [
        " UNION ALL ".join(f"({_as_first(compile_bounded(each, inside), first)})" for each in member.rounds)
        for member, first in zip(members, begun, strict=True)
    ]
    if is_distinct:
        rounds = [
            _there_of(member, first, f"({start}) UNION ALL {more}")
            for member, first, start, more in zip(members, begun, firsts, rounds, strict=True)
        ]
        firsts = [_there_of(member, first, start) for member, first, start in zip(members, begun, firsts, strict=True)]
    context.rounds.append(SparkRounds(views, tuple(firsts), tuple(rounds), is_distinct))
    return inside


def _there_of(member: RecursiveMember, first: WrittenQuery, derived: str) -> str:
    """Each row once, or the best of each group."""
    found = {measured_in(each) for each in member.rounds}
    if found == {None}:
        return f"SELECT DISTINCT * FROM ({derived})"
    (measured,) = found
    assert measured is not None, "the planner refuses MIN beside other parts"
    at, function = measured
    columns = [f"c{i}" for i in range(len(first.columns))]
    keys = [*columns[:at], *columns[at + 1 :], *(f"p{i}" for i in range(len(first.slots)))]
    best = f"{function.__name__.upper()}({columns[at]}) AS {columns[at]}"
    chosen = [*columns[:at], best, *columns[at + 1 :], *(f"p{i}" for i in range(len(first.slots)))]
    return f"SELECT {', '.join(chosen)} FROM ({derived})" + (f" GROUP BY {', '.join(keys)}" if keys else "")


# --- UNION --------------------------------------------------------------------------------------------------------


def _union(node: exp.SetOperation, context: WriterContext) -> WrittenQuery:
    left = node.this
    if isinstance(left, exp.SetOperation) and not any(left.args.get(k) is not None for k in ("order", "limit")):
        first = _union(left, context)
    else:
        first = compile_bounded(left, context)
    second = compile_bounded(node.expression, context)
    if len(first.columns) != len(second.columns):
        raise SqlError("the branches of a UNION have different numbers of columns")
    slots = _unified(first.slots, second.slots)
    names = [column.name for column in first.columns]
    types = [common_type((a.type, b.type)) for a, b in zip(first.columns, second.columns, strict=True)]
    keys = [common_type((a.type, b.type)) for a, b in zip(first.slots, second.slots, strict=True)]
    if not isinstance(node, exp.Union) or node.args.get("distinct"):
        refuse_told_apart(types)
    word = type(node).__name__.upper() + ("" if node.args.get("distinct") else " ALL")
    branches = f" {word} ".join(f"({_aligned(each, types, keys)})" for each in (first, second))
    here = context.aliases()
    answer = WrittenQuery(
        f"SELECT * FROM ({branches}) AS {here}",
        tuple(Column(name, type) for name, type in zip(names, types, strict=True)),
        tuple(replace(slot, type=type) for slot, type in zip(slots, keys, strict=True)),
    )
    return _sorted(answer, node, context)


def _aligned(answer: WrittenQuery, types: Sequence[SqlType], keys: Sequence[SqlType]) -> str:
    columns = [
        f"{converted(f'c{i}', c.type, t)} AS c{i}" for i, (c, t) in enumerate(zip(answer.columns, types, strict=True))
    ]
    columns += [
        f"{converted(f'p{i}', s.type, t)} AS p{i}" for i, (s, t) in enumerate(zip(answer.slots, keys, strict=True))
    ]
    return f"SELECT {', '.join(columns)} FROM ({answer.text})"


def _as_first(branch: WrittenQuery, first: WrittenQuery) -> str:
    """A part of a recursion, with the types and parameters of the first part."""
    if len(branch.columns) != len(first.columns):
        raise SqlError("the parts of a recursion have different numbers of columns")
    _unified(first.slots, branch.slots)
    return _aligned(branch, [column.type for column in first.columns], [slot.type for slot in first.slots])


def _unified(ours: Sequence[Slot], theirs: Sequence[Slot]) -> list[Slot]:
    """The k-th parameter of each branch is one."""
    if [(s.name.lower(), s.kind) for s in ours] != [(s.name.lower(), s.kind) for s in theirs]:
        raise Unsupported("a UNION whose branches have different parameters")
    if not all(are_alike(a.type, b.type) for a, b in zip(ours, theirs, strict=True)):
        raise Unsupported("a UNION in which one parameter is compared with columns of several kinds")
    pairs = zip(ours, theirs, strict=True)
    return [replace(a, marks=tuple(dict.fromkeys((*a.marks, *b.marks)))) for a, b in pairs]


def _sorted(answer: WrittenQuery, node: exp.Expr, context: WriterContext) -> WrittenQuery:
    """The query with the ORDER BY and LIMIT that follow a UNION or a query in parentheses, by its columns."""
    clause = node.args.get("order")
    terms = () if clause is None else clause.expressions
    order = tuple(Term(_column_of(term.this, answer), sorting_direction(term)) for term in terms)
    limit, offset = read_limit(node)
    return replace(answer, order=order, limit=limit, offset=offset)


def _column_of(node: exp.Expr, answer: WrittenQuery) -> str:
    if isinstance(node, exp.Literal) and not node.is_string:
        return f"c{int(node.this) - 1}"
    names = [column.name.lower() for column in answer.columns]
    if isinstance(node, exp.Column) and node.name.lower() in names:
        return f"c{names.index(node.name.lower())}"
    raise Unsupported("ORDER BY an expression behind a UNION, which the judge does not know")
