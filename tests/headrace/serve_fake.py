"""``headrace`` with the fake deployment behind ``serve``, for tests that need a real process and socket."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "api"))

from fake_deployment import FakeDeployment

from controller.deployment import Deployment
from domains.errors import StorageFailure
from domains.packets import Clock
from headrace import server
from headrace.cli import main
from headrace.settings import Settings


class SlowDeployment(FakeDeployment):
    """Its misses take a while, so that a stop can meet one under way; it says when it is closed."""

    async def page(self, view: str, text: Mapping[str, Sequence[str]], *, token: Clock | None = None) -> bytes:
        if os.environ.get("SLOW"):
            print("page begun", flush=True)
            await asyncio.sleep(float(os.environ["SLOW"]))
        return await super().page(view, text, token=token)

    async def close(self) -> None:
        await super().close()
        print("deployment closed", flush=True)


async def open_fake(settings: Settings) -> Deployment:
    settings.data.mkdir(parents=True, exist_ok=True)
    if (settings.data / "LOCK").exists():
        raise StorageFailure(f'the data directory "{settings.data}" is in use', hint="stop the other server first")
    return SlowDeployment(read_timeout=settings.read_timeout)


if __name__ == "__main__":
    server.open_deployment = open_fake
    main()
