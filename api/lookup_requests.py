"""What a request asks of views: a query string, keys, or look-ups of several views, as values. Shared by both doors."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote_to_bytes

from api.encoding import parse
from api.references import Wanted, wanted_of
from domains.errors import BadRequest, LimitExceeded

MAX_LOOKUPS = 256
"""Views that one request may ask. A page of a site asks some twenty; the bound is for the time that one request keeps
others waiting."""
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
    if len(request) > 1:
        surplus = next(name for name in request if name != "keys")
        raise BadRequest(f'unknown field "{surplus}"', hint='the only field is "keys"')
    return keys


def parse_lookups(body: bytes) -> list[Wanted]:
    """The ``lookups`` of a body: each a view and its keys."""
    request = parse(body)
    lookups = request.get("lookups") if isinstance(request, dict) else None
    if not isinstance(lookups, list) or len(request) > 1:
        raise BadRequest('the body must be an object with a list "lookups", and nothing else', hint=EXAMPLE)
    if len(lookups) > MAX_LOOKUPS:
        raise LimitExceeded(f"{len(lookups)} look-ups in one request, where {MAX_LOOKUPS} may be", hint="send several")
    return [_one_of(each, place) for place, each in enumerate(lookups)]


def parse_piece(piece: bytes) -> Wanted:
    """One look-up without its braces, see ``kept_answers.py``."""
    return _one_of(parse(b"{" + piece + b"}"), 0)


def _one_of(lookup: Any, place: int) -> Wanted:
    view, keys = (lookup.get("view"), lookup.get("keys")) if isinstance(lookup, dict) else (None, None)
    if not isinstance(view, str) or not isinstance(keys, list) or len(lookup) != 2:
        raise BadRequest(f'lookups[{place}] must be an object with "view" and a list "keys"', hint=EXAMPLE)
    return wanted_of(view, keys)
