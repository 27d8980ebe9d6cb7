"""Both ends of a link prove that they have the deployment's secret, before anything else is said.

::

    who connects                                   who listens
    MAGIC ‖ role ‖ nonce C         ─────►
                                   ◄─────          MAGIC ‖ nonce L
    HMAC(key, "connects" ‖ all)    ─────►          wrong: it is closed without a word
                                   ◄─────          HMAC(key, "listens" ‖ all)
    the link: frames, or HTTP      ◄────►

*All* is both nonces, the role and the kind of door: whose it is that listens. The key is the role's (HKDF of the
secret), and the proven role is the link's: a ``Hello`` of another one is refused. (Who has the secret can prove any.)
Each message has a fixed size, and a byte more or another one ends it. A stranger learns nothing but that there is a
door of Headrace; neither the protocol's digest, nor a name.

* Nonces are new for each link, so what was overheard once proves nothing later. The two proofs differ, so neither can
  be sent back as the other.
* Who has not proven anything holds a few hundred bytes, for some seconds; of more than :data:`UNPROVEN_MAX` the oldest
  has to go.
* Of two secrets (``zookeeper/secret.py``) who connects proves the first, and is answered with the same.

What this does not do: a link is neither encrypted nor signed afterwards, so whoever can alter packets between two
machines can take over a link that was proven by others.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import secrets
import time
from collections import Counter
from collections.abc import Callable
from hashlib import sha256
from typing import cast

from domains.errors import HeadraceError
from worker.protocol.messages import ConnectionLost, ProtocolError, Role
from zookeeper.secret import Secret

MAGIC = b"headrace link 1\n"
NONCE_BYTES = PROOF_BYTES = 32
ROLES = tuple(Role)
FIRST_BYTES = len(MAGIC) + 1 + NONCE_BYTES
ANSWER_BYTES = len(MAGIC) + NONCE_BYTES
UNPROVEN_MAX = 256
"""Connections at a port that have not proven anything. All processes of a large deployment may come at once, and each
takes a few milliseconds."""
PROOF_SECONDS = 3.0
"""Seconds for the proof; for who connects it is a part of the time to connect."""

_log = logging.getLogger("headrace.wire")


def purpose(role: Role) -> str:
    """What a role's key is derived for."""
    return f"headrace link {role.value}"


def proof(key: bytes, who: bytes, role: Role, door: Role, nonces: bytes) -> bytes:
    """``nonces``: first that of who connects. All parts have fixed sizes, but for two words that end with a zero."""
    return hmac.digest(key, MAGIC + who + b"\0" + f"{role.value}\0{door.value}\0".encode() + nonces, sha256)


class _Exact:
    """Bytes that come in pieces, of a size that is known."""

    def __init__(self, size: int, begins: bytes = b"") -> None:
        self.wanted = size
        self._begins = begins
        self._got = b""

    @property
    def missing(self) -> int:
        return self.wanted - len(self._got)

    def take(self, data: bytes) -> bytes | None:
        """All of it; None: more is to come. Raises ProtocolError for a byte too many, or another beginning."""
        self._got += data[: self.wanted + 1]
        known = self._begins[: len(self._got)]
        if len(self._got) > self.wanted or not self._got.startswith(known):
            raise ProtocolError("what came is no proof of the deployment's secret")
        return self._got if len(self._got) == self.wanted else None


class Asking:
    """The end that connects, without a socket."""

    def __init__(self, secret: Secret, role: Role, door: Role) -> None:
        self.proven = False
        self._key = secret.keys(purpose(role))[0]
        self._role, self._door = role, door
        self._nonce = secrets.token_bytes(NONCE_BYTES)
        self._nonces = b""
        self._coming = _Exact(ANSWER_BYTES, MAGIC)

    @property
    def missing(self) -> int:
        """How many bytes of the present message are still to come."""
        return self._coming.missing

    def first(self) -> bytes:
        return MAGIC + bytes([ROLES.index(self._role)]) + self._nonce

    def take(self, data: bytes) -> bytes:
        """What is to be sent now. Raises ProtocolError."""
        whole = self._coming.take(data)
        if whole is None:
            return b""
        if not self._nonces:
            self._nonces = self._nonce + whole[len(MAGIC) :]
            self._coming = _Exact(PROOF_BYTES)
            return proof(self._key, b"connects", self._role, self._door, self._nonces)
        if not hmac.compare_digest(whole, proof(self._key, b"listens", self._role, self._door, self._nonces)):
            raise ProtocolError("the other side does not prove the deployment's secret")
        self.proven = True
        return b""


class Listening:
    """The end that listens, without a socket. ``role`` is proven where ``proven`` is set."""

    def __init__(self, secret: Secret, door: Role) -> None:
        self.proven = False
        self.role: Role
        self._secret = secret
        self._door = door
        self._nonces = b""
        self._coming = _Exact(FIRST_BYTES, MAGIC)

    def take(self, data: bytes) -> bytes:
        """What is to be sent now. Raises ProtocolError."""
        whole = self._coming.take(data)
        if whole is None:
            return b""
        if not self._nonces:
            place, theirs = whole[len(MAGIC)], whole[len(MAGIC) + 1 :]
            if place >= len(ROLES):
                raise ProtocolError("who connects has a role that there is not")
            mine = secrets.token_bytes(NONCE_BYTES)
            self.role, self._nonces = ROLES[place], theirs + mine
            self._coming = _Exact(PROOF_BYTES)
            return MAGIC + mine
        for key in self._secret.keys(purpose(self.role)):
            if hmac.compare_digest(whole, proof(key, b"connects", self.role, self._door, self._nonces)):
                self.proven = True
                return proof(key, b"listens", self.role, self._door, self._nonces)
        raise ProtocolError(
            f'who connects as "{self.role.value}" has another secret', hint="give all processes the same --secret-file"
        )


