"""How far an api process has been told that base shards have come: what is known of a shard whose disk is lost later.

Survivors may not have heard of a shard's last writes, but whoever had them answered knows of them to the last.
"""

from __future__ import annotations

from domains.packets import Clock, Refused, Written
from domains.sharding import table_of
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

    def forget(self, before: State, after: State) -> None:
        """A table that was dropped, or is another one of its name, begins anew. One that was altered is forgotten too:
        better nothing is said of it than of another."""
        was, now = before.catalog.tables, after.catalog.tables
        for base in list(self.positions):
            table = table_of(base, after.shards).lower()
            if table not in now or now[table] != was.get(table):
                del self.positions[base]
