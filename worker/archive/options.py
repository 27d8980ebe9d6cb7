"""What a process is told of archiving, and what a pass of it has archived. Nothing here loads pyarrow."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:  # The command line reads these options and waits for no engine.
    from domains.plan.packets import Clock

INTERVAL = 60.0
"""Seconds between two passes: what a lost disk may take with it, and the resolution of restoring to a time. With less
there would be many small files; a busy table then has more than enough rows for a good one."""

RETENTION = 24 * 3600.0
"""Seconds for which every archived position can be gone back to. What is older is folded into snapshots."""

SEGMENT_ROWS = 1_000_000
"""To a log segment, at most and about. More would make a damaged file cost more, and leave less to fold in parallel."""


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


RecipeNow = Callable[[], Callable[[], str]]
"""Answers what gives the recipe as it is at the call, as JSON text: the text of a large one takes its time."""


@dataclass(frozen=True, slots=True)
class ArchivePass:
    """The cut of a pass, all of it between the same two steps, and archived."""

    positions: Clock
    """Of each base shard."""
    identities: dict[str, str]
    """Of the table that each base shard was part of."""
    schemas: dict[str, int]
    """The number of the schema that each had (``worker/protocol/messages.py``)."""
    time: str
    recipe: str | None = None
    """The one at the cut, where this process is the whole deployment."""
    number: int = 0
    """Of its record in the archive (``worker/archive/recipes.py``)."""


@dataclass(frozen=True, slots=True)
class ArchiveOptions:
    url: str
    interval: float = INTERVAL
    retention: float = RETENTION
    segment_rows: int = SEGMENT_ROWS

    @classmethod
    def of(cls, settings: ArchiveSettings) -> ArchiveOptions | None:
        """None where nothing is to be archived. A directory is named from the root: others are told of it."""
        url = settings.archive
        if url is None:
            return None
        return cls(
            url if "://" in url else str(Path(url).expanduser().absolute()),
            settings.archive_interval,
            settings.archive_retention,
            settings.archive_segment_rows,
        )
