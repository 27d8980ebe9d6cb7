"""Functions of text: building it, cutting it, padding it. Positions count characters from 1, and bytes in a BLOB.

A result longer than MySQL's ``max_allowed_packet`` is NULL, so that no expression can ask for gigabytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, AnyStr

from domains.language.collating.coercibility import met
from domains.language.collating.collation import Collation, alike, keyed
from domains.language.expressions import Call, Constant
from domains.language.functions.source import Emitter, Function, Parameter, Types, implemented, registry
from domains.language.functions.type_rules import comparison_type
from domains.language.types import BIGINT, BLOB, TEXT, Kind, SqlType

MAX_TEXT = 64 * 1024 * 1024
"""MySQL's default ``max_allowed_packet``."""


def _upper(text: str) -> str:
    """One character for each, as in MySQL: ``ß`` has no capital letter of its own."""
    return text.upper() if text.isascii() else "".join(map(_capital, text))


def _capital(character: str) -> str:
    for mapped in (character.upper(), character.title()):  # U+1FB3 has a single letter only as a title's first.
        if len(mapped) == 1:
            return mapped
    return character


def _lower(text: str) -> str:
    """One character for each, wherever it stands: no final sigma, and ``İ`` is ``i`` without a further dot."""
    return text.lower() if text.isascii() else "".join([character.lower()[0] for character in text])


def textual(
    name: str,
    parameters: Sequence[Parameter],
    result: SqlType,
    implementation: Callable[..., Any],
    *,
    optional: int = 0,
    variadic: bool = False,
    of_bytes: Callable[..., Any] | None = None,
) -> Function:
    """A function of texts that takes bytes, too, as MySQL its binary strings: where one of the texts is a BLOB all of
    them are, a character is a byte, and the text that comes out is a BLOB. ``of_bytes`` does it where a byte is no
    letter."""

    def is_binary(types: Types) -> bool:
        wanted = (parameters[min(i, len(parameters) - 1)] for i in range(len(types)))
        return any(type.kind is Kind.BLOB and each == TEXT for type, each in zip(types, wanted, strict=True))

    def result_type(types: Types) -> SqlType:
        return BLOB if result == TEXT and is_binary(types) else result

    def value(emitter: Emitter, call: Call) -> str:
        types = tuple(argument.type for argument in call.arguments)
        return (binary if is_binary(types) else plain).value(emitter, call)

    bytewise = [BLOB if each == TEXT else each for each in parameters]
    plain = implemented(name, parameters, result, implementation, optional=optional, variadic=variadic)
    binary = implemented(name, bytewise, result, by_bytes(of_bytes or implementation), variadic=variadic)
    return Function(name, plain.arity, result_type, value)


def by_bytes(implementation: Callable[..., Any]) -> Callable[..., Any]:
    """A function of texts as one of bytes, each of which is a character to it."""

    def of_bytes(*arguments: Any) -> Any:
        found = implementation(*[a.decode("latin-1") if isinstance(a, bytes) else a for a in arguments])
        return found.encode("latin-1") if isinstance(found, str) else found

    return of_bytes


def _text_or_bytes(type: SqlType) -> SqlType:
    return BLOB if type.kind is Kind.BLOB else TEXT


def _concat(*parts: str) -> str | None:
    return "".join(parts) if sum(map(len, parts)) <= MAX_TEXT else None


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
    """The text before the count-th delimiter, or after it, counted from the end, where the count is negative."""
    if not delimiter or not count:
        return ""
    parts = text.split(delimiter) if count > 0 else text.rsplit(delimiter)
    return delimiter.join(parts[:count] if count > 0 else parts[count:])


def _length(value: str | bytes) -> int:
    """In bytes of UTF-8."""
    return len(value) if isinstance(value, bytes) or value.isascii() else len(value.encode("utf-8", "surrogatepass"))


def _insert(text: str, start: int, count: int, what: str) -> str | None:
    """``count`` characters from ``start`` on are replaced; a start outside of the text changes nothing."""
    if not 1 <= start <= len(text):
        return text
    rest = text[start - 1 + count :] if 0 <= count <= len(text) else ""
    found = text[: start - 1] + what + rest
    return found if len(found) <= MAX_TEXT else None


_QUOTED = str.maketrans({"\\": "\\\\", "'": "\\'", "\0": "\\0", "\x1a": "\\Z"})


def _quote(emitter: Emitter, call: Call) -> str:
    """The text as SQL would have it between quotes; of NULL the word."""
    source, name = emitter.named(emitter.as_type(call.arguments[0], TEXT))
    return f"('NULL' if {source} is None else {emitter.bind(_quoted)}({name}))"


