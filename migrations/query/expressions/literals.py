"""Literals of SQL text as typed constants, and the types that CAST names."""

from __future__ import annotations

from decimal import Decimal

from domains.errors import SqlError, Unsupported
from domains.language import functions
from domains.language.collating.collation import BINARY, OF_TEXTS, Collation
from domains.language.expressions import Call, Constant, Expression
from domains.language.functions import UNSIGNED
from domains.language.types import (
    BIGINT,
    BLOB,
    BOOL,
    DATE,
    DATETIME,
    DOUBLE,
    JSON,
    NULL,
    TEXT,
    TIME,
    Kind,
    SqlType,
    decimal_type,
)
from migrations.parse.reading import exp

# Digits of a quotient that are computed with and not shown.
#
# ``a / b`` of exact numbers shows four digits more than ``a`` has, but MySQL goes on computing with more of them, so
# that ``1 / 3 * 100`` is 33.3333 and not 33.3300. Here this is decided while expressions are built::
#
#     1 / 3          divide(1, 3)                                        0.3333
#     1 / 3 * 100    cast(multiply(quotient(1, 3), 100), 4 digits)      33.3333
#
# A ``quotient`` has all the digits; the cast cuts them off where the expression ends, and is taken off again where it
# turns out to be a part of a greater one. What is stored, grouped by, compared or shown as text has the digits shown.

_THROUGH = frozenset(
    "add subtract multiply divide negate modulo int_divide abs sign ceil floor round truncate "  # noqa: SIM905
    "if case coalesce ifnull nullif greatest least pow sqrt exp ln log log2 log10".split()
)
"""Functions that compute with the digits that are not shown."""


def call(name: str, *arguments: Expression) -> Expression:
    """A typed call that computes with its arguments' hidden digits, and hides its own."""
    plain = functions.call(name, *arguments)
    if name not in _THROUGH:
        return plain
    fine = [precise(argument) for argument in arguments]
    if all(a is b for a, b in zip(fine, arguments, strict=True)):
        return plain
    wide = functions.call("quotient" if name == "divide" else name, *fine)
    if name in ("round", "truncate") and isinstance(arguments[-1], Constant):
        return wide  # It has the digits that it is asked for.
    return shown(wide, plain.type)


def precise(e: Expression) -> Expression:
    """The expression with the digits that it hides."""
    if not isinstance(e, Call) or e.type.kind is not Kind.DECIMAL:
        return e
    if e.function == "divide":
        return functions.call("quotient", *e.arguments)
    return e.arguments[0] if _hides(e) else e


def shown(e: Expression, type: SqlType) -> Expression:
    """The expression without the digits that ``type`` does not have."""
    if (e.type.kind, e.type.scale) == (type.kind, type.scale):
        return e
    return functions.call("cast", e, type=type)


def _hides(e: Call) -> bool:
    """Whether it is one of our casts. CAST in a statement has a length."""
    return e.function == "cast" and e.type.length is None and e.arguments[0].type.scale > e.type.scale


LARGEST_SCALE = 30
"""Digits after the point, as in MySQL; a longer literal is a DOUBLE."""

_KINDS: dict[str, SqlType] = {
    **dict.fromkeys(("INT", "BIGINT", "SMALLINT", "TINYINT", "MEDIUMINT"), BIGINT),
    **dict.fromkeys(("UINT", "UBIGINT", "USMALLINT", "UTINYINT", "UMEDIUMINT"), UNSIGNED),
    **dict.fromkeys(("DOUBLE", "FLOAT"), DOUBLE),
    **dict.fromkeys(("BLOB", "BINARY", "VARBINARY"), BLOB),
    **dict.fromkeys(("DATETIME", "TIMESTAMP", "TIMESTAMPTZ", "TIMESTAMPNTZ"), DATETIME),
    "DATE": DATE,
    "TIME": TIME,
    "JSON": JSON,
}
_TEXTS = ("CHAR", "VARCHAR", "NCHAR", "NVARCHAR", "TEXT")


def number(text: str) -> Constant:
    """``7`` is an integer, ``7.0`` an exact decimal, ``7e0`` a double."""
    if "e" in text.lower():
        value = float(text)
        if value in (float("inf"), float("-inf")):
            raise SqlError(f"the number {text[:40]} is out of range")
        return Constant(value + 0.0, DOUBLE)
    if "." in text:
        scale = len(text.partition(".")[2])
        if scale > LARGEST_SCALE:
            return Constant(float(text), DOUBLE)
        return Constant(Decimal(text), decimal_type(scale))
    if len(text) > 65:
        raise SqlError(f"the number {text[:20]}… has more than 65 digits")
    return integer(int(text))


def integer(value: int) -> Constant:
    """A BIGINT where it fits, else an exact decimal."""
    if -(2**63) <= value < 2**63:
        return Constant(value, BIGINT)
    return Constant(Decimal(value), decimal_type(0))


