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
Typed = tuple[bytes, bytes]
"""An answer's body, and the columns that JSON has no type for (``ViewInfo.types``)."""


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

    def types(self, view: str) -> bytes | None:
        """Those of its columns; None where it is not known yet."""
        found = if_known(lambda: self.get(view))
        return None if found is None else found.types

    def stayed(self, view: str, types: bytes | None) -> bool:
        """Whether these are its types still: what was awaited meanwhile may else be of a view that was replaced."""
        return types is None or self.types(view) == types


def if_known(read: Callable[[], Found]) -> Found | None:
    """None where a view is not known *yet*: whoever awaits its answer has the deployment look for it."""
    try:
        return read()
    except NotFound:
        return None
