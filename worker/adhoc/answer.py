"""The answer to one question: what its plan comes to over given tables, as a reader of a view would answer it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import merge, nsmallest
from itertools import chain, islice, product
from typing import Any

from domains.engine.evaluation import NOWHERE, Evaluation, EvaluationPlan, Slices
from domains.errors import BadRequest
from domains.language.encoding import row_encoder
from domains.language.json_rows import NOT_OF_JSON, json_value, page_values
from domains.language.ordered import encode_value
from domains.language.types import Column, Delta, Kind, Row, TableSchema
from domains.plan.deltas import key_function
from domains.plan.graph import Columns, NodeIndex, Reader
from domains.plan.sharding import shard_of
from domains.store.storage import StoredRows, TableRows
from domains.store.walking import EVERYWHERE, MOST_BOXES, Boxes, Interval, both, exactly
from worker.adhoc.lineage import Lineage
from worker.adhoc.measured import MeasuredEvaluation
from worker.reader_map import BoundLookup, ReaderLayout
from worker.reader_map.layout import Bound, tie_of, windows
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
    traced: int | None = None
    """The place of a row of the answer, from 0: what is answered is the base rows that it comes from, as
    :class:`Lineage` tells them."""
    seen: Row | None = None
    """The row that is traced as JSON has it, where its place in an answer that was finished is another."""


def answered(
    question: Question, tables: TableRows, *, most: int = 0, elsewhere: Mapping[NodeIndex, Slices] = NOWHERE
) -> Iterator[Rows]:
    """The answer's rows as JSON takes them, some at a time; the rest is :class:`Evaluation`'s."""
    if question.measured:
        measured = MeasuredEvaluation(question.plan, tables, most=most, elsewhere=elsewhere)
        return iter([measured.rows_of(_rows_of(measured, question))])
    if question.traced is not None:
        traced = Lineage(question.plan, tables, most=most, elsewhere=elsewhere)
        return iter([traced.of(_row_at(traced, question, question.traced))])
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
    limit, offset = limits(plan.reader, bound.limit, bound.offset)
    parts = _found(evaluation, plan, bound, None if limit is None else limit + offset)
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


def _row_at(evaluation: Evaluation, question: Question, place: int) -> Row:
    """A row of the answer with its hidden columns.

    :raises BadRequest: the answer has no such row."""
    plan, bound = question.plan, question.bound
    limit, offset = limits(plan.reader, bound.limit, bound.offset)
    layout = _layout(plan)
    rows = [row for part in _found(evaluation, plan, bound, None) for row, weight in part for _ in range(weight)]
    if question.seen is not None:
        same = [row for row in rows if tuple(map(json_value, row[: plan.reader.visible])) == question.seen]
        if not same:
            raise BadRequest("the answer does not have this row any more", hint="read the view again")
        return same[0]
    page = sorted(rows, key=lambda row: _rank(layout, row))[offset : None if limit is None else offset + limit]
    if not 0 <= place < len(page):
        raise BadRequest(f"the answer has {len(page)} rows, and none at {place}", hint="rows are counted from 0")
    return page[place]


def part_of(question: Question, tables: TableRows, *, most: int = 0) -> Iterator[list[Delta]]:
    """The root's rows over one shard, for whoever has those of the others too: of an answer with a LIMIT the first."""
    plan, bound = question.plan, question.bound
    limit, offset = limits(plan.reader, bound.limit, bound.offset)
    parts = _found(Evaluation(plan, tables, most=most), plan, bound, None if limit is None else limit + offset)
    if limit is None:
        yield from parts
        return
    layout = _layout(plan)
    rows = (row for part in parts for row, weight in part for _ in range(weight))
    yield [(row, 1) for row in nsmallest(limit + offset, rows, key=lambda row: _rank(layout, row))]


def _layout(plan: EvaluationPlan) -> ReaderLayout:
    """Of the reader that a view of it would have: as long in the making as a look-up of one row."""
    return ReaderLayout(0, plan.reader, plan.nodes[-1].columns)


def _found(
    evaluation: Evaluation, plan: EvaluationPlan, bound: BoundLookup, count: int | None
) -> Iterator[list[Delta]]:
    """The rows of the root that the parameters name: all of them, or those that may be among the first ``count``."""
    key, reader = plan.reader.key, plan.reader
    if not bound.keys:
        return iter(())
    anywhere = bound.seeks == ((),) and bound.low is None and bound.high is None and not bound.spans
    is_page = count is not None and bool(reader.order)
    if anywhere and not is_page:
        return evaluation.at(key, bound.keys) if key else evaluation.rows()
    layout = _layout(plan)
    wanted = [one for seek in bound.seeks for one in windows(layout, seek, bound.low, bound.high, bound.spans)]
    key_of, keys = key_function(key, evaluation.collations), set(bound.keys)

    def within(part: list[Delta]) -> list[Delta]:
        if anywhere:
            return part
        return [delta for delta in part if any(one.holds(layout.suffix(delta[0])) for one in wanted)]

    def passing(part: list[Delta]) -> list[Delta]:
        return within([delta for delta in part if key_of(delta[0]) in keys] if key else part)

    boxes = _boxes(reader, bound)
    if count is not None and is_page:
        first = evaluation.first(reader.order, count, boxes, passing)
        if first is not None:
            return iter([first])
    some = None if anywhere else evaluation.within(boxes)
    if some is not None:
        return map(passing, some)
    return map(within, evaluation.at(key, bound.keys) if key else evaluation.rows())


