"""A model of a cluster of many machines, its messages and costs: formulas, with the counts of ``headrace bench scale``.

Nobody here has a thousand machines. What such a cluster sends follows from how it works (``domains/engine/links.py``,
``migrations/flow/routing.py``, ``controller/cluster/``), and what one message costs is measured. The table in
``docs/scaling.md`` is made by ``python -m loadgen.bench.scaling.model``; a test compares the two, and the formulas
with what a real dataflow of 2, 4 and 8 shards sends.

Each machine has one worker with one shard, and one api process.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from string import ascii_lowercase

from controller.cluster.leader.fleet import Timing
from controller.cluster.state import Assignment, ClusterState
from domains.plan.graph import DomainIndex
from domains.plan.packets import LinkId, link_between
from domains.plan.sharding import SHARDS_MAX
from migrations.recipe import Recipe, RecipeEntry
from worker.protocol.messages import LinkPositions
from worker.wire.codec import encode

MACHINES = (4, 10, 100, 256, 1_000)

BATCH_ROWS = 50
"""Rows of an application's batch, as in ``mixed_load.py``."""
WRITES_TOGETHER = 16
"""Single writes that share a batch of a worker which is busy."""
BATCHES = 50.0
"""A second and domain. An assumption: a sync of 20 ms. On the loaded machine of the measurement it was 14 to 20."""
VIEWS = 1_000

PACKET_BYTES = 60
"""Bytes of a packet with one row or none to another worker, with its part of the frame and of the acknowledgement."""
CLOCK_ENTRY_BYTES = 17
"""Bytes of one base shard and its position in a packet's clock: ``ballots@731`` and a number."""
PACKET_SECONDS = 100e-6
"""Processor time of a packet to another worker, both ends together, where packets come in runs; alone 150 to 290 µs."""
PING_SECONDS = 500e-6
"""The controller's seconds for a heartbeat: an upper bound, all that an idle controller of four workers spends."""
ENTRY_SECONDS = 1.5e-6
"""The leader's seconds for a link's position: decoded, checked, compared."""


@dataclass(frozen=True, slots=True)
class ModelCluster:
    machines: int

    @property
    def shards(self) -> int:
        """One each, if there may be so many (``SHARDS_MAX``)."""
        return self.machines

    # --- writes ---------------------------------------------------------------------------------------------

    def requests_a_batch(self, rows: int = BATCH_ROWS) -> float:
        """Shards that have rows of a batch, and so writes that an api process makes of it: S (1 - (1 - 1/S)^r)."""
        return self.shards * (1 - (1 - 1 / self.shards) ** rows)

    def packets_a_batch(self, shuffles: int = 1) -> int:
        """Packets on all links after a single write that is alone in its batch: S + S² + … one power for each shuffle.

        Its row goes to one shard, and a beat to each other one: they cannot know that there is nothing for them. Each
        of the S then has a clock that moved, and tells all S of the next shuffle.
        """
        return sum(self.shards**lane for lane in range(1, shuffles + 1))

    def packets_a_write(self, together: int = WRITES_TOGETHER) -> float:
        """The same for one shuffle, where so many writes share a batch, and its beats: 1 + (S - 1)/k."""
        return 1 + (self.shards - 1) / together

    def bytes_a_write(self, together: int = WRITES_TOGETHER) -> float:
        """The bytes to other workers: all shards but one are elsewhere."""
        return self.packets_a_write(together) * PACKET_BYTES * (self.shards - 1) / self.shards

    def second_clock_bytes(self, tables: int = 1) -> int:
        """The clock in a packet of a second shuffle: it names every shard of the tables that the view reads."""
        return self.shards * tables * CLOCK_ENTRY_BYTES

    def beat_share(self, batches: float = BATCHES) -> float:
        """The share of one core of every machine for the beats of one shuffled view: b (S - 1) c."""
        return batches * (self.shards - 1) * PACKET_SECONDS

    def batches_at(self, share: float) -> float:
        """Batches a second that the beats leave, if they may take so much of a core: share / ((S - 1) c)."""
        return share / ((self.shards - 1) * PACKET_SECONDS)

    # --- what stands ----------------------------------------------------------------------------------------

    def links(self) -> int:
        """The links of one shuffle; views whose shuffles are equally deep share them."""
        return self.shards**2

    def connections(self) -> int:
        """The connections of one worker: to and from each other one, from each api process, from the leader."""
        return 2 * (self.machines - 1) + self.machines + 1

    def local_reads(self) -> float:
        """The share of an api process's reads whose key is in the map of its own host."""
        return 1 / self.machines

    # --- the controller -------------------------------------------------------------------------------------

    def heartbeats(self) -> float:
        """A second, to and fro."""
        return 2 * self.machines / Timing().heartbeat

    def heartbeat_share(self) -> float:
        """The share of the leader's core for heartbeats."""
        return self.heartbeats() / 2 * PING_SECONDS

    def look_bytes(self) -> int:
        """One look of a barrier: how far every link of one shuffle is, at both of its ends. As it is encoded."""
        own = {_link(self.shards, other): (1_000, 1_000_000) for other in range(self.shards)}
        return len(encode(LinkPositions(own, dict(own)))) * self.shards

    def look_seconds(self) -> float:
        """Seconds of the leader's core for one look; a migration takes two or three a shuffle."""
        return 2 * self.links() * ENTRY_SECONDS

    def state_bytes(self, views: int = VIEWS) -> int:
        """The encoded state in ZooKeeper, with so many views of ordinary length."""
        placement = {
            DomainIndex(shard): Assignment(f"worker-{shard + 1}", 1_000 + shard, f"{shard * 2_654_435_761 % 2**32:08x}")
            for shard in range(self.shards)
        }
        recipe = Recipe()
        for number in range(views):
            recipe = recipe.with_entry(RecipeEntry((_view(number),)))
        return len(ClusterState("main", self.shards, self.machines, 1_000, placement, recipe).encode())

    def state_fetched(self) -> int:
        """Bytes out of ZooKeeper after each change of the state: every api process reads it, and two controllers."""
        return self.state_bytes() * (self.machines + 2)

    def descriptors_fetched(self) -> int:
        """Reads out of ZooKeeper when one worker comes or goes: every api process reads all workers, and so do two
        controllers."""
        return self.machines * (self.machines + 2)


