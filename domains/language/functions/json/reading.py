"""Functions that ask a JSON document. What is no JSON, and a path that is none, is NULL; a planner refuses such
constants."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

from domains.errors import TypeViolation
from domains.language.documents import NotJson, canonical, same_value, string_text, text_of_value, value_of
from domains.language.expressions import Call, Constant
from domains.language.functions.comparands import document_of
from domains.language.functions.conversion import unquoted
from domains.language.functions.json.paths import Path, everything, found, is_single, path_of, placed, text_of_place
from domains.language.functions.json.table import fitting
from domains.language.functions.matching import like_matcher
from domains.language.functions.source import Emitter, Function, implemented, registry
from domains.language.types import BIGINT, BOOL, JSON, TEXT, Kind, Value


def _extract(document: str, *texts: str) -> str | None:
    paths = [path_of(text) for text in texts]
    if None in paths:
        return None
    value = value_of(document)
    values = [each for path in paths if path is not None for each in found(value, path)]
    if not values:
        return None
    single = len(paths) == 1 and paths[0] is not None and is_single(paths[0])
    return text_of_value(values[0] if single else values)


def _at(document: str, text: str) -> list[Any]:
    """The value at a path that names one, if it is there."""
    path = single_path(text)
    return [] if path is None else found(value_of(document), path)


def single_path(text: str) -> Path | None:
    path = path_of(text)
    return path if path is not None and is_single(path) else None


def _value(document: str, text: str) -> str | None:
    """JSON_VALUE: a scalar as text."""
    values = _at(document, text)
    if not values or values[0] is None or isinstance(values[0], (list, dict)):
        return None
    return unquoted(text_of_value(values[0]))


def _value_as(emitter: Emitter, call: Call) -> str:
    """JSON_VALUE with RETURNING: what a column of JSON_TABLE would be, but JSON's null is NULL."""
    *arguments, on_empty, on_error = call.arguments
    assert isinstance(on_empty, Constant)
    assert isinstance(on_error, Constant)
    type, empty, error = on_empty.type, on_empty.value, on_error.value

    def read(document: str, text: str) -> Value:
        values = _at(document, text)
        if not values:
            return empty
        try:
            return None if values[0] is None else fitting(values[0], type)
        except (TypeViolation, NotJson):
            return error

    sources = [emitter.as_type(e, target) for e, target in zip(arguments, (JSON, TEXT), strict=True)]
    return emitter.strict(sources, lambda *names: f"{emitter.bind(read)}({', '.join(names)})")


def _unquote(text: str) -> str | None:
    """A text that is no string in double quotes stays; one that is in them and no JSON is refused by MySQL."""
    if len(text) < 2 or text[0] != '"' or text[-1] != '"':
        return text
    try:
        return unquoted(canonical(text))
    except NotJson:
        return None


def _quote(text: str) -> str | None:
    try:
        return string_text(text)
    except NotJson:
        return None


def _contains(target: str, candidate: str, text: str = "$") -> int | None:
    values = _at(target, text)
    return int(_holds(values[0], value_of(candidate))) if values else None


def _holds(target: Any, candidate: Any) -> bool:
    """Whether a value is contained in another, as MySQL means it."""
    if isinstance(target, list):
        wanted = candidate if isinstance(candidate, list) else [candidate]
        return all(any(_holds(each, one) for each in target) for one in wanted)
    if isinstance(target, dict):
        if not isinstance(candidate, dict):
            return False
        return all(key in target and _holds(target[key], each) for key, each in candidate.items())
    return not isinstance(candidate, (list, dict)) and same_value(target, candidate)


def _member_of(emitter: Emitter, call: Call) -> str:
    """``value MEMBER OF (array)``: a text is a JSON string; what is no array has one member, itself."""
    value, array = call.arguments
    as_document = emitter.bind(document_of(value.type))
    document = emitter.strict([emitter.value(value)], lambda x: f"{as_document}({x})")
    return emitter.strict(
        [document, emitter.as_type(array, JSON)], lambda x, y: f"{emitter.bind(_is_member)}({x}, {y})"
    )


def _is_member(one: str, other: str) -> int:
    value, array = value_of(one), value_of(other)
    return int(any(same_value(value, each) for each in (array if isinstance(array, list) else [array])))


def _overlaps(one: str, other: str) -> int:
    """Whether two arrays have an element, two objects a member, or two scalars their value in common."""
    a, b = value_of(one), value_of(other)
    if isinstance(a, dict) and isinstance(b, dict):
        return int(any(key in b and same_value(each, b[key]) for key, each in a.items()))
    if not isinstance(a, list) and not isinstance(b, list):
        return int(same_value(a, b))
    left, right = (each if isinstance(each, list) else [each] for each in (a, b))
    return int(any(same_value(x, y) for x in left for y in right))


