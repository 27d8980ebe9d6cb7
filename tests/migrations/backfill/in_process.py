"""All stages of a bulk job in this process, over rows that are at hand: what every other runner must come to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from domains.language.types import Delta
from domains.plan.graph import DomainIndex, NodeIndex
from migrations.backfill.job import Flow, JobStage
from migrations.backfill.stages import pruned
from migrations.backfill.task import RowsBlock, run_task

States = dict[tuple[DomainIndex, NodeIndex], list[bytes]]
"""By domain and full vertex, the blocks of its state. There is one at least."""


def run_locally(stages: Sequence[JobStage], fold: Callable[[str], Iterable[Delta]]) -> States:
    """``fold`` gives the rows of a base shard as of its position, anew for each task that reads it."""
    states: States = {}
    on_links: dict[Flow, list[bytes]] = {}
    for stage in stages:
        sent: dict[Flow, list[bytes]] = {}
        for task in stage.tasks:
            tables = {
                table.base: pruned(fold(table.base), table.columns, len(table.schema.columns)) for table in task.tables
            }
            inputs = {flow: on_links[flow] for flow in task.inputs if flow in on_links}
            for output in run_task(task, tables, inputs):
                if isinstance(output, RowsBlock):
                    sent.setdefault(output.flow, []).append(output.data)
                else:
                    states.setdefault((task.domain, output.node), []).append(output.data)
        on_links.update(sent)
    return states
