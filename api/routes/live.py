"""Live views over HTTP: the read side of Durable Streams with its State Protocol (docs/live.md).

::

    GET …/live?id=7                        [snapshot-start, a row each, snapshot-end]     Stream-Next-Offset: O
    GET …/live?id=7&offset=O&live=sse      event: data     [changes of one step]
                                           event: control  {"streamNextOffset": …}        again and again
    GET …/live?id=7&offset=O&live=long-poll
    POST /v1/live                          several answers: the same events
    WebSocket /v1/live                     several answers, others on the way: ``live_socket.py``
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request, Response
from starlette.types import Receive, Scope, Send

from api.dependencies import FOR_ACCOUNTS, TAKES_TOKEN, Asking, Serving, documented, json_body, needs
from api.encoding import sql_value
from api.endpoints import token_of
from api.limits import HEAD, LASTS, STRAIGHT
from api.lookups.lookups import parse_query
from api.routes.live_events import EVENTS, LiveStream, cursor, messages_of, snapshot_of
from api.schemas import LiveRequest, LiveSubscription
from controller.access.session import Caller
from controller.deployment import RequestMoment
from controller.live.live_views import LiveConnection, LiveViews, Subscription
from controller.live.topics import Topic
from controller.lookups.binding import Binding
from domains.errors import BadRequest, OffsetGone
from domains.plan.packets import Clock
from migrations.access.rights import Privilege

router = APIRouter(tags=["live views"])

LONG_POLL_SECONDS = 20.0
"""After so long without news a long poll answers 204."""
START, NOW = "-1", "now"
RESERVED = ("offset", "live", "cursor")
WAYS = ("sse", "long-poll")
UNSHARED = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "cross-origin",
}
STREAMS = {**UNSHARED, "X-Accel-Buffering": "no"}


@router.get(
    "/v1/views/{view}/live",
    dependencies=[*needs(Privilege.SELECT, "view"), *TAKES_TOKEN],
    responses={200: {"content": {"application/json": {}, "text/event-stream": {}}}, 204: {}, 410: {}},
)
async def live(
    view: str,
    request: Request,
    deployment: Serving,
    session: Asking,
    offset: Annotated[str | None, Query(description="-1: from the start; now; or an offset that was given")] = None,
    live: Annotated[str | None, Query(description="sse or long-poll; without it, what there is now")] = None,
) -> Response:
    """A view's answer, and then each change of it. The view's parameters are in the query, as for a read."""
    if live is not None and live not in WAYS:
        raise BadRequest(f"live={live} is no way to follow a view", hint="live=sse, live=long-poll, or without it")
    text = parse_query(request.scope["query_string"])
    given = {name: values for name, values in text.items() if name not in RESERVED}
    last = request.headers.get("last-event-id")
    offset = last if last and live == "sse" else offset

    def bind(binding: Binding, moment: RequestMoment) -> Any:
        return binding.from_text(given, moment)

    views: LiveViews = deployment.live
    topic = await views.topic(view, bind, session, token_of(request.headers.raw))
    stream = LiveStream(views, EVENTS)
    connection = stream.connection
    whole = offset in (None, START)
    begin = None if whole or offset == NOW else offset
    started = views.subscribe(topic, connection, topic.view, session, begin)
    if started is None:
        raise OffsetGone(
            f'the offset "{offset}" of view "{topic.view}" is not known any more',
            hint="begin again: without offset the whole answer is sent",
        )
    if live == "sse":
        stream.fresh += [started] if whole else []
        return EventStream(stream, _types(topic))
    listening = _listening(request.scope, request.receive, connection)
    try:
        return await _answer(started, whole, waits=live is not None and not whole and HEAD not in request.scope)
    finally:
        listening.cancel()
        views.leave(connection)


@router.post(
    "/v1/live",
    dependencies=[*FOR_ACCOUNTS, *TAKES_TOKEN],
    openapi_extra=documented(LiveRequest),
    responses={200: {"content": {"text/event-stream": {}}}, 410: {}},
)
async def live_together(
    request: Request,
    body: Annotated[LiveRequest, Depends(json_body(LiveRequest))],
    deployment: Serving,
    session: Asking,
) -> Response:
    """Several answers on one connection, by server-sent events: a message's `type` and a control's `subscription` say
    of which it is. One whose offset is not known any more begins with all of its rows."""
    token = token_of(request.headers.raw)
    stream = LiveStream(deployment.live, EVENTS, several=True)
    names = [asked.called for asked in body.subscriptions]
    for name in names:
        if names.count(name) > 1:
            raise BadRequest(f'two subscriptions are called "{name}"', hint="give each a name of its own")
    for asked in body.subscriptions:
        if asked.view:
            session.check(Privilege.SELECT, asked.view)
    try:
        for asked in body.subscriptions:
            await subscribe(stream, asked, session, token)
    except BaseException:
        stream.live.leave(stream.connection)
        raise
    return EventStream(stream)


async def subscribe(stream: LiveStream, asked: LiveSubscription, session: Caller, token: Clock | None) -> Subscription:
    """Raises what a read raises."""

    def bind(binding: Binding, moment: RequestMoment) -> Any:
        return binding.from_json(asked.parameters, moment)

    views, connection, name = stream.live, stream.connection, asked.called
    needed = None
    if asked.sql:
        topic, needed = await views.select(asked.sql, list(map(sql_value, asked.params)), session, token)
    else:
        session.check(Privilege.SELECT, asked.view)
        topic = await views.topic(asked.view, bind, session, token)
    own = views.subscribe(topic, connection, name, session, asked.offset, needed)
    is_fresh = own is None or asked.offset is None
    own = own or views.subscribe(topic, connection, name, session, None, needed)
    assert own is not None, "now is known"
    if is_fresh:
        stream.fresh.append(own)
        connection.wake()
    return own


def _listening(scope: Scope, receive: Receive, connection: LiveConnection) -> asyncio.Task[None]:
    """Tells the connection when its client is gone."""

    async def listen() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        connection.gone = True
        connection.wake()

    scope[LASTS] = True
    return asyncio.create_task(listen())


async def _answer(own: Subscription, whole: bool, waits: bool) -> Response:
    """All rows, or what has come since, at once or within the time of a long poll."""
    topic = own.topic
    if whole:
        body = snapshot_of(topic, own.name)
    else:
        if waits and own.offset == topic.offset:
            try:
                async with asyncio.timeout(LONG_POLL_SECONDS):
                    while own.offset == topic.offset and not own.ended and not own.connection.gone:
                        await own.connection.wait()
            except TimeoutError:
                if own.offset == topic.offset:  # Else something has come with the last moment.
                    return Response(status_code=204, headers=_positions(topic))
        body = messages_of(own.net(), own.name)
    return Response(body, media_type="application/json", headers=_positions(topic))


def _positions(topic: Topic) -> Mapping[str, str]:
    return {
        **UNSHARED,
        **_types(topic),
        "Stream-Next-Offset": topic.offset,
        "Stream-Up-To-Date": "true",
        "Stream-Cursor": cursor(),
        "ETag": f'"{topic.offset}"',
        "Headrace-Token": topic.token,
    }


def _types(topic: Topic) -> dict[str, str]:
    return {"Headrace-Types": topic.lookup.types.decode()} if topic.lookup.types else {}


class EventStream(Response):
    """The answer that lasts."""

    media_type = "text/event-stream"

    def __init__(self, stream: LiveStream, headers: Mapping[str, str] = MappingProxyType({})) -> None:
        super().__init__(headers={**STREAMS, **headers})
        del self.headers["content-length"]
        self._stream = stream

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        stream = self._stream
        listening = _listening(scope, receive, stream.connection)

        async def write(piece: bytes) -> None:
            await send({"type": "http.response.body", "body": piece, "more_body": True})

        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            if HEAD not in scope:
                await stream.run(write, scope.get(STRAIGHT))
            await send({"type": "http.response.body", "body": b""})
        finally:
            listening.cancel()
            stream.live.leave(stream.connection)
