"""Reads everything at rest and has it judged; what has not arrived yet is given a while to arrive."""

from __future__ import annotations

import asyncio
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from loadgen.drills.load import program
from loadgen.drills.load.ledger import Fate, Revision, WriteLedger
from loadgen.drills.load.load import DrillLoad
from loadgen.drills.load.program import NEWEST_ROWS, STORIES, TOP_ROWS, USERS, HttpRequest
from loadgen.peers.store import Lost, NotSent

# The judgement: base rows against the ledger, and views against the base rows. Pure.

EXAMPLES_MAX = 20
"""Findings told in words; all are counted."""

Page = tuple[tuple[Any, ...], ...]
Pages = dict[tuple[str, int | None], Page]
"""(view, key) → its rows in the order of the answer, each the values of its columns."""


@dataclass(frozen=True, slots=True)
class BaseRows:
    """The contents of the base tables: rows with their number of copies."""

    entries: tuple[tuple[int, int, int, int], ...]
    """(story, id, user, amount)"""
    revisions: Mapping[int, int]


@dataclass(slots=True)
class Findings:
    """All of the counts must be 0."""

    missing: int = 0
    """Acknowledged, or shown to a reader, and not there."""
    doubled: int = 0
    """There more than once."""
    returned: int = 0
    """Deleted with an acknowledgement, and there."""
    invented: int = 0
    """Refused, altered or never written, and there."""
    reverted: int = 0
    """Revisions that are older than the one that was acknowledged last."""
    wrong_reads: int = 0
    """Pages of views that are not what the base tables say."""
    examples: list[str] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        return not any((self.missing, self.doubled, self.returned, self.invented, self.reverted, self.wrong_reads))

    def note(self, kind: str, text: str) -> None:
        setattr(self, kind, getattr(self, kind) + 1)
        if len(self.examples) < EXAMPLES_MAX:
            self.examples.append(f"{kind.replace('_', ' ')}: {text}")

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def check_base(ledger: WriteLedger, base: BaseRows, findings: Findings) -> None:
    """Hold what is there against what was written."""
    there = Counter(number for _, number, _, _ in base.entries)
    for number, entry in ledger.entries.items():
        count = there[number]
        if count == 0 and entry.must_be_there:
            findings.note("missing", f"entry {number} of story {entry.story}, {entry.written}, seen: {entry.seen}")
        elif count and not entry.may_be_there:
            deleted = entry.deleted is Fate.DONE
            findings.note("returned" if deleted else "invented", f"entry {number} of story {entry.story}")
        elif count > 1:
            findings.note("doubled", f"entry {number} of story {entry.story} is there {count} times")
    _check_written(ledger, base, findings)
    for story, register in ledger.revisions.items():
        found = base.revisions.get(story)
        if found != register.done and found not in register.unknown:
            findings.note("reverted", f"story {story} has revision {found}, acknowledged was {register.done}")


def check_copy(before: WriteLedger, after: WriteLedger, base: BaseRows, findings: Findings) -> None:
    """Hold a copy against what was known when it was asked for, and what has been asked for until it was there."""
    there = Counter(number for _, number, _, _ in base.entries)
    for number, entry in after.entries.items():
        count, known = there[number], before.entries.get(number)
        if count == 0 and known is not None and known.must_be_there and entry.deleted is Fate.REFUSED:
            findings.note("missing", f"entry {number} of story {entry.story}, {known.written}, seen: {known.seen}")
        elif count and known is not None and known.deleted is Fate.DONE:
            findings.note("returned", f"entry {number} of story {entry.story}")
        elif count and entry.written is Fate.REFUSED and not entry.seen:
            findings.note("invented", f"entry {number} of story {entry.story}")
        elif count > 1:
            findings.note("doubled", f"entry {number} of story {entry.story} is there {count} times")
    _check_written(after, base, findings)
    for story, register in before.revisions.items():
        found, last = base.revisions.get(story, -1), after.revisions[story].last
        if not register.done <= found <= last:
            findings.note("reverted", f"story {story} has revision {found}, not {register.done} to {last}")


def _check_written(ledger: WriteLedger, base: BaseRows, findings: Findings) -> None:
    for story, number, user, amount in base.entries:
        written = ledger.entries.get(number)
        if written is None or (written.story, written.user, written.amount) != (story, user, amount):
            findings.note("invented", f"row {(story, number, user, amount)} was not written so")


