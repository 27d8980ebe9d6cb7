"""How a state lies in a file: blocks one after another, each behind its length, so that a loader reads one at a time.

::

    4 bytes, big-endian: n │ n bytes: a block │ 4 bytes … │ …

A file's digest is in the job's results and not in the file, so a file that was cut or replaced is known for what it is.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from hashlib import blake2b
from typing import BinaryIO

from domains.errors import StorageFailure

_LENGTH = struct.Struct(">I")
DIGEST_BYTES = 32


class StateDamaged(StorageFailure):
    """A staged file is not what the job wrote. The migration may be begun again."""

    code = "state_damaged"


class Digest:
    """Of a file, as it is written."""

    def __init__(self) -> None:
        self._hash = blake2b(digest_size=DIGEST_BYTES)
        self.bytes = 0

    def add(self, data: bytes) -> bytes:
        self._hash.update(data)
        self.bytes += len(data)
        return data

    def hex(self) -> str:
        return self._hash.hexdigest()


def frame(block: bytes) -> bytes:
    return _LENGTH.pack(len(block)) + block


def read_frames(file: BinaryIO, name: str, digest: str) -> Iterator[bytes]:
    """The blocks of a file in their order. Its digest is known, and checked, after the last one.

    :raises StateDamaged: the file is cut, or is another than the digest's.
    """
    found = Digest()
    while head := file.read(_LENGTH.size):
        length = _LENGTH.unpack(found.add(head))[0] if len(head) == _LENGTH.size else -1
        block = file.read(length) if length >= 0 else b""
        if len(block) != length:
            raise StateDamaged(f'the staged file "{name}" is cut', hint="begin the migration again")
        yield found.add(block)
    if found.hex() != digest:
        raise StateDamaged(f'the staged file "{name}" is not the one that was written', hint="begin again")
