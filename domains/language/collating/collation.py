"""Collations: when two texts are equal, and which comes first. None is binary, by code point; the others are by *key*.
JSON documents have one too: 1 and 1.0 are one document, in two spellings.

A key is ``bytes``: texts that a collation finds equal have one key, and keys are in its order. A row has its texts as
they were written; whatever stands for a row's value elsewhere has the key in its place: a key of an index, a group, a
link or a reader, an eviction's pattern, an entry of RocksDB and LMDB, what decides a shard. So a key is told from a
value by its Python type, and making it twice changes nothing::

    column name VARCHAR(40) COLLATE utf8mb4_general_ci
    rows   (7, 'Zoë'), (8, 'ZOE ')         both ──► key (b'ZOE\x1f',)      one group, one entry, one shard

* ``utf8mb4_general_ci`` gives each code point one weight, and a text ends in spaces without end (PAD SPACE).
* A document's key is ``documents.order_key``. Nothing on disk has it: no declared key is of JSON.
* ``utf8mb4_0900_ai_ci`` has the primary weights of the Unicode Collation Algorithm 9.0.0, root, without contractions,
  as MySQL 8 has them; nothing is padded. The table is DUCET's own file, which the package pyuca brings.

:data:`VERSIONS` stands in the catalog of every table with such a column: keys on disk are only read by what made them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from enum import StrEnum
from functools import lru_cache
from importlib.resources import files
from typing import Any

from domains.language.documents import order_key


class Collation(StrEnum):
    """The collations besides ``utf8mb4_bin``, by MySQL's names, and that of documents, which no text has."""

    GENERAL_CI = "utf8mb4_general_ci"
    UCA_0900_AI_CI = "utf8mb4_0900_ai_ci"
    DOCUMENT = "json"


OF_TEXTS = (Collation.GENERAL_CI, Collation.UCA_0900_AI_CI)


BINARY = "utf8mb4_bin"

VERSIONS: dict[str, str] = {Collation.GENERAL_CI: "general 1", Collation.UCA_0900_AI_CI: "DUCET 9.0.0"}
"""Another version of one would make other keys."""

Collations = tuple[tuple[int, Collation], ...]
"""The columns of a row that are compared by a collation, each with it. () costs nothing anywhere."""

Keyed = Callable[[Any], Any]
"""A value → its key. NULL has none, and a key is its own."""

CACHED_KEYS = 16_384
CACHED_LENGTH = 256
"""Keys of texts that are no longer than this are remembered, so many of a collation: 12 MB at most, and 0.1 µs where
making a key takes 0.3 to 1."""


# --- utf8mb4_general_ci ---------------------------------------------------------------------------------------------

