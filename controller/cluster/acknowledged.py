"""How far an api process has been told that base shards have come: what is known of a shard whose disk is lost later.

Survivors may not have heard of a shard's last writes, but whoever had them answered knows of them to the last.
"""

from __future__ import annotations

from domains.packets import Clock, Refused, Written
from domains.sharding import base_shard
from migrations.plan import State


class Acknowledged:
    def __init__(self) -> None:
        self.positions: Clock = {}
        """Of each base shard, the greatest position of a write that was answered here."""

    def note(self, answer: Written | Refused) -> None:
        # Once a write, whose clock has one base: a third of a microsecond.
        if isinstance(answer, Written):
            positions = self.positions
            for base, position in answer.clock.items():
                if position > positions.get(base, 0):
                    positions[base] = position

    def forget(self, state: State) -> None:
        """Of tables that were dropped nothing is to be known. (A table that has the name of one counts under another:
        ``base_shard``. An altered one counts on, and what it may lose is still to be named.)"""
        there = {base_shard(schema.name, schema.generation, 0, 1) for schema in state.catalog.tables.values()}
        for base in list(self.positions):
            if (base if state.shards == 1 else base.rpartition("@")[0]) not in there:
                del self.positions[base]
