"""Whether the full part of a migration is computed in bulk or fed in slices, and why, for status and messages."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from controller.deployment import BackfillStatus
from controller.migrating.execution import FedTable, Migration, expected
from controller.migrating.executor import Executor
from domains.engine.lifecycle.backfill import in_order
from domains.errors import Unavailable
from domains.plan.commands import AddNodes
from domains.plan.graph import DomainIndex
from domains.plan.sharding import table_of
from domains.plan.traits import traits_of
from migrations.backfill.runner import BulkRunner
from migrations.backfill.stages import bases_below, bases_fed, obstacle
from migrations.change import Change

SLICES = "slices"


class Builder(Protocol):
    """The runner of bulk builds."""

    runners: Sequence[BulkRunner]
    """The first that can be begun here has it done."""

    async def build(self, change: Change, choice: Choice, migration: Migration) -> None:
        """Carry out all of the views' steps. Raises what made it fail, or Cancelled; then nothing runs or is held any
        more, and the caller takes the nodes back."""

    async def fill(self, change: Change, choice: Choice, migration: Migration) -> None:
        """The same without the nodes, which are there already, and their activation."""


@dataclass(frozen=True, slots=True)
class Choice:
    way: str
    """``slices``, or the runner's name; "" where there is nothing full to build."""
    why: str
    rows: Mapping[str, int] = field(default_factory=dict)
    """Keyed by base shard, about how many rows are read."""
    runner: BulkRunner | None = None
    """Whose the way is, where it is bulk."""
    tables: Mapping[DomainIndex, Sequence[FedTable]] = field(default_factory=dict)
    """Keyed by domain that is fed in slices, in the order in which they are."""

    def status(self) -> BackfillStatus | None:
        return BackfillStatus(self.way, self.why, rows_total=sum(self.rows.values())) if self.way else None


async def choose(
    executor: Executor, change: Change, builder: Builder | None, threshold: int, *, again: bool = False
) -> Choice:
    """``builder`` is None where there is no archive to read from. ``again``: parts of views are built again, which may
    stand on state that survived."""
    flow = change.state.flow
    fed = bases_fed(flow, change.views) if again else bases_below(flow, change.views)
    if not fed:
        return Choice("", "it has no full part")
    counts: dict[DomainIndex, Mapping[str, int]] = {
        domain: await executor.table_rows(domain) for domain in sorted(set(fed.values()))
    }
    rows = {base: counts[domain].get(table_of(base, flow.shards), 0) for base, domain in fed.items()}
    silent = {domain for base, domain in fed.items() if table_of(base, flow.shards) not in counts[domain]}
    total = sum(rows.values())

    def slices(why: str) -> Choice:
        return Choice(SLICES, why, rows, tables=_tables(change, rows, fed))

    if total <= threshold and not silent:
        return slices(f"{total:,} base rows are not more than the threshold of {threshold:,}")
    standing = "" if again else obstacle(flow, change.views)
    if standing:
        return slices(standing)
    if builder is None:
        return slices("there is no archive to compute it from (--archive)")
    why = f"{total:,} base rows are more than the threshold of {threshold:,}"
    if total <= threshold:  # In bulk it costs seconds too much if they are few, in slices hours if they are many.
        named = ", ".join(map(str, sorted(silent)))
        why = f"the worker of domain {named} does not tell how many base rows it has; they may be many"
    schemas = {schema.name: schema for schema in change.state.catalog.tables.values()}
    tables = [schemas[name] for name in sorted({table_of(base, flow.shards) for base in fed})]
    for runner in builder.runners:
        try:
            # It may have to look what is installed: not on an event loop's thread.
            await asyncio.to_thread(runner.check, tables)
        except Unavailable as error:
            why = f"{why}; not by {runner.name}: {error}"
            continue
        return Choice(runner.name, why, rows, runner)
    return slices(why)


def _tables(
    change: Change, rows: Mapping[str, int], fed: Mapping[str, DomainIndex]
) -> dict[DomainIndex, Sequence[FedTable]]:
    by_domain: dict[DomainIndex, dict[str, int]] = {}
    for base, domain in fed.items():
        by_domain.setdefault(domain, {})[base] = rows[base]
    joining = {
        step.domain
        for step in change.views.steps
        if isinstance(step.command, AddNodes)
        and any(traits_of(node.operator).matching is not None for node in step.command.nodes)
    }
    return {
        domain: expected([of[base] for base in in_order(of)], joined=domain in joining)
        for domain, of in by_domain.items()
    }
