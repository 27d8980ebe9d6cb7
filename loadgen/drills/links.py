"""``partition``, ``link-cut`` and ``slow-link``: a worker in a network of its own, or links through proxies."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from domains.errors import HeadraceError
from headrace.serving.listening import listen
from loadgen.drills.cluster import HOST, DrillCluster
from loadgen.drills.faults import HANG_SECONDS
from loadgen.drills.stage import LINKS_ONLY, DrillStage, NotPossible, need_program, need_root, run, run_anyway
from worker.protocol.messages import Hello
from worker.wire import codec
from worker.wire.frames import Cutter, opened
from worker.wire.proof import ANSWER_BYTES, FIRST_BYTES, PROOF_BYTES
from zookeeper.server import Ensemble

# ``partition``: one worker runs in a network namespace of its own, and its network is cut silently.
#
# ::
#
#     the machine                                namespace
#     ZooKeeper, controllers, api  ── bridge ─ veth ═══ veth ── worker-3
#     worker-1, worker-2           10.213.77.1               10.213.77.2
#
# A disabled port of the bridge drops packets both ways: no connection is refused or reset.

NAMESPACE = "headrace-drill"
BRIDGE, OUTER, INNER = "hrbr0", "hrveth0", "hrveth1"
HERE, THERE = "10.213.77.1", "10.213.77.2"
NET = "/24"
ALONE = "worker-3"


@asynccontextmanager
async def partition_means(cluster: DrillCluster) -> AsyncIterator[dict[str, Any]]:
    need_root("partition", "a network namespace")
    need_program("partition", "ip")
    _remove()
    try:
        run("ip", "netns", "add", NAMESPACE)
        run("ip", "link", "add", BRIDGE, "type", "bridge")
        run("ip", "link", "add", OUTER, "type", "veth", "peer", "name", INNER)
        run("ip", "link", "set", INNER, "netns", NAMESPACE)
        run("ip", "link", "set", OUTER, "master", BRIDGE)
        run("ip", "addr", "add", HERE + NET, "dev", BRIDGE)
        run("ip", "link", "set", OUTER, "up")
        run("ip", "link", "set", BRIDGE, "up")
        inside = ("ip", "-n", NAMESPACE)
        run(*inside, "addr", "add", THERE + NET, "dev", INNER)
        run(*inside, "link", "set", INNER, "up")
        run(*inside, "link", "set", "lo", "up")
        ensemble = Ensemble(cluster.data / "zookeeper", cluster.shape.zookeepers, host=HERE)
        await ensemble.start()
        try:
            cluster.zookeeper = ensemble.address
            cluster.started_with("worker", {"HEADRACE_HOST": HERE, "HEADRACE_ADVERTISE": HERE})
            cluster.special[ALONE] = {
                "environment": {"HEADRACE_HOST": THERE, "HEADRACE_ADVERTISE": THERE},
                "prefix": ["ip", "netns", "exec", NAMESPACE],
            }
            yield {}
        finally:
            await ensemble.stop()
    finally:
        _remove()


async def cut_off(stage: DrillStage) -> None:
    lost, epoch = await stage.hosted_by(ALONE), stage.epoch
    at = stage.begin(lost)
    _port("disabled")
    try:
        await stage.until_noticed(epoch)
        await asyncio.sleep(max(0.0, at + HANG_SECONDS - stage.now))
    finally:
        _port("forwarding")
    stage.amend(healed=stage.now)


def _port(state: str) -> None:
    run("bridge", "link", "set", "dev", OUTER, "state", {"disabled": "0", "forwarding": "3"}[state])


def _remove() -> None:
    run_anyway("ip", "link", "del", OUTER)
    run_anyway("ip", "link", "del", BRIDGE)
    run_anyway("ip", "netns", "del", NAMESPACE)


# A TCP proxy before a worker's port, which knows who connects and can cut or slow what goes between two workers.

CHUNK = 1 << 16
QUEUE_MAX = 1_000
"""Chunks under way in one direction."""

_log = logging.getLogger("loadgen.drills")

Pair = frozenset[str]


@dataclass
class Rules:
    """Present faults between pairs of workers. Shared by the proxies of all workers."""

    severed: set[Pair] = field(default_factory=set)
    delays: dict[Pair, float] = field(default_factory=dict)
    """Seconds by which bytes arrive later."""
    _open: defaultdict[Pair, set[asyncio.StreamWriter]] = field(default_factory=lambda: defaultdict(set))

    def cut(self, pair: Pair) -> None:
        """End the connections between the two, and refuse new ones until ``mend``."""
        self.severed.add(pair)
        for writer in self._open[pair]:
            writer.transport.abort()

    def mend(self, pair: Pair) -> None:
        self.severed.discard(pair)
        self.delays.pop(pair, None)

    def slow(self, pair: Pair, seconds: float) -> None:
        self.delays[pair] = seconds

    def opened(self, pair: Pair, *writers: asyncio.StreamWriter) -> None:
        self._open[pair].update(writers)

    def closed(self, pair: Pair, *writers: asyncio.StreamWriter) -> None:
        self._open[pair].difference_update(writers)


@dataclass
class Proxy:
    """Listens at ``(host, port)`` and connects on to ``target``; both ends of a connection end together. The proofs of
    the deployment's secret come first, and are for the two ends; who connects is in the greeting behind them."""

    worker: str
    host: str
    port: int
    target: tuple[str, int]
    rules: Rules
    _server: asyncio.Server | None = None

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._accepted, self.host, self.port)

    def close(self) -> None:
        if self._server is not None:
            self._server.close()

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_writer = None
        try:
            far_reader, far_writer = await asyncio.open_connection(*self.target)
            for come_from, go_to, size in (
                *((reader, far_writer, FIRST_BYTES), (far_reader, writer, ANSWER_BYTES)),
                *((reader, far_writer, PROOF_BYTES), (far_reader, writer, PROOF_BYTES)),
            ):
                go_to.write(await come_from.readexactly(size))
            first, name = await self._greeting(reader)
            pair = frozenset((self.worker, name))
            if pair in self.rules.severed:
                return
            far_writer.write(first)
            self.rules.opened(pair, writer, far_writer)
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._pass_on(reader, far_writer, pair))
                    group.create_task(self._pass_on(far_reader, writer, pair))
            finally:
                self.rules.closed(pair, writer, far_writer)
        except* (OSError, EOFError, HeadraceError) as ended:
            # One end has gone, so the other one is closed, too.
            _log.debug("a connection to %s ended: %s", self.worker, ended.exceptions[0])
        finally:
            writer.transport.abort()
            if far_writer is not None:
                far_writer.transport.abort()

    async def _greeting(self, reader: asyncio.StreamReader) -> tuple[bytes, str]:
        """The first bytes, and the name of the worker that sent them."""
        cutter, said = Cutter(), b""
        while data := await reader.read(CHUNK):
            said += data
            for content in cutter.cut(data):
                if content:
                    message = codec.unpack_object(opened(content)[1])
                    return said, message.name if isinstance(message, Hello) else ""
        raise ConnectionResetError("nobody greeted")

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, pair: Pair) -> None:
        loop = asyncio.get_running_loop()
        queue: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(QUEUE_MAX)

        async def deliver() -> None:
            while True:
                due, data = await queue.get()
                if due > loop.time():
                    await asyncio.sleep(due - loop.time())
                if not data:
                    raise ConnectionResetError("the other end has closed")
                writer.write(data)
                await writer.drain()

        async def take() -> None:
            while True:
                data = await reader.read(CHUNK)
                await queue.put((loop.time() + self.rules.delays.get(pair, 0.0), data))
                if not data:
                    return

        async with asyncio.TaskGroup() as group:
            group.create_task(take())
            group.create_task(deliver())


