"""Damage in RocksDB's own log that its reader would pass over without a word, found before it reads it.

The log is blocks of 32 KiB, each of records; no record reaches over the end of its block, and less than a header's room
there is left empty. The manifest is of the same format::

    checksum: 4 bytes │ length: 2 │ type: 1 │ payload        a recyclable record has 4 bytes more behind the type

The reader checks each record's checksum and stops at damage, but for two headers which it judges before that:

* **type and length zero**: it takes them for room that was never written, and goes on with the next block. What was
  between is gone, and what is behind it brings the positions and sequence numbers of a log without damage.
* **a recyclable type** in a log that has no such records, as ours: it reads that header again, for ever.

A log that ends at a record's end looks whole as well. Where the next log does not go on with the next change, RocksDB
reads on all the same, with what is missing between them unnoticed (a log whose changes are flushed is not read at all).
Nor does it notice that the first of several logs is gone or empty. The manifest says which changes are in files, and
from which log on the logs are needed: the first that has any changes must go on with the next one.

Zeros with nothing behind them are how a log ends that the file system had made larger before a crash.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from struct import Struct
from sys import maxsize
from typing import NamedTuple

BLOCK, HEADER = 32 * 2**10, 7

_RECYCLABLE = frozenset((5, 6, 7, 8, 11))
"""The types of whole records, of first, middle and last parts, and of sizes of timestamps."""

_LENGTH_AND_TYPE = Struct("<HB")

_PART = {1: (True, True), 2: (True, False), 3: (False, False), 4: (False, True)}
"""The types of records: whether one begins with this part, and whether it ends with it."""

_FIRST = frozenset(kind for kind, (begins, _) in _PART.items() if begins)

_BATCH = Struct("<QI")
"""A batch of writes begins with the sequence number of its first change, and how many there are."""

_STOP = bytes((0, 0, 0, 0, 0, 0, 1))
"""A whole record without payload, whose checksum is wrong."""

_LOG_NUMBER, _LAST_SEQUENCE, _NEW_FILE = 2, 4, 103
_NUMBERS = {2: 1, 3: 1, 4: 1, 6: 2, 9: 1, 10: 1, 200: 1, 202: 0, 203: 1, 300: 1}
"""The count of numbers in a manifest's field that is numbers alone, by its tag."""
_TEXTS, _IGNORABLE = frozenset((1, 201)), 1 << 13
"""Tags of fields that are a text; so is each whose tag has this bit, which older readers skip."""


def misread(path: Path) -> dict[Path, int]:
    """The offset of the first such header of each log, and of the manifest, that has more behind it that would be read.

    67 MB of records of 400 bytes take 67 ms, of 60 bytes 220 ms: one step a record. Raises OSError.
    """
    logs = {log: log.read_bytes() for log in sorted(path.glob("*.log"), key=lambda log: (len(log.name), log.name))}
    while logs and not logs[last := next(reversed(logs))]:
        del logs[last]
    walked = {log: _walked(data, followed=log is not next(reversed(logs))) for log, data in logs.items()}
    found = {log: each.misread for log, each in walked.items()}
    for (log, one), (_, following) in pairwise((log, each) for log, each in walked.items() if logs[log]):
        if None not in (one.behind, following.first) and following.first != one.behind:
            size = len(logs[log])
            room = -size % BLOCK
            found[log] = size + (room if room < HEADER else 0)
    manifest = _manifest(path)
    if manifest is not None:
        data = manifest.read_bytes()
        found[manifest] = _walked(data, followed=False).misread
        needed, flushed = _flushed(data) if found[manifest] is None else (maxsize, maxsize)
        for log in [log for log, data in logs.items() if data and int(log.stem) >= needed][:1]:
            if (walked[log].first or 0) > flushed + 1:
                found[log] = 0
    return {file: at for file, at in found.items() if at is not None}


def _manifest(path: Path) -> Path | None:
    """The one that ``CURRENT`` names."""
    current = (path / "CURRENT").read_bytes().strip() if (path / "CURRENT").exists() else b""
    return next((each for each in path.glob("MANIFEST-*") if each.name.encode() == current), None)


