"""The file of rows that were set aside: JSON lines with the row, where it stood, and why.

::

    {"file": "votes.csv", "row": 17, "reason": "'x' does not fit …", "values": {…}, "stream": "load-…", "chunk": 1}

A chunk's rejects are on disk before the chunk is posted. When a load goes on, those of chunks that the server has not
done are dropped from the file, since they are found again.
"""

from __future__ import annotations

import json
import os
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from fcntl import LOCK_EX, LOCK_NB, flock
from functools import partial
from pathlib import Path
from stat import S_ISREG
from typing import Any, TextIO

from headrace.loading.chunks import LoadError, Reject, TooManyRejects

MOST = 1_000
"""Default of ``--max-rejects``: more rejects mean that the file has another content than expected."""


class Rejects:
    """``path`` None: the first reject is an error."""

    def __init__(self, path: Path | None, most: int, stream: str, done: int) -> None:
        """``done``: the last chunk that the server has done.

        :raises LoadError: the file is of another load, or cannot be written.
        """
        self.count = 0
        self._most = most if path is not None else 0
        self._stream = stream
        self._file: TextIO | None = None
        self._path = path
        if path is not None:
            try:
                if path.exists() and not path.is_file():  # /dev/null, a pipe: nothing is to be put in its place.
                    self._file = path.open("w", encoding="utf-8")
                    return
                with _anew(path) as replace:
                    kept = self._kept(path, done)
                    self._file = replace(kept)
            except OSError as error:
                raise LoadError(f'cannot write the rejects to "{path}": {error.strerror}') from error
            self.count = len(kept)

    def _kept(self, path: Path, done: int) -> list[str]:
        kept: list[str] = []
        if not path.exists():
            return kept
        for line in path.read_text("utf-8", "replace").splitlines():
            try:
                known = json.loads(line)
                stream, chunk = known["stream"], known["chunk"]
            except (ValueError, KeyError, TypeError):
                if line.startswith('{"file": '):
                    continue  # A crash cut the last line off.
                stream, chunk = "", 0
            if stream != self._stream:
                raise LoadError(
                    f'"{path}" holds the rejects of another load', hint="move it away, or name another file"
                )
            if chunk <= done:
                kept.append(line)
        return kept

    def add(self, chunk: int, rejects: Iterable[Reject]) -> None:
        """Write the rejects of a chunk; they are on disk when it returns.

        :raises TooManyRejects: with this chunk's there are more than allowed.
        """
        found = list(rejects)
        if not found:
            return
        self.count += len(found)
        if self._file is not None:
            for each in found:
                self._file.write(json.dumps(self._line(chunk, each), default=_plain) + "\n")
            _sync(self._file)
        if self.count > self._most:
            raise self._too_many(found[0])

    def _line(self, chunk: int, reject: Reject) -> dict[str, Any]:
        row = reject.row
        return {
            "file": row.file,
            "row": row.number,
            "reason": reject.reason,
            "values": row.values,
            "stream": self._stream,
            "chunk": chunk,
        }

    def _too_many(self, first: Reject) -> TooManyRejects:
        where = f'row {first.row.number} of file "{first.row.file}": {first.reason}'
        if self._path is None:
            return TooManyRejects(where, hint="--rejects FILE sets such rows aside and goes on")
        return TooManyRejects(
            f"{self.count} rows cannot be loaded, and {self._most} are allowed; {where}",
            hint=f'see "{self._path}"; --max-rejects allows more, and the same command then goes on',
        )

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


@contextmanager
def _anew(path: Path) -> Iterator[Callable[[list[str]], TextIO]]:
    """The file is this load's from here on; what it is given makes it anew with these lines, open for more.

    A lock goes with each of the two files, the one that is there and the one beside it that takes its place. Whoever
    begins locks the latter first, so that of two loads that begin at once one is refused, and then the former, which
    a load that is under way has locked.

    :raises LoadError: another load writes to it.
    """
    beside = path.with_name(path.name + ".new")
    file = _locked(beside, path)
    try:
        if path.exists():
            _locked(path, path).close()
        yield partial(_replaced, file, beside, path)
    except BaseException:
        beside.unlink(missing_ok=True)
        file.close()
        raise


def _locked(file: Path, path: Path) -> TextIO:
    opened = file.open("a", encoding="utf-8")
    try:
        flock(opened, LOCK_EX | LOCK_NB)
    except OSError as error:
        opened.close()
        raise LoadError(
            f'another load writes its rejects to "{path}"', hint="give each load a file of its own by --rejects"
        ) from error
    return opened


def _replaced(file: TextIO, beside: Path, path: Path, lines: list[str]) -> TextIO:
    file.truncate(0)
    file.writelines(f"{line}\n" for line in lines)
    _sync(file)
    beside.replace(path)
    return file


def _sync(file: TextIO) -> None:
    file.flush()
    if S_ISREG(os.fstat(file.fileno()).st_mode):
        os.fsync(file.fileno())


def shown(values: dict[str, Any]) -> str:
    """A row's values as JSON, whatever they are."""
    return json.dumps(values, default=_plain)


def _plain(value: Any) -> Any:
    if isinstance(value, (bytes, bytearray)):
        return b64encode(value).decode()
    return str(value)