def _contains_path(document: str, mode: str, *texts: str) -> int | None:
    paths = [path_of(text) for text in texts]
    if None in paths or mode.lower() not in MODES:
        return None
    value = value_of(document)
    present = [bool(found(value, path)) for path in paths if path is not None]
    return int(any(present) if mode.lower() == "one" else all(present))


MODES = ("one", "all")


def _search(document: str, mode: str, pattern: str, escape: str = "\\", *texts: str) -> str | None:
    """The paths of the strings that are LIKE a pattern, each once; of one a string, of several an array."""
    paths = [path_of(text) for text in texts or ("$",)]
    if None in paths or mode.lower() not in MODES or len(escape) > 1:
        return None
    value, matches = value_of(document), like_matcher(pattern, escape)
    starts = (start for path in paths if path is not None for start in placed(value, path).items())
    every = (each for start in starts for each in everything(*start))
    met = dict.fromkeys(place for place, each in every if isinstance(each, str) and matches(each))
    names = [text_of_place(place) for place in met]
    if not names:
        return None
    return text_of_value(names[0] if len(names) == 1 or mode.lower() == "one" else names)


def _length(document: str, text: str = "$") -> int | None:
    values = _at(document, text)
    if not values:
        return None
    return len(values[0]) if isinstance(values[0], (list, dict)) else 1


def _depth(document: str) -> int:
    return _levels(value_of(document))


def _levels(value: Any) -> int:
    inside = value if isinstance(value, list) else value.values() if isinstance(value, dict) else ()
    return 1 + max(map(_levels, inside), default=0)


def _keys(document: str, text: str = "$") -> str | None:
    values = _at(document, text)
    return text_of_value(list(values[0])) if values and isinstance(values[0], dict) else None


def _type(document: str) -> str:
    value = value_of(document)
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "BOOLEAN"
    if isinstance(value, int):
        return "INTEGER" if value < 2**63 else "UNSIGNED INTEGER"
    names = {float: "DOUBLE", Decimal: "DECIMAL", str: "STRING", list: "ARRAY", dict: "OBJECT"}
    return names[type(value)]


def _pretty(document: str) -> str:
    return "".join(_lines(value_of(document), "\n"))


def _lines(value: Any, margin: str) -> Iterator[str]:
    """The pieces of a document, an element or member a line, as JSON_PRETTY prints it."""
    further = f"{margin}  "
    if isinstance(value, list) and value:
        for at, each in enumerate(value):
            yield f"{',' if at else '['}{further}"
            yield from _lines(each, further)
        yield f"{margin}]"
    elif isinstance(value, dict) and value:
        for at, (key, each) in enumerate(value.items()):
            yield f"{',' if at else '{'}{further}{string_text(key)}: "
            yield from _lines(each, further)
        yield f"{margin}}}"
    else:
        yield text_of_value(value)


def _is_valid(text: str) -> int:
    try:
        canonical(text)
    except NotJson:
        return 0
    return 1


def _valid(emitter: Emitter, call: Call) -> str:
    """JSON_VALID, which is 0 for what is neither text nor JSON, as in MySQL."""
    (argument,) = call.arguments
    kind = argument.type.kind
    source = emitter.as_type(argument, TEXT) if kind is Kind.BLOB else emitter.value(argument)
    if kind in (Kind.TEXT, Kind.BLOB):
        return emitter.strict([source], lambda x: f"{emitter.bind(_is_valid)}({x})")
    return emitter.strict([source], lambda _x: "1" if kind is Kind.JSON else "0")


FUNCTIONS = registry(
    implemented("json_extract", [JSON, TEXT], JSON, _extract, variadic=True),
    implemented("json_value", [JSON, TEXT], TEXT, _value),
    Function("json_value_as", (4, 4), lambda types: types[2], _value_as),
    implemented("json_unquote", [TEXT], TEXT, _unquote),
    implemented("json_quote", [TEXT], TEXT, _quote),
    implemented("json_contains", [JSON, JSON, TEXT], BOOL, _contains, optional=1),
    implemented("json_overlaps", [JSON, JSON], BOOL, _overlaps),
    implemented("json_contains_path", [JSON, TEXT, TEXT], BOOL, _contains_path, variadic=True),
    Function("json_member_of", (2, 2), lambda _types: BOOL, _member_of),
    implemented("json_search", [JSON, TEXT, TEXT, TEXT, TEXT], JSON, _search, optional=2, variadic=True),
    implemented("json_pretty", [JSON], TEXT, _pretty),
    implemented("json_length", [JSON, TEXT], BIGINT, _length, optional=1),
    implemented("json_depth", [JSON], BIGINT, _depth),
    implemented("json_keys", [JSON, TEXT], JSON, _keys, optional=1),
    implemented("json_type", [JSON], TEXT, _type),
    Function("json_valid", (1, 1), lambda _types: BOOL, _valid),
)
