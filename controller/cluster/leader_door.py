"""What is asked of the controller that leads: changes of the graph, and how it stands. All else goes on without it."""

from __future__ import annotations

from typing import Any, Protocol

from controller.deployment import MigrationStatus
from migrations.recipe import Entry


class LeaderDoor(Protocol):
    """Raises what the leader answers, and NoLeader; what was asked may have been done where it raises LeaderLost."""

    async def run(self, entry: Entry, sql: str) -> None:
        """Have a migration done, and wait for its end; raises what made it fail."""

    async def start(self, sql: str) -> MigrationStatus:
        """Queue a migration; raises at once what planning can tell."""

    async def migration(self, id: str) -> MigrationStatus: ...

    async def cancel(self, id: str) -> MigrationStatus: ...

    async def status(self) -> dict[str, Any]:
        """As JSON."""

    async def close(self) -> None: ...
