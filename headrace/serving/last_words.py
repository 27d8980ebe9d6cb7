"""A command's messages while it stops and afterwards, when its terminal may be closed."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager


def is_unheard(error: Exception | None) -> bool:
    """Whether something could not be said because nobody was there any more."""
    return isinstance(error, OSError) and error.errno in (errno.EPIPE, errno.EIO)


@contextmanager
def perhaps_unheard() -> Iterator[None]:
    """Around a print. Everything was done in order, whether or not it can be printed, and the exit code says so."""
    try:
        yield
    except OSError:
        # What is still in the buffer would fail once more when Python flushes it at exit, with an exit code of its own.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