_GENERAL_RUNS = """
61*26+41 b5=39c c0*6=41 c7=43 c8*4=45 cc*4=49 d1*2+4e d3*4=4f d9*4=55 dd=59 df=53 e0*6=41 e6=c6 e7=43 e8*4=45
ec*4=49 f0=d0 f1*2+4e f3*4=4f f8=d8 f9*4=55 fd=59 fe=de ff=59 100*6=41 106*8=43 10e*2=44 111=110 112*10=45
11c*8=47 124*2=48 127=126 128*10=49 133=132 134*2=4a 136*2=4b 139*6=4c 140*2/2+13f 143*6=4e 14b=14a 14c*6=4f
153=152 154*6=52 15a*8=53 162*4=54 167=166 168*12=55 174*2=57 176*3=59 179*6=5a 17f=53 183*2/2+182 188=187
18c=18b 192=191 195=1f6 199=198 1a0*2=4f 1a3*2/2+1a2 1a8=1a7 1ad=1ac 1af*2=55 1b4*2/2+1b3 1b9=1b8 1bd=1bc
1bf=1f7 1c5*2=1c4 1c8*2=1c7 1cb*2=1ca 1cd*2=41 1cf*2=49 1d1*2=4f 1d3*10=55 1dd=18e 1de*4=41 1e2*2=c6 1e5=1e4
1e6*2=47 1e8*2=4b 1ea*4=4f 1ee*2=1b7 1f0=4a 1f2*2=1f1 1f4*2=47 1f8*2=4e 1fa*2=41 1fc*2=c6 1fe*2=d8 200*4=41
204*4=45 208*4=49 20c*4=4f 210*4=52 214*4=55 218*2=53 21a*2=54 21d=21c 21e*2=48 223*2/2+222 226*2=41 228*2=45
22a*8=4f 232*2=59 253=181 254=186 256*2+189 259=18f 25b=190 260=193 263=194 268=197 269=196 26f=19c 272=19d
275=19f 280=1a6 283=1a9 288=1ae 28a*2+1b1 292=1b7 345=399 386=391 388=395 389=397 38a=399 38c=39f 38e=3a5
38f=3a9 390=399 3aa=399 3ab=3a5 3ac=391 3ad=395 3ae=397 3af=399 3b0=3a5 3b1*17+391 3c2*2=3a3 3c4*6+3a4 3ca=399
3cb=3a5 3cc=39f 3cd=3a5 3ce=3a9 3d0=392 3d1=398 3d3*2=3d2 3d5=3a6 3d6=3a0 3db*11/2+3da 3f0=39a 3f1=3a1 3f2=3a3
400*2=415 403=413 407=406 40c=41a 40d=418 40e=423 430*32+410 450*2=415 452=402 453=413 454*3+404 457=406
458*4+408 45c=41a 45d=418 45e=423 45f=40f 461*11/2+460 476*2=474 479*5/2+478 48d*26/2+48c 4c1*2=416 4c4=4c3
4c8=4c7 4cc=4cb 4d0*4=410 4d5=4d4 4d6*2=415 4d9*3=4d8 4dc*2=416 4de*2=417 4e1=4e0 4e2*4=418 4e6*2=41e 4e9*3=4e8
4ec*2=42d 4ee*6=423 4f4*2=427 4f8*2=42b 561*38+531 1e00*2=41 1e02*6=42 1e08*2=43 1e0a*10=44 1e14*10=45 1e1e*2=46
1e20*2=47 1e22*10=48 1e2c*4=49 1e30*6=4b 1e36*8=4c 1e3e*6=4d 1e44*8=4e 1e4c*8=4f 1e54*4=50 1e58*8=52 1e60*10=53
1e6a*8=54 1e72*10=55 1e7c*4=56 1e80*10=57 1e8a*4=58 1e8e*2=59 1e90*6=5a 1e96=48 1e97=54 1e98=57 1e99=59 1e9b=53
1ea0*24=41 1eb8*16=45 1ec8*4=49 1ecc*24=4f 1ee4*14=55 1ef2*8=59 1f00*16=391 1f10*6=395 1f18*6=395 1f20*16=397
1f30*16=399 1f40*6=39f 1f48*6=39f 1f50*8=3a5 1f59*4/2=3a5 1f60*16=3a9 1f70=391 1f71=1fbb 1f72=395 1f73=1fc9
1f74=397 1f75=1fcb 1f76=399 1f77=1fdb 1f78=39f 1f79=1ff9 1f7a=3a5 1f7b=1feb 1f7c=3a9 1f7d=1ffb 1f80*16=391
1f90*16=397 1fa0*16=3a9 1fb0*5=391 1fb6*5=391 1fbc=391 1fbe=399 1fc2*3=397 1fc6*2=397 1fc8*2/2+395 1fcc=397
1fd0*3=399 1fd6*5=399 1fe0*3=3a5 1fe4*2=3a1 1fe6*5=3a5 1fec=3a1 1ff2*3=3a9 1ff6*2=3a9 1ff8=39f 1ffa*2/2=3a9
2170*16+2160 24d0*26+24b6 ff41*26+ff21
"""
"""Weights that are not the code point itself, as ``first*count/stride=weight`` (all have it) or ``+weight`` (it goes up
with them), in hexadecimal. Made of MariaDB's WEIGHT_STRING; ``tests/comparisons/test_collations.py`` compares all."""

_BEYOND = "\ufffd"
"""The weight of every code point above U+FFFF."""


class _GeneralWeights(dict[int, str]):
    def __missing__(self, code: int) -> str:
        weight = self[code] = chr(code) if code < 0x10000 else _BEYOND
        return weight


def _general_weights() -> _GeneralWeights:
    weights = _GeneralWeights()
    for run in _GENERAL_RUNS.split():
        where, sign, weight = re.split(r"([+=])", run)
        first, _, rest = where.partition("*")
        count, _, stride = rest.partition("/")
        for place in range(int(count or 1)):
            further = place * int(stride or 1)
            weights[int(first, 16) + further] = chr(int(weight, 16) + (further if sign == "+" else 0))
    return weights


_CONTROLS = re.compile(r"( *)([\x00-\x1f])")
_CONTROL, _SPACE_BEFORE, _PADDING = "\x1d", "\x1e", "\x1f"
"""A text is padded with spaces for ever, so ``'a\\t' < 'a' < 'a b'``: the padding is behind everything that is below a
space, and before a space that something greater follows. A control character is written as two."""


def _below_space(match: re.Match[str]) -> str:
    return _SPACE_BEFORE * len(match[1]) + _CONTROL + match[2]


def _general_key(text: str) -> bytes:
    text = text.rstrip(" ")
    if text.isascii() and text.isprintable():
        return text.upper().encode() + b"\x1f"
    weights = _CONTROLS.sub(_below_space, text.translate(_weights(Collation.GENERAL_CI)))
    return (weights + _PADDING).encode("utf-8", "surrogatepass")


# --- utf8mb4_0900_ai_ci ---------------------------------------------------------------------------------------------

