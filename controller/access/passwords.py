"""Passwords and keys: what is kept of them, and how one that is sent is compared with it.

* A **password** is chosen by people, so what is kept has to be slow to guess from: argon2id (RFC 9106, its second
  recommendation: 64 MiB, three passes). That takes some 50 ms and does not belong on the event loop; few run at a time,
  so that a flood of guesses takes neither the memory nor the cores.
* A **key** is 256 random bits. Nobody guesses these, so one round of SHA-256 is enough, and costs a microsecond.
* MySQL's plugins prove a password without sending it, from a verifier that is fast to compute and so fast to guess
  from. It is kept only for accounts that are made so (``IDENTIFIED WITH caching_sha2_password BY …``).
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from concurrent.futures import ThreadPoolExecutor

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from domains.errors import BadRequest, TooManyRequests

AT_A_TIME = 2
WAITING_MAX = 32
"""Verifications that wait: a second or two."""
PASSWORD_MAX = 1_024
"""Characters."""
KEY_BEGINS = "hrk_"
"""How every key begins, so that it is recognised where it should not be: in a repository, in a log."""


class Passwords:
    """Makes and verifies, off the loop."""

    def __init__(self, hasher: PasswordHasher | None = None) -> None:
        self._hasher = hasher or PasswordHasher()
        self._threads = ThreadPoolExecutor(AT_A_TIME, "passwords")
        self._waiting = 0
        self._nobody: str | None = None
        """The hash of a password that nobody knows: an unknown name costs what a wrong password does."""

    async def made(self, password: str) -> str:
        """:raises BadRequest: it is empty or endless."""
        if not password or len(password) > PASSWORD_MAX:
            raise BadRequest(f"a password has 1 to {PASSWORD_MAX} characters")
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._hasher.hash, password)

    async def fits(self, password: str, kept: str | None) -> bool:
        """``kept``: None for an account that is not there, or has no password; it takes as long.

        :raises TooManyRequests: too many wait already.
        """
        if self._waiting >= WAITING_MAX:
            raise TooManyRequests("too many passwords are being verified", hint="try again in a second, or use a key")
        self._waiting += 1
        try:
            sent = password[: PASSWORD_MAX + 1]
            return await asyncio.get_running_loop().run_in_executor(self._threads, self._fits, sent, kept)
        finally:
            self._waiting -= 1

    def _fits(self, password: str, kept: str | None) -> bool:
        if self._nobody is None:
            self._nobody = self._hasher.hash(secrets.token_urlsafe(32))
        try:
            self._hasher.verify(kept or self._nobody, password)
        except (VerificationError, InvalidHashError):
            return False
        return kept is not None

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


def verifier(plugin: str, password: str) -> str:
    """What one of MySQL's plugins needs, as hexadecimal digits: SHA256(SHA256(password)), or the same with SHA1."""
    digest = hashlib.sha256 if plugin == "caching_sha2_password" else hashlib.sha1
    return digest(digest(password.encode()).digest()).hexdigest()


def new_key() -> str:
    return KEY_BEGINS + secrets.token_urlsafe(32)


def new_id() -> str:
    return secrets.token_hex(6)


def key_digest(key: str) -> str:
    """What is kept of a key. It is looked up by this: how long that takes tells nothing of a key to who has not got
    it."""
    return hashlib.sha256(key.encode()).hexdigest()
