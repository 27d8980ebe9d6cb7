"""Requests that domains have yet to answer, and who waits for the answer."""

from __future__ import annotations

from dataclasses import dataclass

from domains.errors import HeadraceError
from domains.graph import DomainIndex
from domains.packets import Failed, Outcome, RequestId
from worker.batch import Answerer, Batch, Look


@dataclass(frozen=True, slots=True)
class Pending:
    domain: DomainIndex
    answer: Answerer
    look: Look | None


class Requests:
    def __init__(self) -> None:
        self._last = 0
        self._pending: dict[RequestId, Pending] = {}

    def __len__(self) -> int:
        return len(self._pending)

    def new(self, domain: DomainIndex, answer: Answerer, look: Look | None = None) -> RequestId:
        """``look`` is taken where the answer stands among what is published."""
        self._last += 1
        request = RequestId(self._last)
        self._pending[request] = Pending(domain, answer, look)
        return request

    def reply(self, request: RequestId, outcome: Outcome, batch: Batch) -> None:
        pending = self._pending.pop(request)
        if pending.look is not None:
            batch.visible.append(pending.look)
        batch.answers.append((pending.answer, outcome))

    def fail(self, domain: DomainIndex, error: HeadraceError, batch: Batch) -> None:
        """The domain is gone, and with it what it was asked."""
        for request, pending in list(self._pending.items()):
            if pending.domain == domain:
                del self._pending[request]
                batch.answers.append((pending.answer, Failed(error)))

    def fail_all(self, error: HeadraceError) -> None:
        """Nothing goes on."""
        for pending in self._pending.values():
            pending.answer(Failed(error))
        self._pending.clear()
