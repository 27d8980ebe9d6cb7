"""What ``headrace rebuild`` takes and says; what it does is in tests/controller/cluster/test_rebuilding.py."""

from __future__ import annotations

import pytest

from headrace.cli.rebuild import rebuild, told
from headrace.errors import BadRequest

TABLE = {"shard": 2, "worker": "w3", "base": "votes@2", "position": 41_200, "rows": 39_007}


def test_the_tail_is_named() -> None:
    assert told({**TABLE, "known": 41_230, "lost": 30}) == [
        'votes@2: as of position 41,200, 39,007 rows, on worker "w3"',
        "votes@2: positions 41,201 to 41,230 were not archived: 30 writes are lost",
    ]
    assert told({**TABLE, "known": 41_201, "lost": 1})[1] == (
        "votes@2: position 41,201 was not archived: 1 write is lost"
    )
    assert told({**TABLE, "known": 41_200, "lost": 0})[1] == "votes@2: nothing is known to be lost"


@pytest.mark.parametrize(("shards", "lost"), [([], False), ([1], True)])
def test_nothing_is_given_up_by_default(shards: list[int], lost: bool) -> None:
    with pytest.raises(BadRequest, match="say which shards, or --lost"):
        rebuild(shards, lost)
