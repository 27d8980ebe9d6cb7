"""The keys that tokens are signed with: a JWKS document (RFC 7517) in a file or behind a URL, kept and read again.

::

    source ──read──► document ──► public keys, by kid ──► find: within a verification, on any thread
       ▲ every few seconds or minutes; at once where a token names a kid that is not known, at most once a minute

A document that cannot be read, or is no JWKS, leaves the last good keys in force, and is logged and counted. One that
is read and lacks a key is obeyed: its issuer has withdrawn the key, and what was signed with it is refused.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from time import monotonic
from typing import Any, Protocol

import jwt
from jwt.algorithms import get_default_algorithms

from domains.errors import BadRequest

READ_SECONDS = 5.0
"""The longest that a reading takes. A request may wait for it."""
ASKED_AGAIN_SECONDS = 60.0
"""Between two readings for tokens whose key is not known: whoever sends such tokens makes no load at the issuer."""
DOCUMENT_MAX = 1_000_000
"""Bytes. Of a key it takes some 500."""
KEYS_MAX = 100
RSA_BITS_MAX = 8_192
"""A signature by such a key takes 0.2 ms to verify; a key of a megabyte would take minutes."""
EXPONENT_MAX = 12
"""Characters: 65537 has four."""
LOG_SECONDS = 60.0
"""Between two lines about a source that stays unreadable."""

RSA = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
HMAC = ("HS256", "HS384", "HS512")
_FAMILIES: dict[tuple[str, str], tuple[tuple[str, ...], tuple[str, ...]]] = {
    ("RSA", ""): (RSA, ("n", "e")),
    ("EC", "P-256"): (("ES256",), ("crv", "x", "y")),
    ("EC", "P-384"): (("ES384",), ("crv", "x", "y")),
    ("EC", "P-521"): (("ES512",), ("crv", "x", "y")),
    ("OKP", "Ed25519"): (("EdDSA",), ("crv", "x")),
    ("oct", ""): (HMAC, ("k",)),
}
"""By kind and curve: the algorithms that a key of this kind is for, and its members. A private key's others are left
out, so that what was published by mistake is not held here, too."""

_log = logging.getLogger("headrace.access")


class KeySource(Protocol):
    name: str
    """For people."""
    secret: bool
    """It may have shared secrets, which nothing that came over a network may."""
    seconds: float
    """Between two readings."""

    async def read(self) -> bytes:
        """:raises OSError, ValueError: it cannot be read; the text says why."""


@dataclass(frozen=True, slots=True)
class SigningKey:
    kid: str | None
    algorithms: tuple[str, ...]
    members: tuple[tuple[str, str], ...]
    """What makes it the same key when the document is read again."""
    key: Any
    """As PyJWT takes it."""


class KeySet:
    """Lives on one event loop; :meth:`find` may be called from any thread."""

    def __init__(self, source: KeySource, allowed: Collection[str], clock: Callable[[], float] = monotonic) -> None:
        self.listeners: list[Callable[[], None]] = []
        """Called when a key was withdrawn: what was verified by it is outdated."""
        self._source = source
        self._allowed = frozenset(allowed)
        self._clock = clock
        self._keys: tuple[SigningKey, ...] = ()
        self._document = b""
        self._reading: asyncio.Task[None] | None = None
        self._following: asyncio.Task[None] | None = None
        self._asked_again = -ASKED_AGAIN_SECONDS
        self._logged = -LOG_SECONDS
        self._error = ""
        self._good: float | None = None
        """When the document was last read well."""
        self._readings = self._failures = 0
        self.changes = 0
        """How often other keys were read."""

    async def start(self, *, must_read: bool) -> None:
        """Read, and go on reading; without ``must_read`` that begins behind.

        :raises BadRequest: it cannot be read.
        """
        if must_read:
            await self._read()
        if must_read and (self._error or not self._keys):
            why = self._error or f"it has no key for {', '.join(sorted(self._allowed))}"
            raise BadRequest(
                f'the keys of tokens in "{self._source.name}" cannot be used: {why}',
                hint="jwt_keys is a JWKS document, as the issuer publishes it",
            )
        self._following = asyncio.create_task(self._follow(), name="token keys")

    async def close(self) -> None:
        tasks = [task for task in (self._following, self._reading) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    @property
    def has_been_read(self) -> bool:
        return self._good is not None

    def find(self, kid: str | None, algorithm: str) -> SigningKey | None:
        """The key that a token names; where one of them has no name, the one that fits."""
        fits = [
            each for each in self._keys if algorithm in each.algorithms and (kid is None or each.kid in (kid, None))
        ]
        named = [each for each in fits if each.kid == kid is not None]
        return (named or fits)[0] if named or len(fits) == 1 else None

    def holds(self, key: SigningKey) -> bool:
        """Whether it is in force still."""
        return any(
            each.kid == key.kid and each.members == key.members and each.algorithms == key.algorithms
            for each in self._keys
        )

    async def read_for_unknown(self, seen: int) -> bool:
        """A token names a key that was not known after so many changes. Whether the document was read since; many wait
        for one reading."""
        if self.changes != seen:
            return True
        if self._reading is None:
            if self._clock() - self._asked_again < ASKED_AGAIN_SECONDS:
                return False
            self._asked_again = self._clock()
        await self._read()
        return True

    def status(self) -> dict[str, Any]:
        age = None if self._good is None else round(self._clock() - self._good, 1)
        shown: dict[str, Any] = {
            "keys": len(self._keys),
            "key_readings": self._readings,
            "key_failures": self._failures,
            "key_age": age,
        }
        return {**shown, "key_error": self._error} if self._error else shown

    # --- reading --------------------------------------------------------------------------------------------------

    async def _follow(self) -> None:
        while True:
            if self._readings:
                await asyncio.sleep(self._source.seconds)
            await self._read()

    async def _read(self) -> None:
        """Once for all who wait; it goes on where one of them leaves."""
        if self._reading is None:
            self._reading = asyncio.create_task(self._read_once(), name="reading token keys")
        await asyncio.shield(self._reading)

    async def _read_once(self) -> None:
        self._readings += 1
        try:
            async with asyncio.timeout(READ_SECONDS):
                document = await self._source.read()
                if document != self._document:
                    self._take(await asyncio.to_thread(self._parsed, document))
                    self._document = document
        except (OSError, ValueError) as error:
            late = isinstance(error, TimeoutError) and not str(error)
            self._fail(f"no answer within {READ_SECONDS:g} s" if late else str(error) or type(error).__name__)
        else:
            self._good, self._error = self._clock(), ""
        finally:
            self._reading = None

    def _fail(self, why: str) -> None:
        self._failures += 1
        self._error = why
        if self._clock() - self._logged >= LOG_SECONDS:
            self._logged = self._clock()
            kept = f"the {len(self._keys)} known before stay in force" if self._keys else "no token is accepted"
            _log.error('the keys of tokens cannot be read from "%s": %s; %s', self._source.name, why, kept)

    def _take(self, keys: tuple[SigningKey, ...]) -> None:
        before, self._keys = self._keys, keys
        self.changes += 1
        if not keys:
            _log.warning('"%s" has no key that can be used: no token is accepted', self._source.name)
        withdrawn = [each for each in before if not self.holds(each)]
        if withdrawn:
            _log.info("%d keys of tokens were withdrawn: %d are in force", len(withdrawn), len(keys))
            for listener in self.listeners:
                listener()

    def _parsed(self, text: bytes) -> tuple[SigningKey, ...]:
        """:raises ValueError: it is no JWKS document. Keys of other kinds are passed over, as RFC 7517 (5) says."""
        if len(text) > DOCUMENT_MAX:
            raise ValueError(f"it has more than {DOCUMENT_MAX} bytes")
        try:
            document = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ValueError("it is not JSON") from error
        listed = document.get("keys") if isinstance(document, dict) else None
        if not isinstance(listed, list) or not all(isinstance(each, dict) for each in listed):
            raise ValueError('it is no JWKS document: {"keys": [{"kty": …}, …]}')
        if len(listed) > KEYS_MAX:
            raise ValueError(f"it has more than {KEYS_MAX} keys")
        found = [self._key(each) for each in listed]
        return tuple(each for each in found if each is not None)

    def _key(self, told: Mapping[str, Any]) -> SigningKey | None:
        kind = told.get("kty")
        curve = told.get("crv", "") if kind in ("EC", "OKP") else ""
        family, names = _FAMILIES.get((str(kind), str(curve)), ((), ()))
        operations = told.get("key_ops", ["verify"])
        if told.get("use", "sig") != "sig" or not isinstance(operations, list) or "verify" not in operations:
            return None
        algorithms = tuple(each for each in family if each in self._allowed and told.get("alg", each) == each)
        kid, members = told.get("kid"), {name: told.get(name) for name in names}
        if not algorithms or not (kid is None or isinstance(kid, str)):
            return None
        if not all(isinstance(each, str) for each in members.values()):
            _log.warning('key "%s" of tokens is passed over: it lacks %s', kid, " or ".join(members))
            return None
        if kind == "oct" and not self._source.secret:
            _log.warning('key "%s" of tokens is passed over: a shared secret is taken from a file only', kid)
            return None
        return self._made(kid, algorithms, {"kty": str(kind), **members})

    @staticmethod
    def _made(kid: str | None, algorithms: tuple[str, ...], members: dict[str, Any]) -> SigningKey | None:
        way = get_default_algorithms()[algorithms[0]]
        if members["kty"] == "RSA" and (len(members["n"]) * 6 > RSA_BITS_MAX + 12 or len(members["e"]) > EXPONENT_MAX):
            weak: str | None = f"it has more than {RSA_BITS_MAX} bits, or an exponent of more than 64"
        else:
            try:
                key = way.from_jwk(members)
                weak = way.check_key_length(key)
            except (jwt.PyJWTError, ValueError, TypeError):  # Their texts may quote the key.
                weak = "it cannot be read"
        if weak is not None:
            _log.warning('key "%s" of tokens is passed over: %s', kid, weak)
            return None
        return SigningKey(kid, algorithms, tuple(sorted(members.items())), key)
