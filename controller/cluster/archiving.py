"""Archiving the whole of a cluster up to now: each worker archives the shards that it hosts.

The cuts of two workers are not of the same moment: each is a moment between the call and its answer. What was written
before the call is in the archive; of two writes that were made during it to two workers, either may be.
"""

from __future__ import annotations

import asyncio

from controller.cluster.connections import Connections
from controller.cluster.directory import Directory
from controller.deployment import Archived
from domains.errors import NotServed
from domains.packets import Clock
from domains.sharding import base_shard
from worker.archive_messages import ArchivePositions, ArchiveRequest
from zookeeper.descriptors import WorkerDescriptor


async def archive_cluster(directory: Directory, connections: Connections) -> Archived:
    """:raises ArchiveError: a shard could not be archived.
    :raises BadRequest: a worker has no archive.
    :raises NotServed: a shard is hosted by nobody now, or moved meanwhile; nothing is lost by asking again.
    """
    await directory.refresh()
    state, decided = directory.state, directory.cluster
    assert decided is not None, "a dataflow that nobody decided"
    owners = {owner.name: owner for domain in decided.domains if (owner := directory.owner(domain)) is not None}
    told = await asyncio.gather(*(_archive(connections, owner) for owner in owners.values()))
    positions: Clock = {}
    for each in told:
        positions.update(each.positions)
    for schema in state.catalog.tables.values():
        for shard in range(schema.shards or state.shards):
            if base_shard(schema.name, schema.generation, shard, state.shards) not in positions:
                raise NotServed(
                    f'shard {shard} of table "{schema.name}" is hosted by nobody now, so it was not archived',
                    hint="try again; GET /v1/status shows who hosts what",
                )
    recipe = decided.recipe.to_json().decode()
    url = told[0].url if told else ""
    await asyncio.to_thread(_keep_recipe, url, positions, state.shards, recipe)
    return Archived(url, positions, state.shards, recipe)


async def _archive(connections: Connections, owner: WorkerDescriptor) -> ArchivePositions:
    connection = await connections.to(owner)
    answer: ArchivePositions = await connection.request(ArchiveRequest())
    return answer


def _keep_recipe(url: str, positions: Clock, shards: int, recipe: str) -> None:
    """So that the archive can be restored as it is: the workers know of tables alone."""
    from worker.archive.recipes import keep_recipe  # Late: it loads pyarrow.

    keep_recipe(url, shards, recipe, positions)
