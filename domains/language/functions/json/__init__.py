"""Functions of JSON documents: those that ask them (``reading``), and those that make and change them (``making``)."""

from __future__ import annotations

from domains.language.functions.json import making, reading
from domains.language.functions.source import Function

FUNCTIONS: dict[str, Function] = {**reading.FUNCTIONS, **making.FUNCTIONS}
