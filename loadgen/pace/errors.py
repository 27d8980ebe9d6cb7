"""Errors of a load run as a whole; failures of one request are counted, not raised."""

from __future__ import annotations


class LoadRunError(Exception):
    """The run cannot begin or go on. ``hint`` says what to do."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class RequestFailed(Exception):
    """One page was not answered as it should be. Counted by its text, so the text has no keys in it."""
