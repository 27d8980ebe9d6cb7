"""glibc's allocator, told to give back what is freed: by itself it keeps most of it for later.

It has an arena for each thread, up to eight a core, whose free memory no other thread gets: RocksDB's threads leave
some MB behind in theirs when they are done. And once a large block was freed, it takes blocks of that size from the
arenas, where a small one that comes to lie above keeps all below it: what a dict leaves behind that grew stays.
"""

from __future__ import annotations

import ctypes

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
