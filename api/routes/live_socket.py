"""Live views over a WebSocket: several answers on one connection, others on the way. The same messages as by events.

::

    client ──► {"subscribe": [{"view", "parameters", "offset", "name"}], "unsubscribe": ["name"]}
           ◄── [messages of one step]   {"subscription": "name", "streamNextOffset": …}     again and again
           ◄── {"subscription": "name", "error": {…}}                                       which leaves the others

A page cannot send a header with it, so who asks may say so in a message. Which pages may open one is decided in
``doors/browsers.py``.
"""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
from fastapi import APIRouter, WebSocket
from headrace_client import tokens
from pydantic import BaseModel, ConfigDict, Field

from api.dependencies import FOR_ALL, session_of
from api.doors.web_socket import FRAMES, text_frame
from api.encoding import parse
from api.endpoints import Endpoints
from api.limits import STRAIGHT
from api.routes.live import subscribe
from api.routes.live_events import TEXTS, LiveStream
from api.schemas import Json, LiveSubscription, checked
from api.statuses import describe
from controller.live.live_views import Subscription
from domains.errors import BadRequest

router = APIRouter(tags=["live views"])

ROUTE = "GET /v1/live"
AGAIN = 1001
"""Closed because nothing was watched for long: the client may come again."""


class SocketMessage(BaseModel):
    """What a client says on a WebSocket; its members are done in this order."""

    model_config = ConfigDict(extra="forbid")
    authorization: str | None = Field(default=None, description="Who asks from now on, as the header says it")
    claims: dict[str, Json] | None = Field(default=None, description="The user for whom it is asked from now on")
    unsubscribe: list[str] = Field(default_factory=list, description="Names of subscriptions")
    subscribe: list[LiveSubscription] = Field(default_factory=list)
    token: str | None = Field(default=None, description="Of a write that what is subscribed to here is to reflect")
    reached: str | None = Field(default=None, description="Of a write that is to be told of all that is followed")


@router.websocket("/v1/live", dependencies=FOR_ALL)
async def live_by_socket(socket: WebSocket) -> None:
    """Each subscription is checked by itself."""
    app = socket.app
    speaking = LiveSocket(socket, app.state.endpoints, LiveStream(app.state.deployment.live, TEXTS, several=True))
    await speaking.run()


class LiveSocket:
    def __init__(self, socket: WebSocket, endpoints: Endpoints, stream: LiveStream) -> None:
        self._socket = socket
        self._endpoints = endpoints
        self._stream = stream
        self._session = session_of(socket)
        self._address = socket.client.host if socket.client else ""
        self._named: dict[str, Subscription] = {}

    async def run(self) -> None:
        """Until the client has gone, or has watched nothing for as long as a connection may be idle."""
        stream, socket = self._stream, self._socket
        await socket.accept()
        listening = asyncio.create_task(self._listen())

        async def write(frames: bytes) -> None:
            await socket._send({"type": FRAMES, "bytes": frames})  # Starlette's own ``send`` knows no frames.

        try:
            await stream.run(write, socket.scope.get(STRAIGHT), self._endpoints.admission.limits.idle_timeout)
            if not stream.connection.gone:
                await socket.close(AGAIN, "nothing is watched")
        finally:
            listening.cancel()
            stream.live.leave(stream.connection)

    async def _listen(self) -> None:
        connection = self._stream.connection
        try:
            while (message := await self._socket.receive())["type"] != "websocket.disconnect":
                try:
                    text = message.get("text")
                    if text is None:
                        raise BadRequest("a message is not text", hint="send JSON as text")
                    await self._hear(checked(SocketMessage, parse(text.encode("utf-8", "surrogatepass"))))
                except Exception as error:
                    self._refuse(error)
        finally:
            connection.gone = True
            connection.wake()

    async def _hear(self, said: SocketMessage) -> None:
        token = None if said.token is None else tokens.decode(said.token)
        if said.authorization is not None:
            header = said.authorization.encode("utf-8", "replace")
            self._session = await self._endpoints.authentication.session([header], self._address)
        if said.claims is not None:
            self._session = self._session.with_claims(orjson.dumps(said.claims))
        for name in said.unsubscribe:
            own = self._named.get(name)
            if own is not None:
                own.end("unsubscribed")
        for asked in said.subscribe:
            await self._subscribe(asked, token)
        if said.reached is not None:
            followed = [own.topic for own in self._stream.connection.subscriptions]
            await self._stream.live.reach(followed, tokens.decode(said.reached))

    async def _subscribe(self, asked: LiveSubscription, token: Any) -> None:
        before = self._named.get(asked.called)
        if before in self._stream.connection.subscriptions:
            raise BadRequest(f'a subscription is called "{asked.called}"', hint="give each a name of its own")
        try:
            self._session = self._session.renewed()
            self._named[asked.called] = await subscribe(self._stream, asked, self._session, token)
            watched = self._stream.connection.subscriptions
            if len(self._named) > 2 * len(watched):
                self._named = {name: own for name, own in self._named.items() if own in watched}
        except Exception as error:
            self._refuse(error, asked.called)

    def _refuse(self, error: Exception, name: str | None = None) -> None:
        """The connection stays, and what else is watched on it."""
        status, body = describe(error, "a message of a WebSocket")
        audit = self._endpoints.audit
        if audit is not None:
            audit.refused(ROUTE, (status, body, b""), self._address, self._session, (name or "", b""))
        shown = orjson.loads(body)
        self._stream.said.append(text_frame(orjson.dumps(shown if name is None else {"subscription": name, **shown})))
        self._stream.connection.wake()
