"""Live views over HTTP: the read side of Durable Streams with its State Protocol (docs/live.md).

::

    GET …/live?id=7                        [snapshot-start, a row each, snapshot-end]     Stream-Next-Offset: O
    GET …/live?id=7&offset=O&live=sse      event: data     [changes of one step]
                                           event: control  {"streamNextOffset": …}        again and again
    GET …/live?id=7&offset=O&live=long-poll
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from time import monotonic, time
from types import MappingProxyType
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request, Response
from headrace_client import tokens
from starlette.types import Receive, Scope, Send

from api.dependencies import FOR_ACCOUNTS, TAKES_TOKEN, Asking, Serving, documented, json_body, needs
from api.encoding import serialize
from api.endpoints import token_of
from api.limits import LASTS
from api.lookups.lookups import parse_query
from api.schemas import LiveRequest
from controller.deployment import RequestMoment
from controller.live.live_views import QUIET_SECONDS, LiveConnection, LiveViews, Subscription, caught_up
from controller.live.steps import TopicStep, clock_of
from controller.live.topics import Topic
from controller.lookups.binding import Binding
from domains.errors import BadRequest, OffsetGone
from migrations.access.rights import Privilege

router = APIRouter(tags=["live views"])

LONG_POLL_SECONDS = 20.0
"""After so long without news a long poll answers 204."""
CURSOR_SECONDS = 20
"""The protocol's cursor changes so often: it sets requests of different times apart."""
START, NOW = "-1", "now"
RESERVED = ("offset", "live", "cursor")
WAYS = ("sse", "long-poll")
UNSHARED = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "cross-origin",
}
STREAMS = {**UNSHARED, "X-Accel-Buffering": "no"}
SNAPSHOT_START, SNAPSHOT_END = b'{"headers":{"control":"snapshot-start"}}', b'{"headers":{"control":"snapshot-end"}}'
QUIET = b": still here\n\n"


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
    connection = LiveConnection()
    whole = offset in (None, START)
    begin = None if whole or offset == NOW else offset
    started = views.subscribe(topic, connection, topic.view, session, begin)
    if started is None:
        raise OffsetGone(
            f'the offset "{offset}" of view "{topic.view}" is not known any more',
            hint="begin again: without offset the whole answer is sent",
        )
    if live == "sse":
        return EventStream(views, connection, [started] if whole else [], headers=_types(topic))
    listening = _listening(request.scope, request.receive, connection)
    try:
        return await _answer(started, whole, waits=live is not None and not whole)
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
    views: LiveViews = deployment.live
    token = token_of(request.headers.raw)
    connection = LiveConnection()
    fresh: list[Subscription] = []
    names = [asked.name or asked.view for asked in body.subscriptions]
    for name in names:
        if names.count(name) > 1:
            raise BadRequest(f'two subscriptions are called "{name}"', hint="give each a name of its own")
    for asked in body.subscriptions:
        session.check(Privilege.SELECT, asked.view)
    try:
        for asked, name in zip(body.subscriptions, names, strict=True):
            given = asked.parameters

            def bind(binding: Binding, moment: RequestMoment, given: Any = given) -> Any:
                return binding.from_json(given, moment)

            topic = await views.topic(asked.view, bind, session, token)
            own = views.subscribe(topic, connection, name, session, asked.offset)
            if own is None:
                own = views.subscribe(topic, connection, name, session)
                assert own is not None, "now is known"
                fresh.append(own)
            elif asked.offset is None:
                fresh.append(own)
    except BaseException:
        views.leave(connection)
        raise
    return EventStream(views, connection, fresh, several=True)


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
        body = _snapshot(topic, own.name)
    else:
        if waits and own.offset == topic.offset:
            try:
                async with asyncio.timeout(LONG_POLL_SECONDS):
                    while own.offset == topic.offset and not own.ended and not own.connection.gone:
                        await own.connection.wait()
            except TimeoutError:
                return Response(status_code=204, headers=_positions(topic))
        body = b"[" + _messages(own.net(), own.name) + b"]"
    return Response(body, media_type="application/json", headers=_positions(topic))


def _positions(topic: Topic) -> Mapping[str, str]:
    return {
        **UNSHARED,
        **_types(topic),
        "Stream-Next-Offset": topic.offset,
        "Stream-Up-To-Date": "true",
        "Stream-Cursor": _cursor(),
        "ETag": f'"{topic.offset}"',
        "Headrace-Token": topic.token,
    }


def _types(topic: Topic) -> dict[str, str]:
    return {"Headrace-Types": topic.lookup.types.decode()} if topic.lookup.types else {}