def _quoted(text: str) -> str:
    return f"'{text.translate(_QUOTED)}'"


_SOUNDS = dict(zip("ABCDEFGHIJKLMNOPQRSTUVWXYZ", "01230120022455012623010202", strict=True))


def _soundex(text: str) -> str:
    """The SOUNDEX of MySQL, which cuts it nowhere: the first letter, then the sounds of consonants."""
    letters = [letter.upper() if letter.isascii() else letter for letter in text if letter.isalpha()]
    if not letters:
        return ""
    found, last = letters[0], _SOUNDS.get(letters[0], "0")
    for letter in letters[1:]:
        sound = _SOUNDS.get(letter, "0")
        if sound not in ("0", last):
            found, last = found + sound, sound
    return found.ljust(4, "0")


FUNCTIONS = registry(
    textual("insert", [TEXT, BIGINT, BIGINT, TEXT], TEXT, _insert),
    Function("quote", (1, 1), lambda _types: TEXT, _quote),
    implemented("soundex", [TEXT], TEXT, _soundex),
    textual("concat", [TEXT], TEXT, _concat, variadic=True),
    textual("lower", [TEXT], TEXT, _lower, of_bytes=str),
    textual("upper", [TEXT], TEXT, _upper, of_bytes=str),
    implemented("length", [_text_or_bytes], BIGINT, _length),
    textual("char_length", [TEXT], BIGINT, len),
    textual("substring", [TEXT, BIGINT, BIGINT], TEXT, substring, optional=1),
    textual("left", [TEXT, BIGINT], TEXT, _left),
    textual("right", [TEXT, BIGINT], TEXT, _right),
    textual("trim", [TEXT, TEXT], TEXT, _trim, optional=1),
    textual("ltrim", [TEXT, TEXT], TEXT, _ltrim, optional=1),
    textual("rtrim", [TEXT, TEXT], TEXT, _rtrim, optional=1),
    textual("replace", [TEXT, TEXT, TEXT], TEXT, _replace),
    textual("reverse", [TEXT], TEXT, lambda text: text[::-1]),
    textual("repeat", [TEXT, BIGINT], TEXT, _repeat),
    textual("lpad", [TEXT, BIGINT, TEXT], TEXT, _lpad, optional=1),
    textual("rpad", [TEXT, BIGINT, TEXT], TEXT, _rpad, optional=1),
    implemented("space", [BIGINT], TEXT, _space),
    textual("substring_index", [TEXT, TEXT, BIGINT], TEXT, _substring_index),
)


# Where a text stands in another, how two compare, and what identifies a text: INSTR, FIELD, STRCMP, MD5 …


def locate(what: str, text: str, start: int = 1) -> int:
    """1-based; 0 where it is not found."""
    return text.find(what, start - 1) + 1 if 1 <= start <= len(text) + 1 else 0


def _located(name: str, plain: Function, what: int) -> Function:
    """``plain``, or by a collation; the ``what``-th argument is what is looked for."""

    def value(emitter: Emitter, call: Call) -> str:
        collation = met(call.arguments, name)
        if collation is None:
            return plain.value(emitter, call)
        find = emitter.bind(partial(_locate_alike, collation))
        texts = [emitter.as_type(e, TEXT) for e in call.arguments[:2]]
        start = [emitter.as_type(e, BIGINT) for e in call.arguments[2:]]
        sources = [texts[what], texts[1 - what], *start]
        return emitter.strict(sources, lambda *names: f"{find}({', '.join(names)})")

    return Function(name, plain.arity, plain.result_type, value)


def _locate_alike(collation: Collation, what: str, text: str, start: int = 1) -> int:
    """The place as MySQL finds it: only what has as many bytes is compared, so that ``OE`` is not in ``oë``."""
    size, wanted, searched = len(what.encode("utf-8", "surrogatepass")), alike(what, collation), alike(text, collation)
    while place := locate(wanted, searched, start):
        if len(text[place - 1 : place - 1 + len(what)].encode("utf-8", "surrogatepass")) == size:
            return place
        start = place + 1
    return 0


def _find_in_set(what: str, members: str) -> int:
    if "," in what or not members:
        return 0
    parts = members.split(",")
    return parts.index(what) + 1 if what in parts else 0


_IN_TEXT = textual("find_in_set", [TEXT, TEXT], BIGINT, _find_in_set)


