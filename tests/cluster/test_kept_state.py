"""``headrace state``: what ZooKeeper keeps, as a file and back."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from running_cluster import NO_JAVA

from controller.cluster.state import Assignment, ClusterState
from domains.plan.graph import DomainIndex
from headrace.cluster import kept_state
from headrace.errors import AlreadyExists, BadRequest, NotFound
from headrace.settings import Settings, load
from migrations.recipe import Recipe, RecipeEntry
from zookeeper.errors import ForeignDeployment
from zookeeper.kazoo_authority import KazooAuthority
from zookeeper.registration import ControllerDescriptor
from zookeeper.server import Ensemble

pytestmark = pytest.mark.skipif(NO_JAVA, reason="there is no java on PATH")

STATE = ClusterState(
    "main",
    2,
    1,
    7,
    {DomainIndex(0): Assignment("w", 6, "d"), DomainIndex(1): Assignment("w", 7, "d")},
    Recipe((RecipeEntry(("CREATE TABLE t (a INT PRIMARY KEY)",)),)),
)


@pytest.fixture
async def ensemble(tmp_path: Path) -> AsyncIterator[Ensemble]:
    ensemble = Ensemble(tmp_path / "zookeeper")
    await ensemble.start()
    yield ensemble
    await ensemble.stop()


def settings_of(ensemble: Ensemble, **others: str) -> Settings:
    return load(None, zookeeper=ensemble.address, **others)


async def test_saved_and_restored(ensemble: Ensemble, tmp_path: Path) -> None:
    settings, path = settings_of(ensemble), tmp_path / "main.state"
    with pytest.raises(ForeignDeployment, match="there is no deployment"):
        await kept_state.save(settings, path)
    authority = KazooAuthority(ensemble.address, "main")
    await authority.start(create=True)
    with pytest.raises(NotFound, match="has no state yet"):
        await kept_state.save(settings, path)
    await authority.write(STATE.encode(), 0)
    assert await kept_state.save(settings, path) == STATE
    with pytest.raises(AlreadyExists, match="may be in use"):
        await kept_state.restore(settings, path)
    await authority.close()

    elsewhere = Ensemble(tmp_path / "elsewhere")
    await elsewhere.start()
    try:
        restored = await kept_state.restore(settings_of(elsewhere), path)
        assert restored.epoch == STATE.epoch + kept_state.EPOCHS_AHEAD
        again = KazooAuthority(elsewhere.address, "main")
        await again.start()
        data, version = await again.read()
        assert again.deployment_id == authority.deployment_id
        assert version == 1
        assert data is not None
        assert ClusterState.decode(data, "main") == restored
        with pytest.raises(AlreadyExists):
            await kept_state.restore(settings_of(elsewhere), path)
        await again.close()
    finally:
        await elsewhere.stop()


async def test_restored_over_what_a_controller_has_made_anew(ensemble: Ensemble, tmp_path: Path) -> None:
    """Where ZooKeeper has lost everything, a controller that is started again makes a deployment of that name."""
    settings, path = settings_of(ensemble), tmp_path / "main.state"
    written(path)
    controller = KazooAuthority(ensemble.address, "main")
    await controller.start(create=True)
    candidacy = controller.candidate(ControllerDescriptor("c1", "h", 1, 1))
    await candidacy.elected()
    with pytest.raises(AlreadyExists, match="c1 are there"):
        await kept_state.restore(settings, path)
    await controller.close()
    restored = await kept_state.restore(settings, path)
    again = KazooAuthority(ensemble.address, "main")
    await again.start()
    assert again.deployment_id == "former"
    data, _ = await again.read()
    assert data is not None
    assert ClusterState.decode(data, "main") == restored
    await again.close()


def written(path: Path) -> None:
    """The file of a deployment that was in a ZooKeeper which is no more."""
    state = b64encode(STATE.encode()).decode()
    path.write_text(json.dumps({"format": kept_state.FORMAT, "deployment": "main", "id": "former", "state": state}))


async def test_files_that_are_none(ensemble: Ensemble, tmp_path: Path) -> None:
    settings, path = settings_of(ensemble), tmp_path / "main.state"
    with pytest.raises(BadRequest, match="cannot read"):
        await kept_state.restore(settings, path)
    good = {"format": 1, "deployment": "main", "id": "1", "state": ""}
    for content, says in (
        ("", "was not written by headrace state"),
        ("[]", "was not written by headrace state"),
        (json.dumps({**good, "state": "é"}), "was not written by headrace state"),
        (json.dumps({**good, "format": 2}), "has format 2"),
        (json.dumps({**good, "deployment": "other"}), 'is of deployment "other", not of "main"'),
    ):
        path.write_text(content)
        with pytest.raises(BadRequest, match=says):
            await kept_state.restore(settings, path)
