"""What can go wrong between a process that serves and the rest of its cluster, beside what users see of it."""

from __future__ import annotations

from domains.errors import LeaderLost, NoLeader, NotServed, OutcomeUnknown, Unavailable


class ReaderGone(Unavailable):
    """The reader that was asked for was dropped or replaced: the view is looked up again, and nobody else hears it."""


def no_leader(why: str) -> NoLeader:
    return NoLeader(
        f"no controller leads: {why}",
        hint="reads and writes of what is there go on; changes are taken again when a controller leads",
    )


__all__ = ["LeaderLost", "NoLeader", "NotServed", "OutcomeUnknown", "ReaderGone", "no_leader"]
