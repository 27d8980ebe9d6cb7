"""Live views: an answer that is kept right, change by change, over lost connections too.

::

    async for change in db.view("v").live(id=7)      each change, from the rows of now on
    async with db.view("v").live_rows(id=7) as rows  a list that stays right

Both begin with the whole answer and follow it from its offset. Where the server does not know an offset any more the
whole answer is read again, and what is told is the difference between what was there and what there is: nothing twice,
nothing left out. The blocking client polls, each poll waiting for news, so it works on an embedded database too. Its
list moves on when it is asked to.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass
from typing import Any, Protocol, overload
from urllib.parse import quote, urlencode

import httpx

from headrace_client import calls, encoding, tokens
from headrace_client.errors import ConnectionFailed, HeadraceError, OffsetGone, Overloaded, Unavailable
from headrace_client.results import Record
from headrace_client.tokens import Clock, Token

AT_ONCE = 5
"""Requests at one offset that follow each other at once. With more, something is wrong that a pause may mend."""
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 10.0
SOON = 0.03
"""Seconds in which a write mostly shows; then the server is asked whether it is here without a change."""
PASSING = (ConnectionFailed, Unavailable, Overloaded)
"""What is tried again; anything else is raised."""
NEXT, TOKEN = "stream-next-offset", "headrace-token"


@dataclass(frozen=True, slots=True)
class Change:
    """``operation`` is insert, update or delete; ``row`` is the new one, of a delete the old one."""

    operation: str
    key: str
    row: Record
    token: Token
    """What the whole answer reflects with this change."""


class FoldedRows:
    """The rows by key, in the order of the answer; the part of both clients that knows no I/O."""

    def __init__(self, view: str, parameters: Mapping[str, Any], raw: bool) -> None:
        pairs = [
            (name, encoding.to_text(each))
            for name, value in parameters.items()
            for each in (value if isinstance(value, calls.LISTS) else [value])
        ]
        self._path = f"/v1/views/{quote(view, safe='')}/live?{urlencode(pairs)}"
        self._raw = raw
        self._rows: dict[str, Record] = {}
        self._order: list[str] = []
        self._types = ""
        self.offset = ""
        """The place from which it goes on."""
        self.clock: Clock = {}
        self._asked = 0
        self._asked_at = ""

    @property
    def rows(self) -> list[Record]:
        return [self._rows[key] for key in self._order]

    def path(self, way: str) -> str:
        """The next request: all of it at first, then what follows."""
        return self._at(f"{quote(self.offset)}&live={way}") if self.offset else self._path

    def path_of_now(self) -> str:
        """Where it is, without its rows."""
        return self._at("now")

    def _at(self, offset: str) -> str:
        join = "" if self._path.endswith("?") else "&"
        return f"{self._path}{join}offset={offset}"

    def pause(self) -> float:
        """Before the next request. It counts as one."""
        self._asked = self._asked + 1 if self.offset == self._asked_at else 1
        self._asked_at = self.offset
        return min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** (self._asked - AT_ONCE - 1)) if self._asked > AT_ONCE else 0.0

    def heard(self, headers: Mapping[str, str]) -> None:
        self._types = "" if self._raw else headers.get(encoding.HEADER, "")

    def failed(self, error: HeadraceError) -> None:
        """Raises what does not pass by itself."""
        if isinstance(error, OffsetGone):
            self.offset = ""
        elif not isinstance(error, PASSING):
            raise error

    def take(self, messages: Sequence[Any], offset: str, token: str) -> list[Change]:
        """What a step, or the whole answer, changes here."""
        self.offset, self.clock = offset, tokens.decode(token)
        whole = bool(messages) and "control" in messages[0]["headers"]
        if whole:
            messages = self._against(messages[1:-1])
        found: list[Change] = []
        placed: list[tuple[int | None, str]] = []
        for message in messages:
            key, headers = message["key"], message["headers"]
            before = self._rows.pop(key, None)
            if before is not None:
                self._order.remove(key)
            if headers["operation"] == "delete":
                found.append(Change("delete", key, before or {}, Token(token)))
                continue
            row = self._converted(message["value"])
            self._rows[key] = row
            placed.append((headers.get("place"), key))
            found.append(Change(headers["operation"], key, row, Token(token)))
        for place, key in placed:
            self._order.insert(len(self._order) if place is None else place, key)
        return found

    def _against(self, messages: Sequence[Any]) -> list[Any]:
        """The difference between what is here and a whole answer."""
        wanted = {message["key"]: message for message in messages}
        gone = [{"key": key, "headers": {"operation": "delete"}} for key in self._rows if key not in wanted]
        come = []
        for key, message in wanted.items():
            if key not in self._rows:
                come.append(message)
            elif self._converted(dict(message["value"])) != self._rows[key]:
                come.append({**message, "headers": {**message["headers"], "operation": "update"}})
        return [*gone, *come]

    def _converted(self, row: Record) -> Record:
        if self._types:
            encoding.pages([[[row]]], self._types)
        return row


class Fetching(Protocol):
    """What this needs of a blocking connection."""

    @property
    def raw(self) -> bool: ...

    def fetch(self, path: str, token: str = "") -> tuple[int, Mapping[str, str], bytes]: ...


class Streaming(Protocol):
    """What this needs of an awaited one."""

    @property
    def raw(self) -> bool: ...

    def streamed(self, path: str, token: str = "") -> AbstractAsyncContextManager[httpx.Response]: ...


class LiveChanges:
    """The blocking client's: an iterator over changes, which ends when it is left; ``rows`` is the answer by now."""

    def __init__(self, connection: Fetching, view: str, parameters: Mapping[str, Any]) -> None:
        self._connection = connection
        self._folded = FoldedRows(view, parameters, connection.raw)

    @property
    def rows(self) -> list[Record]:
        return self._folded.rows

    def __iter__(self) -> Iterator[Change]:
        for step in self.steps():
            yield from step

    def steps(self) -> Iterator[list[Change]]:
        """The changes of each step together; an empty list where no row has changed."""
        while True:
            yield self.step()

    def step(self, token: str = "") -> list[Change]:
        """The next one. With a token it does not wait for a change, but until the answer reflects that."""
        folded = self._folded
        while True:
            if pause := folded.pause():
                time.sleep(pause)
            try:
                status, headers, body = self._connection.fetch(folded.path("long-poll"), token)
                if status >= 400:
                    calls.read_answer(calls.show(""), status, body)
            except HeadraceError as error:
                folded.failed(error)
                continue
            if not folded.offset:
                folded.heard(headers)
            messages = json.loads(body) if body else []
            return folded.take(messages, headers[NEXT], headers[TOKEN])


