"""HTTP to the controller that leads, on connections that prove the deployment's secret first.

::

    api process ─── httpx ─ ProvenBackend ═╦═ proof, then HTTP ═══ LinkGate ─ uvicorn ─ the control interface
    headrace drain ─ httpx ─ OperatorBackend ═╝

The proof is that of all links (``worker/wire/proof.py``), so a controller answers nobody else: not even that it does
not lead. Without a secret it is plain HTTP.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, Protocol, TypeVar

import httpcore
import httpx

from domains.errors import HeadraceError
from worker.protocol.messages import ProtocolError, Role
from worker.wire.proof import PROOF_SECONDS, UNLIKE, Asking, LinkGate, Refusals
from zookeeper.secret import Secret

CONNECTIONS = 100
"""Requests to the leader at once: migrations that wait are few, and look-ups of status come by."""


class HttpConfig(Protocol):
    """As much of uvicorn's as is changed."""

    http: Any
    """Makes the protocol of a connection."""


Config = TypeVar("Config", bound=HttpConfig)


def behind_gate(http: Config, secret: Secret | None) -> Config:
    """The same, for who proves the secret."""
    if secret is not None:
        gate, inside = LinkGate(secret, Role.CONTROLLER, Refusals()), http.http

        def protocol(**given: Any) -> asyncio.Protocol:
            made: asyncio.Protocol = gate.before(lambda role: inside(**given))
            return made

        http.http = protocol
    return http


def to_controllers(secret: Secret | None) -> httpx.AsyncBaseTransport:
    """How an api process reaches controllers."""
    transport = httpx.AsyncHTTPTransport()
    if secret is not None:
        # The one thing of httpcore's that httpx does not hand on.
        transport._pool = httpcore.AsyncConnectionPool(
            max_connections=CONNECTIONS, network_backend=ProvenBackend(secret)
        )
    return transport


def as_operator(secret: Secret | None) -> httpx.BaseTransport:
    """How a command reaches a controller."""
    if secret is None:
        return Unproven()
    transport = httpx.HTTPTransport()
    transport._pool = httpcore.ConnectionPool(network_backend=OperatorBackend(secret))
    return transport


class Unproven(httpx.HTTPTransport):
    """A command's way where it has no secret: a controller that has one ends the connection without a word."""

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        try:
            return super().handle_request(request)
        except httpx.TransportError as error:
            raise type(error)(f"{error} ({UNLIKE})") from error


class ProvenBackend(httpcore.AsyncNetworkBackend):
    """TCP connections on which both sides have proven the secret."""

    def __init__(self, secret: Secret) -> None:
        self._secret = secret
        self._tcp = httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        stream = await self._tcp.connect_tcp(host, port, timeout, local_address, socket_options)
        try:
            async with asyncio.timeout(PROOF_SECONDS):
                await _prove(stream, Asking(self._secret, Role.API, Role.CONTROLLER))
        except (HeadraceError, TimeoutError, httpcore.NetworkError) as error:
            await stream.aclose()
            raise _unproven(error) from error
        except BaseException:
            await stream.aclose()
            raise
        return stream

    async def connect_unix_socket(
        self, path: str, timeout: float | None = None, socket_options: Iterable[Any] | None = None
    ) -> httpcore.AsyncNetworkStream:
        raise httpcore.ConnectError("controllers are reached over TCP")

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class OperatorBackend(httpcore.NetworkBackend):
    """The same for a command, which may block."""

    def __init__(self, secret: Secret) -> None:
        self._secret = secret
        self._tcp = httpcore.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        stream = self._tcp.connect_tcp(host, port, timeout, local_address, socket_options)
        asking = Asking(self._secret, Role.OPERATOR, Role.CONTROLLER)
        try:
            stream.write(asking.first(), PROOF_SECONDS)
            while not asking.proven:
                if answer := asking.take(_some(stream.read(asking.missing, PROOF_SECONDS))):
                    stream.write(answer, PROOF_SECONDS)
        except (HeadraceError, httpcore.NetworkError, httpcore.TimeoutException) as error:
            stream.close()
            raise _unproven(error) from error
        return stream


def _some(data: bytes) -> bytes:
    if not data:
        raise ProtocolError("the other side ended the connection before it proved the deployment's secret")
    return data


def _unproven(error: Exception) -> httpcore.ConnectError:
    why = error.message if isinstance(error, HeadraceError) else "the connection ended before the proof"
    return httpcore.ConnectError(f"{why} ({UNLIKE})")


async def _prove(stream: httpcore.AsyncNetworkStream, asking: Asking) -> None:
    """Raises ProtocolError."""
    await stream.write(asking.first())
    while not asking.proven:
        if answer := asking.take(_some(await stream.read(asking.missing))):
            await stream.write(answer)
