"""The limits of live views, which the settings name: apart, since commands load them and nothing of the rest."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LiveLimits:
    """Of one process that answers HTTP; each is a setting of its name."""

    max_live: int = 20_000
    """Subscriptions. Beyond it the one that is there longest ends."""
    max_live_per_connection: int = 1_000
    max_live_selects: int = 32
    """Views that are made for SELECTs that are followed. Each costs every write to its tables some 10 µs."""
    live_steps: int = 64
    """Steps that each topic keeps for those who come back."""
    max_live_size: int = 64_000_000
    """Bytes of the rows of all topics."""
