"""The whole system inside one's own process: for tests, notebooks and small programs.

The deployment and the HTTP application live on an event loop in a thread of their own. Calls go to the application as
they would over a socket, but without one, so that an embedded database behaves as a server does, errors and JSON
included.

::

    your thread: Connection ──► LoopTransport ─ run_coroutine_threadsafe ─► loop thread: application ──► deployment
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from threading import Thread
from typing import Any, TypeVar

import httpx
from headrace_client.connection import Connection

from api.app import create_app
from api.limits import Admission, Limits
from controller.deployment import Deployment
from headrace import errors
from headrace import settings as settings_module
from headrace.serving.opening import open_deployment
from headrace.settings import Settings

URL = "http://embedded"
Opener = Callable[[Settings], Awaitable[Deployment]]
Answer = TypeVar("Answer")


class LoopThread:
    """An event loop that runs in a thread of its own until it is stopped."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner()
        self._loop = self._runner.get_loop()
        self._thread = Thread(target=self._run, name="headrace", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, Answer]) -> Answer:
        """Run it over there, and wait for it here."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def stop(self) -> None:
        """Tasks that still run there are cancelled."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _run(self) -> None:
        with self._runner:
            self._loop.run_forever()


class LoopTransport(httpx.BaseTransport):
    """Carries a blocking client's requests to an ASGI application on another thread's loop."""

    def __init__(self, thread: LoopThread, app: Any) -> None:
        self._thread = thread
        self._asgi = httpx.ASGITransport(app)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        return self._thread.run(self._handle(request))

    async def _handle(self, request: httpx.Request) -> httpx.Response:
        response = await self._asgi.handle_async_request(request)
        return httpx.Response(response.status_code, headers=response.headers, content=await response.aread())


class Embedded(Connection):
    """A connection that owns what it is connected to; closing it closes the deployment."""

    def __init__(
        self, thread: LoopThread, deployment: Deployment, settings: Settings, read_your_writes: bool, raw: bool
    ) -> None:
        self._app = create_app(deployment, admission=Admission(Limits.of(settings)), trusted=True)
        transport = LoopTransport(thread, self._app)
        super().__init__(URL, read_your_writes=read_your_writes, raw=raw, transport=transport)
        self._thread: LoopThread | None = thread
        self._deployment = deployment

    def close(self) -> None:
        """Close the deployment; a second time does nothing."""
        super().close()
        thread, self._thread = self._thread, None
        if thread is not None:
            try:
                thread.run(self._close())
            finally:
                thread.stop()

    async def _close(self) -> None:
        await self._app.close()
        await self._deployment.close()


def embedded(
    path: str | Path,
    *,
    read_your_writes: bool = False,
    raw: bool = False,
    opener: Opener = open_deployment,
    **settings: Any,
) -> Embedded:
    """Open the database in the directory ``path``, in this process. Close it, or use ``with``.

    ``raw`` is that of ``connect``, and ``settings`` are those of ``headrace serve``: ``memory_limit="512MB"``,
    ``domains=2``, ``read_timeout=5``. Raises SettingsError, StorageFailure.
    """
    chosen = settings_module.load(data=Path(path), **settings)
    thread = LoopThread()
    try:
        with errors.named():
            return Embedded(thread, thread.run(_open(opener, chosen)), chosen, read_your_writes, raw)
    except BaseException:
        thread.stop()
        raise


async def _open(opener: Opener, settings: Settings) -> Deployment:
    return await opener(settings)
