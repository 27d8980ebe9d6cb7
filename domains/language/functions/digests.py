"""Texts that stand for bytes, and bytes for texts: HEX, base64, digests, identifiers, addresses."""

from __future__ import annotations

import base64
import hashlib
import math
import re
import zlib
from ipaddress import IPv4Address, IPv6Address, ip_address

from domains.errors import Unsupported
from domains.language.expressions import Call, Constant, Expression
from domains.language.functions.numeric import MASK
from domains.language.functions.source import Emitter, Function, implemented, registry
from domains.language.functions.text import MAX_TEXT
from domains.language.types import BIGINT, BLOB, TEXT, Kind, SqlType


def _ord(text: str) -> int:
    """The bytes of the first character as one number."""
    return int.from_bytes(text[:1].encode("utf-8", "surrogatepass"))


_CHARACTER_SETS = {**dict.fromkeys(("utf8mb4", "utf8", "utf8mb3"), "utf-8"), "utf16": "utf-16-be", "ascii": "ascii"}


def _character_set(call: Call) -> str:
    """Python's name of CHAR's character set, which is its first argument; "" of bytes."""
    given = call.arguments[0]
    name = str(given.value).lower() if isinstance(given, Constant) else "?"
    if name in ("", "binary"):
        return ""
    if name not in _CHARACTER_SETS:
        raise Unsupported(f"CHAR(… USING {name})", hint=f"sets are binary, {', '.join(sorted(_CHARACTER_SETS))}")
    return _CHARACTER_SETS[name]


def _char_type(arguments: tuple[Expression, ...]) -> SqlType:
    return TEXT if _character_set(Call("char", arguments, TEXT)) else BLOB


def _char(emitter: Emitter, call: Call) -> str:
    """CHAR(n, … USING set): the numbers' bytes as one text; NULLs are left out."""
    charset = _character_set(call)
    numbers = "".join(f"{emitter.as_type(e, BIGINT)}, " for e in call.arguments[1:])

    def made(numbers: tuple[int | None, ...]) -> str | bytes | None:
        found = b"".join(_bytes_of(number & 2**32 - 1, charset) for number in numbers if number is not None)
        try:
            return found.decode(charset) if charset else found
        except UnicodeDecodeError:
            return None

    return f"{emitter.bind(made)}(({numbers}))"


