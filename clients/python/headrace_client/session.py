"""The common part of the two connections: headers, the remembered token, and the meaning of httpx's exceptions."""

from __future__ import annotations

import json
import os
import ssl
from base64 import b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from threading import Lock
from typing import Any

import httpx

from headrace_client import tokens
from headrace_client.calls import Call
from headrace_client.errors import BadRequest, ConnectionFailed
from headrace_client.results import Result, Written
from headrace_client.tokens import Clock, Token

FileName = str | os.PathLike[str] | None
CONNECT_SECONDS = 5.0
FIRST_POLL_SECONDS, LAST_POLL_SECONDS = 0.02, 0.5
"""Between two looks at a migration: short at first, as most are done at once; not longer than a watcher notices."""


class Session:
    """Remembers, where asked to, the newest token, and gives it to every read (read-your-writes)."""

    def __init__(
        self,
        url: str,
        read_your_writes: bool,
        token: str | None = None,
        *,
        raw: bool = False,
        proof: str | None = None,
        claims: Mapping[str, Any] | None = None,
        inside: Mapping[str, str] | None = None,
    ) -> None:
        """``proof``: of who asks, see :func:`proof_of`; ``claims``: of the user for whom; ``inside``: the header that
        says what all calls are in, a transaction or a snapshot. Raises BadRequest where ``token`` is none, or claims
        are no JSON."""
        self.url = url
        self.proof = proof
        self.claims = claims
        self._claims = {} if claims is None else {"Headrace-Claims": claims_text(claims)}
        self._claims |= inside or {}
        self.raw = raw
        self._remembering = read_your_writes
        self._clock: Clock = {} if token is None else tokens.decode(token)
        self._lock = Lock()

    @property
    def token(self) -> Token | None:
        """The token of reads: the merge of the tokens seen so far."""
        return tokens.encode(self._clock) if self._clock else None

    def inside(self, header: str, name: str) -> Session:
        """That of the same client's calls in a transaction, or of a snapshot."""
        return Session(self.url, False, raw=self.raw, proof=self.proof, claims=self.claims, inside={header: name})

    def headers(self, call: Call[Any], token: str | None) -> dict[str, str]:
        headers = {} if call.body is None else {"content-type": "application/json"}
        headers |= self.authorization()
        if call.consistent and (chosen := self._both(token)):
            headers["Headrace-Token"] = chosen
        return headers

    def authorization(self) -> dict[str, str]:
        return self._claims if self.proof is None else {"Authorization": self.proof, **self._claims}

    def reading(self, token: str) -> dict[str, str]:
        """Of an answer that is to reflect just this, where there is one."""
        return {**self.authorization(), "Headrace-Token": token} if token else self.authorization()

    def _both(self, token: str | None) -> str | None:
        """The one that a call was given, and what is remembered."""
        remembered = self.token
        return token or remembered if remembered is None or not token else remembered | token

    def remember(self, answer: Any) -> None:
        if not self._remembering:
            return
        if isinstance(answer, list):
            answer = answer[-1] if answer else None
        if isinstance(answer, Result | Written | Token):
            clock = tokens.decode(answer if isinstance(answer, Token) else answer.token)
            with self._lock:
                self._clock = tokens.merge(self._clock, clock)

    @contextmanager
    def translated(self) -> Iterator[None]:
        try:
            yield
        except httpx.ConnectError as error:
            wrong = _wrong_with_tls(error)
            if wrong is not None:
                raise ConnectionFailed(f"no TLS with {self.url}: {wrong[0]}", hint=wrong[1]) from error
            raise ConnectionFailed(
                f"no server answers at {self.url}", hint='start one with "headrace serve"'
            ) from error
        except httpx.TimeoutException as error:
            message = f"{self.url} did not answer in time"
            raise ConnectionFailed(message, hint="connect with a longer timeout") from error
        except (httpx.UnsupportedProtocol, httpx.InvalidURL) as error:
            raise ConnectionFailed(
                f'"{self.url}" is not the URL of a server', hint="write it like http://127.0.0.1:8080"
            ) from error
        except httpx.HTTPError as error:
            raise ConnectionFailed(f"the connection to {self.url} failed: {error}") from error


def claims_text(claims: Mapping[str, Any]) -> str:
    """The header ``Headrace-Claims``, of ASCII alone. Raises BadRequest."""
    try:
        return json.dumps(dict(claims), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise BadRequest(f"claims are not JSON: {error}", hint='{"sub": 7}') from error


def proof_of(key: str | None, login: tuple[str, str] | None) -> str | None:
    """The header ``Authorization`` for a key, or a name and password. Raises BadRequest: it cannot be a key."""
    if login is not None:
        return "Basic " + b64encode(":".join(login).encode()).decode()
    if key is None:
        return None
    if not key or not key.isascii() or not key.isprintable() or key.strip() != key:
        raise BadRequest("the key is not one", hint="headrace key create shows a key, once")
    return f"Bearer {key}"


def _wrong_with_tls(error: httpx.ConnectError) -> tuple[str, str] | None:
    """What the handshake met, and what to do; None: it was none."""
    behind: BaseException | None = error
    while behind is not None and not isinstance(behind, ssl.SSLError):
        behind = behind.__cause__ or behind.__context__
    if isinstance(behind, ssl.SSLCertVerificationError):
        return behind.verify_message, "tls_ca (HEADRACE_TLS_CA for commands) names the file of a CA of one's own"
    if behind is None:
        return None
    reason = (behind.reason or str(behind)).lower().replace("_", " ")
    return reason, "does the server speak TLS there? write http:// if not"


def options(
    url: str, timeout: float, ca: FileName = None, certificate: FileName = None, key: FileName = None
) -> dict[str, Any]:
    """The arguments of both of httpx's clients.

    Proxies of the environment are for the web, not for a database. Reading the certificates for TLS takes tens of
    milliseconds, which a command on the terminal notices; plain HTTP has no use for them.
    """
    return {
        "base_url": url,
        "timeout": httpx.Timeout(timeout, connect=CONNECT_SECONDS),
        "trust_env": False,
        "verify": False if url.startswith("http://") else _trusting(ca, certificate, key),
    }


def _trusting(ca: FileName, certificate: FileName, key: FileName) -> ssl.SSLContext:
    """Trusts the CAs of the file ``ca``, else those of ``SSL_CERT_FILE``, else those of the web. Raises BadRequest."""
    try:
        context = httpx.create_ssl_context() if ca is None else ssl.create_default_context(cafile=ca)
    except OSError as error:
        raise BadRequest(
            f'cannot take the certificates "{ca or "of SSL_CERT_FILE"}": {error.strerror or error}'
        ) from error
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if certificate is not None:
        try:
            context.load_cert_chain(certificate, key)
        except OSError as error:
            what = f'the certificate "{certificate}" with the key "{key or certificate}"'
            raise BadRequest(f"cannot take {what}: {error.strerror or error}") from error
    return context
