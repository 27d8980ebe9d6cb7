"""What was decided when a cluster was begun: a later start has it as it is, and need not say it again.

A start that says otherwise is refused: what it asks for cannot be had of the data that is there. But for ZooKeeper's
address, which may be another one later: what is in it says whether it is the same ZooKeeper (``worker/belonging.py``).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from controller.cluster.state import ClusterState
from headrace.listening import StartFailed
from headrace.settings import CLUSTER_SHARDS, Settings
from worker.belonging import deployment_of
from zookeeper.cluster_authority import ClusterAuthority
from zookeeper.server import size_of

ZOOKEEPER = "zookeeper.address"
"""Beside ``zookeeper/``, which has the servers of the directory's own."""


def servers_in(directory: Path) -> Path:
    """Where a data directory has the ZooKeeper servers of its own."""
    return directory / "zookeeper"


def zookeeper_of(directory: Path) -> str | None:
    """The address of the ZooKeeper that is not of the directory's own servers; None where there was none."""
    try:
        return (directory / ZOOKEEPER).read_text("utf-8").strip() or None
    except OSError:
        return None


def whence(directory: Path, address: str | None) -> str:
    """Where that address may come from, for whoever is told that nobody answers at it."""
    if address is None or zookeeper_of(directory) != address:
        return ""
    file = directory / ZOOKEEPER
    return f'; "{file}" has it from the last start: name another with --zookeeper, or remove it to have servers here'


def keep_zookeeper(directory: Path, address: str) -> None:
    """To be called once it is known to have the directory's deployment. Raises OSError."""
    if zookeeper_of(directory) != address:
        beside = directory / f"{ZOOKEEPER}.new"
        beside.write_text(f"{address}\n", "utf-8")
        beside.replace(directory / ZOOKEEPER)


def as_begun(settings: Settings, directory: Path) -> Settings:
    """Those of ``headrace up``, with what the data directory knows of what they do not say."""
    known: dict[str, Any] = {}
    if "deployment" not in settings.model_fields_set:
        known["deployment"] = deployment_of(directory) or settings.deployment
    if settings.zookeeper is None:
        known["zookeeper"] = zookeeper_of(directory)
    if settings.zookeepers is None:
        known["zookeepers"] = size_of(servers_in(directory))
    return settings.model_copy(update=known)


async def shards_of(settings: Settings, authority: ClusterAuthority) -> int:
    """How many shards the deployment has, or is to have if it is new.

    :raises StartFailed: another number is given. :raises AuthorityError: it cannot be asked.
    """
    data, _ = await authority.read()
    if data is None:
        return settings.shards or CLUSTER_SHARDS
    shards = ClusterState.decode(data, authority.deployment).shards
    if settings.shards not in (None, shards):
        raise StartFailed(
            f'deployment "{authority.deployment}" has {shards} shards since its first start, not {settings.shards}',
            hint="give no number of shards, or begin anew: another data directory, under another --deployment",
        )
    return shards
