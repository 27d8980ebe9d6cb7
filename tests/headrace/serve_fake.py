"""``headrace`` with the fake deployment behind ``serve``, for tests that need a real process and socket."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "api"))

from fake_deployment import FakeDeployment

from controller.access.session import ANONYMOUS, OPEN, Caller
from controller.deployment import Deployment, PreparedLookup, StatementResult
from controller.embedded.opening import Opening
from domains.errors import Cancelled, StorageFailure
from domains.plan.packets import Clock
from headrace.cli import main
from headrace.serving import server
from headrace.settings import Settings
from worker.reader_map import BoundLookup


class SlowDeployment(FakeDeployment):
    """Its misses take a while, so that a stop can meet one under way, and a statement that begins with ``BUILD`` takes
    until the process is to stop; it says when it is closed."""

    async def execute(
        self,
        sql: str,
        params: Sequence[Any] = (),
        *,
        token: Clock | None = None,
        session: Caller = OPEN,
        atomic: bool = False,
    ) -> tuple[list[StatementResult], Clock]:
        if sql.startswith("BUILD"):
            self.given_up = asyncio.Event()
            print("build begun", flush=True)
            await self.given_up.wait()
            raise Cancelled("given up")
        return await super().execute(sql, params, token=token, session=session, atomic=atomic)

    def stopping(self) -> None:
        if hasattr(self, "given_up"):
            self.given_up.set()

    async def fill_page(
        self,
        lookup: PreparedLookup,
        missed: BoundLookup,
        text: Mapping[str, Sequence[str]],
        asker: Caller = ANONYMOUS,
    ) -> bytes:
        if os.environ.get("SLOW"):
            print("page begun", flush=True)
            await asyncio.sleep(float(os.environ["SLOW"]))
        return await super().fill_page(lookup, missed, text, asker)

    async def close(self) -> None:
        await super().close()
        print("deployment closed", flush=True)


async def open_fake(settings: Settings, opening: Opening) -> Deployment:
    settings.data.mkdir(parents=True, exist_ok=True)
    if (settings.data / "LOCK").exists():
        raise StorageFailure(f'the data directory "{settings.data}" is in use', hint="stop the other server first")
    if os.environ.get("WAITS"):
        opening.begin("planning views", 500)
        while not (settings.data / "GO").exists():
            opening.went(opening.done + 1)
            await asyncio.sleep(0.01)
    return SlowDeployment(read_timeout=settings.read_timeout)


if __name__ == "__main__":
    server.open_deployment = open_fake
    main()
