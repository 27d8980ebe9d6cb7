"""Reads everything at rest and has it judged; what has not arrived yet is given a while to arrive."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence

from loadgen.drills import program
from loadgen.drills.checking import Base, Findings, Page, Pages, check_base, check_views, expected_pages, settle
from loadgen.drills.http import Lost, NotSent, Request
from loadgen.drills.load import Load
from loadgen.drills.program import STORIES, USERS

AT_ONCE = 40
"""Keys of one look-up."""
AGAIN = 0.2
"""Seconds until what was wrong is looked at again."""


class NotAnswered(Exception):
    """The cluster does not answer, so there is nothing to judge."""


async def prepare(load: Load) -> None:
    """Tables, views, stories; and every page read once, so that it is warm. Raises NotAnswered."""
    await _asked(load, program.sql(program.SCHEMA))
    await _asked(load, program.insert_stories())
    await read_pages(load)


async def judge(load: Load, within: float) -> Findings:
    """Views as they stand, then the base tables, then the views computed anew. Nothing may be under way.

    What is not right is looked at again for ``within`` seconds: links carry the last updates still. Raises
    NotAnswered where the cluster does not answer for as long.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + within
    while True:
        findings, failure = Findings(), None
        try:
            warm = await read_pages(load)
            base = await _read_base(load)
            expected = expected_pages(base, range(STORIES), range(USERS))
            check_base(load.ledger, base, findings)
            check_views(expected, warm, findings)
            if findings.clean:
                await _evict(load)
                check_views(expected, await read_pages(load), findings)
        except NotAnswered as error:
            failure = error
        if failure is None and (findings.clean or loop.time() > deadline):
            if findings.clean:
                settle(load.ledger, base)
            return findings
        if failure is not None and loop.time() > deadline:
            raise failure
        await asyncio.sleep(AGAIN)


async def read_pages(load: Load) -> Pages:
    """All pages of the views that are read under load."""
    pages: Pages = {}
    for view in program.PARAMETERS:
        keys = program.keys_of(view)
        pages |= {(view, key): page for key, page in zip(keys, await _look_up(load, view, keys), strict=True)}
    return pages


async def _read_base(load: Load) -> Base:
    """As the base tables have it: the pages are evicted first, so that none is an old one."""
    stories = range(STORIES)
    for view in program.BASE_VIEWS:
        await _asked(load, program.evict(view, stories))
    entries = await _look_up(load, "EntriesOf", stories)
    revisions = await _look_up(load, "RevisionOf", stories)
    return Base(
        entries=tuple((story, *row) for story, page in zip(stories, entries, strict=True) for row in page),
        revisions={row[0]: row[1] for page in revisions for row in page},
    )


async def _evict(load: Load) -> None:
    for view, parameter in program.PARAMETERS.items():
        if parameter:  # The others are full and have nothing to evict.
            await _asked(load, program.evict(view, program.keys_of(view)))


async def _look_up(load: Load, view: str, keys: Sequence[int | None]) -> list[Page]:
    pages: list[Page] = []
    for first in range(0, len(keys), AT_ONCE):
        body = await _asked(load, program.lookup(view, keys[first : first + AT_ONCE]))
        pages += [tuple(tuple(row.values()) for row in rows) for rows in json.loads(body)["results"]]
    return pages


async def _asked(load: Load, request: Request) -> bytes:
    try:
        answer = await load.ask(request)
    except (NotSent, Lost) as error:
        raise NotAnswered(str(error)) from error
    if answer.status != 200:
        raise NotAnswered(f"{answer.status}: {answer.body.decode(errors='replace')[:300]}")
    return answer.body
