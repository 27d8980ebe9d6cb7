"""Functions that make a JSON document of SQL values, or of another document.

A SQL value becomes JSON by its type: a text is a string, a DATE and a DATETIME are too, a number keeps its digits, and
NULL is ``null``. What is a truth value and what is a number is settled by the planner, with ``json_truth``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from domains.language.documents import (
    NotJson,
    key_order,
    member_text,
    object_text,
    sorted_members,
    string_text,
    text_of_value,
    value_of,
)
from domains.language.expressions import Call, Constant, Expression
from domains.language.functions.comparands import document_of
from domains.language.functions.json.paths import CellLeg, Leg, MemberLeg, found
from domains.language.functions.json.reading import single_path
from domains.language.functions.source import Emitter, Function, implemented, registry
from domains.language.types import JSON, TEXT, Kind, SqlType

NULL_TEXT = "null"


def written_of(type: SqlType) -> Callable[[Any], str]:
    """A function that writes values of a type, and NULL, as JSON."""
    convert = document_of(type)

    def written(value: Any) -> str:
        text = None if value is None else convert(value)
        return NULL_TEXT if text is None else str(text)

    return written


def _document(emitter: Emitter, e: Expression) -> str:
    """Source of a SQL value's JSON text; it is never None."""
    if isinstance(e, Constant):
        return emitter.bind(written_of(e.type)(e.value))
    source = emitter.value(e)
    if e.type.kind is Kind.INTEGER:
        test, name = emitter.named(source)
        return f"({emitter.bind(NULL_TEXT)} if {test} is None else {emitter.bind(str)}({name}))"
    if e.type.kind is Kind.JSON:
        return f"({source} or {emitter.bind(NULL_TEXT)})"
    return f"{emitter.bind(written_of(e.type))}({source})"


def _sum(parts: list[str]) -> str:
    return f"({' + '.join(parts)})"


def _array(emitter: Emitter, call: Call) -> str:
    if not call.arguments:
        return emitter.bind("[]")
    parts = [_document(emitter, e) for e in call.arguments]
    between = emitter.bind(", ")
    return f"({emitter.bind('[')} + {f' + {between} + '.join(parts)} + {emitter.bind(']')})"


def _object(emitter: Emitter, call: Call) -> str:
    pairs = list(zip(call.arguments[::2], call.arguments[1::2], strict=True))
    constants = [key for key, _ in pairs if isinstance(key, Constant) and key.value is not None]
    if len(constants) < len(pairs):
        keys = [emitter.as_type(key, TEXT) for key, _ in pairs]
        values = ", ".join([_document(emitter, value) for _, value in pairs])
        make = emitter.bind(_object_of)
        return emitter.strict(keys, lambda *names: f"{make}(({', '.join(names)},), ({values},))")
    last = {str(written_key(key)): value for (key, value) in zip(constants, [v for _, v in pairs], strict=True)}
    parts: list[str] = []
    for key in sorted(last, key=key_order):
        parts += [emitter.bind(f"{', ' if parts else '{'}{string_text(key)}: "), _document(emitter, last[key])]
    return _sum([*parts, emitter.bind("}")]) if parts else emitter.bind("{}")


def written_key(key: Constant) -> str:
    """A constant key as text."""
    return key.value if isinstance(key.value, str) else written_of(key.type)(key.value)


def _object_of(keys: tuple[str, ...], values: tuple[str, ...]) -> str | None:
    members = dict(zip(keys, values, strict=True))
    try:
        return object_text(sorted_members(members))
    except NotJson:
        return None


def _member(emitter: Emitter, call: Call) -> str:
    """A member of JSON_OBJECTAGG; NULL where its key is."""
    key, value = call.arguments
    document = _document(emitter, value)
    make = emitter.bind(_member_of)
    return emitter.strict([emitter.as_type(key, TEXT)], lambda x: f"{make}({x}, {document})")


def _member_of(key: str, value: str) -> str | None:
    try:
        return member_text(string_text(key), value)
    except NotJson:
        return None


def _truth(emitter: Emitter, call: Call) -> str:
    (argument,) = call.arguments
    texts = emitter.bind(("false", "true"))
    return emitter.strict([emitter.value(argument)], lambda x: f"{texts}[{x} != 0]")


# --- changes ----------------------------------------------------------------------------------------------------


def _changing(name: str, change: Callable[..., Any]) -> Function:
    """A function of a document and pairs of a path and a value: ``change`` takes the document's value, the path and
    the new value, and gives the new document's value."""

    def changed(document: str, *further: str) -> str | None:
        value = value_of(document)
        for text, new in zip(further[::2], further[1::2], strict=True):
            path = single_path(text)
            if path is None:
                return None
            value = change(value, path, value_of(new))
        return _text_or_null(value)

    def emit(emitter: Emitter, call: Call) -> str:
        document, *further = call.arguments
        strict = [emitter.as_type(document, JSON), *(emitter.as_type(path, TEXT) for path in further[::2])]
        values = [_document(emitter, value) for value in further[1::2]]

        def body(first: str, *paths: str) -> str:
            pairs = [f"{path}, {value}" for path, value in zip(paths, values, strict=True)]
            return f"{emitter.bind(changed)}({first}, {', '.join(pairs)})"

        return emitter.strict(strict, body)

    return Function(name, (3, None), lambda _types: JSON, emit)


def _text_or_null(value: Any) -> str | None:
    try:
        return text_of_value(value)
    except NotJson:  # It has grown too deep.
        return None


