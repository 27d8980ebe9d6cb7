"""Secrets that must not be in anything that is said, logged, or seen of a process."""

from __future__ import annotations

import re

PASSWORDS = ("a long one", "sesame", "hunter2")
"""What tests give to accounts."""
_SECRET = re.compile(r"hrk_[A-Za-z0-9_-]{40,}|\$argon2id\$|" + "|".join(map(re.escape, PASSWORDS)))
AROUND = 60


def secret_in(text: str) -> str | None:
    """Where one is, with what stands around it. An API key has 43 characters; those of tests are short."""
    found = _SECRET.search(text)
    return None if found is None else text[max(0, found.start() - AROUND) : found.end()]
