"""Processes that compute in bulk beside a server give way to it."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

NICENESS = 19
"""They have the time that nobody else wants. Nobody misses their result so far, while each read of the server is waited
for."""

AUTOGROUP = Path("/proc/self/autogroup")


def give_way() -> None:
    """For the first process of a session of its own; all that it starts follows it.

    Linux weighs sessions against each other before it looks at what is in them (autogroups, ``man 7 sched``): to be
    nice within one's own session leaves it all of a session's share. Where that is off, or somebody's control groups
    are in its place, there is nothing to write, and the process's own niceness counts.
    """
    os.nice(NICENESS)
    if os.getsid(0) == os.getpid():
        with suppress(OSError):
            AUTOGROUP.write_text(str(NICENESS), "ascii")
