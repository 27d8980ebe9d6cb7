"""The name of a load's stream: a digest of the files' content and of all that decides about rows and chunks.

The files' names are no part of it, nor is the table's schema: a column that is added while a load is broken off changes
nothing of what was loaded.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from hashlib import blake2b
from pathlib import Path

from headrace.loading.errors import LoadError
from headrace.loading.options import CHUNK_BYTES, Options

VERSION = 1
"""Of how files are read and cut. Raised with any change by which the same files would come to other chunks: a load that
an earlier version broke off would else go on in the wrong place."""
READ_BYTES = 2**20


def stream_of(
    files: Sequence[Path],
    table: str,
    options: Options,
    read: Callable[[int], None] = lambda _: None,
    name: str | None = None,
) -> str:
    """``read`` hears of every so many bytes. ``name`` tells a second load of the same files from the first; it does not
    stand for the digest, since other files under a name that was used would be skipped as done.

    :raises LoadError: a file cannot be read.
    """
    digest = blake2b(digest_size=16)
    said = {"version": VERSION, "table": table.lower(), "chunk": CHUNK_BYTES, **asdict(options)}
    if name is not None:
        said["name"] = name
    digest.update(json.dumps(said, sort_keys=True).encode())
    for file in files:
        digest.update(_content(file, read))
    return f"{name or 'load'}-{digest.hexdigest()}"


def _content(file: Path, read: Callable[[int], None]) -> bytes:
    digest = blake2b(digest_size=16)
    try:
        with file.open("rb") as opened:
            while data := opened.read(READ_BYTES):
                digest.update(data)
                read(len(data))
    except OSError as error:
        raise LoadError(f'cannot read file "{file}": {error.strerror}') from error
    return digest.digest()
