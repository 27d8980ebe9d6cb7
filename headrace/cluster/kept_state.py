"""The cluster's state as a file: what a back-up needs besides the data directories.

It is what ZooKeeper keeps for the deployment: its recipe and who hosts what, some kilobytes. A deployment that is
restored takes up its old identity, so that the data directories know it; its epoch is set ahead, so that every order of
the new leader counts for more than any that was given after the file was written.
"""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from pathlib import Path

from controller.cluster.state import ClusterState
from domains.archive.manifest import opened, sealed
from headrace.errors import AlreadyExists, BadRequest, NotFound, StorageFailure
from headrace.settings import Settings
from zookeeper.kazoo_authority import KazooAuthority, authority_of

FORMAT = 1
RESTORED = "restored.state"
"""File of a data directory made by ``headrace restore``: the state for ZooKeeper, before the cluster starts."""

EPOCHS_AHEAD = 1_000_000
"""Epochs to skip. Every leader and every recovery takes one: at one a minute, this is two years of them."""


async def save(settings: Settings, path: Path) -> ClusterState:
    """Write what is decided now. Raises AuthorityError, NotFound, StorageFailure."""
    authority = authority_of(settings)
    await authority.start()
    try:
        data, _ = await authority.read()
    finally:
        await authority.close()
    if data is None:
        raise NotFound(f'deployment "{settings.deployment}" has no state yet', hint="it is written at its first start")
    state = ClusterState.decode(data, settings.deployment)
    document = {
        "format": FORMAT,
        "deployment": settings.deployment,
        "id": authority.deployment_id,
        "state": base64.b64encode(data).decode(),
    }
    beside = path.with_name(path.name + ".new")
    try:
        beside.write_text(json.dumps(sealed(document)) + "\n")
        beside.replace(path)
    except OSError as error:
        raise StorageFailure(f'cannot write "{path}": {error.strerror or error}') from error
    return state


async def restore(settings: Settings, path: Path) -> ClusterState:
    """Bring a deployment back into a ZooKeeper that has lost it. Raises AuthorityError, BadRequest, AlreadyExists."""
    id, state = _read(settings, path)
    authority = authority_of(settings, id)
    await authority.start(create=True)
    try:
        await _make_room(authority, id)
        ahead = replace(state, epoch=state.epoch + EPOCHS_AHEAD)
        await authority.write(ahead.encode(), 0)
    finally:
        await authority.close()
    return ahead


async def _make_room(authority: KazooAuthority, id: str) -> None:
    """Have the deployment be the one of this id, without a state. A controller that came before this has made one anew
    where ZooKeeper had lost it; nothing was ever decided there, so nothing is lost with it. Raises AlreadyExists."""
    name = authority.deployment
    _, version = await authority.read()
    if version != 0:
        raise AlreadyExists(
            f'there is a deployment "{name}" in ZooKeeper, and it may be in use',
            hint=f"to replace it, stop all its processes and delete the znode /headrace/{name}",
        )
    there = [*await authority.candidates(), *await authority.workers()]
    if there:
        raise AlreadyExists(
            f'there is a deployment "{name}" in ZooKeeper, and {", ".join(there)} are there',
            hint="stop all its processes first; a killed process is gone when its session ends",
        )
    if authority.deployment_id != id:
        await authority.become(id)


async def take_up(settings: Settings, data: Path) -> bool:
    """Bring in what ``headrace restore`` has left in a data directory; answers whether there was something.

    A second time does nothing: the file is then called ``restored.state.done``.
    """
    path = data / RESTORED
    if not path.exists():
        return False
    id, _ = _read(settings, path)
    authority = authority_of(settings, id)
    await authority.start(create=True)
    try:
        _, version = await authority.read()
        taken = authority.deployment_id == id and version != 0  # And then this was broken off.
    finally:
        await authority.close()
    if not taken:
        await restore(settings, path)
    path.replace(path.with_name(path.name + ".done"))
    return True


def _read(settings: Settings, path: Path) -> tuple[str, ClusterState]:
    try:
        found = opened(json.loads(path.read_text("utf-8")))
        format, deployment, id = found["format"], str(found["deployment"]), str(found["id"])
        data = base64.b64decode(found["state"], validate=True)
    except OSError as error:
        raise BadRequest(f'cannot read "{path}": {error.strerror or error}') from error
    except (ValueError, KeyError, TypeError) as error:
        raise BadRequest(f'"{path}" was not written by headrace state') from error
    if format != FORMAT:
        raise BadRequest(f'"{path}" has format {format}, and this version reads {FORMAT}')
    if deployment != settings.deployment:
        raise BadRequest(
            f'"{path}" is of deployment "{deployment}", not of "{settings.deployment}"',
            hint="name it with --deployment",
        )
    return id, ClusterState.decode(data, deployment)
