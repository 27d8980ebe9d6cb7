"""JSON documents. A value of type JSON is its text, in the one form that MySQL prints, so that it is a plain ``str``.

A space follows ``,`` and ``:``, the keys of an object are sorted by their length in bytes and then by their bytes, of
equal keys the last one counts, and a DOUBLE has a point or an exponent: ``{"b": 1.0, "aa": [true, null]}``. So equal
documents have equal texts, but for numbers: 1, 1.0 and 1.00 (a DECIMAL, which keeps its digits) differ as texts. They
are compared by :func:`order_key`, as texts with a collation are by its keys: ``collating/collation.py``.
"""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

from domains.language.exact import EXACT, text_of_double
from domains.language.ordered import encode_value

DEPTH_MAX = 100
"""Levels of a document, as in MySQL."""

_DEEP = f"it has more than {DEPTH_MAX} levels"


class NotJson(ValueError):
    """A text that is no document; the message says why."""


# --- texts and values -------------------------------------------------------------------------------------------


def _integer(digits: str) -> int | float:
    number = int(digits) if len(digits) < 25 else float(digits)
    return number if -(2**63) <= number < 2**64 else _double(digits)


def _double(digits: str) -> float:
    number = float(digits)
    if number - number != 0.0:
        raise NotJson("a number is out of range")
    return number


def _no_number(name: str) -> Any:
    raise NotJson(f"{name} is no JSON value")


def _own_number(digits: str) -> float | Decimal:
    """A number with a point in a text of ours: a DECIMAL where it does not read as a DOUBLE is written."""
    number = float(digits)
    return number if double_text(number) == digits else Decimal(digits)


_THEIRS = json.JSONDecoder(parse_int=_integer, parse_float=_double, parse_constant=_no_number)
_OURS = json.JSONDecoder(parse_float=_own_number)


def parsed(text: str) -> Any:
    """The value that a text from outside means: None, bool, int, float, str, list or dict.

    :raises NotJson: it is no JSON.
    """
    try:
        return _THEIRS.decode(text)
    except RecursionError:
        raise NotJson(_DEEP) from None
    except NotJson:
        raise
    except ValueError as error:
        raise NotJson(str(error)) from None


def value_of(text: str) -> Any:
    """The value of a document of ours; numbers with a point may be Decimal."""
    return _OURS.decode(text)


def text_of_value(value: Any) -> str:
    """The text of a value.

    :raises NotJson: it is too deep, has half of a surrogate pair, a number that is not finite, or is no JSON value.
    """
    return _written(value, DEPTH_MAX)


def canonical(text: str) -> str:
    """A text from outside as a document.

    :raises NotJson: it is no JSON.
    """
    return text_of_value(parsed(text))


def canonical_or_null(text: str) -> str | None:
    try:
        return canonical(text)
    except NotJson:
        return None


def _written(value: Any, levels: int) -> str:
    if value is None:
        return "null"
    if value is True or value is False:
        return "true" if value else "false"
    if isinstance(value, str):
        return string_text(value)
    if isinstance(value, int):
        return str(int(value))
    if isinstance(value, float):
        if value - value != 0.0:
            raise NotJson("a number is not finite")
        return double_text(value)
    if isinstance(value, Decimal):
        return format(value, "f")
    if not levels:
        raise NotJson(_DEEP)
    if isinstance(value, (list, tuple)):
        return f"[{', '.join([_written(each, levels - 1) for each in value])}]"
    if isinstance(value, dict):
        members = [(key_order(key), key) for key in value]
        return object_text([(string_text(key), _written(value[key], levels - 1)) for _, key in sorted(members)])
    raise NotJson(f"a {type(value).__name__} is no JSON value")


def object_text(members: list[tuple[str, str]]) -> str:
    """The text of an object out of the texts of its keys and values, whose keys are sorted and differ."""
    return f"{{{', '.join([f'{key}: {value}' for key, value in members])}}}"


def member_text(key: str, value: str) -> str:
    """A member of an object, ``"key": value``, out of the texts of both."""
    return f"{key}: {value}"


def member_of(text: str) -> tuple[str, str]:
    """A key and its value's text, out of :func:`member_text`."""
    key, end = _OURS.raw_decode(text)
    return key, text[end + 2 :]


def sorted_members(members: dict[str, str]) -> list[tuple[str, str]]:
    """The texts of keys and values in the order that an object has them."""
    return [(string_text(key), members[key]) for key in sorted(members, key=key_order)]


def key_order(key: str) -> tuple[int, bytes]:
    """What the keys of an object are sorted by."""
    body = key.encode("utf-8", "surrogatepass")
    return len(body), body


def string_text(text: str) -> str:
    """A text as a JSON string.

    :raises NotJson: it has half of a surrogate pair.
    """
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise NotJson("it holds an unpaired surrogate") from None
    return json.encoder.encode_basestring(text)


def double_text(value: float) -> str:
    text = text_of_double(value)
    return text if "." in text or "e" in text else f"{text}.0"


# --- comparison -------------------------------------------------------------------------------------------------

_NULL, _OBJECT, _ARRAY, _BOOLEAN = b"\x01", b"\x50", b"\x60", b"\x70"
_END = b"\x00"


def order_key(text: str) -> bytes:
    """Bytes that compare as the documents do: null < numbers < strings < objects < arrays < false < true.

    Numbers by value, strings by code point, arrays element by element; MySQL leaves open which of two different
    objects is less.
    """
    return _key(value_of(text))


def _key(value: Any) -> bytes:
    if value is None:
        return _NULL
    if value is True or value is False:
        return _BOOLEAN + (b"\x01" if value else b"\x00")
    if isinstance(value, (int, float, Decimal)):
        return encode_value(Decimal(repr(value)) if isinstance(value, float) else Decimal(value))
    if isinstance(value, str):
        return encode_value(value)
    if isinstance(value, list):
        return b"".join((_ARRAY, *map(_key, value), _END))
    members = b"".join([encode_value(key) + _key(each) for key, each in value.items()])
    return _OBJECT + len(value).to_bytes(4, "big") + members


def same_value(one: Any, other: Any) -> bool:
    """Whether two values are equal as JSON: 1 and 1.0 are, 1 and true are not."""
    return _key(one) == _key(other)


def normal(text: str) -> str:
    """The document that stands for all that are equal to it: a join goes by its text."""
    return text_of_value(_normal(value_of(text)))


def _normal(value: Any) -> Any:
    if isinstance(value, list):
        return [_normal(each) for each in value]
    if isinstance(value, dict):
        return {key: _normal(each) for key, each in value.items()}
    if isinstance(value, (float, Decimal)):
        number = EXACT.normalize(Decimal(repr(value)) if isinstance(value, float) else value)
        return int(number) if number == number.to_integral_value(context=EXACT) else number
    return value


# --- numbers ----------------------------------------------------------------------------------------------------


def truth(text: str) -> int:
    """Whether a condition takes it as true: it is compared with the number 0, as in MySQL."""
    return int(order_key(text) != _ZERO)


_ZERO = _key(0)