def _bytes_of(number: int, charset: str) -> bytes:
    width = 2 if charset.startswith("utf-16") else 1
    size = max(1, (number.bit_length() + 7) // 8)
    return number.to_bytes(size + -size % width)


def _ascii(value: bytes) -> int:
    return value[0] if value else 0


def _text_bytes_or_integer(type: SqlType) -> SqlType:
    """HEX shows numbers as numbers and everything else byte by byte."""
    if type.kind is Kind.DOUBLE:
        return type
    return BIGINT if type.kind in (Kind.INTEGER, Kind.DECIMAL) else BLOB


def _hex(value: int | float | bytes) -> str | None:
    if isinstance(value, float):  # It is rounded half away from zero, as nothing else of a DOUBLE is.
        value = int(value + math.copysign(0.5, value)) if -(2.0**63) < value < 2.0**64 else MASK
    if isinstance(value, int):
        return f"{value & MASK:X}"
    return value.hex().upper() if 2 * len(value) <= MAX_TEXT else None


def _md5(value: bytes) -> str:
    return hashlib.md5(value, usedforsecurity=False).hexdigest()


def _sha1(value: bytes) -> str:
    return hashlib.sha1(value, usedforsecurity=False).hexdigest()


def _sha2(value: bytes, bits: int) -> str | None:
    name = {224: "sha224", 0: "sha256", 256: "sha256", 384: "sha384", 512: "sha512"}.get(bits)
    return None if name is None else hashlib.new(name, value, usedforsecurity=False).hexdigest()


LINE = 76
"""Characters of a line of TO_BASE64."""


def _to_base64(value: bytes) -> str | None:
    if len(value) > MAX_TEXT // 2:
        return None
    text = base64.b64encode(value).decode("ascii")
    return "\n".join(text[at : at + LINE] for at in range(0, len(text), LINE))


def _from_base64(text: str) -> bytes | None:
    try:
        return base64.b64decode("".join(text.split()), validate=True)
    except ValueError:
        return None


def _unhex(text: str) -> bytes | None:
    try:
        return bytes.fromhex(text if len(text) % 2 == 0 else f"0{text}") if not text or text.isalnum() else None
    except ValueError:
        return None


def _uuid_bytes(text: str) -> bytes | None:
    """The bytes of its 32 digits, in MySQL's three forms."""
    bare = text[1:-1] if len(text) == 38 and text[0] == "{" and text[-1] == "}" else text
    groups = bare.split("-")
    if (len(groups) == 5 and [len(group) for group in groups] != [8, 4, 4, 4, 12]) or len(groups) not in (1, 5):
        return None
    digits = "".join(groups)
    return _unhex(digits) if len(digits) == 32 else None


def _uuid_to_bin(text: str, swapped: int = 0) -> bytes | None:
    value = _uuid_bytes(text)
    return value[6:8] + value[4:6] + value[:4] + value[8:] if value is not None and swapped else value


def _bin_to_uuid(value: bytes, swapped: int = 0) -> str | None:
    if len(value) != 16:
        return None
    ordered = value[4:8] + value[2:4] + value[:2] + value[8:] if swapped else value
    digits = ordered.hex()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


_NUMBERS = re.compile(r"\d{1,10}", re.ASCII)


def _inet_aton(text: str) -> int | None:
    """The number of ``a.b.c.d``, and of the short forms, in which the last number is the last of the address."""
    parts = text.split(".")
    if len(parts) > 4 or not all(map(_NUMBERS.fullmatch, parts)) or any(int(part) > 255 for part in parts):
        return None
    first, last = parts[:-1], parts[-1]
    return sum(int(part) << 8 * (3 - place) for place, part in enumerate(first)) + int(last)


def _inet_ntoa(number: int) -> str | None:
    return str(IPv4Address(number)) if 0 <= number < 2**32 else None


def _address(text: str) -> IPv4Address | IPv6Address | None:
    try:
        return None if "%" in text else ip_address(text)
    except ValueError:
        return None


def _inet6_aton(text: str) -> bytes | None:
    found = _address(text)
    return None if found is None else found.packed


def _inet6_ntoa(value: bytes) -> str | None:
    if len(value) == 4:
        return str(IPv4Address(value))
    if len(value) != 16:
        return None
    found = IPv6Address(value)
    if found.ipv4_mapped is not None:
        return f"::ffff:{found.ipv4_mapped}"
    is_compatible = not any(value[:12]) and any(value[12:14])
    return f"::{IPv4Address(value[12:])}" if is_compatible else str(found)


def _is_compatible(value: bytes) -> int:
    return int(len(value) == 16 and not any(value[:12]) and int.from_bytes(value[12:]) > 1)


def _is_mapped(value: bytes) -> int:
    return int(len(value) == 16 and not any(value[:10]) and value[10:12] == b"\xff\xff")


FUNCTIONS = registry(
    implemented("ascii", [BLOB], BIGINT, _ascii),
    implemented("hex", [_text_bytes_or_integer], TEXT, _hex),
    implemented("md5", [BLOB], TEXT, _md5),
    implemented("sha1", [BLOB], TEXT, _sha1),
    implemented("sha2", [BLOB, BIGINT], TEXT, _sha2),
    implemented("crc32", [BLOB], BIGINT, zlib.crc32),
    implemented("to_base64", [BLOB], TEXT, _to_base64),
    implemented("from_base64", [TEXT], BLOB, _from_base64),
    implemented("unhex", [TEXT], BLOB, _unhex),
    implemented("uuid_to_bin", [TEXT, BIGINT], BLOB, _uuid_to_bin, optional=1),
    implemented("bin_to_uuid", [BLOB, BIGINT], TEXT, _bin_to_uuid, optional=1),
    implemented("is_uuid", [TEXT], BIGINT, lambda text: int(_uuid_bytes(text) is not None)),
    implemented("inet_aton", [TEXT], BIGINT, _inet_aton),
    implemented("inet_ntoa", [BIGINT], TEXT, _inet_ntoa),
    implemented("inet6_aton", [TEXT], BLOB, _inet6_aton),
    implemented("inet6_ntoa", [BLOB], TEXT, _inet6_ntoa),
    implemented("is_ipv4", [TEXT], BIGINT, lambda text: int(isinstance(_address(text), IPv4Address))),
    implemented("is_ipv6", [TEXT], BIGINT, lambda text: int(isinstance(_address(text), IPv6Address))),
    implemented("ord", [TEXT], BIGINT, _ord),
    implemented("is_ipv4_compat", [BLOB], BIGINT, _is_compatible),
    implemented("is_ipv4_mapped", [BLOB], BIGINT, _is_mapped),
    Function("char", (2, None), lambda _types: BLOB, _char, by_target=True, refine=_char_type),
)
