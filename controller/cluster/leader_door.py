"""What is asked of the controller that leads: changes of the graph, and how it stands. All else goes on without it."""

from __future__ import annotations

from typing import Any, Protocol

from controller.deployment import MigrationStatus
from domains.errors import Unavailable
from migrations.recipe import Entry


class NoLeader(Unavailable):
    """No controller leads, or none that can be reached. Nothing was changed."""

    code = "no_leader"

    def __init__(self, why: str) -> None:
        super().__init__(
            f"no controller leads: {why}",
            hint="reads and writes of what is there go on; changes are taken again when a controller leads",
        )


class LeaderLost(Unavailable):
    """The leader was lost after it was asked: the change is made by the next one, or was never begun."""

    code = "leader_lost"


class LeaderDoor(Protocol):
    """Raises what the leader answers, and :class:`NoLeader`; what was asked may have been done where it raises
    :class:`LeaderLost`."""

    async def run(self, entry: Entry, sql: str) -> None:
        """Have a migration done, and wait for its end; raises what made it fail."""

    async def start(self, sql: str) -> MigrationStatus:
        """Queue a migration; raises at once what planning can tell."""

    async def migration(self, id: str) -> MigrationStatus: ...

    async def cancel(self, id: str) -> MigrationStatus: ...

    async def status(self) -> dict[str, Any]:
        """As JSON."""

    async def close(self) -> None: ...
