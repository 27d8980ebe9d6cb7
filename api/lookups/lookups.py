"""Look-ups of several views in one request: in one state of what is there, and then what was missing.

::

    body ─► pieces ─► kept? given again │ read by its keys │ refers to others' answers: read by what these have
                           └──────────────────┴──────────────────────┴─► Asked: answers │ late │ waiting
    late ─► filled, all at once ─► waiting: read now ─► … ─► the body

A look-up is *late* where a part of what it asks for is not there, and *waiting* where it refers to one that is late.
What is written and kept as one piece of text is said in ``response_cache.py``, what a reference means in
``references.py``.
"""

from __future__ import annotations

from asyncio import gather
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar, cast
from urllib.parse import unquote_to_bytes

from api.encoding import listed, parse, parse_numbers
from api.lookups.references import LookupText, Values, not_earlier, values_of, wanted_of
from api.lookups.response_cache import MARKERS_MAX, Kept, Name, ResponseCache, pieces_of
from controller.access.session import ANONYMOUS, Caller
from controller.deployment import (
    BoundLookup,
    Deployment,
    MapReading,
    Missed,
    PreparedLookup,
    RequestMoment,
    in_one_state,
)
from domains.errors import BadRequest, LimitExceeded, NotFound
from domains.language.types import Row
from domains.plan.packets import Clock

# What a request asks of views: a query string, keys, or look-ups of several views, as values. Shared by both doors.

MAX_LOOKUPS = 256
"""Views that one request may ask. A page of a site asks some twenty; the bound is for the time that one request keeps
others waiting."""
MAX_REFERENCES = 1_000
"""The most references to other look-ups in one request: each takes some 20 µs to be read. A page has a few for each of
its look-ups."""
CONSISTENT = "consistent"
"""The field that wants all answers of one position."""
ETAGS = "etags"
"""The field that wants a tag of each answer."""
TAKES = (b'"first"', b'"all"', b'"each"')
"""How a reference begins; a value that looks like one is counted, too."""
EXAMPLE = 'for example {"lookups": [{"view": "v", "keys": [[1], [2]]}]}'

Parameters = dict[str, list[str]]


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
    surplus = next((name for name in request if name not in ("keys", ETAGS)), None)
    if surplus is not None:
        raise BadRequest(f'unknown field "{surplus}"', hint='the fields are "keys" and "etags"')
    return keys


def parse_lookups(body: bytes) -> list[LookupText]:
    """The ``lookups`` of a body: each a view and its keys."""
    request = parse(body)
    lookups = request.get("lookups") if isinstance(request, dict) else None
    if not isinstance(lookups, list) or not request.keys() <= {"lookups", CONSISTENT}:
        raise BadRequest(
            'the body must be an object with a list "lookups", and nothing else but "consistent"', hint=EXAMPLE
        )
    if len(lookups) > MAX_LOOKUPS:
        raise LimitExceeded(f"{len(lookups)} look-ups in one request, where {MAX_LOOKUPS} may be", hint="send several")
    return [_one_of(each, place) for place, each in enumerate(lookups)]


def wants(field: str, body: bytes) -> bool:
    """Whether a body says that this is ``true``. Raises BadRequest."""
    request = parse(body)
    wanted = request.get(field, False) if isinstance(request, dict) else False
    if not isinstance(wanted, bool):
        raise BadRequest(f'"{field}" is true or false')
    return wanted


def parse_piece(piece: bytes) -> LookupText:
    """One look-up without its braces, see ``response_cache.py``."""
    return _one_of(parse(b"{" + piece + b"}"), 0)


def _one_of(lookup: Any, place: int) -> LookupText:
    view, keys = (lookup.get("view"), lookup.get("keys")) if isinstance(lookup, dict) else (None, None)
    if not isinstance(view, str) or not isinstance(keys, list) or len(lookup) != 2:
        raise BadRequest(f'lookups[{place}] must be an object with "view" and a list "keys"', hint=EXAMPLE)
    return wanted_of(view, keys)


