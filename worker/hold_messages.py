"""How one asks a worker for all that a reader holds: take hold of it, walk it, let go."""

from __future__ import annotations

from dataclasses import dataclass

from domains.graph import DomainIndex, NodeIndex
from domains.packets import Clock


@dataclass(frozen=True, slots=True)
class HoldRequest:
    """Keep the present state of a reader to be walked, for some time. → ``Hold``"""

    domain: DomainIndex
    reader: NodeIndex


@dataclass(frozen=True, slots=True)
class Hold:
    number: int
    clock: Clock
    """Exactly what the state reflects, of each base shard."""


@dataclass(frozen=True, slots=True)
class HeldRequest:
    """The next rows of a hold, which ends with the last of them. → ``HeldRows``"""

    number: int


@dataclass(frozen=True, slots=True)
class HeldRows:
    """``worker/reader_map/holding.py`` says what each is. None: there are no more."""

    rows: tuple[tuple[bytes, bytes | None, bytes], ...]


@dataclass(frozen=True, slots=True)
class ReleaseRequest:
    """It is wanted no more; a notice."""

    number: int


HoldMessage = HoldRequest | Hold | HeldRequest | HeldRows | ReleaseRequest
