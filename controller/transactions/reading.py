"""Look-ups of views in a transaction: evaluated over the base tables as it sees them, and not read of what is kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from controller.lookups.binding import Binding, FinishedLookup, RequestMoment
from controller.statements.evaluating import finished_rows
from controller.statements.listing import view_of
from controller.transactions.snapshots import SnapshotReads
from controller.transactions.transaction import Transaction
from domains.language.coercion import json_row_coercer
from domains.language.json_rows import json_encoder
from domains.plan.packets import Clock
from migrations.flow.evaluation_plan import plan_evaluation
from migrations.flow.plan import State
from worker.adhoc.answer import Question, Rows
from worker.reader_map import BoundLookup


class ReadsInTransactions(Protocol):
    """A deployment, as far as it is asked here."""

    @property
    def state(self) -> State: ...

    def now(self) -> str: ...

    async def evaluate(
        self, question: Question, token: Clock, elsewhere: None, transaction: Transaction | None
    ) -> tuple[Rows, Clock]: ...


async def pages_in(
    port: ReadsInTransactions,
    view: str,
    bind: Callable[[Binding], Sequence[BoundLookup]],
    moment: RequestMoment,
) -> list[bytes]:
    """The rows of each key, as comma-joined JSON objects.

    :raises NotFound, BadRequest, TypeViolation: as a look-up of the view. :raises Conflict, TransactionEnded."""
    state, transaction = port.state, moment.asker.transaction
    planned = view_of(state, view)
    bounds = bind(Binding.of(planned, port.now))
    kept = await transaction.answers(state) if isinstance(transaction, SnapshotReads) else None
    found = [None if kept is None else kept.find(view, bound) for bound in bounds]
    if None not in found:
        return [page for page in found if page is not None]
    _, plan = plan_evaluation(state, state.catalog.views[planned.name.lower()])
    coerced, encoded = json_row_coercer(planned.columns), json_encoder(planned.columns)
    pages: list[bytes] = []
    for bound, page in zip(bounds, found, strict=True):
        if page is None:
            rows, _ = await port.evaluate(Question(plan, bound.sent), {}, None, transaction)
            if isinstance(bound, FinishedLookup) and planned.finish is not None:
                rows = finished_rows(bound, planned.finish, rows)
            page = b",".join([encoded(coerced(row)) for row in rows])
            if kept is not None:
                kept.keep(view, bound, page)
        pages.append(page)
    return pages