Found = TypeVar("Found")
Typed = tuple[bytes, bytes]
"""An answer's body, and the columns that JSON has no type for (``ViewInfo.types``)."""


def known(deployment: Deployment, view: str) -> PreparedLookup | None:
    """The view's look-up; None where it is not known *yet*."""
    try:
        return deployment.prepare(view)
    except NotFound:
        return None


def have_stayed(before: PreparedLookup | None, now: PreparedLookup | None) -> bool:
    """Whether the columns have the same types: what was awaited may be of a view that was replaced meanwhile."""
    return before is None or (now is not None and now.types == before.types)


def if_known(read: Callable[[], Found]) -> Found | None:
    """None where a view is not known *yet*: whoever awaits its answer has the deployment look for it."""
    try:
        return read()
    except NotFound:
        return None


MAX_REFERRING = 4096
"""Pieces with references that are kept as they were parsed: those of all kinds of pages, by all users of a while.
A page of four such look-ups takes 20 µs so, and 50 where they are parsed each time."""
REFERRING_BYTES = 512
"""Bytes of such a piece, at most."""


class Late(NamedTuple):
    """A look-up that is not all there: its place in the request, and, if it was looked for, what was found of it and
    what was missed."""

    place: int
    view: str
    keys: list[Any]
    found: Sequence[bytes | None] = ()
    missed: Missed | None = None


class WaitingLookup(NamedTuple):
    """A look-up that refers to one that is not all there: its place, and its text where that is known."""

    place: int
    piece: bytes | None
    wanted: LookupText


@dataclass(slots=True)
class LookupAnswers:
    """The answers to the look-ups of one request, each ``[[row, …], …]``, and what is still missing among them."""

    answers: list[bytes]
    """Empty where it is missing: no answer is."""
    sources: list[Kept | PreparedLookup | None]
    """The kept answer, or else the look-up that read it, for each answer: for its types, and for answers that refer to
    it. None where it is missing, and no answer is."""
    late: list[Late] = field(default_factory=list)
    waiting: list[WaitingLookup] = field(default_factory=list)
    made: int = 0
    """Keys that references have made."""
    moment: RequestMoment = field(default_factory=RequestMoment)
    """The time of the request, which all of its look-ups have, and who asks."""

    def views(self) -> list[str]:
        """The views that are asked, by the names that they have or that they are asked by."""
        read = [_lookup_of(source).info.name for source in self.sources if source is not None]
        return [*read, *(each.view for each in self.late), *(each.wanted.view for each in self.waiting)]

    def body(self) -> bytes:
        return b'{"results":[' + b",".join(self.answers) + b"]}"


