"""A cut of all tables of a process, with what their shards have of transactions; and what others ask of that.

A transaction may stand on both sides of a cut: ``domains/archive/transactions.py`` says what is made of it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Collection
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Protocol

from domains.archive.redo import kept_to_json, kept_with
from domains.archive.transactions import known_parts, parts_told
from domains.engine.domain import Domain
from domains.errors import BadRequest
from domains.plan.graph import DomainIndex
from domains.store.storage import TransactionRecord
from worker.archive.options import ArchiveOptions, ArchivePass
from worker.dataflow.domain_host import DomainHost
from worker.dataflow.hosted_domain import HostedDomain
from worker.protocol.messages import Done, NotHere, version_of
from worker.protocol.operations import (
    ArchivePositions,
    ArchiveRequest,
    KnownParts,
    LeaveCopies,
    PartsRequest,
    PartsSettled,
)
from worker.rocks.cut import TableCut

Key = tuple[DomainIndex, str]


@dataclass(slots=True)
class Cuts:
    """All base tables of the process, between two steps."""

    closed: str
    hosts: dict[Key, tuple[HostedDomain, TableCut]] = field(default_factory=dict)
    recipe: Callable[[], str] | None = None
    prepared: dict[DomainIndex, tuple[int, dict[str, TransactionRecord]]] = field(default_factory=dict)
    """The transactions that were prepared then, and the last number of any that was prepared or committed."""

    def taken(self) -> ArchivePass:
        cuts = [(host.domain.base_name(cut.schema), cut) for host, cut in self.hosts.values()]
        return ArchivePass(
            {base: cut.position for base, cut in cuts},
            {base: cut.identity for base, cut in cuts},
            {base: version_of(cut.schema) for base, cut in cuts},
            self.closed,
            None if self.recipe is None else self.recipe(),
        )

    def told(self) -> tuple[dict[str, Any], ...]:
        """What the shards have of transactions. What they have committed is read once the cut is archived: of what came
        behind it only that counts which was prepared before."""
        found: list[dict[str, Any]] = []
        for index, (last, prepared) in self.prepared.items():
            own = [each for key, each in self.hosts.items() if key[0] == index]
            if own:
                domain = own[0][0].domain
                schemas = {cut.schema.name: (domain.base_name(cut.schema), cut.schema) for _, cut in own}
                found += parts_told(index, last, prepared, domain.store.parts(), schemas)
        return tuple(found)


def prepared_in(domain: Domain) -> tuple[int, dict[str, TransactionRecord]]:
    """Between two steps."""
    known = domain.transactions
    return known.order, {id: own.prepared for id, own in known.prepared.items() if own.prepared is not None}


def committed_in(domain: Domain, base: str) -> dict[str, int]:
    """The transactions over several shards that have rows in a table, with their positions; of those that are kept
    against the loss of a disk, until they are settled. Any thread."""
    if domain.transactions.parts.others is None:
        return {}
    return {id: part.committed[base] for id, part in domain.store.parts().items() if base in part.committed}


def settle(hosted: DomainHost, transactions: Collection[str]) -> None:
    """A cut is recorded that has these wholly. Between two steps."""
    for host in hosted.hosts.values():
        host.domain.store.forget_parts(transactions)


# --- for the other processes of a cluster ---------------------------------------------------------------------------


class ArchivesNow(Protocol):
    """See :class:`worker.archive.archiver.Archiver`."""

    options: ArchiveOptions

    def archive_now(self, *, hold: str | None, epoch: int, urgent: bool) -> Future[ArchivePass]: ...


async def archive_for(archiver: ArchivesNow | None, worker: str, asked: ArchiveRequest) -> ArchivePositions:
    """Raises BadRequest: there is no archive. ArchiveError."""
    if archiver is None:
        raise BadRequest(f'worker "{worker}" has no archive', hint="start all workers with the same --archive")
    taken = await asyncio.wrap_future(archiver.archive_now(hold=asked.keep, epoch=asked.epoch, urgent=asked.urgent))
    told = json.dumps(taken.told).encode()
    return ArchivePositions(archiver.options.url, taken.positions, taken.identities, taken.schemas, told)


def parts_asked(hosted: DomainHost, asked: PartsRequest | PartsSettled) -> KnownParts | Done:
    """Between two steps. Raises NotHere."""
    if isinstance(asked, PartsSettled):
        settle(hosted, asked.transactions)
        return Done()
    host = hosted.hosts.get(asked.domain)
    if host is None or not host.linked:
        raise NotHere(f"domain {asked.domain} is not hosted here", epoch=hosted.epoch)
    known = known_parts(host.domain.store)
    return KnownParts(tuple(id for id in asked.transactions if id in known))


def copies_asked(hosted: DomainHost, asked: LeaveCopies) -> bytes:
    """What a shard keeps of the parts of a lost one, and from now on nothing more: ``engine/transactions/parts.py``.
    Between two steps. Raises NotHere."""
    hosted.known.give_up({asked.lost: asked.incarnation})
    host = hosted.hosts.get(asked.domain)
    if host is None or host.domain.incarnation != hosted.known.get(asked.domain):
        raise NotHere(f"domain {asked.domain} is not hosted here", epoch=hosted.epoch)
    return kept_to_json(kept_with(host.domain.store, asked.domain, host.domain.incarnation, asked.lost))
