"""Passwords in texts: taken out before a text is logged or listed."""

from __future__ import annotations

import re

_TEXT = re.compile(r"'(?:[^'\\]|\\.|'')*(?:'|$)|\"(?:[^\"\\]|\\.|\"\")*(?:\"|$)", re.DOTALL)
HIDDEN = "'…'"


def _may_tell_password(text: str) -> bool:
    """Each text of SQL is asked this on its way: one of a megabyte takes 1 ms, and 20 with a pattern for both words."""
    lower = text.lower()
    return "password" in lower or "identified" in lower


def hidden(text: str) -> str:
    """The text, without anything in quotes where it may be about a password: one that is cut off or wrong is no less
    secret, so the text is not parsed."""
    return _TEXT.sub(HIDDEN, text) if _may_tell_password(text) else text


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
    return "(a text about a password)" if _may_tell_password(text) else text
