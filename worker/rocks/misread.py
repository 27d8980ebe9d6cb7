"""Where RocksDB's reader goes wrong without a word in its own log, found before it reads it.

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
from itertools import count, pairwise
from pathlib import Path
from struct import Struct
from sys import maxsize

BLOCK, HEADER = 32 * 2**10, 7

_RECYCLABLE = frozenset((5, 6, 7, 8, 11))
"""Of whole records, of first, middle and last parts, and of sizes of timestamps."""

_LENGTH_AND_TYPE = Struct("<HB")

_FIRST = frozenset((1, 2))
"""Of a whole record, and of a first part."""

_BATCH = Struct("<QI")
"""A batch of writes begins with the sequence number of its first change, and how many there are."""

_PART = {1: (True, True), 2: (True, False), 3: (False, False), 4: (False, True)}
"""By type, whether a record begins with this part, and whether it ends with it."""

_STOP = bytes((0, 0, 0, 0, 0, 0, 1))
"""A whole record without payload, whose checksum is wrong."""


def misread(path: Path) -> dict[Path, int]:
    """Of each log, and of the manifest, where such a header has more behind it that would be read: the first's offset.

    64 MB of records of 400 bytes take 27 ms, of 60 bytes 130: one step a record. Raises OSError.
    """
    logs = sorted(path.glob("*.log"), key=lambda log: (len(log.name), log.name))
    while logs and not logs[-1].stat().st_size:
        logs.pop()
    found: dict[Path, int | None] = {log: _misread(log, followed=log is not logs[-1]) for log in logs}
    changes = [(log, *_changes(log)) for log in logs if log.stat().st_size] if len(logs) > 1 else []
    for (log, _, behind), (_, first, _) in pairwise(changes):
        if None not in (behind, first) and first != behind and found[log] is None:
            size = log.stat().st_size
            room = -size % BLOCK
            found[log] = size + (room if room < HEADER else 0)
    current = (path / "CURRENT").read_bytes().strip() if (path / "CURRENT").exists() else b""
    manifests = [each for each in path.glob("MANIFEST-*") if each.name.encode() == current]
    found |= {manifest: _misread(manifest, followed=False) for manifest in manifests}
    if manifests and found[manifests[0]] is None:
        try:
            needed, flushed = _flushed(manifests[0])
        except (IndexError, ValueError):
            needed, flushed = 0, maxsize  # Damaged, which RocksDB notices by itself, or written by a later version.
        logs = [log for log in logs if int(log.stem) >= needed and log.stat().st_size]
        if logs and (first := _first_change(logs[0])) is not None and first > flushed + 1:
            found[logs[0]] = 0
    return {file: at for file, at in found.items() if at is not None}


def _misread(path: Path, *, followed: bool) -> int | None:
    zeros: int | None = None
    unpack = _LENGTH_AND_TYPE.unpack_from
    with path.open("rb") as file:
        for start in count(0, BLOCK):
            block = file.read(BLOCK)
            if not block:
                return zeros if followed else None
            if zeros is not None:
                if block.count(0) < len(block):
                    return zeros
                continue
            at, last = 0, len(block) - HEADER
            while at <= last:
                length, kind = unpack(block, at + 4)
                if kind in _RECYCLABLE:
                    return start + at
                if not kind and not length:
                    zeros = start + at
                    break
                at += HEADER + length
    raise AssertionError("unreachable")


def _changes(log: Path) -> tuple[int | None, int | None]:
    """The sequence numbers of its first change and of the one behind its last; None where a block's end parts them."""
    data = log.read_bytes()
    starts: list[int] = []
    for start in range(0, len(data), BLOCK):
        at, last = start, min(start + BLOCK, len(data)) - HEADER
        while at <= last:
            length, kind = _LENGTH_AND_TYPE.unpack_from(data, at + 4)
            if not kind and not length:
                break
            if kind in _FIRST:
                starts[1:] = [at]  # The first, and the last so far.
            at += HEADER + length
    numbers = [_sequence_and_count(data, at) for at in (starts[:1] + starts[-1:])]
    if len(numbers) < 2 or numbers[0] is None or numbers[1] is None:
        return None, None
    return numbers[0][0], sum(numbers[1])


def _first_change(log: Path) -> int | None:
    with log.open("rb") as file:
        data = file.read(HEADER + _BATCH.size)
    if len(data) < HEADER or _LENGTH_AND_TYPE.unpack_from(data, 4)[1] not in _FIRST:
        return None
    found = _sequence_and_count(data, 0)
    return None if found is None else found[0]


def _flushed(manifest: Path) -> tuple[int, int]:
    """The number of the first log that is needed, and up to which change all are in files, or more.

    A manifest begins with the state that an opening found, which has written all of the logs into files. Later edits
    name a sequence number as well, but that of their time: of them only what the new files hold is in files.
    """
    needed, flushed, begun = 0, 0, False
    for record in _records(manifest.read_bytes()):
        for tag, value in _fields(record):
            if tag == _LOG_NUMBER:
                needed = max(needed, value)
            elif tag == _NEW_FILE or (tag == _LAST_SEQUENCE and not begun):
                flushed = max(flushed, value)
                begun = begun or tag == _LAST_SEQUENCE
    return needed, flushed


def _records(data: bytes) -> Iterator[bytes]:
    parts: list[bytes] = []
    for start in range(0, len(data), BLOCK):
        at, last = start, min(start + BLOCK, len(data)) - HEADER
        while at <= last:
            length, kind = _LENGTH_AND_TYPE.unpack_from(data, at + 4)
            if kind not in _PART:
                break
            begins, ends = _PART[kind]
            if begins:
                parts.clear()
            parts.append(data[at + HEADER : at + HEADER + length])
            if at + HEADER + length > len(data):
                return  # Torn by a crash.
            if ends:
                yield b"".join(parts)
            at += HEADER + length


_LOG_NUMBER, _LAST_SEQUENCE, _NEW_FILE = 2, 4, 103
_NUMBERS = {2: 1, 3: 1, 4: 1, 6: 2, 9: 1, 10: 1, 200: 1, 202: 0, 203: 1, 300: 1}
"""By tag of a field that is numbers alone, how many."""
_TEXTS, _IGNORABLE = frozenset((1, 201)), 1 << 13
"""Tags of fields that are a text; so is each whose tag has this bit, which older readers skip."""


def _fields(edit: bytes) -> Iterator[tuple[int, int]]:
    """Tag and first number of each field of a record of the manifest (``db/version_edit.h``); of a new file the number
    of its last change. Raises IndexError where it ends too early, ValueError for a tag that is not known."""
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


def _sequence_and_count(data: bytes, at: int) -> tuple[int, int] | None:
    length, _ = _LENGTH_AND_TYPE.unpack_from(data, at + 4)
    if length < _BATCH.size or at + HEADER + _BATCH.size > len(data):
        return None
    sequence, changes = _BATCH.unpack_from(data, at + HEADER)
    return sequence, changes


def stop_at(log: Path, at: int) -> None:
    """Have RocksDB notice damage at the header there. It goes on behind it only where no change is missing."""
    with log.open("r+b") as file:
        file.seek(at)
        file.write(_STOP)
