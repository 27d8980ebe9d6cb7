"""The names of anomalies, as Adya and Elle give them, and which of them an isolation level forbids.

    G0             a cycle of writes alone: one overwrote the other here, the other the one there
    G1a            a read of what an aborted transaction wrote
    G1b            a read of what its writer wrote over later, in the same transaction
    G1c            a cycle of writes and reads of them: each of two saw what the other wrote
    G-single       a cycle with one anti-dependency (a read that a later write makes stale): read skew
    G-nonadjacent  several anti-dependencies, no two in a row: a long fork; a snapshot excludes it as well
    G2-item        a cycle with several anti-dependencies: write skew; the one that snapshots permit
    fractured-read the G-single of two: one saw a part of what the other wrote, and missed another part
    lost-update    two read the same version, and both wrote on top of it
    dirty-update   a committed write upon an aborted one, which it so keeps alive
    internal       a transaction reads other than it read or wrote itself before
    duplicate-elements, incompatible-order, cyclic-versions: there is no order of a key's versions at all
    unwritten-read a value that nobody wrote

A cycle that needs the order in which a process, or the clock, had them is named so: ``G-single-process``,
``G-single-realtime``. A read of a range or of a join is recorded as a read of each key in question, the absent ones
too: a phantom is an anti-dependency on a key that was read as empty, and G2 of predicates is found as G2-item.
"""

from __future__ import annotations

from dataclasses import dataclass

READ_COMMITTED = frozenset(
    [
        "G0",
        "G1a",
        "G1b",
        "G1c",
        "dirty-update",
        "duplicate-elements",
        "incompatible-order",
        "cyclic-versions",
        "unwritten-read",
    ]
)
SNAPSHOT = READ_COMMITTED | {"internal", "lost-update", "fractured-read", "G-single", "G-nonadjacent"}
SERIALIZABLE = SNAPSHOT | {"G2-item"}
CYCLES = ("G0", "G1c", "G-single", "G-nonadjacent", "G2-item")

LEVELS: dict[str, frozenset[str]] = {
    "read-committed": READ_COMMITTED,
    "snapshot": SNAPSHOT,
    "serializable": SERIALIZABLE,
    "session-serializable": SERIALIZABLE | {f"{name}-process" for name in CYCLES},
    "strict-serializable": SERIALIZABLE | {f"{name}-{order}" for name in CYCLES for order in ("process", "realtime")},
}
"""What each forbids. MySQL's REPEATABLE READ promises its reads a snapshot, and is judged as such."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One anomaly, in words, with the indices of the events that completed (or else invoked) its transactions."""

    name: str
    text: str
    transactions: tuple[int, ...] = ()

    def __str__(self) -> str:
        return f"{self.name}: {self.text}"
