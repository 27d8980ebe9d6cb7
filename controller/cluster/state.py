"""The decisions of a cluster: one small document, replaced by compare-and-set; and the dataflow that follows from it.

A leader writes each decision *before* it carries it out. So a leader that dies may leave a decision that is not carried
out, which the next leader does (``reconcile.py``), but never an act without a decision. The one exception are a view's
nodes: they are built before their recipe entry is written, and nodes that no entry knows are removed.
"""

from __future__ import annotations

import asyncio
import json
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from domains.errors import LimitExceeded, StorageFailure
from domains.plan.graph import DomainIndex
from domains.plan.packets import Clock
from migrations.flow.plan import State, one_domain
from migrations.recipe import Recipe, largest
from migrations.replaying import replayed
from zookeeper.authority import STATE_BYTES_MAX

FORMAT = 1
DOCUMENT_MAX = 64 * 2**20
"""Bytes of the unpacked document. The recipe of 10,000 views has some 5 MB; more than this is damage."""
RECIPE_ROOM = STATE_BYTES_MAX * 9 // 10
"""Bytes of the packed document above which no more migrations are accepted. The rest is for recoveries, which must
always be possible: a new epoch may have one digit more."""


@dataclass(frozen=True, slots=True)
class Rebuild:
    """An operator has given up a shard's disk: the shard must be rebuilt from the archive before it is opened."""

    decided: int
    """The epoch of the decision."""
    known: Clock
    """The greatest positions of its base shards that anybody knew of then."""
    runs: str = ""
    """The URL of the folded and sorted tables, if there are any."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """The worker that hosts a domain. The incarnation is the epoch in which the domain was given to it; it grows
    whenever the domain is opened anew, wherever that is."""

    worker: str
    incarnation: int
    data: str = ""
    """The name of the data directory with its base shard: only workers with that directory can open the domain."""
    rebuild: Rebuild | None = None
    """Set until the shard has been rebuilt."""

    def to_json(self) -> list[Any]:
        given: list[Any] = [self.worker, self.incarnation, self.data]
        if self.rebuild is not None:
            given += [self.rebuild.decided, dict(sorted(self.rebuild.known.items()))]
            given += [self.rebuild.runs] if self.rebuild.runs else []
        return given

    @classmethod
    def from_json(cls, given: list[Any]) -> Assignment:
        """Raises ValueError, TypeError if it is not an assignment."""
        worker, incarnation, data, *rebuild = given
        assigned = cls(str(worker), int(incarnation), str(data))
        if not rebuild:
            return assigned
        decided, known, *runs = rebuild
        positions = {str(base): int(at) for base, at in known.items()}
        return replace(assigned, rebuild=Rebuild(int(decided), positions, *map(str, runs)))


@dataclass(frozen=True, slots=True)
class ClusterState:
    """``epoch`` grows with every leader and every round of recovery."""

    deployment: str
    shards: int
    quorum: int
    """Workers that had to be there at the first start."""
    epoch: int
    placement: Mapping[DomainIndex, Assignment] = field(default_factory=dict)
    recipe: Recipe = field(default_factory=Recipe)
    draining: Mapping[str, int] = field(default_factory=dict)
    """Workers that are given no domains, with the incarnations of their processes: after a restart they take part
    again."""
    writer: str = ""
    """The leader that wrote it. So no two leaders write the same bytes, and each recognises its own."""

    @property
    def domains(self) -> list[DomainIndex]:
        """One for each shard: all nodes are in group 0."""
        return [DomainIndex(shard) for shard in range(self.shards)]

    def next_epoch(self, placement: Mapping[DomainIndex, Assignment] | None = None) -> ClusterState:
        return replace(self, epoch=self.epoch + 1, placement=self.placement if placement is None else placement)

    def with_recipe(self, recipe: Recipe) -> ClusterState:
        """Raises LimitExceeded if the recipe leaves no room for anything else, unless its last entry only drops: what
        was dropped is left out of the recipe afterwards."""
        after = replace(self, recipe=recipe)
        if len(recipe.entries) < len(self.recipe.entries) or recipe.entries[-1].only_drops:
            return after
        size = len(after.encode())
        if size > RECIPE_ROOM:
            raise LimitExceeded(
                f"the recipe would have {len(recipe.entries):,} entries, packed {size:,} bytes, and {RECIPE_ROOM:,} is "
                "the limit",
                hint=f"drop what is not needed, which always has room; most take {largest(recipe)}",
            )
        return after

    def encode(self) -> bytes:
        """Raises LimitExceeded if the document is larger than ZooKeeper takes."""
        document = {
            "format": FORMAT,
            "deployment": self.deployment,
            "shards": self.shards,
            "quorum": self.quorum,
            "epoch": self.epoch,
            "placement": {str(domain): given.to_json() for domain, given in sorted(self.placement.items())},
            "draining": dict(sorted(self.draining.items())),
            "writer": self.writer,
            "recipe": json.loads(self.recipe.to_json()),
        }
        data = zlib.compress(json.dumps(document, ensure_ascii=False).encode(), 6)
        if len(data) > STATE_BYTES_MAX:
            raise LimitExceeded(
                f"the cluster's state would have {len(data):,} bytes, and {STATE_BYTES_MAX:,} is the limit",
                hint=f"drop what is not needed; most take {largest(self.recipe)}",
            )
        return data

    @classmethod
    def decode(cls, data: bytes, deployment: str) -> ClusterState:
        """Raises StorageFailure if it is damaged, of a later version, or of another deployment."""
        try:
            document = _unpacked(data)
            if document["format"] != FORMAT:
                raise StorageFailure(
                    f"the cluster's state has format {document['format']}, and this version reads {FORMAT}",
                    hint="use the version of Headrace that wrote it",
                )
            recipe = Recipe.from_json(json.dumps(document["recipe"]).encode())
            state = cls(
                str(document["deployment"]),
                int(document["shards"]),
                int(document["quorum"]),
                int(document["epoch"]),
                {
                    DomainIndex(int(domain)): Assignment.from_json(given)
                    for domain, given in document["placement"].items()
                },
                recipe,
                {str(name): int(process) for name, process in document["draining"].items()},
                str(document.get("writer", "")),
            )
        except (ValueError, KeyError, TypeError, AttributeError, zlib.error) as error:
            raise StorageFailure(
                f"the cluster's state is damaged: {error!r}", hint="restore it from a back-up (docs/operations.md)"
            ) from error
        if state.deployment != deployment:
            raise StorageFailure(
                f'the state is of deployment "{state.deployment}", and not of "{deployment}"', hint="name that one"
            )
        return state


def _unpacked(data: bytes) -> dict[str, Any]:
    unpacking = zlib.decompressobj()
    text = unpacking.decompress(data, DOCUMENT_MAX)
    if unpacking.unconsumed_tail or not unpacking.eof:
        raise ValueError("it is cut off, or larger than any state can be")
    document: dict[str, Any] = json.loads(text)
    return document


@dataclass(frozen=True, slots=True)
class AutomaticList:
    """What a leader keeps beside what is decided (``leader/automatic.py``)."""

    changes: int
    """The number of changes of the recipe over which they were planned."""
    views: tuple[tuple[str, int, int], ...]
    """SELECT, number of the first node, and check."""


class Replica:
    """The dataflow, ``state``, that ``recipe`` gives in a deployment of so many shards.

    Planning is a function of the recipe, so all processes that plan it have the same nodes under the same numbers: the
    leader, a controller that stands by (and so can take over without planning everything), and every api process.
    """

    def __init__(self, shards: int) -> None:
        self.shards = shards
        self.recipe = Recipe()
        self.state = State(shards=shards)

    @property
    def tables(self) -> set[str]:
        """The names of all tables that ever existed, in lower case."""
        return {*self.state.catalog.tables, *self.state.catalog.dropped}

    async def follow(self, recipe: Recipe, went: Callable[[int], None] = lambda played: None) -> State:
        """Plan the new entries. Each takes some 10 ms, so other tasks run in between, and ``went`` is told of each.

        :raises StorageFailure: this version cannot plan an entry.
        """
        mine = self.recipe.entries
        if recipe.entries[: len(mine)] != mine:
            mine, state = (), State(shards=self.shards)
        else:
            state = self.state
        for played, entry in enumerate(recipe.entries[len(mine) :], len(mine) + 1):
            state = replayed(state, entry, one_domain)
            went(played)
            await asyncio.sleep(0)
        self.adopt(recipe, state)
        return state

    def adopt(self, recipe: Recipe, state: State) -> None:
        """Take over a plan that was made elsewhere."""
        self.recipe, self.state = recipe, state