class AsyncLiveChanges:
    """The same to be awaited, over server-sent events."""

    def __init__(self, connection: Streaming, view: str, parameters: Mapping[str, Any]) -> None:
        self._connection = connection
        self._folded = FoldedRows(view, parameters, connection.raw)

    @property
    def rows(self) -> list[Record]:
        return self._folded.rows

    async def __aiter__(self) -> AsyncIterator[Change]:
        async for step in self.steps():
            for change in step:
                yield change

    async def steps(self) -> AsyncIterator[list[Change]]:
        """The changes of each step together; an empty list where only what the rows reflect has moved."""
        folded = self._folded
        while True:
            if pause := folded.pause():
                await asyncio.sleep(pause)
            try:
                async for changes in self._once(folded):
                    yield changes
            except HeadraceError as error:
                folded.failed(error)

    async def _once(self, folded: FoldedRows) -> AsyncIterator[list[Change]]:
        whole = not folded.offset
        async with self._connection.streamed(folded.path("sse")) as response:
            if response.status_code >= 400:
                calls.read_answer(calls.show(""), response.status_code, await response.aread())
            if whole:
                folded.heard(response.headers)
                body = await response.aread()
                yield folded.take(json.loads(body), response.headers[NEXT], response.headers[TOKEN])
                return
            messages: list[Any] = []
            async for line in response.aiter_lines():
                if line.startswith("data: ["):
                    messages += json.loads(line[6:])
                elif line.startswith("data: {"):
                    control = json.loads(line[6:])
                    if "ended" in control:
                        return
                    yield folded.take(messages, control["streamNextOffset"], control["token"])
                    messages = []

    async def ask_for(self, token: str) -> None:
        """Have the server tell all who follow the answer as soon as it reflects a write. Where that changed nothing
        there, it is else said seconds later. A failure is the stream's to mend."""
        await asyncio.sleep(SOON)
        with suppress(ConnectionFailed):
            async with self._connection.streamed(self._folded.path_of_now(), token) as response:
                await response.aread()