def _view(number: int) -> str:
    """The text of a view as long as an ordinary one, with names of its own: it would else be compressed to nothing."""
    random = Random(number)
    a, b, c, d = ("".join(random.choices(ascii_lowercase, k=8)) for _ in range(4))
    return (
        f"CREATE VIEW page_{a} AS SELECT s.id, s.{b}, s.{c}, v.count_{d} FROM {b}s s"
        f" JOIN counts_{c} v ON v.{b}_id = s.id WHERE s.{d} = ? ORDER BY v.count_{d} DESC LIMIT 25"
    )


def _link(shards: int, other: int) -> LinkId:
    return link_between(DomainIndex(shards - 1), DomainIndex(other))


# --- the table --------------------------------------------------------------------------------------------------

Figure = Callable[[ModelCluster], str]

ROWS: Sequence[tuple[str, str, Figure]] = (
    ("links of a shuffle", "S²", lambda c: f"{c.links():,}"),
    ("connections of a worker", "2 (M - 1) + M + 1", lambda c: f"{c.connections():,}"),
    ("reads in the map of the own host", "1/M", lambda c: f"{c.local_reads():.1%}"),
    (
        f"worker requests of a batch of {BATCH_ROWS} rows",
        "S (1 - (1 - 1/S)^r)",
        lambda c: f"{c.requests_a_batch():.1f}",
    ),
    ("packets of a lone write, one shuffle", "S", lambda c: f"{c.packets_a_batch():,}"),
    ("packets of a lone write, two shuffles", "S + S²", lambda c: f"{c.packets_a_batch(2):,}"),
    (f"packets of a write, {WRITES_TOGETHER} to a batch", "1 + (S - 1)/k", lambda c: f"{c.packets_a_write():.1f}"),
    ("its bytes to other workers", f"× {PACKET_BYTES} (S - 1)/S", lambda c: f"{c.bytes_a_write():,.0f}"),
    ("bytes of a clock, second shuffle", f"{CLOCK_ENTRY_BYTES} S", lambda c: f"{c.second_clock_bytes():,}"),
    (f"a core's share for beats, {BATCHES:g} batches/s", "b (S - 1) c", lambda c: f"{c.beat_share():.0%}"),
    ("batches/s if beats take half a core", "0.5 / ((S - 1) c)", lambda c: f"{c.batches_at(0.5):,.0f}"),
    ("heartbeats a second", "2 M / 0.5 s", lambda c: f"{c.heartbeats():,.0f}"),
    ("the leader's core for them", "(M / 0.5 s) h", lambda c: f"{c.heartbeat_share():.1%}"),
    ("bytes of a barrier's look", "2 S² entries", lambda c: _size(c.look_bytes())),
    ("the leader's time for it", "2 S² e", lambda c: f"{c.look_seconds() * 1e3:,.1f} ms"),
    (f"state in ZooKeeper, {VIEWS:,} views", "encoded", lambda c: _size(c.state_bytes())),
    ("fetched after a change of it", "× (M + 2)", lambda c: _size(c.state_fetched())),
    ("ZooKeeper reads when a worker goes", "M (M + 2)", lambda c: f"{c.descriptors_fetched():,}"),
)


def _size(count: int) -> str:
    for unit, power in (("MB", 1e6), ("kB", 1e3)):
        if count >= power:
            return f"{count / power:,.1f} {unit}"
    return f"{count} B"


def markdown() -> str:
    """The table of ``docs/scaling.md``."""
    clusters = [ModelCluster(machines) for machines in MACHINES]
    heads = [f"{each.machines:,}" + (" (*)" if each.shards > SHARDS_MAX else "") for each in clusters]
    lines = ["| M = S = | formula | " + " | ".join(heads) + " |", "|---|---|" + "---:|" * len(clusters)]
    for name, formula, figure in ROWS:
        lines.append(f"| {name} | {formula} | " + " | ".join(figure(each) for each in clusters) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(markdown())
