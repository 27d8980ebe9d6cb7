"""Functions of text: building it, cutting it, padding it. Positions count characters from 1.

A result longer than MySQL's ``max_allowed_packet`` is NULL, so that no expression can ask for gigabytes.
"""

from __future__ import annotations

from domains.functions.source import implemented, registry
from domains.types import BIGINT, BLOB, TEXT, Kind, SqlType

MAX_TEXT = 64 * 1024 * 1024
"""MySQL's default ``max_allowed_packet``."""


def _text_or_bytes(type: SqlType) -> SqlType:
    return BLOB if type.kind is Kind.BLOB else TEXT


def _concat(*parts: str) -> str | None:
    return bounded("".join(parts))


def bounded(text: str) -> str | None:
    return text if len(text) <= MAX_TEXT else None


def substring(text: str, start: int, count: int | None = None) -> str:
    """A negative start counts from the end; a start of 0, or before the text, gives the empty text."""
    size = len(text)
    if start == 0 or -start > size or start > size:
        return ""
    begin = start - 1 if start > 0 else size + start
    return text[begin:] if count is None else text[begin : begin + max(0, count)]


def _left(text: str, count: int) -> str:
    return text[: max(0, count)]


def _right(text: str, count: int) -> str:
    return text[-count:] if count > 0 else ""


def _ltrim(text: str, what: str = " ") -> str:
    if len(what) == 1:
        return text.lstrip(what)
    start = 0
    while what and text.startswith(what, start):
        start += len(what)
    return text[start:]


def _rtrim(text: str, what: str = " ") -> str:
    if len(what) == 1:
        return text.rstrip(what)
    end = len(text)
    while what and text.endswith(what, 0, end):
        end -= len(what)
    return text[:end]


def _trim(text: str, what: str = " ") -> str:
    return _rtrim(_ltrim(text, what), what)


def _replace(text: str, old: str, new: str) -> str | None:
    if not old:
        return text
    if len(new) > len(old) and len(text) + text.count(old) * (len(new) - len(old)) > MAX_TEXT:
        return None
    return text.replace(old, new)


def _repeat(text: str, count: int) -> str | None:
    return text * min(max(0, count), MAX_TEXT) if len(text) * count <= MAX_TEXT else None


def _padding(pad: str, missing: int) -> str:
    return (pad * (missing // len(pad) + 1))[:missing]


def _lpad(text: str, size: int, pad: str = " ") -> str | None:
    if not 0 <= size <= MAX_TEXT:
        return None
    if size <= len(text):
        return text[:size]
    return _padding(pad, size - len(text)) + text if pad else ""


def _rpad(text: str, size: int, pad: str = " ") -> str | None:
    if not 0 <= size <= MAX_TEXT:
        return None
    if size <= len(text):
        return text[:size]
    return text + _padding(pad, size - len(text)) if pad else ""


def _space(count: int) -> str | None:
    return " " * max(0, count) if count <= MAX_TEXT else None


def _substring_index(text: str, delimiter: str, count: int) -> str:
    """What stands before the count-th delimiter, or after it, counted from the end, where the count is negative."""
    if not delimiter or not count:
        return ""
    parts = text.split(delimiter) if count > 0 else text.rsplit(delimiter)
    return delimiter.join(parts[:count] if count > 0 else parts[count:])


def _length(value: str | bytes) -> int:
    """In bytes of UTF-8."""
    return len(value) if isinstance(value, bytes) or value.isascii() else len(value.encode("utf-8", "surrogatepass"))


FUNCTIONS = registry(
    implemented("concat", [TEXT], TEXT, _concat, variadic=True),
    implemented("lower", [TEXT], TEXT, str.lower),
    implemented("upper", [TEXT], TEXT, str.upper),
    implemented("length", [_text_or_bytes], BIGINT, _length),
    implemented("char_length", [TEXT], BIGINT, len),
    implemented("substring", [TEXT, BIGINT, BIGINT], TEXT, substring, optional=1),
    implemented("left", [TEXT, BIGINT], TEXT, _left),
    implemented("right", [TEXT, BIGINT], TEXT, _right),
    implemented("trim", [TEXT, TEXT], TEXT, _trim, optional=1),
    implemented("ltrim", [TEXT, TEXT], TEXT, _ltrim, optional=1),
    implemented("rtrim", [TEXT, TEXT], TEXT, _rtrim, optional=1),
    implemented("replace", [TEXT, TEXT, TEXT], TEXT, _replace),
    implemented("reverse", [TEXT], TEXT, lambda text: text[::-1]),
    implemented("repeat", [TEXT, BIGINT], TEXT, _repeat),
    implemented("lpad", [TEXT, BIGINT, TEXT], TEXT, _lpad, optional=1),
    implemented("rpad", [TEXT, BIGINT, TEXT], TEXT, _rpad, optional=1),
    implemented("space", [BIGINT], TEXT, _space),
    implemented("substring_index", [TEXT, TEXT, BIGINT], TEXT, _substring_index),
)