class HeldRows(Sequence[Record]):
    """What both kinds of lists show."""

    _rows: Sequence[Record] = ()

    def __init__(self, folded: FoldedRows) -> None:
        self._folded = folded

    @overload
    def __getitem__(self, at: int) -> Record: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Record]: ...
    def __getitem__(self, at: int | slice) -> Record | Sequence[Record]:
        return self._rows[at]

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def token(self) -> Token:
        """Exactly what the rows reflect."""
        return tokens.encode(self._folded.clock)

    def _reflects(self, wanted: Clock) -> bool:
        clock = self._folded.clock
        return bool(clock) and all(clock[base] >= at for base, at in wanted.items() if base in clock)


class LiveRows(HeldRows):
    """A list that stays right while its block lasts: the rows of a view for some parameters, in the answer's order."""

    def __init__(self, changes: AsyncLiveChanges) -> None:
        super().__init__(changes._folded)
        self._changes = changes
        self._moved = asyncio.Event()
        self._following: asyncio.Task[None] | None = None

    async def __aenter__(self) -> LiveRows:
        """With the rows of now."""
        self._following = asyncio.create_task(self._follow())
        await self._next()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._following is not None:
            self._following.cancel()
            await asyncio.gather(self._following, return_exceptions=True)

    async def changed(self) -> None:
        """Until they have changed, or reflect more."""
        await self._next()

    async def reached(self, token: str) -> None:
        """Until they reflect a write, whether or not it changed any of them. Raises what has ended them."""
        wanted = tokens.decode(token)
        if self._reflects(wanted):
            return
        asking = asyncio.create_task(self._changes.ask_for(token))
        try:
            while not self._reflects(wanted):
                await self._next()
        finally:
            asking.cancel()
            await asyncio.wait([asking])

    async def _next(self) -> None:
        self._moved.clear()
        moving = asyncio.ensure_future(self._moved.wait())
        assert self._following is not None, "async with begins it"
        try:
            await asyncio.wait({moving, self._following}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            moving.cancel()
        if self._following.done():
            self._following.result()

    async def _follow(self) -> None:
        async for _ in self._changes.steps():
            self._rows = self._changes.rows
            self._moved.set()


class BlockingLiveRows(HeldRows):
    """The blocking client's list: it moves on when it is asked to, as no thread follows it."""

    def __init__(self, changes: LiveChanges) -> None:
        super().__init__(changes._folded)
        self._changes = changes

    def __enter__(self) -> BlockingLiveRows:
        """With the rows of now."""
        self._next()
        return self

    def __exit__(self, *_: object) -> None:
        pass  # Nothing is open between two polls.

    def changed(self) -> None:
        """Waits until they have changed, or reflect more."""
        before = self._folded.offset
        while self._folded.offset == before:
            self._next()

    def reached(self, token: str) -> None:
        """Waits until they reflect a write, whether or not it changed any of them."""
        wanted = tokens.decode(token)
        while not self._reflects(wanted):
            self._next(token)

    def _next(self, token: str = "") -> None:
        self._changes.step(token)
        self._rows = self._folded.rows
