"""How a request becomes a look-up: its parameters or keys in, the answer's bytes out. Shared by both doors."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any

from api.encoding import listed, parse_numbers
from api.many_lookups import ManyLookups
from api.prepared_views import PreparedViews, Typed, if_known
from controller.deployment import Deployment, Missed, in_one_state
from domains.packets import Clock


class Lookups:
    """Answers look-ups of one view; ``many`` those of several. Both prepare each view once."""

    def __init__(self, deployment: Deployment) -> None:
        self._deployment = deployment
        self._prepared = PreparedViews(deployment)
        self.many = ManyLookups(deployment, self._prepared)

    def page(
        self, view: str, parameters: Mapping[str, Sequence[str]], token: Clock | None
    ) -> Typed | Coroutine[Any, Any, Typed]:
        """The body ``{"rows":[…]}`` if the answer is there. Else what awaits it: it fills a hole, or waits until the
        view has reached the token, or is known."""
        lookup = None if token is not None else if_known(lambda: self._prepared.get(view))
        if lookup is None:
            return self._awaited(view, lambda: self._deployment.page(view, parameters, token=token))
        found = lookup.try_page(parameters)
        if isinstance(found, bytes):
            return b'{"rows":[' + found + b"]}", lookup.types
        return self._awaited(view, lambda: self._deployment.fill_page(lookup, found, parameters))

    async def _awaited(self, view: str, rows: Callable[[], Awaitable[bytes]]) -> Typed:
        while True:
            types = self._prepared.types(view)
            body = b'{"rows":[' + await rows() + b"]}"
            if self._prepared.stayed(view, types):
                return body, self._prepared.types(view) or b""

    def try_numbers(self, view: str, body: bytes) -> Typed | None:
        """What ``pages`` gives, if the body's keys are a whole number each and all their rows are there; else None."""
        values = parse_numbers(body)
        if values is None:
            return None
        pages = if_known(lambda: in_one_state(lambda reading: self._prepared.get(view).try_integers(values, reading)))
        return None if pages is None else (_results(pages), self._prepared.get(view).types)

    async def pages(self, view: str, keys: list[Any], token: Clock | None) -> Typed:
        """The body ``{"results":[[…],…]}`` for many keys, in their order. Only the misses are awaited."""
        while True:
            types = self._prepared.types(view)
            body = await self._pages(view, keys, token)
            if self._prepared.stayed(view, types):
                return body, self._prepared.types(view) or b""

    async def _pages(self, view: str, keys: list[Any], token: Clock | None) -> bytes:
        lookup = None if token is not None else if_known(lambda: self._prepared.get(view))
        if lookup is None:
            return _results(await self._deployment.pages(view, keys, token=token))
        found, holes = in_one_state(lambda reading: lookup.try_pages(keys, reading))
        if holes:
            missed = [key for key, page in zip(keys, found, strict=True) if page is None]
            (pages,) = await self._deployment.fill([Missed(lookup, missed, holes)])
            filled = iter(pages)
            found = [next(filled) if page is None else page for page in found]
        return _results(found)


def _results(pages: Sequence[bytes | None]) -> bytes:
    return b'{"results":' + listed(pages) + b"}"
