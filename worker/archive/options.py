"""The settings of archiving, and the result of a pass. Nothing here loads pyarrow."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:  # The command line reads these options, and must not load the engine.
    from domains.archive.transactions import PartPlace
    from domains.plan.packets import Clock

INTERVAL = 60.0
"""Seconds between two passes: how much a lost disk may cost, and the resolution of a restore to a time. With less there
would be many small files; in a minute a busy table has more than enough rows for a good one."""

RETENTION = 24 * 3600.0
"""Seconds for which every archived position can be restored. What is older is folded into snapshots."""

SEGMENT_ROWS = 1_000_000
"""About the most of one log segment. With more, a damaged file would cost more, and fewer files could be folded in
parallel."""


class ArchiveSettings(Protocol):
    """The archive's settings; ``headrace.settings`` has all settings."""

    @property
    def archive(self) -> str | None:
        """A directory or a URL; None: nothing is archived."""

    @property
    def archive_interval(self) -> float: ...

    @property
    def archive_retention(self) -> float: ...

    @property
    def archive_segment_rows(self) -> int: ...


CLOCK_SHIFT = "HEADRACE_CLOCK_SHIFT"
"""In the environment: a file with seconds by which this process takes the machine's clock to be wrong. Drills set a
process's clock ahead and back with it."""


def wall_clock() -> float:
    """Seconds since 1970, as far as the clock is right. Nothing may depend on that: it may be set back at any time."""
    file = os.environ.get(CLOCK_SHIFT)
    return time.time() + (float(Path(file).read_text()) if file else 0.0)


RecipeNow = Callable[[], Callable[[], str]]
"""Fixes the recipe as of the call, and returns a function that makes its JSON text, which takes long if it is large."""


@dataclass(frozen=True, slots=True)
class ArchivePass:
    """An archived cut: all of it was taken between the same two steps."""

    positions: Clock
    """The position of each base shard."""
    identities: dict[str, str]
    """The identity of the table that each base shard was part of."""
    schemas: dict[str, int]
    """The number of the schema that each had (``worker/protocol/messages.py``)."""
    time: str
    recipe: str | None = None
    """The one at the cut, if this process is the whole deployment."""
    number: int = 0
    """The number of its record in the archive (``worker/archive/recipes.py``)."""
    told: tuple[dict[str, Any], ...] = ()
    """What its shards have of transactions (``domains/archive/transactions.py``)."""
    lost: tuple[PartPlace, ...] = ()
    """What they have not any more."""
    settled: tuple[str, ...] = ()
    """Transactions that it has wholly, once it is recorded."""


@dataclass(frozen=True, slots=True)
class ArchiveOptions:
    url: str
    interval: float = INTERVAL
    retention: float = RETENTION
    segment_rows: int = SEGMENT_ROWS

    @classmethod
    def of(cls, settings: ArchiveSettings) -> ArchiveOptions | None:
        """None if nothing is to be archived. A directory's path is made absolute, since other processes are told it."""
        url = settings.archive
        if url is None:
            return None
        return cls(
            url if "://" in url else str(Path(url).expanduser().absolute()),
            settings.archive_interval,
            settings.archive_retention,
            settings.archive_segment_rows,
        )
