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


_KEY = re.compile(r"\bhrk_[\w-]*|\beyJ[\w-]+\.[\w-]+\.[\w-]*")


def without_keys(text: str) -> str:
    """API keys and tokens cut to how each of them begins."""
    return text if "hrk_" not in text and "eyJ" not in text else _KEY.sub(lambda found: f"{found[0][:4]}…", text)


_VALUE = re.compile(
    r"(?P<name>`[^`]*(?:`|$)|[A-Za-z_$@\x80-\U0010ffff][\w$@]*)"
    r"|(?P<comment>/\*.*?(?:\*/|$)|(?:#|--(?=\s|$))[^\n]*)"
    r"|(?:'(?:[^'\\]|\\.|'')*(?:'|$)|\"(?:[^\"\\]|\\.|\"\")*(?:\"|$))"
    r"|\.?\d[\w.]*(?:(?<=[eE])[+-]\d+)?",
    re.DOTALL,
)


def without_values(text: str) -> str:
    """A statement with ``?`` for each literal, and without comments; of a text that is cut or wrong, too."""
    return _VALUE.sub(lambda found: found["name"] or (" " if found["comment"] is not None else "?"), text)


def without_body(text: str) -> str:
    """The same for a request's body, in which the quotes of SQL are inside those of JSON."""
    return text if _ABOUT_PASSWORDS.search(text) is None else "(a text about a password)"
