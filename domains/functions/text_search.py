"""Where a text stands in another, how two compare, and what identifies a text: INSTR, FIELD, STRCMP, MD5 …"""

from __future__ import annotations

import hashlib
from typing import AnyStr

from domains.expressions import Call
from domains.functions.bits import MASK
from domains.functions.source import Emitter, Function, Types, implemented, registry
from domains.functions.text import bounded, textual
from domains.functions.type_rules import comparison_type
from domains.types import BIGINT, BLOB, TEXT, Kind, SqlType


def locate(what: str, text: str, start: int = 1) -> int:
    """1-based; 0 where it is not found."""
    return text.find(what, start - 1) + 1 if 1 <= start <= len(text) + 1 else 0


def _find_in_set(what: str, members: str) -> int:
    if "," in what or not members:
        return 0
    parts = members.split(",")
    return parts.index(what) + 1 if what in parts else 0


def _strcmp(x: str, y: str) -> int:
    return (x > y) - (x < y)


def _ascii(value: bytes) -> int:
    return value[0] if value else 0


def _text_bytes_or_integer(type: SqlType) -> SqlType:
    """HEX shows numbers as numbers and everything else byte by byte."""
    return BIGINT if type.kind in (Kind.INTEGER, Kind.DECIMAL, Kind.DOUBLE) else BLOB


def _hex(value: int | bytes) -> str:
    return value.hex().upper() if isinstance(value, bytes) else f"{value & MASK:X}"


def _md5(value: bytes) -> str:
    return hashlib.md5(value, usedforsecurity=False).hexdigest()


def _sha1(value: bytes) -> str:
    return hashlib.sha1(value, usedforsecurity=False).hexdigest()


def _field(emitter: Emitter, call: Call) -> str:
    """FIELD(x, a, b, …): the place of the first that equals x, else 0. Never NULL."""
    common = call.arguments[0].type
    for argument in call.arguments[1:]:
        common = comparison_type(common, argument.type)
    names = [emitter.as_type(e, common) for e in call.arguments]
    return f"{emitter.bind(_place)}({', '.join(names)})"


def _place(x: object, *others: object) -> int:
    return others.index(x) + 1 if x is not None and x in others else 0


def _concat_ws(emitter: Emitter, call: Call) -> str:
    """Only a NULL separator makes the result NULL; other NULLs are left out."""
    type = _joined_type(tuple(e.type for e in call.arguments))
    separator, *parts = [emitter.as_type(e, type) for e in call.arguments]
    tuple_source = f"({''.join(f'{part}, ' for part in parts)})"
    return emitter.strict([separator], lambda name: f"{emitter.bind(_join)}({name}, {tuple_source})")


def _joined_type(types: Types) -> SqlType:
    return BLOB if any(type.kind is Kind.BLOB for type in types) else TEXT


def _join(separator: AnyStr, parts: tuple[AnyStr | None, ...]) -> AnyStr | None:
    return bounded(separator.join([part for part in parts if part is not None]))


FUNCTIONS = registry(
    Function("concat_ws", (2, None), _joined_type, _concat_ws),
    textual("instr", [TEXT, TEXT], BIGINT, lambda text, what: text.find(what) + 1),
    textual("locate", [TEXT, TEXT, BIGINT], BIGINT, locate, optional=1),
    textual("position", [TEXT, TEXT], BIGINT, locate),
    textual("find_in_set", [TEXT, TEXT], BIGINT, _find_in_set),
    textual("strcmp", [TEXT, TEXT], BIGINT, _strcmp),
    Function("field", (2, None), lambda _types: BIGINT, _field),
    implemented("ascii", [BLOB], BIGINT, _ascii),
    implemented("hex", [_text_bytes_or_integer], TEXT, _hex),
    implemented("md5", [BLOB], TEXT, _md5),
    implemented("sha1", [BLOB], TEXT, _sha1),
)
