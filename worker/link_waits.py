"""Who waits until a domain is linked here: api processes that were told that it comes, and ask for it too early."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from domains.graph import DomainIndex
from worker.messages import Done, NotHere


class LinkWaits:
    """On the event loop. Nobody misses a link: it is looked for before each wait, and ``look_again`` comes after each
    change, so a change is either seen or waited for."""

    def __init__(self, is_linked: Callable[[DomainIndex], bool]) -> None:
        self._is_linked = is_linked
        self._changed = asyncio.Event()

    def look_again(self) -> None:
        """Domains have been linked."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def until(self, domain: DomainIndex, within: float) -> Done:
        try:
            async with asyncio.timeout(within):
                while not self._is_linked(domain):
                    await self._changed.wait()
        except TimeoutError:
            raise NotHere(f"domain {domain} was not linked here within {within:g} s", unlinked=True) from None
        return Done()
