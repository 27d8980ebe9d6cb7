"""``link-cut`` and ``slow-link``: what two workers send to each other goes through proxies."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from headrace.drills.cluster import HOST, Cluster
from headrace.drills.possible import NotPossible
from headrace.drills.proxy import Pair, Proxy, Rules
from headrace.drills.stage import LINKS_ONLY, Stage
from headrace.listening import listen

CUT_SECONDS = 2.0
SLOW_SECONDS = 5.0
DELAY = 0.1
"""Seconds, each way: between continents."""


@asynccontextmanager
async def means(cluster: Cluster) -> AsyncIterator[dict[str, Any]]:
    """Every worker says that it is reached at an address of the loopback net that is its proxy's; it listens at the
    same port of another."""
    rules, proxies = Rules(), []
    special: dict[str, dict[str, Any]] = {}
    for number in range(1, cluster.shape.workers + 1):
        name, outside = f"worker-{number}", f"127.0.1.{number}"
        with listen(HOST, 0) as free:
            port: int = free.getsockname()[1]
        proxies.append(Proxy(name, outside, port, (HOST, port), rules))
        special[name] = {"environment": {"HEADRACE_WORKER_PORT": str(port), "HEADRACE_ADVERTISE": outside}}
    cluster.special = special
    try:
        for proxy in proxies:
            try:
                await proxy.start()
            except OSError as error:
                raise NotPossible(
                    f'not possible here, because nothing can listen at "{proxy.host}": {error}'
                ) from error
        yield {"rules": rules}
    finally:
        for proxy in proxies:
            proxy.close()


async def cut(stage: Stage) -> None:
    pair, rules = await _two_workers(stage), stage.means["rules"]
    epoch = _epoch(stage)
    stage.begin(LINKS_ONLY)
    rules.cut(pair)
    await asyncio.sleep(CUT_SECONDS)
    rules.mend(pair)
    stage.amend(healed=stage.now)
    _nobody_was_lost(stage, epoch, pair)


async def slow(stage: Stage) -> None:
    pair, rules = await _two_workers(stage), stage.means["rules"]
    epoch = _epoch(stage)
    stage.begin(LINKS_ONLY)
    rules.slow(pair, DELAY)
    await asyncio.sleep(SLOW_SECONDS)
    rules.mend(pair)
    stage.amend(healed=stage.now)
    _nobody_was_lost(stage, epoch, pair)


async def _two_workers(stage: Stage) -> Pair:
    hosts = sorted(set((await stage.placement()).values()))
    return frozenset(stage.random.sample(hosts, 2))


def _epoch(stage: Stage) -> int | None:
    sight = stage.observer.latest()
    return None if sight is None else sight.epoch


def _nobody_was_lost(stage: Stage, epoch: int | None, pair: Pair) -> None:
    if _epoch(stage) != epoch:
        stage.broken.append(f"the link between {' and '.join(sorted(pair))} was down, and somebody was taken for dead")