def _set(value: Any, path: tuple[Leg, ...], new: Any) -> Any:
    return _put(value, path, new, replaces=True, inserts=True)


def _insert(value: Any, path: tuple[Leg, ...], new: Any) -> Any:
    return _put(value, path, new, replaces=False, inserts=True)


def _replace(value: Any, path: tuple[Leg, ...], new: Any) -> Any:
    return _put(value, path, new, replaces=True, inserts=False)


def _put(value: Any, path: tuple[Leg, ...], new: Any, *, replaces: bool, inserts: bool) -> Any:
    """``value`` with ``new`` at the path, if it is there and ``replaces``, or is not and ``inserts``: an object gets a
    member, an array an element at its end (or start), and what is no array becomes one."""
    if not path:
        return new if replaces else value
    *_, last = path
    parents = found(value, path[:-1])
    if not parents:
        return value
    parent = parents[0]
    if isinstance(last, MemberLeg):
        if isinstance(parent, dict) and (replaces if last.key in parent else inserts):
            parent[last.key] = new
        return value
    assert isinstance(last, CellLeg), "a single path has no other legs"
    length = len(parent) if isinstance(parent, list) else 1
    at = last.of(length)
    if 0 <= at < length:
        if replaces and isinstance(parent, list):
            parent[at] = new
        elif replaces:
            return _put(value, path[:-1], new, replaces=True, inserts=False)
        return value
    if not inserts:
        return value
    if isinstance(parent, list):
        parent.insert(0 if at < 0 else length, new)
        return value
    wrapped = [new, parent] if at < 0 else [parent, new]
    return _put(value, path[:-1], wrapped, replaces=True, inserts=False)


def _append(value: Any, path: tuple[Leg, ...], new: Any) -> Any:
    held = found(value, path)
    if not held:
        return value
    if isinstance(held[0], list):
        held[0].append(new)
        return value
    return _put(value, path, [held[0], new], replaces=True, inserts=False)


def _array_insert(value: Any, path: tuple[Leg, ...], new: Any) -> Any:
    """Before the element that is there; a path that names no element changes nothing (MySQL refuses it)."""
    held = found(value, path[:-1]) if path else []
    if held and isinstance(held[0], list) and isinstance(path[-1], CellLeg):
        at = path[-1].of(len(held[0]))
        held[0].insert(max(at, 0), new)
    return value


def _remove(document: str, *texts: str) -> str | None:
    value = value_of(document)
    for text in texts:
        path = single_path(text)
        if not path:
            return None
        for parent in found(value, path[:-1]):
            last = path[-1]
            if isinstance(parent, dict) and isinstance(last, MemberLeg):
                parent.pop(last.key, None)
            elif isinstance(parent, list) and isinstance(last, CellLeg) and 0 <= last.of(len(parent)) < len(parent):
                del parent[last.of(len(parent))]
    return text_of_value(value)


# --- merging ----------------------------------------------------------------------------------------------------


def _merge_patch(*documents: str | None) -> str | None:
    """RFC 7396, from left to right. What is unknown (NULL) stays so, until a document comes that is no object."""
    first, *rest = documents
    merged = None if first is None else [value_of(first)]
    for text in rest:
        patch = None if text is None else value_of(text)
        if text is None:
            merged = None
        elif not isinstance(patch, dict):
            merged = [patch]
        elif merged is not None:
            merged = [_patched(merged[0], patch)]
    return None if merged is None else _text_or_null(merged[0])


def _patched(value: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch
    result = dict(value) if isinstance(value, dict) else {}
    for key, each in patch.items():
        if each is None:
            result.pop(key, None)
        else:
            result[key] = _patched(result.get(key), each)
    return result


def _patch_source(emitter: Emitter, call: Call) -> str:
    sources = [emitter.as_type(argument, JSON) for argument in call.arguments]
    return f"{emitter.bind(_merge_patch)}({', '.join(sources)})"


def _merge_preserve(*documents: str) -> str | None:
    merged, *rest = map(value_of, documents)
    for each in rest:
        merged = _preserved(merged, each)
    return _text_or_null(merged)


def _preserved(one: Any, other: Any) -> Any:
    """Two objects become one, member by member; all else becomes one array."""
    if isinstance(one, dict) and isinstance(other, dict):
        both = {key: _preserved(each, other[key]) if key in other else each for key, each in one.items()}
        return both | {key: each for key, each in other.items() if key not in one}
    return [each for value in (one, other) for each in (value if isinstance(value, list) else [value])]


FUNCTIONS = registry(
    Function("json_array", (0, None), lambda _types: JSON, _array),
    Function("json_object", (0, None), lambda _types: JSON, _object),
    Function("json_element", (1, 1), lambda _types: JSON, lambda emitter, call: _document(emitter, call.arguments[0])),
    Function("json_member", (2, 2), lambda _types: TEXT, _member),
    Function("json_truth", (1, 1), lambda _types: JSON, _truth),
    _changing("json_set", _set),
    _changing("json_insert", _insert),
    _changing("json_replace", _replace),
    _changing("json_array_append", _append),
    _changing("json_array_insert", _array_insert),
    implemented("json_remove", [JSON, TEXT], JSON, _remove, variadic=True),
    Function("json_merge_patch", (2, None), lambda _types: JSON, _patch_source),
    implemented("json_merge_preserve", [JSON, JSON], JSON, _merge_preserve, variadic=True),
)
