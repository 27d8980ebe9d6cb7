"""``headrace load`` that goes no further than ``LAST_CHUNK``: who is to kill it in the middle cannot come too late."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence

from headrace.cli import main
from headrace.loading.chunks import Ready, Reject
from headrace.loading.running import Poster

LAST = int(os.environ["LAST_CHUNK"])
post = Poster.post


def post_or_wait(self: Poster, number: int, rows: Sequence[Ready], refused: Callable[[list[Reject]], None]) -> int:
    while number > LAST:
        signal.pause()
    return post(self, number, rows, refused)


if __name__ == "__main__":
    Poster.post = post_or_wait  # type: ignore[method-assign]
    main()
