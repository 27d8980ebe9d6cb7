"""Passwords in texts: taken out before a text is logged or listed."""

from __future__ import annotations

import re

_ABOUT_PASSWORDS = re.compile(r"identified|password", re.IGNORECASE)
_TEXT = re.compile(r"'(?:[^'\\]|\\.|'')*(?:'|$)|\"(?:[^\"\\]|\\.|\"\")*(?:\"|$)", re.DOTALL)
HIDDEN = "'…'"


def hidden(text: str) -> str:
    """The text, without anything in quotes where it may be about a password: one that is cut off or wrong is no less
    secret, so the text is not parsed."""
    return text if _ABOUT_PASSWORDS.search(text) is None else _TEXT.sub(HIDDEN, text)


def without_body(text: str) -> str:
    """The same for a request's body, in which the quotes of SQL are inside those of JSON."""
    return text if _ABOUT_PASSWORDS.search(text) is None else "(a text about a password)"
