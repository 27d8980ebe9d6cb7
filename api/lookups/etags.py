"""Tags of answers: what was read names itself, and a write can be done only while it is so still.

``lookup`` answers tags where it is asked for them; ``/v1/sql`` and the writes of rows take them as ``"if"``. Then the
answers are worked out again in the transaction that the write is in, and it is a conflict where one has other rows. So
no session is open in between, and nothing is remembered for who read.

A tag has the view, the key and a digest of the answer's rows, in whatever order they are: of a view without ORDER BY
that means nothing.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from hashlib import blake2b
from typing import Any

import orjson

from controller.access.session import Caller, InSession
from controller.deployment import Deployment, RequestMoment
from controller.transactions.limits import Isolation
from domains.errors import BadRequest, Conflict
from migrations.access.rights import Privilege

MOST_TAGS = 256
"""Of a write: each is an answer that is worked out again."""


def etag_of(view: str, key: Any, page: bytes) -> str:
    """``page``: the rows, as comma-joined JSON objects."""
    rows = sorted(map(orjson.dumps, orjson.loads(b"[" + page + b"]")))
    name = urlsafe_b64encode(orjson.dumps([view, key])).decode().rstrip("=")
    return f"{name}.{blake2b(b','.join(rows), digest_size=12).hexdigest()}"


def _named(tag: str) -> tuple[str, Any]:
    """The view and the key of a tag. Raises BadRequest."""
    name, _, digest = tag.partition(".")
    try:
        view, key = orjson.loads(urlsafe_b64decode(name + "=" * (-len(name) % 4)))
    except (Error, ValueError, TypeError):
        view = None
    if not isinstance(view, str) or not digest:
        raise BadRequest(f'"{tag[:80]}" is no tag of an answer', hint='a look-up with "etags": true answers them')
    return view, key


@asynccontextmanager
async def in_transaction(deployment: Deployment, caller: Caller) -> AsyncIterator[tuple[Caller, InSession | None]]:
    """The caller in a transaction, and the session of that, if it is none that the caller was in already: what is not
    committed of it at the end is rolled back."""
    if caller.transaction is not None:
        yield caller, None
        return
    own = deployment.sessions.alone(caller.account)
    own.begin(isolation=Isolation.SERIALIZABLE)
    try:
        yield replace(caller, session=own), own
    finally:
        await own.roll_back()


async def check_unchanged(deployment: Deployment, tags: Sequence[str], caller: Caller) -> None:
    """:raises Conflict: an answer has other rows now. :raises BadRequest: what is given are no tags."""
    if len(tags) > MOST_TAGS:
        raise BadRequest(f'more than {MOST_TAGS} tags in "if"', hint="read less, or in a transaction")
    for tag in tags:
        view, key = _named(tag)
        caller.check(Privilege.SELECT, view)
        with caller.transaction.reading_to_write("shared"):
            (page,) = await deployment.pages(view, [key], moment=RequestMoment(asker=caller))
        if etag_of(view, key, page) != tag:
            raise Conflict(
                f'the answer of view "{view}" for {orjson.dumps(key).decode()} was changed', hint="read it again"
            )
