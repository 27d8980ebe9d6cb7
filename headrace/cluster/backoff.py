"""How long a process that died stays down: at first hardly at all, then longer each time."""

from __future__ import annotations

from dataclasses import dataclass

FIRST_SECONDS = 0.1
"""Most deaths are single: a kill, an error that will not come again. Whoever waits, waits for this."""
LONGEST_SECONDS = 5.0
"""Something that dies at each start shall not take the machine from the others, and still be back soon once the reason
is gone."""
SETTLED_SECONDS = 10.0
"""Who lived so long did start; its death begins a new story."""


@dataclass(slots=True)
class Backoff:
    next: float = FIRST_SECONDS

    def after(self, lived: float) -> float:
        """Seconds to wait after a process that lived for ``lived`` seconds."""
        if lived >= SETTLED_SECONDS:
            self.next = FIRST_SECONDS
        wait, self.next = self.next, min(2 * self.next, LONGEST_SECONDS)
        return wait
