"""One part of a cluster in this process, from its settings to its end. What it does is in the rooms below."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine

from headrace.serving.listening import log_to_standard_error, loop_factory
from headrace.settings import Settings
from worker.service.system import give_back_early
from zookeeper.secret import FILE

_log = logging.getLogger("headrace.cluster")


def worker(settings: Settings) -> None:
    """Raises HeadraceError."""
    from worker.service.process import run

    _run(settings, run(settings))


def controller(settings: Settings) -> None:
    """Raises HeadraceError."""
    from headrace.cluster.controller_process import run

    _run(settings, run(settings))


def api(settings: Settings, fd: int | None = None, mysql_fd: int | None = None) -> None:
    """``fd``, ``mysql_fd``: listening sockets that several api processes share. Raises HeadraceError."""
    from headrace.cluster.api_process import run

    _run(settings, run(settings, fd, mysql_fd=mysql_fd))


def _run(settings: Settings, part: Coroutine[None, None, None]) -> None:
    give_back_early()
    log_to_standard_error(settings)
    if settings.secret_file is None and not (settings.data / FILE).exists():
        _log.warning("it has no secret: whoever reaches this process, or its ZooKeeper, can command it")
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(part)
