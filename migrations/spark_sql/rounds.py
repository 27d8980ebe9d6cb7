"""WITH RECURSIVE for Spark, which has no UNION of it: the text of what it begins with and of what comes of one more
round, over temporary views that stand for what there is. Who runs it does so until nothing more comes
(:mod:`migrations.backfill.spark.rounds`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from domains.errors import Unsupported
from domains.language.types import Column
from migrations.parse.reading import exp
from migrations.query.plans.monotone import measured_in
from migrations.query.plans.recursion import Member, members_of
from migrations.spark_sql.source import SparkRounds, WriterContext, WrittenQuery
from migrations.spark_sql.values import refuse_told_apart

Compile = Callable[[exp.Expr, WriterContext], WrittenQuery]
Align = Callable[[WrittenQuery, WrittenQuery], str]
"""A branch, with the columns and parameters of the first."""


def write_rounds(ctes: Sequence[exp.CTE], context: WriterContext, compile_: Compile, align: Align) -> WriterContext:
    """The context with the queries of a recursion, which it notes.

    :raises Unsupported: one of them has no first part, or MIN stands beside parts without it."""
    members, is_distinct = members_of(ctes)
    begun: list[WrittenQuery] = []
    inside = context
    for member in members:
        if member.first is None:
            raise Unsupported(f'a query "{member.name}" of a recursion that has no part to begin with')
        first = compile_(member.first, context)
        names = member.named or [column.name for column in first.columns]
        columns = tuple(Column(name, column.type) for name, column in zip(names, first.columns, strict=True))
        if is_distinct:
            refuse_told_apart([column.type for column in columns])
        begun.append(replace(first, columns=columns))
        view = f"{'nothing' if context.nothing else 'recursion'}_{context.aliases()}"
        inside = inside.with_cte(member.name, WrittenQuery(f"SELECT * FROM {view}", columns, first.slots))
    views = tuple(inside.ctes[member.name.lower()].text.rpartition(" ")[2] for member in members)
    firsts = [align(first, first) for first in begun]
    rounds = [
        " UNION ALL ".join(f"({align(compile_(each, inside), first)})" for each in member.rounds)
        for member, first in zip(members, begun, strict=True)
    ]
    if is_distinct:
        rounds = [
            _there(member, first, f"({start}) UNION ALL {more}")
            for member, first, start, more in zip(members, begun, firsts, rounds, strict=True)
        ]
        firsts = [_there(member, first, start) for member, first, start in zip(members, begun, firsts, strict=True)]
    context.rounds.append(SparkRounds(views, tuple(firsts), tuple(rounds), is_distinct))
    return inside


def _there(member: Member, first: WrittenQuery, derived: str) -> str:
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
