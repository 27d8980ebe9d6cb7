"""How a request becomes a look-up: query string or keys in, the answer's bytes out. Shared by both doors."""

from __future__ import annotations

from asyncio import gather
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar, cast
from urllib.parse import unquote_to_bytes

from api.encoding import parse, parse_numbers
from api.kept_answers import MARKERS_MAX, Kept, KeptAnswers, pieces_of
from controller.deployment import Deployment, PreparedLookup, Reading, in_one_state
from domains.errors import BadRequest, LimitExceeded, NotFound
from domains.packets import Clock
from domains.types import Row

MAX_PREPARED = 4096
"""Prepared look-ups kept. A name counts once for each way of writing it in upper and lower case, so that without a
bound a client could fill the memory with spellings; a recipe with more views than this works, a little slower."""

MAX_LOOKUPS = 256
"""Views that one request may ask. A page of a site asks some twenty; the bound is for the time that one request keeps
others waiting."""
EXAMPLE = 'for example {"lookups": [{"view": "v", "keys": [[1], [2]]}]}'

Parameters = dict[str, list[str]]
Found = TypeVar("Found")
Pages = list[bytes | None]
"""Of each key its rows; None where they are not there yet."""


def parse_query(query: bytes) -> Parameters:
    """``id=7&tag=a&tag=b`` as name → values. ``parse_qs`` does the same in ten times the time of the plain case."""
    parameters: Parameters = {}
    try:
        if b"%" in query or b"+" in query:
            for part in query.split(b"&"):
                if part:
                    name, _, value = part.replace(b"+", b" ").partition(b"=")
                    values = parameters.setdefault(unquote_to_bytes(name).decode(), [])
                    values.append(unquote_to_bytes(value).decode())
        elif query:
            for text in query.decode().split("&"):
                if text:
                    key, _, given = text.partition("=")
                    if key in parameters:
                        parameters[key].append(given)
                    else:
                        parameters[key] = [given]
    except UnicodeDecodeError as error:
        raise BadRequest("the query string is not UTF-8", hint="percent-encode parameters as UTF-8") from error
    return parameters


def parse_keys(body: bytes) -> list[Any]:
    """The ``keys`` of a look-up's or an eviction's body: lists by position or objects by name."""
    request = parse(body)
    keys = request.get("keys") if isinstance(request, dict) else None
    if not isinstance(keys, list):
        raise BadRequest('the body must be an object with a list "keys"', hint='for example {"keys": [[1], [2]]}')
    if len(request) > 1:
        surplus = next(name for name in request if name != "keys")
        raise BadRequest(f'unknown field "{surplus}"', hint='the only field is "keys"')
    return keys


def parse_lookups(body: bytes) -> list[tuple[str, list[Any]]]:
    """The ``lookups`` of a body: each a view and its keys."""
    request = parse(body)
    lookups = request.get("lookups") if isinstance(request, dict) else None
    if not isinstance(lookups, list) or len(request) > 1:
        raise BadRequest('the body must be an object with a list "lookups", and nothing else', hint=EXAMPLE)
    if len(lookups) > MAX_LOOKUPS:
        raise LimitExceeded(f"{len(lookups)} look-ups in one request, where {MAX_LOOKUPS} may be", hint="send several")
    return [_one_of(each, place) for place, each in enumerate(lookups)]


def _one_of(lookup: Any, place: int) -> tuple[str, list[Any]]:
    view, keys = (lookup.get("view"), lookup.get("keys")) if isinstance(lookup, dict) else (None, None)
    if not isinstance(view, str) or not isinstance(keys, list) or len(lookup) != 2:
        raise BadRequest(f'lookups[{place}] must be an object with "view" and a list "keys"', hint=EXAMPLE)
    return view, keys


class Late(NamedTuple):
    """A look-up that is not all there: its place in the request, and what was found of it, if it was looked for."""

    place: int
    view: str
    keys: list[Any]
    tried: Pages | None


class Asked(NamedTuple):
    """The answers to the look-ups of one request, each ``[[row, …], …]``, and what is still missing among them."""

    answers: list[bytes]
    late: list[Late]

    def body(self) -> bytes:
        return b'{"results":[' + b",".join(self.answers) + b"]}"