def _headers(data: bytes) -> Iterator[tuple[int, int, int]]:
    """Offset, length and type of each part of a record. What is behind a header of zeros in its block is left out."""
    unpack = _LENGTH_AND_TYPE.unpack_from
    for start in range(0, len(data), BLOCK):
        at, last = start, min(start + BLOCK, len(data)) - HEADER
        while at <= last:
            length, kind = unpack(data, at + 4)
            yield at, length, kind
            if not kind and not length:
                break
            at += HEADER + length


class _Walked(NamedTuple):
    """The first header of a log that is misread; the sequence numbers of its first change, and of the one behind its
    last. None where there is none, and where a block's end parts a record."""

    misread: int | None
    first: int | None
    behind: int | None


def _walked(log: bytes, *, followed: bool) -> _Walked:
    first, last = _numbers(log, 0), 0
    for at, length, kind in _headers(log):
        if kind in _FIRST:
            last = at
        elif kind in _RECYCLABLE:
            return _Walked(at, first and first[0], None)
        elif not kind and not length:
            rest = log[at - at % BLOCK + BLOCK :]
            if followed or rest.count(0) < len(rest):
                return _Walked(at, first and first[0], None)
            break
    numbers = _numbers(log, last)
    return _Walked(None, first and first[0], numbers and sum(numbers))


def _numbers(log: bytes, at: int) -> tuple[int, int] | None:
    """The sequence number of the batch there, and its number of changes."""
    if at + HEADER + _BATCH.size > len(log):
        return None
    length, kind = _LENGTH_AND_TYPE.unpack_from(log, at + 4)
    return _BATCH.unpack_from(log, at + HEADER) if kind in _FIRST and length >= _BATCH.size else None


def _flushed(manifest: bytes) -> tuple[int, int]:
    """The number of the first log that is needed, and up to which change all are in files, or more.

    A manifest begins with the state that an opening found, which has written all of the logs into files. Later edits
    name a sequence number as well, but that of their time: of them only what the new files hold is in files. One that
    is damaged, which RocksDB notices by itself, or that a later version wrote, says nothing: no log is needed.
    """
    needed, flushed, begun = 0, 0, False
    try:
        for edit in _edits(manifest):
            for tag, value in _fields(edit):
                if tag == _LOG_NUMBER:
                    needed = max(needed, value)
                elif tag == _NEW_FILE or (tag == _LAST_SEQUENCE and not begun):
                    flushed = max(flushed, value)
                    begun = begun or tag == _LAST_SEQUENCE
    except (IndexError, ValueError):
        return maxsize, maxsize
    return needed, flushed


def _edits(manifest: bytes) -> Iterator[bytes]:
    """Its records, put together, up to one that a crash has torn."""
    parts: list[bytes] = []
    for at, length, kind in _headers(manifest):
        begins, ends = _PART.get(kind, (True, False))
        if begins:
            parts.clear()
        parts.append(manifest[at + HEADER : at + HEADER + length])
        if at + HEADER + length > len(manifest):
            return
        if ends:
            yield b"".join(parts)


def _fields(edit: bytes) -> Iterator[tuple[int, int]]:
    """Tag and first number of each field of an edit (``db/version_edit.h``); of a new file the number of its last
    change. Raises IndexError where it ends too early, ValueError for a tag that is not known."""
    at = 0

    def number() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = edit[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def skip_text() -> None:
        nonlocal at
        length = number()
        at += length

    while at < len(edit):
        tag = number()
        if tag in _NUMBERS:
            numbers = [number() for _ in range(_NUMBERS[tag])]
            yield tag, numbers[0] if numbers else 0
        elif tag in _TEXTS or tag & _IGNORABLE:
            skip_text()
        elif tag == _NEW_FILE:
            number(), number(), number()  # Level, file, size.
            skip_text()  # The least key, and the greatest.
            skip_text()
            number()  # Its first change.
            yield tag, number()
            while number() != 1:  # Further properties, up to the end of them.
                skip_text()
        else:
            raise ValueError(f"tag {tag}")


def stop_at(log: Path, at: int) -> None:
    """Have RocksDB notice damage at the header there. It goes on behind it only where no change is missing."""
    with log.open("r+b") as file:
        file.seek(at)
        file.write(_STOP)
