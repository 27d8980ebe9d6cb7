"""The answer to one question: what its plan comes to over given tables, as a reader of a view would answer it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import nsmallest
from typing import Any

from domains.engine.evaluation import NOWHERE, Evaluation, EvaluationPlan, Slices
from domains.language.json_rows import NOT_OF_JSON, json_value, page_values
from domains.language.types import Column, Delta, Kind, Row, TableSchema
from domains.plan.graph import Columns, NodeIndex
from domains.store.storage import StoredRows, TableRows
from worker.adhoc.measured import MeasuredEvaluation
from worker.reader_map import BoundLookup, ReaderLayout
from worker.reader_map.layout import tie_of, windows
from worker.reader_map.merging import limits

Rows = list[tuple[Any, ...]]
"""JSON-ready, but that a document is its text."""

LONG_PAGE = 100_000
"""Bytes of a view's answer that are not parsed on the event loop."""
ROWS_TOGETHER = 500
"""The rows of an answer that a process beside gives at once: a millisecond."""


@dataclass(frozen=True, slots=True)
class Question:
    """A plan, and the values of its parameters. Picklable."""

    plan: EvaluationPlan
    bound: BoundLookup
    measured: bool = False
    """Whether it is asked what its evaluation does: the answer's rows are :class:`NodeMeasure`'s fields then."""


def answered(
    question: Question, tables: TableRows, *, most: int = 0, elsewhere: Mapping[NodeIndex, Slices] = NOWHERE
) -> Iterator[Rows]:
    """The answer's rows as JSON takes them, some at a time; the rest is :class:`Evaluation`'s."""
    if question.measured:
        measured = MeasuredEvaluation(question.plan, tables, most=most, elsewhere=elsewhere)
        return iter([measured.rows_of(_rows_of(measured, question))])
    parts = answer_rows(question, tables, most=most, elsewhere=elsewhere)
    kinds = [column.type.kind for column in question.plan.nodes[-1].columns[: question.plan.reader.visible]]
    if (NOT_OF_JSON | {Kind.NULL}).isdisjoint(kinds):
        return parts
    return ([tuple(map(json_value, row)) for row in part] for part in parts)


def answer_rows(
    question: Question, tables: TableRows, *, most: int = 0, elsewhere: Mapping[NodeIndex, Slices] = NOWHERE
) -> Iterator[list[Row]]:
    """The visible columns of the answer's rows, in the engine's values.

    Without ORDER BY and LIMIT rows go out as they come. Else they are ordered as the reader map orders them, rows that
    are equal to ORDER BY too: so a SELECT is answered the same by a view that is kept of it and without one.
    """
    return _rows_of(Evaluation(question.plan, tables, most=most, elsewhere=elsewhere), question)


def _rows_of(evaluation: Evaluation, question: Question) -> Iterator[list[Row]]:
    plan, bound = question.plan, question.bound
    visible = plan.reader.visible
    nothing = [plan.reader.empty[:visible]] if plan.reader.empty is not None else []
    parts = _found(evaluation, plan, bound)
    limit, offset = limits(plan.reader, bound.limit, bound.offset)
    if not plan.reader.order and limit is None and not offset:
        any_rows = False
        for part in parts:
            any_rows = any_rows or bool(part)
            yield [row[:visible] for row, weight in part for _ in range(weight)]
        if not any_rows:
            yield nothing
        return
    layout = _layout(plan)
    ranked = sorted((_rank(layout, row), row) for part in parts for row, weight in part for _ in range(weight))
    yield ([row[:visible] for _, row in ranked] or nothing)[offset : None if limit is None else offset + limit]


def part_of(question: Question, tables: TableRows, *, most: int = 0) -> Iterator[list[Delta]]:
    """The root's rows over one shard, for whoever has those of the others too: of an answer with a LIMIT the first."""
    plan, bound = question.plan, question.bound
    parts = _found(Evaluation(plan, tables, most=most), plan, bound)
    limit, offset = limits(plan.reader, bound.limit, bound.offset)
    if limit is None:
        yield from parts
        return
    layout = _layout(plan)
    rows = (row for part in parts for row, weight in part for _ in range(weight))
    yield [(row, 1) for row in nsmallest(limit + offset, rows, key=lambda row: _rank(layout, row))]


def _layout(plan: EvaluationPlan) -> ReaderLayout:
    """Of the reader that a view of it would have: as long in the making as a look-up of one row."""
    return ReaderLayout(0, plan.reader, plan.nodes[-1].columns)


def _found(evaluation: Evaluation, plan: EvaluationPlan, bound: BoundLookup) -> Iterator[list[Delta]]:
    """The rows of the root that the parameters name."""
    key = plan.reader.key
    parts = evaluation.at(key, bound.keys) if key else evaluation.rows() if bound.keys else iter(())
    if bound.seeks == ((),) and bound.low is None and bound.high is None and not bound.spans:
        yield from parts
        return
    layout = _layout(plan)
    wanted = [one for seek in bound.seeks for one in windows(layout, seek, bound.low, bound.high, bound.spans)]
    for part in parts:
        yield [delta for delta in part if any(one.holds(layout.suffix(delta[0])) for one in wanted)]


def _rank(layout: ReaderLayout, row: Row) -> tuple[bytes, bytes]:
    suffix = layout.suffix(row)
    return suffix[layout.order_start(suffix, 0) :], tie_of(layout.json(row))


def rows_in(page: bytes, columns: Sequence[Column]) -> Iterator[Rows]:
    """The rows of a view's answer, some at a time."""
    found = page_values(page, columns)
    for at in range(0, len(found), ROWS_TOGETHER):
        yield found[at : at + ROWS_TOGETHER]


# The tables of all base shards that a process has, as one.


class ShardedRows:
    """See :class:`domains.store.storage.StoredRows`, over the shards of one table: each row is in one of them."""

    def __init__(self, shards: Sequence[StoredRows]) -> None:
        self._shards = shards
        self.schema: TableSchema = shards[0].schema
        self.row_count = sum(shard.row_count for shard in shards)

    def find(self, columns: Columns, key: Row) -> list[Delta]:
        return [delta for shard in self._shards for delta in shard.find(columns, key)]

    def find_many(self, columns: Columns, keys: Sequence[Row]) -> list[list[Delta]]:
        found = [shard.find_many(columns, keys) for shard in self._shards]
        return [[delta for rows in of_key for delta in rows] for of_key in zip(*found, strict=True)]

    def count_many(self, columns: Columns, keys: Sequence[Row], most: int) -> list[int]:
        counts = [shard.count_many(columns, keys, most) for shard in self._shards]
        return [min(most, sum(of_key)) for of_key in zip(*counts, strict=True)]

    def slices(self, limit: int) -> Iterator[list[Delta]]:
        return (part for shard in self._shards for part in shard.slices(limit))

    def has_index(self, columns: Columns) -> bool:
        return all(shard.has_index(columns) for shard in self._shards)

    def best_key(self, tied: Any) -> Columns:
        """What all of them have: an index may be built in one shard and not yet in another."""
        best = [shard.best_key(tied) for shard in self._shards]
        return min(best, key=len)