class Lookups:
    """Answers look-ups of any view of one deployment, preparing each view once."""

    def __init__(self, deployment: Deployment) -> None:
        self._deployment = deployment
        self._prepared: dict[str, PreparedLookup] = {}
        self._kept = KeptAnswers()

    def prepared(self, view: str) -> PreparedLookup:
        """Raises NotFound with the nearest name."""
        found = self._prepared.get(view)
        if found is None or found.stale:
            self._prepared.pop(view, None)
            found = self._deployment.prepare(view)
            if len(self._prepared) >= MAX_PREPARED:
                self._prepared.clear()
            self._prepared[view] = found
        return found

    def try_page(self, view: str, parameters: Mapping[str, Sequence[str]]) -> bytes | None:
        """The body ``{"rows":[…]}`` if the answer is there, else None: also where the view is not known *yet*."""
        rows = _if_known(lambda: self.prepared(view).try_page(parameters))
        return None if rows is None else b'{"rows":[' + rows + b"]}"

    async def page(self, view: str, parameters: Mapping[str, Sequence[str]], token: Clock | None) -> bytes:
        """The same, awaited: fills a hole, and waits until the view has reached the token."""
        return b'{"rows":[' + await self._deployment.page(view, parameters, token=token) + b"]}"

    def try_numbers(self, view: str, body: bytes) -> bytes | None:
        """What ``pages`` gives, if the body's keys are a whole number each and all their rows are there; else None."""
        values = parse_numbers(body)
        if values is None:
            return None
        pages = _if_known(lambda: in_one_state(lambda reading: self.prepared(view).try_integers(values, reading)))
        return None if pages is None else b'{"results":' + _listed(pages) + b"}"

    async def pages(self, view: str, keys: list[Any], token: Clock | None) -> bytes:
        """The body ``{"results":[[…],…]}`` for many keys, in their order. Only the misses are awaited."""
        tried = None if token is not None else self._tried_alone(view, keys)
        return b'{"results":' + _listed(await self._whole(view, keys, tried, token)) + b"}"

    # --- several views --------------------------------------------------------------------------------------------

    def ask(self, body: bytes, token: Clock | None) -> Asked:
        """Take a body's look-ups, and what is there of their answers; raises BadRequest and what a view's keys raise.

        All that is there is of one state of each reader map. With a token everything is to be awaited.
        """
        if token is None:
            pieces = pieces_of(body)
            if pieces is not None and len(pieces) <= MAX_LOOKUPS:
                asked = _if_known(lambda: in_one_state(lambda reading: self._by_pieces(pieces, reading)))
                if asked is not None:
                    return asked
        return self.ask_for(parse_lookups(body), token)

    def ask_for(self, wanted: Sequence[tuple[str, list[Any]]], token: Clock | None) -> Asked:
        """The same for look-ups that are parsed."""
        if token is None:
            asked = _if_known(lambda: in_one_state(lambda reading: self._by_keys(wanted, reading)))
            if asked is not None:
                return asked
        late = [Late(place, view, keys, None) for place, (view, keys) in enumerate(wanted)]
        return Asked([b""] * len(wanted), late)

    async def finish(self, asked: Asked, token: Clock | None) -> bytes:
        """The body, once what is missing is filled, side by side."""
        if token is not None or any(each.tried is None for each in asked.late):
            awaited = await gather(*(self._deployment.pages(each.view, each.keys, token=token) for each in asked.late))
            whole = [cast(Pages, pages) for pages in awaited]
        else:
            whole = await self._filled(asked.late)
        for late, pages in zip(asked.late, whole, strict=True):
            asked.answers[late.place] = _listed(pages)
        return asked.body()

    async def _filled(self, late: Sequence[Late]) -> list[Pages]:
        """All that was missed, in one message."""
        missed = [
            (each.view, [key for key, page in zip(each.keys, each.tried or (), strict=True) if page is None])
            for each in late
        ]
        filled = [iter(pages) for pages in await self._deployment.fill(missed)]
        return [
            [next(pages) if page is None else page for page in each.tried or ()]
            for each, pages in zip(late, filled, strict=True)
        ]

    def _by_pieces(self, pieces: Sequence[bytes], reading: Reading) -> Asked | None:
        """None where they are no look-ups by themselves; then nothing was read or counted."""
        # Runs a dozen times for a page of a site: 1 µs for an answer that is kept, some 5 where it is read.
        known = [self._kept.get(piece) or _parsed_alone(piece) for piece in pieces]
        if None in known:
            return None
        asked = Asked([], [])
        for piece, kept in zip(pieces, known, strict=True):
            if not isinstance(kept, Kept):
                self._read_piece(piece, kept or _parsed(piece), asked, reading)
            elif not kept.stands(reading):
                self._read_piece(piece, _parsed(piece), asked, reading)
            else:
                if kept.lookup.again(kept.keys, kept.told):
                    kept.told = True
                    kept.lookup.tell(_parsed(piece)[1])
                asked.answers.append(kept.answer)
        return asked

    def _read_piece(self, piece: bytes, parsed: tuple[str, list[Any]], asked: Asked, reading: Reading) -> None:
        """Add its answer, or what is late of it."""
        view, keys = parsed
        lookup = self.prepared(view)
        short = lookup.try_short(keys[0], reading) if len(keys) == 1 else None
        if short is not None:
            answer = b"[[" + short.page + b"]]"
            asked.answers.append(answer)
            if short.marker:
                self._kept.keep(piece, Kept(lookup, b"", 1, answer, [short.marker], [short.state]))
            return
        rows = list[Row]()
        pages = lookup.try_pages(keys, reading, rows)
        if None in pages:
            asked.late.append(Late(len(asked.answers), view, keys, pages))
            asked.answers.append(b"")
            return
        answer = _listed(pages)
        asked.answers.append(answer)
        version = lookup.version(reading)
        if version is not None:
            markers = lookup.markers(rows) if len(rows) <= MARKERS_MAX else None
            states = [] if markers is None else lookup.states(markers, reading)
            self._kept.keep(piece, Kept(lookup, version, len(keys), answer, markers, states))

    def _by_keys(self, wanted: Sequence[tuple[str, list[Any]]], reading: Reading) -> Asked:
        asked = Asked([], [])
        for view, keys in wanted:
            pages = self._tried(view, keys, reading)
            if None in pages:
                asked.late.append(Late(len(asked.answers), view, keys, pages))
            asked.answers.append(b"" if None in pages else _listed(pages))
        return asked

    def _tried(self, view: str, keys: list[Any], reading: Reading) -> Pages:
        """What is there now."""
        return self.prepared(view).try_pages(keys, reading)

    def _tried_alone(self, view: str, keys: list[Any]) -> Pages | None:
        """The same; None where the view is not known yet."""
        return _if_known(lambda: in_one_state(lambda reading: self._tried(view, keys, reading)))

    async def _whole(self, view: str, keys: list[Any], tried: Pages | None, token: Clock | None) -> Pages:
        if tried is None:
            return cast(Pages, await self._deployment.pages(view, keys, token=token))
        missed = [place for place, page in enumerate(tried) if page is None]
        if not missed:
            return tried
        filled = await self._deployment.pages(view, [keys[place] for place in missed])
        by_place = dict(zip(missed, filled, strict=True))
        return [by_place[place] if page is None else page for place, page in enumerate(tried)]


def _if_known(read: Callable[[], Found]) -> Found | None:
    """None where a view is not known *yet*: whoever awaits its answer has the deployment look for it."""
    try:
        return read()
    except NotFound:
        return None


def _parsed_alone(piece: bytes) -> tuple[str, list[Any]] | None:
    """None where it is no look-up by itself."""
    try:
        return _parsed(piece)
    except BadRequest:
        return None


def _parsed(piece: bytes) -> tuple[str, list[Any]]:
    return _one_of(parse(b"{" + piece + b"}"), 0)


def _listed(pages: Sequence[bytes | None]) -> bytes:
    return b"[[" + b"],[".join(cast(Sequence[bytes], pages)) + b"]]" if pages else b"[]"
