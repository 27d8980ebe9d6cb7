"""A write to several shards tells the error that its client can least do without."""

from __future__ import annotations

import pytest

from controller.statements.sharded_write import write_parts
from domains.errors import OutcomeUnknown, StorageFailure
from domains.plan.packets import Insert, Operation, Written
from migrations.flow.routing import Split


@pytest.mark.parametrize("lost", [0, 1, 2])
async def test_an_unknown_outcome_of_one_shard_is_told_before_refusals_of_others(lost: int) -> None:
    async def write(shard: int, part: Operation) -> Written:
        if shard == lost:
            raise OutcomeUnknown("the sync failed")
        raise StorageFailure("the disk is full")

    with pytest.raises(OutcomeUnknown, match="sync"):
        await write_parts(Split(tuple((shard, Insert("t", ((shard,),))) for shard in range(3))), write)