def _cursor() -> str:
    return str(int(time() // CURSOR_SECONDS))


def _messages(step: TopicStep, name: str) -> bytes:
    """A step's messages, without the brackets."""
    known = step.written.get(name)
    if known is None:
        begin = b'{"type":' + serialize(name) + b","
        known = step.written[name] = b",".join([begin + message + b"}" for message in step.messages])
    return known


def _snapshot(topic: Topic, name: str) -> bytes:
    begin = b'{"type":' + serialize(name) + b","
    rows = [begin + message + b"}" for message in caught_up(topic)]
    return b"[" + b",".join([SNAPSHOT_START, *rows, SNAPSHOT_END]) + b"]"


def control(own: Subscription, offset: str, token: str, **further: Any) -> dict[str, Any]:
    """Where a subscription is."""
    topic = own.topic
    shown: dict[str, Any] = {
        "streamNextOffset": offset,
        "streamCursor": _cursor(),
        "upToDate": offset == topic.offset and not own.ended,
        "token": token,
        **further,
    }
    if own.ended:
        shown["ended"] = own.ended
    if own.reopened != topic.migrations:
        own.reopened = topic.migrations
        shown["migrated"] = True
    return shown


class EventStream(Response):
    """What one connection is sent: snapshots of what is ``fresh``, then steps. The client's pace is the loop's."""

    media_type = "text/event-stream"

    def __init__(
        self,
        live: LiveViews,
        connection: LiveConnection,
        fresh: Sequence[Subscription],
        *,
        several: bool = False,
        headers: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """``several``: each event says of which subscription it is."""
        super().__init__(headers={**STREAMS, **headers})
        del self.headers["content-length"]
        self._live = live
        self._connection = connection
        self._fresh = fresh
        self._several = several

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        listening = _listening(scope, receive, self._connection)
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            await self._run(send)
            await send({"type": "http.response.body", "body": b""})
        finally:
            listening.cancel()
            self._live.leave(self._connection)

    async def _run(self, send: Send) -> None:
        connection, several = self._connection, self._several
        # At the least a comment, so that the client hears at once that it is heard.
        pieces = [_begun(own, several) for own in self._fresh] or [QUIET]
        while not connection.gone:
            while connection.pending:
                own = next(iter(connection.pending))
                del connection.pending[own]
                pieces += _pieces(own, several)
                if own.ended:
                    connection.subscriptions.pop(own, None)
                    self._live.drop(own)
            if pieces:
                connection.sent = monotonic()
                await send({"type": "http.response.body", "body": b"".join(pieces), "more_body": True})
                pieces = []
            if not connection.subscriptions:
                return
            if connection.pending:
                continue
            if monotonic() - connection.sent > QUIET_SECONDS:
                pieces.append(QUIET)
            else:
                await connection.wait()


def _begun(own: Subscription, several: bool) -> bytes:
    """Its snapshot, as of now."""
    own.take()
    own.connection.pending.pop(own, None)
    return b"event: data\ndata: " + _snapshot(own.topic, own.name) + b"\n\n" + _now(own, several)


def _pieces(own: Subscription, several: bool) -> list[bytes]:
    """What is new: an event of each step, and then where it is."""
    topic = own.topic
    if own.ended:
        return [_now(own, several)]
    steps = own.take()
    if len(steps) == 1 and steps[0].offset == topic.offset and own.reopened == topic.migrations:
        # What nearly all events are, and nearly all readers of it: written once.
        key = own.name, several, _cursor()
        if key not in topic.written:
            topic.written[key] = _data(own, steps[0]) + _now(own, several)
        return [topic.written[key]]
    pieces = []
    for step in steps:
        pieces.append(_data(own, step))
        if step is not topic.now:
            shown = control(own, step.offset, tokens.encode(clock_of(step.vector)), **_named(own, several))
            pieces.append(_control(shown))
    return [*pieces, _now(own, several)]


def _data(own: Subscription, step: TopicStep) -> bytes:
    return b"event: data\ndata: [" + _messages(step, own.name) + b"]\n\n"


def _now(own: Subscription, several: bool) -> bytes:
    return _control(control(own, own.topic.offset, own.topic.token, **_named(own, several)))


def _named(own: Subscription, several: bool) -> dict[str, Any]:
    return {"subscription": own.name} if several else {}


def _control(shown: Mapping[str, Any]) -> bytes:
    return b"id: %b\nevent: control\ndata: %b\n\n" % (shown["streamNextOffset"].encode(), serialize(shown))