def settle(ledger: WriteLedger, base: BaseRows) -> None:
    """Unknown writes are known now: there or not. From here on it must stay so."""
    there = {number for _, number, _, _ in base.entries}
    for number, entry in ledger.entries.items():
        if number in there:
            entry.written, entry.deleted = Fate.DONE, Fate.REFUSED
        elif entry.written is Fate.DONE:
            entry.deleted = Fate.DONE
        else:
            entry.written, entry.seen = Fate.REFUSED, False
    for story, revision in base.revisions.items():
        last = ledger.revisions[story].last if story in ledger.revisions else 0
        ledger.revisions[story] = Revision(done=revision, last=last)


def check_views(expected: Pages, found: Pages, findings: Findings) -> None:
    for (view, key), page in expected.items():
        got = found.get((view, key))
        if got != page:
            findings.note("wrong_reads", f"{view}({'' if key is None else key}) is {got}, and should be {page}")


def expected_pages(base: BaseRows, stories: Iterable[int], users: Iterable[int]) -> Pages:
    """The right answers of the views of ``program.py`` over these base rows."""
    by_story: dict[int, list[tuple[int, int]]] = defaultdict(list)
    by_user: dict[int, list[int]] = defaultdict(list)
    for story, number, user, amount in base.entries:
        by_story[story].append((number, amount))
        by_user[user].append(amount)
    pages: Pages = {}
    for story in stories:
        rows = by_story.get(story, [])
        total = sum(amount for _, amount in rows) if rows else None
        known = story in base.revisions
        pages["StoryTotals", story] = ((story, base.revisions[story], len(rows), total),) if known else ()
        pages["Newest", story] = tuple(sorted(rows, reverse=True)[:NEWEST_ROWS])
    for user in users:
        amounts = by_user.get(user, [])
        pages["UserTotals", user] = ((user, len(amounts), sum(amounts)),) if amounts else ()
    everything = base.entries
    last = max((number for _, number, _, _ in everything), default=None)
    pages["Totals", None] = ((len(everything), sum(row[3] for row in everything) if everything else None, last),)
    ranked = sorted((-len(rows), story) for story, rows in by_story.items() if rows)[:TOP_ROWS]
    pages["Top", None] = tuple((story, -count) for count, story in ranked)
    return pages


AT_ONCE = 40
"""Keys of one look-up."""
AGAIN = 0.2
"""Seconds until what was wrong is looked at again."""


class NotAnswered(Exception):
    """The cluster does not answer, so there is nothing to judge."""


async def prepare(load: DrillLoad) -> None:
    """Tables, views, stories; and every page read once, so that it is warm. Raises NotAnswered."""
    await _asked(load, program.sql(program.SCHEMA))
    await _asked(load, program.insert_stories())
    await read_pages(load)


async def judge(load: DrillLoad, within: float) -> Findings:
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


async def read_pages(load: DrillLoad) -> Pages:
    """All pages of the views that are read under load."""
    pages: Pages = {}
    for view in program.PARAMETERS:
        keys = program.keys_of(view)
        pages |= {(view, key): page for key, page in zip(keys, await _look_up(load, view, keys), strict=True)}
    return pages


async def _read_base(load: DrillLoad) -> BaseRows:
    """Read what the base tables have: the pages are evicted first, so that none is an old one."""
    stories = range(STORIES)
    for view in program.BASE_VIEWS:
        await _asked(load, program.evict(view, stories))
    entries = await _look_up(load, "EntriesOf", stories)
    revisions = await _look_up(load, "RevisionOf", stories)
    return BaseRows(
        entries=tuple((story, *row) for story, page in zip(stories, entries, strict=True) for row in page),
        revisions={row[0]: row[1] for page in revisions for row in page},
    )


async def _evict(load: DrillLoad) -> None:
    for view, parameter in program.PARAMETERS.items():
        if parameter:  # The others are full and have nothing to evict.
            await _asked(load, program.evict(view, program.keys_of(view)))


async def _look_up(load: DrillLoad, view: str, keys: Sequence[int | None]) -> list[Page]:
    pages: list[Page] = []
    for first in range(0, len(keys), AT_ONCE):
        body = await _asked(load, program.lookup(view, keys[first : first + AT_ONCE]))
        pages += [tuple(tuple(row.values()) for row in rows) for rows in json.loads(body)["results"]]
    return pages


async def _asked(load: DrillLoad, request: HttpRequest) -> bytes:
    try:
        answer = await load.ask(request)
    except (NotSent, Lost) as error:
        raise NotAnswered(str(error)) from error
    if answer.status != 200:
        raise NotAnswered(f"{answer.status}: {answer.body.decode(errors='replace')[:300]}")
    return answer.body
