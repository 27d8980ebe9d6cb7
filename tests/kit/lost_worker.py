"""A cluster in memory of which one worker and its disk are lost, with votes that nobody has archived."""

from __future__ import annotations

import asyncio
from typing import Any

from controller.cluster.leader.leader import Leader
from domains.plan.graph import DomainIndex
from domains.store.memory_store import MemoryStore
from tests.kit.memory_workers import MemoryCluster, simulated
from tests.kit.voting_program import Program, placement
from worker.service.status import heard_positions

TAIL = 25


async def rebuilt(leader: Leader, shards: Any = (), known: Any = (), by: Any = "auto") -> list[dict[str, Any]]:
    """As ``headrace rebuild`` waits for it."""
    one = leader.rebuild_operations.start(shards, dict(known), by)
    await one.ended.wait()
    if one.error is not None:
        raise one.error
    return one.rebuilt


class Lost:
    """Three workers with a data directory each; w2 died, with votes that were archived and votes that were not."""

    def __init__(self) -> None:
        self.cluster = MemoryCluster(shards=6)
        self.program = Program(self.cluster)
        self.shards: list[int] = []

    async def start(self, *, late: bool = False) -> Lost:
        """``late``: what w2 has sent of the votes that were not archived is on its way when it dies."""
        cluster = self.cluster
        for name in ("w1", "w2", "w3"):
            await cluster.start_worker(name, f"/{name}")
        await cluster.start_controller("c1")
        await cluster.calm()
        await self.program.start()
        cluster.archive.keep(cluster)
        self.archived = {shard: self.rows(shard) for shard in range(cluster.shards)}
        cluster.workers["w2"].late = [] if late else None
        await self.program.vote(TAIL)
        if not late:
            await self.program.check()
        self.shards = placement(cluster)["w2"]
        self.gone = {shard: self.rows(shard) for shard in self.shards}
        cluster.workers["w2"].die()
        await cluster.until(lambda: "w2" not in cluster.led.fleet.members)
        return self

    async def noticed(self) -> Lost:
        """A round of recovery has left out what is lost."""
        await self.cluster.until(lambda: set(self.shards) <= self.cluster.led.closed.keys())
        return self

    def rows(self, shard: int) -> set[Any]:
        given = self.cluster.decided.placement[DomainIndex(shard)]
        store: MemoryStore = self.cluster.disks[given.data, shard]
        return {row for row, _ in store.table("votes").scan(None, 10_000)[0]}

    def forget(self) -> int:
        """The oracle without what is lost for good; how many votes that is."""
        lost = {row for shard in self.shards for row in self.gone[shard] - self.archived[shard]}
        assert lost, "there is nothing to lose"
        for user, story in lost:
            self.program.votes[story] -= 1
            self.program.users[story].remove(user)
        return len(lost)

    def heard_later(self) -> dict[str, Any]:
        """By worker that is there, the positions that it has heard of and that are given again."""
        known = {base: at for asked in self.cluster.archive.asked for base, at in asked.known.items()}
        assert known, "nothing was given up"
        return {
            name: later
            for name in ("w1", "w3")
            if (
                later := {
                    base: at
                    for base, at in heard_positions(self.cluster.workers[name].hosted).items()
                    if at > known.get(base, at)
                }
            )
        }

    async def made(self, rebuilding: asyncio.Task[Any]) -> None:
        """The archive is folded, and all is right then. The cluster is closed."""
        self.cluster.archive.looks = 0
        await rebuilding
        self.forget()
        await self.cluster.calm()
        await self.program.vote(20)
        await self.program.check()
        await self.cluster.close()

    async def rebuild(self, *shards: int, **known: int) -> list[dict[str, Any]]:
        return await rebuilt(self.cluster.led, shards, known)


def losing(scenario: Any) -> None:
    async def run() -> None:
        lost = await (await Lost().start()).noticed()
        await scenario(lost)
        await lost.cluster.close()

    simulated(run())
