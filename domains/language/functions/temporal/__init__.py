"""Functions of days and moments, which are canonical texts, and of times, which are Python's ``timedelta``."""

from __future__ import annotations

from domains.language.functions.source import Function
from domains.language.functions.temporal import dates, intervals, times

FUNCTIONS: dict[str, Function] = {**dates.FUNCTIONS, **intervals.FUNCTIONS, **times.FUNCTIONS}