# --- over sockets -----------------------------------------------------------------------------------------------------

SOURCES_MAX = 1000
"""Sources of refusals that are remembered; then all begin anew."""
QUIET_SECONDS = 60.0
"""Seconds in which a source is named once for each kind of error, however often it comes."""


class Refusals:
    """Counts what was refused at a port: connections of strangers, and messages that no process of ours makes."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.counts: Counter[str] = Counter()
        """By the code of the error."""
        self._clock = clock
        self._said: dict[tuple[str, str], float] = {}
        self._unsaid: Counter[tuple[str, str]] = Counter()

    @property
    def total(self) -> int:
        return self.counts.total()

    def note(self, host: str, who: str, error: HeadraceError) -> None:
        """``host`` tells sources apart: whoever connects anew has another port each time."""
        self.counts[error.code] += 1
        source, now = (host, error.code), self._clock()
        if now - self._said.get(source, float("-inf")) < QUIET_SECONDS:
            self._unsaid[source] += 1
            return
        if len(self._said) >= SOURCES_MAX:
            self._said.clear()
            self._unsaid.clear()
        self._said[source] = now
        before = self._unsaid.pop(source, 0)
        _log.warning("refused %s: %s%s", who, error, f"; and {before} times before that" if before else "")


class LinkGate:
    """A port behind which only those come who have proven the secret, with the role that they have proven."""

    def __init__(self, secret: Secret, door: Role, refusals: Refusals, seconds: float = PROOF_SECONDS) -> None:
        self.secret = secret
        self.door = door
        self.refusals = refusals
        self.seconds = seconds
        self.unproven: dict[AtGate, None] = {}
        """The oldest first."""

    def before(self, inside: Callable[[Role], asyncio.BaseProtocol]) -> asyncio.Protocol:
        """For ``create_server``: the protocol of one connection, in whose place ``inside`` comes."""
        return AtGate(self, inside)

    def close(self) -> None:
        for each in list(self.unproven):
            each.leave()


class AtGate(asyncio.Protocol):
    """A connection that has not proven anything yet."""

    def __init__(self, gate: LinkGate, inside: Callable[[Role], asyncio.BaseProtocol]) -> None:
        self._gate = gate
        self._inside = inside
        self._listening = Listening(gate.secret, gate.door)
        self._transport: asyncio.Transport | None = None
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        gate = self._gate
        gate.unproven[self] = None
        if len(gate.unproven) > UNPROVEN_MAX:
            next(iter(gate.unproven)).refuse(ProtocolError(f"more than {UNPROVEN_MAX} connections prove nothing"))
        self._deadline = asyncio.get_running_loop().call_later(
            gate.seconds, lambda: self.refuse(ProtocolError(f"no proof came within {gate.seconds:g} s"))
        )

    def data_received(self, data: bytes) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        try:
            answer = self._listening.take(data)
        except ProtocolError as error:
            self.refuse(error)
            return
        if answer:
            transport.write(answer)
        if self._listening.proven:
            self._forget()
            inside = self._inside(self._listening.role)
            transport.set_protocol(inside)
            inside.connection_made(transport)

    def connection_lost(self, exception: Exception | None) -> None:
        self._forget()

    def refuse(self, error: ProtocolError) -> None:
        """Without a word."""
        where = None if self._transport is None else self._transport.get_extra_info("peername")
        host = str(where[0]) if where else ""
        self._gate.refusals.note(host, f"{host}:{where[1]}" if where else "a stranger", error)
        self.leave()

    def leave(self) -> None:
        self._forget()
        if self._transport is not None:
            self._transport.abort()

    def _forget(self) -> None:
        self._gate.unproven.pop(self, None)
        if self._deadline is not None:
            self._deadline.cancel()


UNLIKE = "do both have the same --secret-file? its log says more"


class _Entering(asyncio.Protocol):
    """The end that connects, until the other side has proven the secret too: then ``inside`` comes in its place."""

    def __init__(self, asking: Asking, inside: asyncio.BaseProtocol) -> None:
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._asking = asking
        self._inside = inside
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.write(self._asking.first())

    def data_received(self, data: bytes) -> None:
        if self.ended.done():
            return
        try:
            answer = self._asking.take(data)
        except ProtocolError as error:
            self.ended.set_exception(ProtocolError(error.message, hint=UNLIKE))
            return
        if answer:
            self._transport.write(answer)
        if self._asking.proven:
            self.ended.set_result(None)
            self._transport.set_protocol(self._inside)
            self._inside.connection_made(self._transport)

    def connection_lost(self, exception: Exception | None) -> None:
        if not self.ended.done():
            said = "the other side ended the connection before the deployment's secret was proven"
            self.ended.set_exception(ConnectionLost(said, hint=UNLIKE))

    def abort(self) -> None:
        self._transport.abort()


async def entered(inside: asyncio.BaseProtocol, host: str, port: int, asking: Asking) -> None:
    """Connect, and prove the secret: ``inside`` has the connection when this returns.

    :raises ProtocolError, ConnectionLost: the other side has not proven it.
    """
    loop = asyncio.get_running_loop()
    entering = _Entering(asking, inside)
    await loop.create_connection(lambda: entering, host, port)
    try:
        await entering.ended
    except BaseException:
        entering.abort()
        raise