_ELEMENT = re.compile(r"\[[.*]([0-9A-F]{4})\.")
_MOST_WEIGHTS = 8
"""The most weights of one code point: MySQL's table has no room for more."""

_TANGUT = range(0x17000, 0x18B00)
_UNIFIED = (range(0x4E00, 0x9FD6), range(0xFA0E, 0xFA2A))
_EXTENSIONS = tuple(
    range(first, last + 1)
    for first, last in (
        (0x3400, 0x4DB5),
        (0x20000, 0x2A6D6),
        (0x2A700, 0x2B734),
        (0x2B740, 0x2B81D),
        (0x2B820, 0x2CEA1),
    )
)
_SYLLABLES = range(0xAC00, 0xD7B0)
"""The syllables of Hangul, which are made of 19 × 21 × 28 letters (Unicode, section 3.12)."""


class _UcaWeights(dict[int, str]):
    """Primary weights of each code point, one character each."""

    def __missing__(self, code: int) -> str:
        if code in _SYLLABLES:
            lead, rest = divmod(code - _SYLLABLES.start, 21 * 28)
            vowel, trail = divmod(rest, 28)
            weights = self[0x1100 + lead] + self[0x1161 + vowel] + (self[0x11A7 + trail] if trail else "")
        else:
            weights = _implicit(code)
        self[code] = weights
        return weights


def _implicit(code: int) -> str:
    """Unicode Technical Standard 10, version 34, section 10.1.3."""
    if code in _TANGUT:
        return chr(0xFB00) + chr(0x8000 | (code - _TANGUT.start))
    if any(code in block for block in _EXTENSIONS):
        base = 0xFB80
    elif any(code in block for block in _UNIFIED):
        base = 0xFB40
    else:
        base = 0xFBC0
    return chr(base + (code >> 15)) + chr(0x8000 | (code & 0x7FFF))


def _uca_weights() -> _UcaWeights:
    """All that the file has of single code points: 60 ms, once, and 4 MB."""
    weights = _UcaWeights()
    for line in files("pyuca").joinpath("allkeys-9.0.0.txt").read_text("ascii").splitlines():
        codes, _, elements = line.partition(";")
        if not elements or line.startswith(("@", "#")) or " " in codes.strip():
            continue
        primaries = [int(primary, 16) for primary in _ELEMENT.findall(elements)]
        weights[int(codes, 16)] = "".join([chr(primary) for primary in primaries if primary][:_MOST_WEIGHTS])
    return weights


def _uca_key(text: str) -> bytes:
    return text.translate(_weights(Collation.UCA_0900_AI_CI)).encode("utf-16-be", "surrogatepass")


# --- all of them ----------------------------------------------------------------------------------------------------

_TABLES: dict[Collation, Callable[[], dict[int, str]]] = {
    Collation.GENERAL_CI: _general_weights,
    Collation.UCA_0900_AI_CI: _uca_weights,
}
_KEYS: dict[Collation, Callable[[str], bytes]] = {
    Collation.GENERAL_CI: _general_key,
    Collation.UCA_0900_AI_CI: _uca_key,
    Collation.DOCUMENT: order_key,
}


@lru_cache
def _weights(collation: Collation) -> dict[int, str]:
    return _TABLES[collation]()


@lru_cache
def keyed(collation: Collation) -> Keyed:
    """The function that makes keys."""
    make = _KEYS[collation]
    remembered = lru_cache(CACHED_KEYS)(make)

    def key(value: Any) -> Any:
        if isinstance(value, str):
            return remembered(value) if len(value) <= CACHED_LENGTH else make(value)
        return value

    return key


def key_of(value: Any, collation: Collation) -> Any:
    """The key of one value."""
    return keyed(collation)(value)


class _Classes(dict[int, str]):
    """A character for each code point that stands for all of the same weight: LIKE compares character by character."""

    def __init__(self, collation: Collation) -> None:
        self._of = _weights(collation)
        self._known: dict[str, str] = {}
        for code in range(128):  # Of a class that has a character of ASCII in it, that one.
            self[code] = self._known.setdefault(self._of[code], chr(code))

    def __missing__(self, code: int) -> str:
        found = self[code] = self._known.setdefault(self._of[code], chr(code))
        return found


@lru_cache
def _classes(collation: Collation) -> _Classes:
    return _Classes(collation)


def alike(text: str, collation: Collation) -> str:
    """A text of as many characters, the same of two texts whose characters have the same weights, each by itself.
    It differs from process to process."""
    return text.translate(_classes(collation))


def versions(collations: Iterable[Collation | None]) -> dict[str, str]:
    """The versions of the collations that are used, by name: what the catalog of a table has."""
    return {each: VERSIONS[each] for each in sorted({each for each in collations if each is not None})}


def collated(collations: Iterable[Collation | None]) -> Collations:
    """The row's, by those of its columns."""
    return tuple([(at, each) for at, each in enumerate(collations) if each is not None])
