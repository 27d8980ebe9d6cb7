"""From the header ``Authorization`` to a session: what proves who asks, what is remembered, and who may guess.

::

    Bearer hrk_…     a key: its SHA-256 is looked up                                at once
    Bearer eyJ…      a token: its issuer's signature is verified, off the loop      once, then remembered
    Basic …          a name and a password: argon2, off the loop                    once, then remembered
    nothing          the certificate's account, where the connection has one; the open deployment's session, or nobody's

A credential that was found valid is remembered until it expires, any account changes, or an issuer withdraws a key; so
a request costs a look into a dictionary. What is wrong is never remembered: it is verified each time, and counted for
the address that it comes from.
"""

from __future__ import annotations

import asyncio
import binascii
from base64 import b64decode
from collections.abc import Callable, Mapping, Sequence
from ssl import cert_time_to_seconds
from time import monotonic, time
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

from controller.access.accounts import Account, seconds
from controller.access.keeper import Keeper, TokenExpired, refused
from controller.access.passwords import KEY_BEGINS, key_digest
from controller.access.session import ANONYMOUS, ASK, OPEN, Caller
from domains.errors import TooManyRequests, Unauthenticated
from migrations.access.rights import Privilege

REMEMBERED = 10_000
"""Credentials; with more, the oldest are forgotten and verified anew."""
FAILURES = 10
"""Wrong credentials from one address, each within a minute of the one before, after which it waits. A valid one
between them changes nothing: whoever has one account would guess the others'. Who guesses gets 14,000 a day."""
PAUSE_SECONDS = 60.0
READ_SECONDS = 10.0
"""Who reads which view is noted so often: a hit itself only looks whether it is allowed, and so costs nothing more."""
READERS = 10_000
"""Pairs of an account and a view that are remembered; the ones that read longest ago are forgotten."""
ADDRESSES = 10_000
"""Addresses whose failures are counted; the oldest are forgotten."""


class PeerCertificate(NamedTuple):
    """What a certificate says of a client, which the handshake has verified."""

    names: tuple[str, ...]
    """``CN:app``, ``URI:spiffe://example/app``, ``EMAIL:app@example``, ``DNS:app.example``."""
    expires: float
    """Seconds since 1970."""

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> PeerCertificate:
        """``given``: as Python's ``getpeercert`` has it. A subject with several common names has none."""
        common = [value for part in given["subject"] for name, value in part if name == "commonName"]
        others = [f"{kind.upper()}:{value}" for kind, value in given.get("subjectAltName", ())]
        names = [*(f"CN:{each}" for each in common if len(common) == 1), *others]
        return cls(tuple(names), cert_time_to_seconds(given["notAfter"]))


class Presence(NamedTuple):
    """An account's credentials of one kind that a process has verified and remembers."""

    account: str
    way: str
    """key, token, password, certificate"""
    credentials: int
    expires: float
    """Of the one that expires first: seconds since 1970, or endless."""
    read: float | None
    """When the account read a view last, if it has."""


def _way(proof: bytes | PeerCertificate | None) -> str:
    if not isinstance(proof, bytes):
        return "certificate"
    scheme, _, given = proof.partition(b" ")
    if scheme.lower() == b"basic":
        return "password"
    return "key" if given.strip().startswith(KEY_BEGINS.encode()) else "token"


