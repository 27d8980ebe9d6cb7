"""How many shards a data directory has is decided at its first start: a later one need not say it, nor say another."""

from __future__ import annotations

from pathlib import Path

import pytest

from controller.embedded.local import LocalDeployment
from domains.errors import StorageFailure
from worker.belonging import claim


@pytest.mark.parametrize("first", [None, 1, 3])
async def test_a_later_start_has_as_many_as_the_first(first: int | None, tmp_path: Path) -> None:
    opened = await LocalDeployment.open(tmp_path, shards=first)
    await opened.execute("CREATE TABLE stories (id INT PRIMARY KEY)")
    await opened.insert("stories", [{"id": number} for number in range(20)])
    await opened.close()
    for given in (None, first):
        opened = await LocalDeployment.open(tmp_path, shards=given)
        assert opened.state.shards == (first or 1)
        ((found,), _) = await opened.execute("SELECT COUNT(*) FROM stories")
        assert found.rows == ((20,),)
        await opened.close()
    with pytest.raises(StorageFailure, match="not 2") as refused:
        await LocalDeployment.open(tmp_path, shards=2)
    assert refused.value.hint is not None
    assert "give none" in refused.value.hint


async def test_the_data_of_a_cluster_is_not_opened(tmp_path: Path) -> None:
    claim(tmp_path, "main", "1")
    before = sorted(tmp_path.iterdir())
    with pytest.raises(StorageFailure, match="is that of a cluster, not of headrace serve"):
        await LocalDeployment.open(tmp_path)
    assert sorted(tmp_path.iterdir()) == before
