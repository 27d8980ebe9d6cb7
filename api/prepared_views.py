"""The prepared look-up of each view that is asked, made once."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from controller.deployment import Deployment, PreparedLookup
from domains.errors import NotFound

MAX_PREPARED = 4096
"""Prepared look-ups kept. A name counts once for each way of writing it in upper and lower case, so that without a
bound a client could fill the memory with spellings; a recipe with more views than this works, a little slower."""

Found = TypeVar("Found")
Pages = list[bytes | None]
"""Of each key its rows; None where they are not there yet."""


class PreparedViews:
    """Those of one deployment, by the names that requests have for them."""

    def __init__(self, deployment: Deployment) -> None:
        self._deployment = deployment
        self._prepared: dict[str, PreparedLookup] = {}

    def __len__(self) -> int:
        return len(self._prepared)

    def get(self, view: str) -> PreparedLookup:
        """Raises NotFound with the nearest name."""
        found = self._prepared.get(view)
        if found is None or found.stale:
            self._prepared.pop(view, None)
            found = self._deployment.prepare(view)
            if len(self._prepared) >= MAX_PREPARED:
                self._prepared.clear()
            self._prepared[view] = found
        return found


def if_known(read: Callable[[], Found]) -> Found | None:
    """None where a view is not known *yet*: whoever awaits its answer has the deployment look for it."""
    try:
        return read()
    except NotFound:
        return None
