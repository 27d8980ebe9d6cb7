"""Python code that was generated, compiled once for each source.

What is generated for a view's columns by their kinds and places is the same text for many views: names and constants
are bound, not written in. Compiling takes 30 to 100 µs, and a new view has some seven such texts.
"""

from __future__ import annotations

from functools import lru_cache
from types import CodeType


@lru_cache(1024)
def compiled(source: str, name: str) -> CodeType:
    """The code of a module's text, which tracebacks call ``name``. At some kB each, no more than so many are kept."""
    return compile(source, name, "exec")
