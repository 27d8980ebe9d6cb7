"""JSON Web Tokens (RFC 7519): from a signed text to the session of the account that it names.

::

    Bearer eyJ… ──► algorithm allowed? key known? signature? exp, nbf, iss, aud? ──► claims ──► account ──► Caller
                    └────────────── on a thread: some 0.1 ms ──────────────────┘

The issuer says which account a token is for; what that account may do is this deployment's to say, now, and not the
token's. Whoever sends a token that is wrong hears the same as for a wrong key, and the reason is counted.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import jwt

from controller.access.accounts import Account
from controller.access.keeper import Keeper, TokenExpired, refused
from controller.access.key_set import KeySet, SigningKey
from controller.access.session import Caller
from domains.errors import Overloaded, Unauthenticated, Unavailable

TOKEN_MAX = 8_192
"""Bytes: what web servers and proxies take for one header."""
AT_A_TIME = 2
WAITING_MAX = 1_000
"""Verifications that wait: a tenth of a second."""
_log = logging.getLogger("headrace.access")


@dataclass(frozen=True, slots=True)
class TokenRules:
    issuer: str
    audiences: tuple[str, ...]
    """A token is for us if it names one of them."""
    algorithms: tuple[str, ...]
    role_claim: str = "role"
    leeway: float = 10.0
    """Seconds by which the issuer's clock may differ."""


@dataclass(frozen=True, slots=True)
class Verified:
    claims: Mapping[str, Any]
    key: SigningKey
    expires: float


class KeyUnknown(Exception):
    """The token names a key that is not in the set; perhaps it is new."""


class TokenWrong(Exception):
    """The text says why, to us."""


class WebTokens:
    """See :class:`controller.access.keeper.TokenVerifier`, which it implements."""

    def __init__(self, rules: TokenRules, keys: KeySet) -> None:
        self.keys = keys
        self._rules = rules
        self._threads = ThreadPoolExecutor(AT_A_TIME, "tokens")
        self._waiting = 0
        self._refused: Counter[str] = Counter()
        """By reason."""

    async def session(self, token: str, keeper: Keeper) -> Caller:
        try:
            seen = self.keys.changes
            try:
                verified = await self._verified(token)
            except KeyUnknown:
                if not await self.keys.read_for_unknown(seen):
                    raise
                verified = await self._verified(token)
            return self._session(verified, keeper)
        except KeyUnknown:
            if not self.keys.has_been_read:
                raise Unavailable(
                    "tokens cannot be verified: the issuer's keys could not be read yet",
                    hint="try again in a minute, or use a key (Authorization: Bearer hrk_…)",
                ) from None
            raise self._refusal("key") from None
        except jwt.ExpiredSignatureError:
            told = self._refusal("expired")
            raise TokenExpired(told.message, hint=told.hint) from None
        except jwt.PyJWTError as error:
            raise self._refusal(_REASONS.get(type(error), "form")) from None
        except TokenWrong as error:
            raise self._refusal(str(error)) from None

    def forgetting(self, forget: Callable[[], None]) -> None:
        self.keys.listeners.append(forget)

    def status(self) -> dict[str, Any]:
        return {**self.keys.status(), "waiting": self._waiting, "refused": dict(self._refused)}

    async def close(self) -> None:
        await self.keys.close()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _refusal(self, why: str) -> Unauthenticated:
        self._refused[why] += 1
        _log.debug("a token was refused: %s", why)
        return refused()

    async def _verified(self, token: str) -> Verified:
        """:raises KeyUnknown, TokenWrong, jwt.PyJWTError: it is not valid."""
        if len(token) > TOKEN_MAX:
            raise TokenWrong("size")
        if self._waiting >= WAITING_MAX:
            raise Overloaded("too many tokens are being verified", hint="try again in a second")
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, self._decoded, token)
        except (ArithmeticError, RecursionError, TypeError, ValueError):
            raise TokenWrong("form") from None  # A time beyond all floats, JSON of a thousand levels.
        finally:
            self._waiting -= 1

    def _decoded(self, token: str) -> Verified:
        """On a thread."""
        rules = self._rules
        header = jwt.get_unverified_header(token)
        algorithm = header.get("alg")
        if algorithm not in rules.algorithms:
            raise TokenWrong("algorithm")
        # By kind: a public key is never what an HMAC is made with, whatever the token says.
        key = self.keys.find(header.get("kid"), algorithm)
        if key is None:
            raise KeyUnknown
        claims = jwt.decode(
            token,
            key.key,
            algorithms=[algorithm],
            issuer=rules.issuer,
            audience=rules.audiences,
            leeway=rules.leeway,
            options={"require": ["exp", "iss", "aud"], "enforce_minimum_key_length": True},
        )
        return Verified(MappingProxyType(claims), key, float(int(claims["exp"])) + rules.leeway)

    def _session(self, verified: Verified, keeper: Keeper) -> Caller:
        """:raises TokenWrong, Unauthenticated: the account is not there, or not for tokens."""
        claims, key = verified.claims, verified.key
        told = claims.get(self._rules.role_claim)
        name = told[0] if isinstance(told, list) and len(told) == 1 else told
        if not isinstance(name, str):
            raise TokenWrong("role")

        def proof(account: Account) -> bool:
            return self.keys.holds(key)

        def session() -> Caller:
            found = keeper.session(name, verified.expires, proof, claims)
            # A name that an issuer gives to its own administrators is not to become one here by chance.
            if found.rights is None:
                raise TokenWrong("administrator")
            return replace(found, refresh=renewed)

        def renewed() -> Caller:
            try:
                return session()
            except TokenWrong:
                raise refused() from None

        try:
            return session()
        except Unauthenticated:
            raise TokenWrong("account") from None


_REASONS: dict[type[Exception], str] = {
    jwt.InvalidSignatureError: "signature",
    jwt.ImmatureSignatureError: "early",
    jwt.InvalidIssuerError: "issuer",
    jwt.InvalidAudienceError: "audience",
    jwt.MissingRequiredClaimError: "claim",
}
