"""The servers that are measured, each in a process of its own: ``python -m loadgen.bench.serving KIND STORIES DIR``.

``headrace`` is the server of ``headrace serve`` with the program and all keys filled, and ``keyed`` the same with
accounts, for whoever shows the key KEY. ``constant`` answers any request
with the bytes of one page, and ``dictionary`` answers look-ups out of a dict: the least that a server in Python can do.
All run under the same uvicorn with the same settings. The port is printed when requests are taken.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import orjson

from api.app import create_app
from controller.access.accounts import Account, ApiKey
from controller.access.keeper import Keeper
from controller.access.passwords import Passwords, key_digest, new_id
from controller.embedded.local import LocalDeployment
from headrace.serving.listening import address, listen
from headrace.serving.server import HttpServer, Running, config
from headrace.settings import Settings
from loadgen.bench.program import KEY, TABLES, VIEW, VIEWS, load, story
from migrations.access.rights import Privilege, Rights
from zookeeper.accounts import FileAccounts

_HEADERS = [(b"content-type", b"application/json")]


def page(number: int) -> bytes:
    """The JSON of one story with one vote, as the engine writes it."""
    id, author, title, url = story(number)
    return orjson.dumps({"id": id, "author": author, "title": title, "url": url, "vcount": 1})


class ConstantPage:
    """Any request is answered with the bytes of one page."""

    def __init__(self) -> None:
        self._body = b'{"rows":[' + page(1) + b"]}"

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await _answer(send, self._body)


class Dictionary:
    """Look-ups of many keys: parse the request, read a dict, join bytes."""

    def __init__(self, stories: int) -> None:
        self._pages = {number: page(number) for number in range(1, stories + 1)}

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        pages = self._pages
        found = [pages[key[0]] for key in orjson.loads(body)["keys"]]
        await _answer(send, b'{"results":[[' + b"],[".join(found) + b"]]}")


async def _answer(send: Any, body: bytes) -> None:
    headers = [*_HEADERS, (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _accounts(directory: Path) -> Keeper:
    """An account that may read the view, by a key."""
    keeper = Keeper(FileAccounts(directory), Passwords())
    await keeper.start()
    rights = Rights({VIEW.lower(): frozenset({Privilege.SELECT})})
    reader = Account("reader", new_id(), rights=rights, keys=(ApiKey(new_id(), "", key_digest(KEY)),))
    await keeper.change("reader", lambda before: reader)
    return keeper


async def _serve(kind: str, stories: int, directory: Path) -> None:
    settings = Settings(data=directory)
    deployment = None
    app: Any
    if kind in ("headrace", "keyed"):
        deployment = await LocalDeployment.open(directory, memory_limit=2**32)
        await deployment.execute(TABLES + VIEWS)
        await load(deployment, "stories", (story(number) for number in range(1, stories + 1)))
        await load(deployment, "votes", ((0, number) for number in range(1, stories + 1)))
        for start in range(1, stories + 1, 1_000):
            await deployment.pages(VIEW, [[n] for n in range(start, min(start + 1_000, stories + 1))])
        if kind == "keyed":
            deployment.accounts = await _accounts(directory)
        app = create_app(deployment)
    else:
        app = ConstantPage() if kind == "constant" else Dictionary(stories)

    def started(running: Running) -> None:
        print(running.url.rpartition(":")[2], flush=True)

    with listen("127.0.0.1", 0) as listening:
        await HttpServer(config(app, settings), address(listening), started).serve([listening])
    if deployment is not None:
        await deployment.close()


if __name__ == "__main__":
    factory = config(None, Settings(data=Path(sys.argv[3]))).get_loop_factory()
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(_serve(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])))