def text(value: str) -> Constant:
    return Constant(value, TEXT)


def truth(value: bool) -> Constant:
    return Constant(int(value), BOOL)


NOTHING = Constant(None, NULL)


def literal(node: exp.Expr) -> Constant | None:
    """The constant that a node is, or None where it is no literal."""
    if isinstance(node, exp.Literal):
        return text(node.this) if node.is_string else number(node.this)
    if isinstance(node, exp.Null):
        return NOTHING
    if isinstance(node, exp.Boolean):
        return truth(bool(node.this))
    if isinstance(node, exp.HexString):
        return _hexadecimal(str(node.this))
    if isinstance(node, exp.BitString):
        return integer(int(str(node.this) or "0", 2))
    if isinstance(node, exp.National):
        return text(str(node.this))
    if isinstance(node, exp.Introducer):
        return _introduced(node)
    return None


def _introduced(node: exp.Introducer) -> Constant | None:
    """``_latin1'é'`` is the bytes of the client's text, read in that set; ASCII is the same in all of them. Drivers
    write bytes as ``_binary'…'``."""
    value = literal(node.expression)
    if value is None or (isinstance(value.value, str) and value.value.isascii()):
        return value
    if str(node.this).lower() == "_binary":
        return value if isinstance(value.value, bytes) else Constant(str(value.value).encode(), BLOB)
    check_character_set(str(node.this).lstrip("_"))
    return value


_SAME_COLLATIONS = {
    "utf8_general_ci": Collation.GENERAL_CI,
    "utf8mb3_general_ci": Collation.GENERAL_CI,
    **{each.value: each for each in OF_TEXTS},
}
_NEAREST = {"unicode_ci": Collation.UCA_0900_AI_CI, "unicode_520_ci": Collation.UCA_0900_AI_CI}


def collation_named(name: str) -> Collation | None:
    """The collation of a name that a statement gives; None is by code point.

    :raises Unsupported: other texts would be equal than are here; named, with the nearest that is here.
    """
    lower = name.lower()
    if lower in _SAME_COLLATIONS:
        return _SAME_COLLATIONS[lower]
    if lower == "binary":
        raise Unsupported("text in the character set binary", hint="declare the column as BINARY, VARBINARY or BLOB")
    if lower.endswith("_bin"):
        return None
    near = next((each for end, each in _NEAREST.items() if lower.endswith(end)), None)
    known = ", ".join((BINARY, *Collation))
    hint = f"{near} is nearest: newer weights, and spaces at the end count" if near else f"{known} are there"
    raise Unsupported(f'collation "{name}"', hint=hint)


def check_character_set(name: str) -> None:
    """:raises Unsupported: a text that is taken there may have other characters than it has here."""
    if name.lower() not in ("utf8mb4", "utf8mb3", "utf8"):
        raise Unsupported(f"text in {name}", hint="text is UTF-8: leave the character set out")


def _hexadecimal(digits: str) -> Constant:
    try:
        return Constant(bytes.fromhex(digits if len(digits) % 2 == 0 else "0" + digits), BLOB)
    except ValueError:
        raise SqlError(f'"{digits[:40]}" is not hexadecimal') from None


def among_numbers(e: Expression) -> Expression:
    """The expression where a number is wanted: a hexadecimal literal is an integer there, of its last eight bytes."""
    if isinstance(e, Constant) and isinstance(e.value, bytes):
        return Constant(int.from_bytes(e.value[-8:], "big"), UNSIGNED)
    return e


def cast_target(target: exp.DataType) -> SqlType:
    """The type that ``CAST(… AS target)`` gives."""
    name = target.this.name if hasattr(target.this, "name") else str(target.this)
    sizes = [int(size.name) for size in target.expressions if size.name.isdigit()]
    if name in _TEXTS:
        return SqlType(Kind.TEXT, f"VARCHAR({sizes[0]})", length=sizes[0]) if sizes else TEXT
    if name == "CHARACTER_SET":
        check_character_set(target.args["kind"].name)
        return TEXT
    if name in ("DECIMAL", "BIGDECIMAL", "UDECIMAL"):
        scale = sizes[1] if len(sizes) > 1 else 0
        if scale > LARGEST_SCALE:
            raise SqlError(f"scale {scale} is larger than {LARGEST_SCALE}")
        digits = sizes[0] if sizes else 10
        return SqlType(Kind.DECIMAL, f"DECIMAL({digits},{scale})", length=digits, scale=scale)
    if name in ("BINARY", "VARBINARY") and sizes:
        return SqlType(Kind.BLOB, f"VARBINARY({sizes[0]})", length=sizes[0])
    found = _KINDS.get(name)
    if found is None:
        raise Unsupported(
            f"CAST to {name}",
            hint="SIGNED, UNSIGNED, DECIMAL, DOUBLE, CHAR, BINARY, DATE, DATETIME, TIME and JSON are there",
        )
    return found
