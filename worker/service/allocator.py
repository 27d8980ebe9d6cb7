"""glibc's allocator, told to give back what is freed: by itself it keeps most of it for later.

It has an arena for each thread, up to eight a core, whose free memory no other thread gets: RocksDB's threads leave
some MB behind in theirs when they are done. And once a large block was freed, it takes blocks of that size from the
arenas, where a small one that comes to lie above keeps all below it: what a dict leaves behind that grew stays.
"""

from __future__ import annotations

import ctypes
import gc

# Python's collector of cyclic garbage, told what lives here: millions of rows that stay, and very few cycles.
#
# Untold it walks over all young containers at each 700 new ones, and over everything once a quarter has been added.
# Rows are containers to it. A warm server spent two fifths of its time so, most of it within whatever look-up
# happened to make the 700th (py-spy shows a plain ``dict.items()`` as the hottest line of all).
#
# Nothing of ours relies on it to free what is large: a removed vertex gives up its state itself
# (``domains/engine/control.py``). What cycles there are come of exceptions and of tasks, and are young when they go.

YOUNG = 2_000
"""New containers until the young ones are walked over: 0.2 ms each time. With 20,000, which walks over as many in all,
it was 1.2 ms, and of the reads beside a backfill each hundredth waited for one."""
MIDDLE = 200
"""Such walks until the middle-aged ones are: some 10 ms each 400,000 new containers. Fewer would be shorter and more
often: with 5 the hundredth read waits for those. And a cycle that lives so long is old when it goes."""
OLD = 1_000
"""Those until everything is: after so many millions that a pause of a second or two is seldom."""


def expect_long_lives() -> None:
    """For a process that serves, once it has loaded its code: that is set apart for good."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG, MIDDLE, OLD)


_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
"""mallopt's numbers, from malloc.h."""

ARENAS = 2
"""As many threads do work at a time: those that share one wait for one another. With 1 it was no less memory."""
LARGE = 256 * 2**10
"""Bytes of a block that is mapped by itself, and of free room at an arena's end that is given back. What a request or a
batch takes is smaller, so that pages are not mapped anew for each; 128 KiB was no less memory."""


def give_back_early() -> None:
    """For a process that serves, before it has other threads. Elsewhere than in glibc nothing is done."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_ARENA_MAX, ARENAS)
        mallopt(_MMAP_THRESHOLD, LARGE)
        mallopt(_TRIM_THRESHOLD, LARGE)