CUT_SECONDS = 2.0
SLOW_SECONDS = 5.0
DELAY = 0.1
"""Seconds, each way: between continents."""


@asynccontextmanager
async def means(cluster: DrillCluster) -> AsyncIterator[dict[str, Any]]:
    """Each worker advertises a loopback address at which its proxy listens; the worker itself listens at the same port
    of another address."""
    rules, proxies = Rules(), []
    for number in range(1, cluster.shape.workers + 1):
        name, outside = f"worker-{number}", f"127.0.1.{number}"
        with listen(HOST, 0) as free:
            port: int = free.getsockname()[1]
        proxies.append(Proxy(name, outside, port, (HOST, port), rules))
        cluster.special[name] = {"environment": {"HEADRACE_WORKER_PORT": str(port), "HEADRACE_ADVERTISE": outside}}
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


async def cut(stage: DrillStage) -> None:
    rules: Rules = stage.means["rules"]
    await _between_two(stage, rules.cut, CUT_SECONDS)


async def slow(stage: DrillStage) -> None:
    rules: Rules = stage.means["rules"]
    await _between_two(stage, lambda pair: rules.slow(pair, DELAY), SLOW_SECONDS)


async def _between_two(stage: DrillStage, harm: Callable[[Pair], None], seconds: float) -> None:
    """Harm the links between two workers for a while, in which nobody may take either for dead."""
    hosts = sorted(set((await stage.placement()).values()))
    pair, epoch = frozenset(stage.random.sample(hosts, 2)), stage.epoch
    stage.begin(LINKS_ONLY)
    harm(pair)
    await asyncio.sleep(seconds)
    stage.means["rules"].mend(pair)
    stage.amend(healed=stage.now)
    if stage.epoch != epoch:
        stage.broken.append(f"the link between {' and '.join(sorted(pair))} was down, and one was taken for dead")
