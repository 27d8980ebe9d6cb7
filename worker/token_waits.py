"""Reads that carry a token wait here until their reader reflects it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from domains.errors import HeadraceError
from domains.graph import DomainIndex, NodeIndex
from domains.packets import Clock, Failed, Filled
from worker.batch import Answerer, Batch
from worker.hosted_domain import HostedDomain


@dataclass(frozen=True, slots=True)
class TokenWait:
    reader: NodeIndex
    clock: Clock
    answer: Answerer
    abandoned: Callable[[], bool]
    """Whether nobody waits any longer."""


class TokenWaits:
    def __init__(self) -> None:
        self._waits: dict[DomainIndex, list[TokenWait]] = {}
        self._checked: dict[DomainIndex, int] = {}
        """The version of the clocks that a domain's waits were last held against."""

    def __len__(self) -> int:
        return sum(map(len, self._waits.values()))

    def add(self, domain: DomainIndex, wait: TokenWait) -> None:
        self._waits.setdefault(domain, []).append(wait)
        self._checked.pop(domain, None)

    def recheck(self, domain: DomainIndex) -> None:
        """The domain's graph has changed."""
        self._checked.pop(domain, None)

    def check(self, hosts: Mapping[DomainIndex, HostedDomain], batch: Batch) -> None:
        """Answer, behind what the batch publishes, those whose reader has reached what they want."""
        for index in list(self._waits):
            domain = hosts[index].domain
            if self._checked.get(index) != domain.clocks.version:
                self._checked[index] = domain.clocks.version
                left = [wait for wait in self._waits[index] if not _is_over(hosts[index], wait, batch)]
                if left:
                    self._waits[index] = left
                else:
                    del self._waits[index]

    def fail(self, domain: DomainIndex, error: HeadraceError, batch: Batch) -> None:
        """The domain is not here any more."""
        for wait in self._waits.pop(domain, ()):
            batch.answers.append((wait.answer, Failed(error)))


def _is_over(host: HostedDomain, wait: TokenWait, batch: Batch) -> bool:
    if wait.abandoned():
        return True
    vertices, clocks = host.domain.vertices, host.domain.clocks
    if wait.reader in vertices and not clocks.reflects(vertices[wait.reader], wait.clock):
        return False
    # Where the reader has gone, whoever asked finds that out by reading.
    batch.answers.append((wait.answer, Filled()))
    return True
