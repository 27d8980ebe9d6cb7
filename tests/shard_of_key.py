"""Where a reader has a key: what a look-up in a deployment of several shards finds out."""

from __future__ import annotations

from domains.language.types import Row
from domains.plan.graph import NodeIndex, Reader
from domains.plan.sharding import shard_of
from migrations.flow.dataflow import Dataflow


def shard_of_key(flow: Dataflow, reader: NodeIndex, key: Row) -> int:
    """The number of the shard in which the reader has this key."""
    sharding = flow.sharding[reader]
    operator = flow.nodes[reader].operator
    assert isinstance(operator, Reader)
    if sharding.shards == 1:
        return sharding.first
    at = next(at for at, column in enumerate(operator.key) if column in sharding.columns)
    return sharding.first + shard_of(key[at], sharding.shards)