class ManyLookups:
    """Answers requests for look-ups of several views of one deployment."""

    def __init__(self, deployment: Deployment) -> None:
        self._deployment = deployment
        self._kept = ResponseCache()
        self._referring: dict[bytes, LookupText] = {}

    def ask(self, body: bytes, token: Clock | None, asker: Caller = ANONYMOUS) -> LookupAnswers:
        """Take a body's look-ups, and what is there of their answers; raises BadRequest and what a view's keys raise.

        All that is there is of one state of each reader map. With a token everything is to be awaited.
        """
        if len(body) > MAX_REFERENCES and sum(map(body.count, TAKES)) > MAX_REFERENCES:
            raise LimitExceeded(f"more than {MAX_REFERENCES} references in one request", hint="send several")
        if token is None:
            pieces = pieces_of(body)
            if pieces is not None and len(pieces) <= MAX_LOOKUPS:
                asked = if_known(lambda: in_one_state(lambda reading: self._by_pieces(pieces, reading, asker)))
                if asked is not None:
                    return asked
        return self.ask_for(parse_lookups(body), token, asker)

    def ask_for(self, wanted: Sequence[LookupText], token: Clock | None, asker: Caller = ANONYMOUS) -> LookupAnswers:
        """The same for look-ups that are parsed."""
        asked = LookupAnswers([b""] * len(wanted), [None] * len(wanted), moment=RequestMoment(asker=asker))
        waiting = [WaitingLookup(place, None, each) for place, each in enumerate(wanted)]
        return self._further(asked, waiting, awaited=token is not None)

    def typed(self, asked: LookupAnswers) -> Typed:
        """The body of what is not late, and for each look-up in turn its types, or ``-``."""
        types = [_lookup_of(source).types for source in asked.sources]
        return asked.body(), b", ".join([each or b"-" for each in types]) if any(types) else b""

    async def finish(self, asked: LookupAnswers, token: Clock | None) -> Typed:
        """The body, once what is missing is filled, side by side, and then what refers to it."""
        while asked.late:
            before = [known(self._deployment, each.view) for each in asked.late]
            if token is not None or any(each.missed is None for each in asked.late):
                fill, moment = self._deployment.pages, asked.moment
                coming = (fill(each.view, each.keys, token=token, moment=moment) for each in asked.late)
                whole: Sequence[Sequence[bytes]] = await gather(*coming)
            else:
                whole = await self._filled(asked.late)
            now = [known(self._deployment, each.view) for each in asked.late]
            if not all(map(have_stayed, before, now)):
                asked.late = [each._replace(missed=None) for each in asked.late]
                continue
            for late, pages in zip(asked.late, whole, strict=True):
                asked.answers[late.place] = listed(pages)
                asked.sources[late.place] = self._deployment.prepare(late.view)
            # Of those that wait, the first refers only to answers that are there by now: so this comes to an end.
            asked = self._further(asked, asked.waiting, awaited=token is not None)
        return self.typed(asked)

    def _further(self, asked: LookupAnswers, waiting: Sequence[WaitingLookup], *, awaited: bool) -> LookupAnswers:
        """Answer the waiting look-ups too, in one state; ``awaited``: nothing is to be read, since there is a token."""

        def read(reading: MapReading) -> LookupAnswers:
            more = LookupAnswers(asked.answers.copy(), asked.sources.copy(), made=asked.made, moment=asked.moment)
            for each in waiting:
                self._read(*each, more, reading)
            return more

        found = None if awaited else if_known(lambda: in_one_state(read))
        return self._all_late(asked, waiting) if found is None else found

    def _all_late(self, asked: LookupAnswers, waiting: Sequence[WaitingLookup]) -> LookupAnswers:
        """All of these are to be awaited, as far as it is known what they ask for."""
        more = LookupAnswers(asked.answers, asked.sources, made=asked.made, moment=asked.moment)
        for each in waiting:
            place, wanted = each.place, each.wanted
            values = self._values(place, wanted, more)
            if values is None:
                more.waiting.append(each)
            else:
                more.late.append(Late(place, wanted.view, self._keys(wanted, values, more)))
        return more

    async def _filled(self, late: Sequence[Late]) -> list[list[bytes]]:
        """All that was missed, in one message."""
        missed = [each.missed for each in late if each.missed is not None]
        filled = [iter(pages) for pages in await self._deployment.fill(missed)]
        return [
            [next(pages) if page is None else page for page in each.found]
            for each, pages in zip(late, filled, strict=True)
        ]

    def _by_pieces(self, pieces: Sequence[bytes], reading: MapReading, asker: Caller) -> LookupAnswers | None:
        """None where they are no look-ups by themselves; then nothing was read or counted."""
        # Runs a dozen times for a page of a site: 1 µs for an answer that is kept, some 5 where it is read.
        known = [self._referring.get(piece) or self._kept.get(piece) or _parsed_alone(piece) for piece in pieces]
        if None in known:
            return None
        asked = LookupAnswers([b""] * len(pieces), [None] * len(pieces), moment=RequestMoment(asker=asker))
        for place, (piece, kept) in enumerate(zip(pieces, known, strict=True)):
            if type(kept) is not Kept:
                self._read(place, piece, cast(LookupText, kept), asked, reading)
            elif not kept.stands(reading):
                self._read(place, piece, parse_piece(piece), asked, reading)
            else:
                if kept.is_to_tell():
                    kept.lookup.tell(parse_piece(piece).keys)
                asked.answers[place] = kept.answer
                asked.sources[place] = kept
        return asked

    def _read(
        self, place: int, piece: bytes | None, wanted: LookupText, asked: LookupAnswers, reading: MapReading
    ) -> None:
        """Add its answer, or what is late of it."""
        if not wanted.references:
            self._read_keys(place, piece, wanted.view, wanted.keys, asked, reading)
            return
        if piece is not None and piece not in self._referring and len(piece) <= REFERRING_BYTES:
            if len(self._referring) >= MAX_REFERRING:
                self._referring.clear()
            self._referring[piece] = wanted
        values = self._values(place, wanted, asked)
        if values is None:
            asked.waiting.append(WaitingLookup(place, piece, wanted))
            return
        name = None if piece is None else (piece, *[each.text for each in values])
        kept = None if name is None else self._kept.get(name)
        if kept is None or not kept.stands(reading):
            self._read_keys(place, name, wanted.view, self._keys(wanted, values, asked), asked, reading)
            return
        if kept.is_to_tell():
            kept.lookup.tell(wanted.filled(values))
        asked.answers[place] = kept.answer
        asked.sources[place] = kept

    def _values(self, place: int, wanted: LookupText, asked: LookupAnswers) -> list[Values] | None:
        """The values of its references; None where one of them leads to a missing answer."""
        found = []
        for reference in wanted.references:
            if reference.place >= place:
                raise not_earlier(reference, place)
            answer = asked.answers[reference.place]
            if not answer:
                return None
            source, take = asked.sources[reference.place], reference.take
            if not isinstance(source, Kept):
                values = values_of(take, answer, _lookup_of(source).info)
            else:
                known = source.values.get(take)
                if known is None:
                    known = values_of(take, answer, source.lookup.info)
                    self._kept.keep_values(source, take, known)
                values = known
            found.append(values)
        return found

    def _keys(self, wanted: LookupText, values: Sequence[Values], asked: LookupAnswers) -> list[Any]:
        if not wanted.references:
            return wanted.keys
        if_known(lambda: wanted.check_lists(self._deployment.prepare(wanted.view).info))
        keys = wanted.filled(values, asked.made)
        asked.made += len(keys)
        return keys

    def _read_keys(
        self, place: int, name: Name | None, view: str, keys: list[Any], asked: LookupAnswers, reading: MapReading
    ) -> None:
        """The same by its keys; what it is kept by, if it can be."""
        lookup = asked.sources[place] = self._deployment.prepare(view)
        short = lookup.try_short(keys[0], reading) if len(keys) == 1 else None
        if short is not None:
            answer = b"[[" + short.page + b"]]"
            asked.answers[place] = answer
            if short.marker and name is not None:
                kept = Kept(lookup, b"", 1, answer, [short.marker], [short.state])
                self._kept.keep(name, kept)
                asked.sources[place] = kept
            return
        rows = list[Row]()
        pages, holes = lookup.try_pages(keys, reading, rows, asked.moment)
        if holes:
            missed = [key for key, page in zip(keys, pages, strict=True) if page is None]
            asked.late.append(Late(place, view, keys, pages, Missed(lookup, missed, holes, asked.moment)))
            return
        answer = listed(pages)
        asked.answers[place] = answer
        # An answer of the time is another one a second later, though its reader stays as it is: it is never kept.
        version = None if lookup.info.moments else lookup.version(reading)
        if version is not None and name is not None:
            markers = lookup.markers(rows) if len(rows) <= MARKERS_MAX else None
            states = [] if markers is None else lookup.states(markers, reading)
            kept = Kept(lookup, version, len(keys), answer, markers, states)
            self._kept.keep(name, kept)
            asked.sources[place] = kept


