"""How one asks a worker to archive the shards that it hosts; see ``worker/archive``."""

from __future__ import annotations

from dataclasses import dataclass, field

from domains.packets import Clock


@dataclass(frozen=True, slots=True)
class ArchiveRequest:
    """Archive up to now. → ``ArchivePositions``, or an ArchiveError; BadRequest where the worker has no archive.

    With a name in ``keep``, the log after these positions stays on the worker until ``LogRelease`` names the same, or a
    leader of a later epoch than ``epoch`` is heard of.
    """

    keep: str | None = None
    epoch: int = 0
    urgent: bool = True
    """Somebody waits: it takes no rests."""


@dataclass(frozen=True, slots=True)
class ArchivePositions:
    url: str
    positions: Clock
    """Of each base shard that is hosted here, the last archived position: all were cut at the same moment."""
    identities: dict[str, str] = field(default_factory=dict)
    schemas: dict[str, int] = field(default_factory=dict)
    """The number of the schema that each was cut with (``schema_version.py``)."""


@dataclass(frozen=True, slots=True)
class LogRelease:
    """The log that is kept under this name is needed no more. → ``Done``"""

    keep: str


ArchiveMessage = ArchiveRequest | ArchivePositions | LogRelease