def _boxes(reader: Reader, bound: BoundLookup) -> Boxes:
    """What the parameters say of columns of the root; more where it would be too many boxes."""
    if len(bound.keys) * len(bound.seeks) > MOST_BOXES:
        return EVERYWHERE
    suffix = (*reader.seek, *(term.column for term in reader.order))
    found: Boxes = ()
    for key, seek in product(bound.keys, bound.seeks):
        values = zip((*reader.key, *reader.seek), (*key, *seek), strict=False)
        one: Boxes = ({column: exactly(encode_value(value)) for column, value in values},)
        rest = suffix[len(seek) :]
        if bound.low is not None or bound.high is not None:
            one = both(one, _between(rest, (), bound.low, bound.high))
        for alternatives in bound.spans:
            one = both(one, tuple(box for span in alternatives for box in _between(rest, *span)))
        found += one
    return found if len(found) <= MOST_BOXES and all(found) else EVERYWHERE


def _between(columns: Columns, values: Row, low: Bound | None, high: Bound | None) -> Boxes:
    fixed = {column: exactly(encode_value(value)) for column, value in zip(columns, values, strict=False)}
    found: Boxes = (fixed,)
    if low is not None:
        found = both(found, ({columns[len(values)]: ((encode_value(low[0]), low[1]), None)},))
    if high is not None:
        found = both(found, ({columns[len(values)]: (None, (encode_value(high[0]), high[1]))},))
    return found


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
    """See :class:`domains.store.storage.StoredRows`, over the shards of one table: each row is in one of them, which
    the column that decides it tells."""

    def __init__(self, shards: Sequence[StoredRows]) -> None:
        self._shards = shards
        self.schema: TableSchema = shards[0].schema
        self.row_count = sum(shard.row_count for shard in shards)

    def find(self, columns: Columns, key: Row) -> list[Delta]:
        return self.find_many(columns, [key])[0]

    def find_many(self, columns: Columns, keys: Sequence[Row]) -> list[list[Delta]]:
        if (decides := self.schema.shard_column) in columns:
            at, places = columns.index(decides), dict[int, list[int]]()
            for place, key in enumerate(keys):
                places.setdefault(shard_of(key[at], len(self._shards)), []).append(place)
            of_keys: list[list[Delta]] = [[] for _ in keys]
            for number, own in places.items():
                parts = self._shards[number].find_many(columns, [keys[place] for place in own])
                for place, rows in zip(own, parts, strict=True):
                    of_keys[place] = rows
            return of_keys
        found = [shard.find_many(columns, keys) for shard in self._shards]
        return [[delta for rows in of_key for delta in rows] for of_key in zip(*found, strict=True)]

    def count_many(self, columns: Columns, keys: Sequence[Row], most: int) -> list[int]:
        counts = [shard.count_many(columns, keys, most) for shard in self._shards]
        return [min(most, sum(of_key)) for of_key in zip(*counts, strict=True)]

    def slices(self, limit: int) -> Iterator[list[Delta]]:
        return (part for shard in self._shards for part in shard.slices(limit))

    @property
    def orders(self) -> tuple[Columns, ...]:
        return tuple(order for order in self._shards[0].orders if all(order in each.orders for each in self._shards))

    def walk(
        self, order: Columns, interval: Interval, first: int, most: int, *, descending: bool = False
    ) -> Iterator[list[Delta]]:
        key_of = row_encoder(order, [self.schema.columns[at].type for at in order])
        rows = [
            chain.from_iterable(shard.walk(order, interval, first, most, descending=descending))
            for shard in self._shards
        ]
        merged, size = merge(*rows, key=lambda delta: key_of(delta[0]), reverse=descending), first
        while part := list(islice(merged, size)):
            yield part
            size = min(2 * size, most)

    def has_index(self, columns: Columns) -> bool:
        return all(shard.has_index(columns) for shard in self._shards)

    def best_key(self, tied: Any) -> Columns:
        """What all of them have: an index may be built in one shard and not yet in another."""
        best = [shard.best_key(tied) for shard in self._shards]
        return min(best, key=len)