def _place_in_set(emitter: Emitter, call: Call) -> str:
    """A constant's place among the values of a SET is that of the member in its type, as in MySQL."""
    what, held = call.arguments
    if not held.type.is_set or not isinstance(what, Constant) or what.value not in held.type.members:
        return _IN_TEXT.value(emitter, call)
    place = emitter.bind(1 + held.type.members.index(str(what.value)))
    member = emitter.bind(what.value)
    return emitter.strict([emitter.value(held)], lambda x: f"{place} if {member} in {x}.split(',') else 0")


def _strcmp(x: str, y: str) -> int:
    return (x > y) - (x < y)


def _order_of(emitter: Emitter, call: Call) -> str:
    collation = met(call.arguments, "STRCMP")
    if collation is None:
        return _STRCMP.value(emitter, call)
    key = emitter.bind(keyed(collation))
    texts = [emitter.as_type(e, TEXT) for e in call.arguments]
    return emitter.strict(texts, lambda x, y: f"{emitter.bind(_strcmp)}({key}({x}), {key}({y}))")


_STRCMP = textual("strcmp", [TEXT, TEXT], BIGINT, _strcmp)


def _elt(emitter: Emitter, call: Call) -> str:
    """ELT(n, a, b, …): the n-th of them."""
    type = _joined_type(tuple(e.type for e in call.arguments[1:]))
    number = emitter.as_type(call.arguments[0], BIGINT)
    texts = "".join(f"{emitter.as_type(e, type)}, " for e in call.arguments[1:])
    return emitter.strict([number], lambda name: f"{emitter.bind(_nth)}({name}, ({texts}))")


def _nth(number: int, texts: tuple[AnyStr | None, ...]) -> AnyStr | None:
    return texts[number - 1] if 1 <= number <= len(texts) else None


def _make_set(emitter: Emitter, call: Call) -> str:
    """MAKE_SET(bits, a, b, …): those whose bits are set, with commas between."""
    type = _joined_type(tuple(e.type for e in call.arguments[1:]))
    bits = emitter.as_type(call.arguments[0], BIGINT)
    texts = "".join(f"{emitter.as_type(e, type)}, " for e in call.arguments[1:])
    comma = emitter.bind(b"," if type.kind is Kind.BLOB else ",")
    return emitter.strict([bits], lambda name: f"{emitter.bind(_chosen)}({name}, {comma}, ({texts}))")


def _chosen(bits: int, comma: AnyStr, texts: tuple[AnyStr | None, ...]) -> AnyStr | None:
    return _join(comma, tuple(text for place, text in enumerate(texts) if bits >> place & 1))


def _export_set(bits: int, on: str, off: str, separator: str = ",", count: int = 64) -> str | None:
    count = count if 0 <= count <= 64 else 64
    return _join(separator, tuple(on if bits >> place & 1 else off for place in range(count)))


def _field(emitter: Emitter, call: Call) -> str:
    """FIELD(x, a, b, …): the place of the first that equals x, else 0. Never NULL."""
    common = call.arguments[0].type
    for argument in call.arguments[1:]:
        common = comparison_type(common, argument.type)
    names = [emitter.as_type(e, common) for e in call.arguments]
    collation = met(call.arguments, "FIELD") if common.kind is Kind.TEXT else None
    if collation is not None:
        key = emitter.bind(keyed(collation))
        names = [f"{key}({name})" for name in names]
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
    found = [part for part in parts if part is not None]
    size = sum(map(len, found)) + len(separator) * (len(found) - 1)
    return separator.join(found) if size <= MAX_TEXT else None


TEXT_SEARCH = registry(
    Function("concat_ws", (2, None), _joined_type, _concat_ws),
    _located("instr", textual("instr", [TEXT, TEXT], BIGINT, lambda text, what: text.find(what) + 1), 1),
    _located("locate", textual("locate", [TEXT, TEXT, BIGINT], BIGINT, locate, optional=1), 0),
    _located("position", textual("position", [TEXT, TEXT], BIGINT, locate), 0),
    Function("find_in_set", (2, 2), lambda _types: BIGINT, _place_in_set),
    Function("strcmp", (2, 2), lambda _types: BIGINT, _order_of),
    Function("field", (2, None), lambda _types: BIGINT, _field),
    Function("make_set", (2, None), lambda types: _joined_type(types[1:]), _make_set),
    implemented("export_set", [BIGINT, TEXT, TEXT, TEXT, BIGINT], TEXT, _export_set, optional=2),
    Function("elt", (2, None), lambda types: _joined_type(types[1:]), _elt),
)
