"""Domains that are to go to another worker though nothing is wrong: what is done for them while they serve yet.

A domain that moves is away from its closing here until it is linked there. Closing its shard sorts what RocksDB has in
memory to a file, up to 8 MB of it; that is done beforehand, so that there is little left.

It is done before anything is decided, and nothing depends on it. What its answer says was true when it was given and is
no fact that anybody goes on with: whoever decides afterwards looks at what is there as if it had not been done. So it
may fail, take too long, be done twice or for a domain that has gone. But it takes time, so it is left out where a
domain is homeless: nobody is to wait longer for what is lost, so that others wait less for what is not.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from controller.cluster.handles import Deposed
from controller.cluster.state import ClusterState
from controller.cluster.together import together
from controller.executor import Interrupted
from domains.errors import HeadraceError
from domains.graph import DomainIndex
from worker.moving_messages import FlushDomain

FLUSH_SECONDS = 1.0
"""A full memory takes a fifth of that on a busy disk. A loss that comes meanwhile is waited for no longer than this."""

_log = logging.getLogger("headrace.controller")


async def flush_domains(
    ask: Callable[[str, Any], Awaitable[Any]], state: ClusterState, domains: Iterable[DomainIndex]
) -> None:
    """Have domains written to files where they are. Raises Interrupted and Deposed, and nothing else."""
    try:
        async with asyncio.timeout(FLUSH_SECONDS):
            await together(ask(state.placement[d].worker, FlushDomain(state.epoch, d)) for d in domains)
    except (Interrupted, Deposed):
        raise
    except HeadraceError as error:
        _log.info("what moves could not be written out first: %s", error.message)
    except TimeoutError:
        _log.info("what moves was not written out within %g s", FLUSH_SECONDS)
