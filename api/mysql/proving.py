"""Who a connection is: the plugins of MySQL by which a client proves a password, and what is asked of it.

::

    greeting: nonce, caching_sha2_password ──► answer: name, plugin, proof
        another plugin than the account's ──► AuthSwitchRequest: nonce, plugin ──► proof
        the proof fits the account's verifier ──► in
        it does not, or there is none; over TLS ──► "full authentication" ──► the password itself ──► as Basic over HTTP
        the same without TLS ──► refused

A name that is not known goes the same way as one with a wrong password. A proof is worth nothing to who listens, but a
password would be: it is only asked for over TLS.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from base64 import b64encode
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from api.mysql.packets import (
    CLIENT_CONNECT_ATTRS,
    CLIENT_CONNECT_WITH_DB,
    CLIENT_PLUGIN_AUTH,
    CLIENT_PLUGIN_AUTH_LENENC_CLIENT_DATA,
    CLIENT_PROTOCOL_41,
    CLIENT_SECURE_CONNECTION,
    PayloadReader,
)
from controller.access.authentication import Authentication
from controller.access.session import Caller
from domains.errors import BadRequest, Unauthenticated

SHA2, NATIVE = "caching_sha2_password", "mysql_native_password"
PLUGINS = (SHA2, NATIVE)
ROOT = "root"
"""The one who is let in, without a password, where there are no accounts."""
_FAST, _FULL = b"\x01\x03", b"\x01\x04"


def new_nonce() -> bytes:
    """20 bytes as MySQL makes them: none is NUL, which ends them, or ``$``."""
    return bytes(1 + secrets.randbelow(127) for _ in range(20)).replace(b"$", b"%")


@dataclass(frozen=True, slots=True)
class ClientAnswer:
    """What a client says after the greeting."""

    capabilities: int
    collation: int
    user: str
    proof: bytes
    schema: str
    plugin: str
    attributes: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, payload: bytes) -> ClientAnswer:
        """:raises BadRequest: it is none, or one of a client that is older than MySQL 4.1."""
        reader = PayloadReader(payload)
        capabilities = reader.number(4)
        if not capabilities & CLIENT_PROTOCOL_41 or not capabilities & CLIENT_SECURE_CONNECTION:
            raise BadRequest("the client speaks a protocol older than MySQL 4.1", hint="use a later driver")
        reader.number(4)
        collation = reader.number(1)
        reader.take(23)
        user = reader.until_nul().decode("utf-8", "replace")
        is_long = capabilities & CLIENT_PLUGIN_AUTH_LENENC_CLIENT_DATA
        proof = reader.text() if is_long else reader.take(reader.number(1))
        return cls(capabilities, collation, user, proof, *_endings(reader, capabilities))

    @classmethod
    def of_change(cls, payload: bytes, capabilities: int) -> ClientAnswer:
        """COM_CHANGE_USER, which says the same in another order."""
        reader = PayloadReader(payload, 1)
        user = reader.until_nul().decode("utf-8", "replace")
        proof = reader.take(reader.number(1))
        schema = reader.until_nul().decode("utf-8", "replace")
        collation = 0 if reader.is_over else reader.number(2)
        _, plugin, attributes = _endings(reader, capabilities & ~CLIENT_CONNECT_WITH_DB)
        return cls(capabilities, collation, user, proof, schema, plugin, attributes)


def _endings(reader: PayloadReader, capabilities: int) -> tuple[str, str, dict[str, str]]:
    """The schema, the plugin and the attributes, as far as they are there."""
    schema = plugin = ""
    attributes: dict[str, str] = {}
    if capabilities & CLIENT_CONNECT_WITH_DB:
        schema = reader.until_nul().decode("utf-8", "replace")
    if capabilities & CLIENT_PLUGIN_AUTH and not reader.is_over:
        plugin = reader.until_nul().decode("utf-8", "replace")
    if capabilities & CLIENT_CONNECT_ATTRS and not reader.is_over:
        inner = PayloadReader(reader.text())
        while not inner.is_over:
            name = inner.text().decode("utf-8", "replace")
            attributes[name] = inner.text().decode("utf-8", "replace")
    return schema, plugin, attributes


# --- proofs -------------------------------------------------------------------------------------------------------


def fits(plugin: str, proof: bytes, nonce: bytes, verifier: str) -> bool:
    """Whether the proof is of the password that a verifier (``passwords.verifier``) was made of."""
    digest = hashlib.sha256 if plugin == SHA2 else hashlib.sha1
    kept = bytes.fromhex(verifier)
    mask = digest(kept + nonce).digest() if plugin == SHA2 else digest(nonce + kept).digest()
    if len(proof) != len(mask):
        return False
    once = bytes(one ^ other for one, other in zip(proof, mask, strict=True))
    return hmac.compare_digest(digest(once).digest(), kept)


class Proving:
    """One login: at a connection's beginning, or by COM_CHANGE_USER."""

    def __init__(
        self,
        authentication: Authentication,
        address: str,
        send: Callable[[bytes], None],
        read: Callable[[], Awaitable[bytes]],
        *,
        secure: bool,
    ) -> None:
        """``send``, ``read``: a packet to the client, and its next one. ``secure``: nobody else reads them."""
        self._authentication = authentication
        self._address = address
        self._send, self._read = send, read
        self._secure = secure

    async def session(self, answer: ClientAnswer, nonce: bytes) -> Caller:
        """:raises Unauthenticated, TooManyRequests, BadRequest"""
        authentication = self._authentication
        if authentication.is_open:
            if answer.user != ROOT or answer.proof.strip(b"\0"):
                raise self._denied(answer, hint=f"there are no accounts yet: user {ROOT}, without a password")
            return await authentication.session([], self._address)
        plugin = authentication.plugin_of(answer.user, PLUGINS)
        proof = answer.proof
        if answer.plugin != plugin:
            nonce = new_nonce()
            self._send(b"\xfe" + plugin.encode() + b"\0" + nonce + b"\0")
            proof = await self._read()
        try:
            found = authentication.proved(
                answer.user, plugin, lambda verifier: fits(plugin, proof, nonce, verifier), self._address
            )
            if found is None and plugin == SHA2 and proof.strip(b"\0"):
                found = await self._by_password(answer)
            elif found is not None and plugin == SHA2:
                self._send(_FAST)
        except Unauthenticated as error:
            raise self._denied(answer, used=bool(proof)) from error
        if found is None:
            authentication.failed(self._address)
            raise self._denied(answer, used=bool(proof))
        return found

    async def _by_password(self, answer: ClientAnswer) -> Caller | None:
        if not self._secure:
            return None
        self._send(_FULL)
        password = (await self._read()).removesuffix(b"\0")
        header = b"Basic " + b64encode(answer.user.encode() + b":" + password)
        return await self._authentication.session([header], self._address)

    def _denied(self, answer: ClientAnswer, *, used: bool = False, hint: str | None = None) -> Unauthenticated:
        if hint is None and not self._secure:
            hint = f"without TLS an account needs a password of MySQL's: ALTER USER name IDENTIFIED WITH {SHA2} BY '…'"
        word = "YES" if used or answer.proof else "NO"
        return Unauthenticated(
            f"Access denied for user '{answer.user}'@'{self._address}' (using password: {word})", hint=hint
        )
