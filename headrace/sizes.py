"""Sizes in bytes as people write them: ``512MB`` (decimal), ``1GiB`` (binary). And numbers of things."""

from __future__ import annotations

import re

UNITS = {
    "": 1,
    "B": 1,
    **{f"{prefix}B": 1000**power for power, prefix in enumerate("KMGT", 1)},
    **{f"{prefix}IB": 1024**power for power, prefix in enumerate("KMGT", 1)},
}
SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Z]*)", re.I)


def parse_size(text: object) -> int:
    """Bytes; raises ValueError that says what is wrong and what would be right."""
    found = SIZE.fullmatch(str(text).strip())
    unit = UNITS.get(found[2].upper()) if found else None
    if found is None or unit is None or (unit == 1 and "." in found[1]):
        raise ValueError(f'"{text}" is not a size; write it like 512MB, 1.5GB or 1GiB')
    size = int(float(found[1]) * unit) if "." in found[1] else int(found[1]) * unit
    if size == 0:
        raise ValueError(f'"{text}" is not a size; it must be more than 0 bytes')
    return size


def format_size(size: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{_short(size)} {unit}"
        size /= 1000
    return f"{_short(size)} TB"


def _short(number: float) -> str:
    return f"{number:.1f}".removesuffix(".0")


def several(number: int, noun: str) -> str:
    """``1 table``, ``1,234 tables``."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