class Authentication:
    """Of one deployment; without a keeper everybody is trusted (an embedded database is its process's own)."""

    def __init__(self, keeper: Keeper | None, clock: Callable[[], float] = monotonic) -> None:
        self._keeper = keeper
        self._clock = clock
        self.is_open = keeper is None or not keeper.closed
        """Everybody may do everything."""
        self.changes = 0
        """Rises whenever what a session may do may have changed: who keeps one asks for it anew."""
        self.sessions: dict[bytes | PeerCertificate | None, Caller] = {}
        """Those that were verified, by their headers or certificates; they may have expired (see
        ``Endpoints.known``)."""
        self._read: dict[tuple[str, str], float] = {}
        """When an account read a view last, by the view's name in lower case and the account's."""
        self._noting: asyncio.TimerHandle | None = None
        self._failures: dict[str, tuple[int, float]] = {}
        """By address: how many, and until when they count."""
        self._verifying: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """By address: held while a password is verified."""
        if keeper is not None:
            keeper.listeners.append(self._changed)
            if keeper.tokens is not None:
                keeper.tokens.forgetting(self._changed)

    def _changed(self) -> None:
        self.is_open = self._keeper is None or not self._keeper.closed
        self._note()
        self.changes += 1
        self.sessions.clear()

    async def session(self, headers: list[bytes], address: str, certificate: PeerCertificate | None = None) -> Caller:
        """:raises Unauthenticated: what was sent is not valid. :raises TooManyRequests: the address has sent too much
        that was not.

        ``headers``: all that are called ``Authorization``. They count before the connection's certificate."""
        if self._keeper is None or self.is_open:
            return OPEN
        if not headers:
            return ANONYMOUS if certificate is None else self._of_certificate(self._keeper, certificate)
        if len(headers) > 1:
            raise Unauthenticated("there is more than one header Authorization", hint="send one")
        found = self._remembered(headers[0])
        if found is not None:
            return found
        try:
            found = await self._verified(self._keeper, headers[0], address)
        except TokenExpired:
            raise
        except Unauthenticated:
            self._check(address)
            self._count(address)
            raise
        return self._remember(headers[0], found)

    def _remember(self, proof: bytes | PeerCertificate, session: Caller) -> Caller:
        while len(self.sessions) >= REMEMBERED:
            del self.sessions[next(iter(self.sessions))]
        self.sessions[proof] = session
        if self._noting is None:
            self._noting = asyncio.get_running_loop().call_later(READ_SECONDS, self._note_again)
        return session

    def _note_again(self) -> None:
        """As long as there are sessions."""
        self._note()
        again = asyncio.get_running_loop().call_later
        self._noting = again(READ_SECONDS, self._note_again) if self.sessions else None

    def _note(self) -> None:
        now = time()
        for session in self.sessions.values():
            for privilege, view in session.found:
                if privilege is Privilege.SELECT:
                    self._read.pop((view.lower(), session.account), None)
                    self._read[view.lower(), session.account] = now
            session.found.clear()
        while len(self._read) > READERS:
            del self._read[next(iter(self._read))]

    def readers(self, view: str) -> dict[str, float]:
        """Which accounts have read the view through this process, by look-ups, and when last: seconds since 1970, at
        most READ_SECONDS late."""
        self._note()
        return {account: last for (name, account), last in self._read.items() if name == view.lower()}

    def present(self) -> list[Presence]:
        """Whose credentials are remembered here, by account and by the way that they prove it."""
        self._note()
        reads: dict[str, float] = {}
        for (_, account), last in self._read.items():
            reads[account] = max(last, reads.get(account, 0.0))
        found: dict[tuple[str, str], list[float]] = {}
        for proof, session in self.sessions.items():
            if session.expires > time():
                found.setdefault((session.account, _way(proof)), []).append(session.expires)
        return [
            Presence(account, way, len(ends), min(ends), reads.get(account)) for (account, way), ends in found.items()
        ]

    # --- verifiers of MySQL's plugins ---------------------------------------------------------------------------------

    def plugin_of(self, name: str, known: Sequence[str]) -> str:
        """The first of the plugins that the account has a verifier for; else, and for no account, the first of all."""
        account = None if self._keeper is None else self._keeper.accounts.get(name)
        return next((each for each in known if account is not None and each in account.verifiers), known[0])

    def proved(self, name: str, plugin: str, fits: Callable[[str], bool], address: str) -> Caller | None:
        """The session of the account whose verifier of this plugin fits; None: it has none, or it does not.

        :raises TooManyRequests: the address has to wait. :raises Unauthenticated: the account is locked, or is over."""
        if self._keeper is None or self.is_open:
            return OPEN
        self._check(address)
        account = self._keeper.accounts.get(name)
        kept = None if account is None or account.is_role else account.verifiers.get(plugin)
        if kept is None or not fits(kept):
            return None
        try:
            return self._keeper.session(
                name,
                seconds(""),
                lambda account: account.verifiers.get(plugin) == kept and not account.is_role,
                NO_CLAIMS,
            )
        except Unauthenticated:
            self._count(address)
            raise

    def failed(self, address: str) -> None:
        """A proof from this address did not fit."""
        self._count(address)

    def _of_certificate(self, keeper: Keeper, certificate: PeerCertificate) -> Caller:
        """Nobody guesses a certificate: what is refused is not counted."""
        found = self._remembered(certificate)
        if found is not None:
            return found
        named = [(each, keeper.accounts.of_certificate(each)) for each in certificate.names]
        accounts = {account: name for name, account in named if account is not None}
        if not accounts:
            raise Unauthenticated(
                f"no account is identified by this certificate ({', '.join(certificate.names) or 'it has no name'})",
                hint="an administrator: ALTER USER name IDENTIFIED WITH ssl_certificate CN '…' (or SAN 'URI:…')",
            )
        if len(accounts) > 1:
            raise Unauthenticated("this certificate identifies more than one account", hint="ALTER USER one of them")
        ((account, name),) = accounts.items()
        session = keeper.session(account, certificate.expires, lambda each: each.certificate == name, NO_CLAIMS)
        return self._remember(certificate, session)

    def _remembered(self, proof: bytes | PeerCertificate) -> Caller | None:
        found = self.sessions.get(proof)
        return found if found is not None and found.expires > time() else None

    async def _verified(self, keeper: Keeper, header: bytes, address: str) -> Caller:
        """Where an address has to wait, a key or token is still looked at: none can be guessed, and who has one is not
        shut out by others of the address. Passwords wait."""
        scheme, _, given = header.decode("latin-1").partition(" ")
        match scheme.lower():
            case "bearer":
                given = given.strip()
                if keeper.tokens is not None and not given.startswith(KEY_BEGINS):
                    return await keeper.tokens.session(given, keeper)
                return self._of_key(keeper, given)
            case "basic":
                # One by one: of many at once, all would be verified before the first is counted. And a pool of
                # connections that sends one password many times at its start has it verified once.
                lock = self._verifying.setdefault(address, asyncio.Lock())
                async with lock:
                    found = self._remembered(header)
                    if found is None:
                        self._check(address)
                        found = await self._of_password(keeper, given.strip())
                    return found
            case _:
                raise Unauthenticated("this way to say who asks is not known", hint=ASK)

    def _of_key(self, keeper: Keeper, key: str) -> Caller:
        digest = key_digest(key)
        found = keeper.accounts.key(digest) if key.startswith(KEY_BEGINS) else None
        if found is None:
            raise refused()
        name, kept = found
        return keeper.session(
            name, seconds(kept.expires), lambda account: any(each.digest == digest for each in account.keys), NO_CLAIMS
        )

    async def _of_password(self, keeper: Keeper, given: str) -> Caller:
        try:
            name, colon, password = b64decode(given, validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            raise Unauthenticated("the name and password cannot be read", hint="Basic base64(name:password)") from None
        if not colon:
            raise Unauthenticated("the name and password cannot be read", hint="Basic base64(name:password)")
        account = keeper.accounts.get(name)
        kept = None if account is None or account.is_role else account.password
        if not await keeper.passwords.fits(password, kept):
            raise refused()

        def proof(account: Account) -> bool:
            return account.password == kept and not account.is_role

        return keeper.session(name, seconds(""), proof, NO_CLAIMS)

    def status(self) -> dict[str, Any]:
        shown: dict[str, Any] = {"remembered": len(self.sessions)}
        tokens = None if self._keeper is None else self._keeper.tokens
        return shown if tokens is None else {**shown, "jwt": tokens.status()}

    # --- failures -------------------------------------------------------------------------------------------------

    def _check(self, address: str) -> None:
        count, until = self._failures.get(address, (0, 0.0))
        if count >= FAILURES and until > self._clock():
            raise TooManyRequests(
                f"too many keys or passwords from this address were not valid; try again in {PAUSE_SECONDS:g} s",
                hint="behind a proxy, name it with --trusted-proxy: else all its clients count as one address",
            )

    def _count(self, address: str) -> None:
        now = self._clock()
        count, until = self._failures.pop(address, (0, 0.0))
        while len(self._failures) >= ADDRESSES:
            del self._failures[next(iter(self._failures))]
        self._failures[address] = (count + 1 if until > now else 1, now + PAUSE_SECONDS)


NO_CLAIMS: Mapping[str, Any] = {}
