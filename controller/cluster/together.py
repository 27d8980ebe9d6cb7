"""Asking several at once, and hearing of all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any


async def together(calls: Iterable[Any]) -> list[Any]:
    """All answers, in order; when one fails, the first error, once all have ended: none goes on unseen."""
    answers = await asyncio.gather(*calls, return_exceptions=True)
    for answer in answers:
        if isinstance(answer, BaseException):
            raise answer
    return answers
