"""Whether the full part of a migration is computed in bulk or fed in slices, and why: what everybody is told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from controller.deployment import BackfillStatus
from controller.execution import Migration
from controller.executor import Executor
from domains.errors import Unavailable
from domains.graph import DomainIndex
from domains.sharding import table_of
from migrations.backfill.runner import BulkRunner
from migrations.backfill.stages import bases_fed, obstacle
from migrations.change import Change

SLICES = "slices"
SPARK_THRESHOLD = 1_000_000
"""Base rows. Slices in the worker do that in some ten seconds, in which a JVM has hardly started; a job reads the rows
elsewhere, so that above it the worker's core is spared."""


class Builder(Protocol):
    """Who builds in bulk."""

    runner: BulkRunner

    async def build(self, change: Change, choice: Choice, migration: Migration) -> None:
        """Carry out all of the views' steps. Raises what made it fail, or Cancelled; then nothing runs or is held any
        more, and the caller takes the nodes back."""


@dataclass(frozen=True, slots=True)
class Choice:
    way: str
    """``slices``, or the runner's name; "" where there is nothing full to build."""
    why: str
    rows: Mapping[str, int] = field(default_factory=dict)
    """By base shard, about how many rows are read."""

    @property
    def is_bulk(self) -> bool:
        return self.way not in ("", SLICES)

    def status(self) -> BackfillStatus | None:
        return BackfillStatus(self.way, self.why, rows_total=sum(self.rows.values())) if self.way else None


async def choose(executor: Executor, change: Change, builder: Builder | None, threshold: int) -> Choice:
    """``builder`` is None where there is no archive to read from."""
    flow = change.state.flow
    fed = bases_fed(flow, change.views)
    if not fed:
        return Choice("", "it has no full part")
    counts: dict[DomainIndex, Mapping[str, int]] = {
        domain: await executor.table_rows(domain) for domain in sorted(set(fed.values()))
    }
    rows = {base: counts[domain].get(table_of(base, flow.shards), 0) for base, domain in fed.items()}
    total = sum(rows.values())
    if total <= threshold:
        return Choice(SLICES, f"{total:,} base rows are not more than the threshold of {threshold:,}", rows)
    standing = obstacle(flow, change.views)
    if standing:
        return Choice(SLICES, standing, rows)
    if builder is None:
        return Choice(SLICES, "there is no archive to compute it from (--archive)", rows)
    try:
        builder.runner.check()
    except Unavailable as error:
        return Choice(SLICES, str(error), rows)
    return Choice(builder.runner.name, f"{total:,} base rows are more than the threshold of {threshold:,}", rows)