def _lookup_of(source: Kept | PreparedLookup | None) -> PreparedLookup:
    """The look-up of an answer that is there."""
    assert source is not None
    return source.lookup if isinstance(source, Kept) else source


def _parsed_alone(piece: bytes) -> LookupText | None:
    """None where it is no look-up by itself."""
    try:
        return parse_piece(piece)
    except BadRequest:
        return None


# How a request becomes a look-up: its parameters or keys in, the answer's bytes out. Shared by both doors.


class LookupCalls:
    """Answers look-ups of one view; ``many`` those of several. Both prepare each view once."""

    def __init__(self, deployment: Deployment) -> None:
        self._deployment = deployment
        self.many = ManyLookups(deployment)

    def takes(self, view: str, name: str) -> bool:
        """Whether the view has a parameter of this name."""
        lookup = known(self._deployment, view)
        return lookup is not None and any(each.name == name for each in lookup.info.parameters)

    def page(
        self, view: str, parameters: Mapping[str, Sequence[str]], token: Clock | None, asker: Caller = ANONYMOUS
    ) -> Typed | Coroutine[Any, Any, Typed]:
        """The body ``{"rows":[…]}`` if the answer is there. Else what awaits it: it fills a hole, or waits until the
        view has reached the token, or is known."""
        lookup = None if token is not None or asker.session is not None else known(self._deployment, view)
        if lookup is None:
            return self._awaited(view, parameters, token, asker)
        found = lookup.try_page(parameters, asker)
        if isinstance(found, bytes):
            return b'{"rows":[' + found + b"]}", lookup.types
        return self._filled(view, lookup, found, parameters, asker)

    async def _filled(
        self,
        view: str,
        lookup: PreparedLookup,
        missed: BoundLookup,
        parameters: Mapping[str, Sequence[str]],
        asker: Caller,
    ) -> Typed:
        found = await self._deployment.fill_page(lookup, missed, parameters, asker)
        if lookup.stale:
            return await self._awaited(view, parameters, None, asker)
        return b'{"rows":[' + found + b"]}", lookup.types

    async def _awaited(
        self, view: str, parameters: Mapping[str, Sequence[str]], token: Clock | None, asker: Caller = ANONYMOUS
    ) -> Typed:
        while True:
            before, moment = known(self._deployment, view), RequestMoment(asker=asker)
            found = await self._deployment.page(view, parameters, token=token, moment=moment)
            now = known(self._deployment, view)
            if have_stayed(before, now):
                return b'{"rows":[' + found + b"]}", now.types if now else b""

    def try_numbers(self, view: str, body: bytes) -> Typed | None:
        """What ``pages`` gives, if the body's keys are a whole number each and all their rows are there; else None."""
        values = parse_numbers(body)
        lookup = None if values is None else known(self._deployment, view)
        if values is None or lookup is None:
            return None
        pages = in_one_state(lambda reading: lookup.try_integers(values, reading))
        return None if pages is None else (_results(pages), lookup.types)

    async def pages(self, view: str, keys: list[Any], token: Clock | None, asker: Caller = ANONYMOUS) -> Typed:
        """The body ``{"results":[[…],…]}`` for many keys, in their order. Only the misses are awaited."""
        while True:
            before = known(self._deployment, view)
            body = await self._pages(view, keys, token, RequestMoment(asker=asker))
            now = known(self._deployment, view)
            if have_stayed(before, now):
                return body, now.types if now else b""

    async def _pages(self, view: str, keys: list[Any], token: Clock | None, moment: RequestMoment) -> bytes:
        in_session = moment.asker.session is not None
        lookup = None if token is not None or in_session else known(self._deployment, view)
        if lookup is None:
            return _results(await self._deployment.pages(view, keys, token=token, moment=moment))
        found, holes = in_one_state(lambda reading: lookup.try_pages(keys, reading, None, moment))
        if holes:
            missed = [key for key, page in zip(keys, found, strict=True) if page is None]
            (pages,) = await self._deployment.fill([Missed(lookup, missed, holes, moment)])
            filled = iter(pages)
            found = [next(filled) if page is None else page for page in found]
        return _results(found)


def _results(pages: Sequence[bytes | None]) -> bytes:
    return b'{"results":' + listed(pages) + b"}"
