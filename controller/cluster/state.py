"""The decisions of a cluster: one small document, replaced by compare-and-set, from which everything else follows.

Whatever a leader decides is in here *before* it is done. So a leader that dies leaves a decision that is not carried
out yet, never something done that nobody decided; the next one carries it out (``reconcile.py``). The one exception are
a view's nodes: they are built before their recipe entry is written, and nodes that no entry knows are removed.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from domains.errors import LimitExceeded, StorageFailure
from domains.plan.graph import DomainIndex
from domains.plan.packets import Clock
from migrations.recipe import Recipe
from zookeeper.authority import STATE_BYTES_MAX

FORMAT = 1
DOCUMENT_MAX = 64 * 2**20
"""Bytes of the document once it is unpacked. The recipe of 10,000 views is some 5 MB; more than this is damage."""
RECIPE_ROOM = STATE_BYTES_MAX * 9 // 10
"""Bytes of the packed document past which no more migrations are decided. The rest is for what must always be possible:
a cluster that had filled its state to the brim could not recover a worker, since a new epoch may be a digit more."""


@dataclass(frozen=True, slots=True)
class Rebuild:
    """An operator has given a shard's disk up: it is to be made from the archive before it is opened."""

    decided: int
    """The epoch of the decision."""
    known: Clock
    """Of its base shards, the greatest positions that anybody knew of then."""
    runs: str = ""
    """Where they lie folded and sorted, if they do: a URL."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """Which worker hosts a domain. The incarnation is the epoch in which the domain was given to it: a domain that is
    opened anew, wherever, has a greater one."""

    worker: str
    incarnation: int
    data: str = ""
    """The name of the data directory with its base shard: only workers that have that one can open the domain."""
    rebuild: Rebuild | None = None
    """Until it has been made there."""

    def to_json(self) -> list[Any]:
        given: list[Any] = [self.worker, self.incarnation, self.data]
        if self.rebuild is not None:
            given += [self.rebuild.decided, dict(sorted(self.rebuild.known.items()))]
            given += [self.rebuild.runs] if self.rebuild.runs else []
        return given

    @classmethod
    def from_json(cls, given: list[Any]) -> Assignment:
        """Raises ValueError, TypeError where it is none."""
        worker, incarnation, data, *rebuild = given
        assigned = cls(str(worker), int(incarnation), str(data))
        if not rebuild:
            return assigned
        decided, known, *runs = rebuild
        positions = {str(base): int(at) for base, at in known.items()}
        return replace(assigned, rebuild=Rebuild(int(decided), positions, *map(str, runs)))


@dataclass(frozen=True, slots=True)
class ClusterState:
    """``epoch`` grows with every leader and with every round of recovery; nothing ever happens twice in one."""

    deployment: str
    shards: int
    quorum: int
    """Workers that had to be there at the first start."""
    epoch: int
    placement: Mapping[DomainIndex, Assignment] = field(default_factory=dict)
    recipe: Recipe = field(default_factory=Recipe)
    draining: Mapping[str, int] = field(default_factory=dict)
    """Workers that are given no domains, with the incarnation of the process: once it is started anew it takes part
    again."""
    writer: str = ""
    """Which leader wrote it: no other writes the same bytes, so whoever finds its own knows that they are its own."""

    @property
    def domains(self) -> list[DomainIndex]:
        """All nodes are in group 0, so there is one domain a shard."""
        return [DomainIndex(shard) for shard in range(self.shards)]

    def next_epoch(self, placement: Mapping[DomainIndex, Assignment] | None = None) -> ClusterState:
        return replace(self, epoch=self.epoch + 1, placement=self.placement if placement is None else placement)

    def with_recipe(self, recipe: Recipe) -> ClusterState:
        """:raises LimitExceeded: it leaves no room for anything else."""
        after = replace(self, recipe=recipe)
        if len(after.encode()) > RECIPE_ROOM:
            raise LimitExceeded(
                f"the recipe would have {len(recipe.entries):,} entries, packed more than {RECIPE_ROOM:,} bytes",
                hint="every change is an entry, a DROP too; headrace restore leaves out SELECTs that were forgotten",
            )
        return after

    def encode(self) -> bytes:
        """:raises LimitExceeded: the recipe has grown over what ZooKeeper takes."""
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
                hint="every change of tables and views is an entry of the recipe, a DROP too",
            )
        return data

    @classmethod
    def decode(cls, data: bytes, deployment: str) -> ClusterState:
        """:raises StorageFailure: it is damaged, of a later version, or of another deployment."""
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
