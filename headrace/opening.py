"""The one place that chooses the deployment that settings ask for: the embedded one."""

from __future__ import annotations

from controller.deployment import Deployment
from headrace.settings import Settings
from worker.archiving import ArchiveOptions


async def open_deployment(settings: Settings) -> Deployment:
    """Raises StorageFailure, or OSError where the data directory cannot be made."""
    from controller.local import LocalDeployment  # Late: it loads the storage libraries, which a client has no use for.

    return await LocalDeployment.open(
        settings.data,
        memory_limit=settings.memory_limit,
        domains=settings.domains,
        shards=settings.shards,
        read_timeout=settings.read_timeout,
        archive=ArchiveOptions.of(settings),
    )
