"""The file of an audit log: whole lines of one process, in files that are replaced by size.

::

    audit.jsonl ──full──► audit.jsonl.1 ──► audit.jsonl.2 ──► … ──► the oldest goes

The standard library's handler renames the files; what it writes is buffered and its failures are printed, so a line is
written here: whole or not at all.
"""

from __future__ import annotations

import fcntl
import os
import stat
from contextlib import suppress
from errno import EEXIST, EINVAL, ENOSPC
from logging.handlers import RotatingFileHandler
from pathlib import Path
from time import monotonic
from typing import Any

from domains.errors import BadRequest

MODE = 0o600
LOOK_SECONDS = 1.0
"""Between two looks at whether the file is there still: one that was moved away would take the lines with it."""


class AuditFile(RotatingFileHandler):
    """Not for the logging of the standard library, though it has its rotation."""

    stream: Any
    """The file, unbuffered; None where it is to be opened."""

    def __init__(self, path: Path, size: int, files: int) -> None:
        """``size``: bytes of a file; ``files``: how many, with the one that is written.

        :raises BadRequest: it cannot be opened.
        """
        super().__init__(path, maxBytes=size, backupCount=files - 1, delay=True)
        self.delay = False
        self.path = path
        self._looked = 0.0
        try:
            self.stream = self._open()
        except OSError as error:
            raise BadRequest(f'the audit log "{path}" cannot be opened: {error.strerror}', hint=_hint(error)) from error

    def write(self, line: bytes) -> None:
        """:raises OSError: it is not written, and nothing of it is left in the file."""
        if self.stream is None or self._was_moved():
            self._reopen()
        size = os.fstat(self.stream.fileno()).st_size
        if size and size + len(line) > self.maxBytes:
            self.doRollover()
            size = 0
        if os.write(self.stream.fileno(), line) < len(line):
            os.ftruncate(self.stream.fileno(), size)
            raise OSError(ENOSPC, os.strerror(ENOSPC))

    def _reopen(self) -> None:
        if self.stream is not None:
            self.stream.close()
            self.stream = None
        self.stream = self._open()

    def _was_moved(self) -> bool:
        now = monotonic()
        if now - self._looked < LOOK_SECONDS:
            return False
        self._looked = now
        try:
            there, own = os.stat(self.path), os.fstat(self.stream.fileno())
        except FileNotFoundError:
            return True
        return (there.st_dev, there.st_ino) != (own.st_dev, own.st_ino)

    def _open(self) -> Any:
        """Behind the last whole line: a process that was killed may have left half a one."""
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW
        if self.path.is_symlink():
            raise OSError(EINVAL, "it is a symbolic link")
        number = os.open(self.path, flags, MODE)
        try:
            found = os.fstat(number)
            if not stat.S_ISREG(found.st_mode):
                raise OSError(EINVAL, "it is no regular file")
            try:
                fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise OSError(EEXIST, "another process writes it") from None
            os.fchmod(number, MODE)
            if found.st_size and os.pread(number, 1, found.st_size - 1) != b"\n":
                os.write(number, b"\n")
            return os.fdopen(number, "ab", buffering=0)
        except BaseException:
            with suppress(OSError):
                os.close(number)
            raise


def _hint(error: OSError) -> str:
    if error.errno == EEXIST:
        return "each process has a file of its own: give this one another audit_log, or a --name"
    return "audit_log is a file in a directory that is there, which the server may write; nothing is served without it"
