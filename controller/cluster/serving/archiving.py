"""Archiving the whole of a cluster up to now: each worker archives the shards that it hosts.

The workers' cuts are not of the same moment: each is of a moment between the call and its answer. Writes before the
call are in the archive; of two writes during it to two workers, either may be. What is one transaction is so all the
same, by what the workers tell of those that they have a part of (``domains/archive/transactions.py``).

**The recipe is read before anything is cut, and counts only if every worker has cut exactly the tables that it names,
with their schemas.** So a table that was dropped after that is still whole in the cuts, whatever was filled from it
meanwhile. Otherwise, or if a shard has no host or moves, nothing is recorded, and all is done again.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from controller.cluster.leader.fleet import together
from controller.cluster.serving.connections import Connections
from controller.cluster.serving.directory import Directory
from controller.cluster.state import ClusterState
from controller.deployment import ArchivedPositions
from domains.archive.manifest import ArchiveError, ArchiveFenced
from domains.archive.transactions import PartPlace, missing_parts, part_of
from domains.errors import NotServed, StorageFailure, Unavailable
from domains.plan.graph import DomainIndex
from domains.plan.sharding import base_shards
from migrations.flow.plan import State
from worker.archive.options import ArchivePass
from worker.protocol.messages import version_of
from worker.protocol.operations import ArchivePositions, ArchiveRequest, KnownParts, PartsRequest, PartsSettled

if TYPE_CHECKING:
    from controller.cluster.leader.port import LeaderPort

TRIES = 10
AGAIN_SECONDS = 0.2
"""Seconds between two tries. Creating or dropping a table in all shards takes a few of them, replacing a lost worker
several."""

Keep = Callable[[str, ArchivePass, ClusterState], Awaitable[ArchivePass]]
"""Records a cut in the archive under a URL."""


@dataclass(frozen=True, slots=True)
class Decided:
    """The present decision: the recipe, and its plan."""

    cluster: ClusterState
    state: State

    @property
    def workers(self) -> Collection[str]:
        return sorted({given.worker for given in self.cluster.placement.values()})

    def schemas(self) -> dict[str, int]:
        """The version of the schema of each base shard."""
        return {
            base: version_of(schema)
            for schema in self.state.catalog.tables.values()
            for base in base_shards(schema, self.cluster.shards)
        }


Look = Callable[[], Awaitable[Decided]]
Ask = Callable[[str, ArchiveRequest | PartsRequest | PartsSettled], Awaitable[Any]]
"""Asks a worker. Raises NotServed: it is not there."""


async def cut_cluster(look: Look, ask: Ask, keep: Keep, *, urgent: bool = True) -> ArchivedPositions:
    """Archive all base tables, and record the cut; one that is ``urgent`` takes no rests.

    :raises ArchiveError: a shard could not be archived.
    :raises BadRequest: a worker has no archive.
    :raises Unavailable: after all tries a shard still has no host, or tables keep coming and going.
    """
    for left in reversed(range(TRIES)):
        try:
            decided = await look()
            url, taken = await _cut(decided, ask, ArchiveRequest(urgent=urgent))
            kept = await keep(url, taken, decided.cluster)
            await _settle(decided, ask, kept.settled)
            return ArchivedPositions.of(url, kept, decided.cluster.shards)
        except (Unavailable, StorageFailure) as error:
            passes = not isinstance(error, ArchiveError) or isinstance(error, ArchiveFenced)
            if not left or not passes:
                raise
        await asyncio.sleep(AGAIN_SECONDS)
    raise AssertionError("the last try answers or raises")


async def _cut(decided: Decided, ask: Ask, request: ArchiveRequest) -> tuple[str, ArchivePass]:
    told: list[ArchivePositions] = await together(ask(worker, request) for worker in decided.workers)
    taken = ArchivePass({}, {}, {}, "", decided.cluster.recipe.to_json().decode())
    for each in told:
        taken.positions.update(each.positions)
        taken.identities.update(each.identities)
        taken.schemas.update(each.schemas)
    check_same_tables(decided.schemas(), taken.schemas)
    parts = tuple(part for each in told for part in json.loads(each.told))
    taken = replace(taken, told=parts, lost=await _lost(decided, ask, parts))
    return told[0].url if told else "", taken


async def _lost(decided: Decided, ask: Ask, told: Sequence[dict[str, Any]]) -> tuple[PartPlace, ...]:
    """Parts of transactions that their shards have not told of, and do not know of now either: another has committed,
    so they knew. Where they were cut before they knew, they know now."""
    by_shard: dict[int, set[str]] = {}
    for id, shard in missing_parts(map(part_of, told)):
        by_shard.setdefault(shard, set()).add(id)
    lost: list[PartPlace] = []
    for shard, ids in sorted(by_shard.items()):
        domain = DomainIndex(shard)
        request = PartsRequest(domain, tuple(sorted(ids)))
        known: KnownParts = await ask(decided.cluster.placement[domain].worker, request)
        lost += [(id, shard) for id in sorted(ids.difference(known.transactions))]
    return tuple(lost)


async def _settle(decided: Decided, ask: Ask, transactions: tuple[str, ...]) -> None:
    """Who does not hear of it tells of them again."""
    if transactions:
        asked = (ask(worker, PartsSettled(transactions)) for worker in decided.workers)
        await asyncio.gather(*asked, return_exceptions=True)


def check_same_tables(decided: dict[str, int], cut: dict[str, int]) -> None:
    """Raises NotServed if a table has come, gone or changed since the recipe was read, or is not there yet."""
    for base in sorted(decided.keys() | cut.keys()):
        if base not in cut:
            raise NotServed(
                f'"{base}" has no host now, or was dropped meanwhile, so it was not archived',
                hint="try again; GET /v1/status shows who hosts what",
            )
        if decided.get(base) != cut[base]:
            raise NotServed(
                f'table "{base}" was created, altered or dropped while the cluster was archived', hint="try again"
            )


# --- for an api process, and for the leader ----------------------------------------------------------------------


async def archive_cluster(directory: Directory, connections: Connections) -> ArchivedPositions:
    """See :func:`cut_cluster`."""

    async def look() -> Decided:
        await directory.refresh()
        decided = directory.cluster
        if not directory.connected or decided is None:
            raise NotServed(
                "ZooKeeper does not answer, so the present tables are not known, and nothing is archived",
                hint="try again",
            )
        if directory.damage is not None:
            raise directory.damage
        if decided.recipe != directory.recipe:
            raise NotServed("tables and views change just now", hint="try again")
        return Decided(decided, directory.state)

    async def ask(worker: str, message: ArchiveRequest | PartsRequest | PartsSettled) -> Any:
        if worker not in directory.workers:
            raise NotServed(f'worker "{worker}" is not there, so its shards were not archived', hint="try again")
        connection = await connections.to(directory.workers[worker])
        return await connection.ask(message)

    return await cut_cluster(look, ask, keep_in_archive())


async def archive_led(leader: LeaderPort, retention: float | None, *, urgent: bool = True) -> ArchivedPositions:
    """The same by the leader; an ``urgent`` archiving takes no rests. Raises Deposed if it leads no more."""

    async def look() -> Decided:
        await leader.ledger.confirm()
        state, decided = leader.serving().state, leader.ledger.decided
        if decided.recipe != leader.recipe:
            raise NotServed("tables and views change just now", hint="try again")
        return Decided(decided, state)

    async def ask(worker: str, message: ArchiveRequest | PartsRequest | PartsSettled) -> Any:
        return await leader.fleet.ask(worker, message)

    return await cut_cluster(look, ask, keep_in_archive(retention), urgent=urgent)


def keep_in_archive(retention: float | None = None) -> Keep:
    async def keep(url: str, taken: ArchivePass, decided: ClusterState) -> ArchivePass:
        from worker.archive.recipes import keep_recipe  # Late: it loads pyarrow.

        assert taken.recipe is not None
        version = (decided.epoch, decided.recipe.changes)
        return await asyncio.to_thread(
            keep_recipe, url, taken, decided.shards, taken.recipe, version, retention=retention
        )

    return keep
