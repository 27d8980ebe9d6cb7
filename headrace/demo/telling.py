"""The story itself: one page of the site is read for the first time, and what follows from that."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from pathlib import Path
from statistics import median
from typing import TypeVar
from urllib.parse import urlsplit

import orjson
from headrace_client.connection import Connection
from headrace_client.results import Record
from rich.console import Console
from rich.padding import Padding
from rich.progress import BarColumn, Progress, TextColumn
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from headrace.settings import Settings
from lobsters.data import Data

# How the demo looks: a column of text with rules, small tables and times, in colour where there is a terminal.

WIDTH = 100
"""Lines of prose longer than this are hard to read; a narrower terminal wins."""

INDENT = 3


class Printer:
    """Prints the parts of the story, each as it happens."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(highlight=False, emoji=False)
        if self.console.width > WIDTH or not self.console.is_terminal:
            self.console.width = WIDTH

    def title(self, text: str, subtitle: str) -> None:
        self.console.print()
        self.console.print(Text.assemble((" ≋ ", "bold cyan"), (text, "bold")))
        self._line(Text(subtitle, style="dim"))
        self.console.print()

    def fact(self, name: str, *parts: str | tuple[str, str]) -> None:
        """``name`` and what there is to say of it, in one line."""
        self._line(Text.assemble((f"{name:<10}", "cyan"), *parts))

    def heading(self, number: int, text: str) -> None:
        self.console.print()
        self.console.print(Rule(Text(f" {number}  {text} ", style="bold"), align="left", style="cyan"))

    def say(self, text: str) -> None:
        """A paragraph; the markup ``[b]`` and ``[i]`` is for words that are explained."""
        self.console.print()
        for line in Text.from_markup(text).wrap(self.console, self.console.width - INDENT):
            line.rstrip()
            self._line(line)

    def request(self, method: str, path: str, body: str = "") -> None:
        self.console.print()
        self._line(Text.assemble((f"{method} ", "bold magenta"), (path, "magenta"), (f"  {body}" if body else "", "")))

    def outcome(self, what: str, style: str, milliseconds: float | None = None, note: str = "") -> None:
        """``● miss   4.31 ms   note``"""
        time = "" if milliseconds is None else f"{milliseconds:8.2f} ms"
        self._line(Text.assemble(("● ", style), (f"{what:<9}", f"bold {style}"), (time, "bold"), (f"   {note}", "dim")))

    def table(self, columns: Sequence[tuple[str, str]], rows: Iterable[Sequence[str | Text]]) -> None:
        """``columns`` are (title, ``left`` or ``right``)."""
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
        for title, justify in columns:
            table.add_column(title, justify="right" if justify == "right" else "left", no_wrap=justify == "right")
        for row in rows:
            table.add_row(*row)
        self.console.print(Padding(table, (0, 0, 0, INDENT), expand=False))

    def tree(self, lines: Sequence[str], left_out: int) -> None:
        """A view's dataflow: one line a node, cut at the edge, what is partial in colour."""
        room = self.console.width - INDENT
        for line in lines:
            cut = line if len(line) <= room else _without_middle(line, room)
            text = Text(cut, style="dim")
            text.highlight_regex(r"partial by .*$", "bold yellow")
            text.highlight_regex(r"full by \([^)]*\)", "cyan")
            self._line(text)
        if left_out:
            self._line(Text(f"… {left_out} more lines", style="dim italic"))

    def command(self, comment: str, line: str) -> None:
        """A line for the reader's own terminal, never wrapped, so that it can be copied whole."""
        self.console.print()
        self._line(Text(f"# {comment}", style="dim"))
        self._line(Text(line))

    def progress(self) -> Progress:
        """A bar that stays when it is full. Where there is no terminal it is printed once, at the end."""
        return Progress(
            TextColumn(" " * INDENT + "[cyan]{task.description:<9}[/]"),
            BarColumn(bar_width=32, complete_style="cyan", finished_style="cyan"),
            TextColumn("{task.completed:,.0f}/{task.total:,.0f} rows"),
            TextColumn("[dim]{task.fields[note]}[/]"),
            console=self.console,
        )

    def blank(self) -> None:
        self.console.print()

    def _line(self, text: Text) -> None:
        """One line, however long: the terminal may wrap it, we do not."""
        self.console.print(Text(" " * INDENT).append_text(text), soft_wrap=True)


def _without_middle(line: str, room: int) -> str:
    """The line cut to ``room`` characters; what it says of state, after the double space at its end, stays."""
    operator, gap, state = line.rpartition("  ")
    kept = room - len(gap + state) - 1
    if not gap or kept < room // 3:
        return line[: room - 1] + "…"
    return operator[:kept] + "…" + gap + state


VIEW = "story_by_short_id"
HITS = 200
"""Reads of which the median is shown as the time of a hit: one alone says more of the machine than of Headrace."""

TREE_LINES = 14
"""The view's own part of the dataflow; below stand the base tables and what other views keep."""

Answer = TypeVar("Answer")


def timed(act: Callable[[], Answer]) -> tuple[Answer, float]:
    """The answer, and its time in milliseconds."""
    started = time.perf_counter()
    answer = act()
    return answer, (time.perf_counter() - started) * 1000


class Then(Enum):
    """The server's state when the story is told."""

    ENDS = "This run ends here. A demo without [b]--once[/b] leaves its server running for these lines:"
    SERVES_ON = "The server keeps running. From another terminal:"
    WAS_THERE = "The server goes on as it was. For it, from here:"


class Story:
    """Tells of one story of the site: ``number`` is its id, ``short_id`` its name in the page's address."""

    def __init__(self, db: Connection, url: str, data: Data, printer: Printer) -> None:
        self._db = db
        self._url = url
        self._data = data
        self._printer = printer
        self._view = db.view(VIEW)
        front = [row["story_id"] for row in db.view("frontpage_ids").lookup()]
        generated = [story for story in front if story <= data.shape.stories]
        self.number = max(generated, key=lambda story: data.story_votes[story - 1])
        self.short_id = str(db.view("stories_by_id").lookup(id=[self.number])[0]["short_id"])
        self.path = f"/v1/views/{VIEW}?short_id={self.short_id}"

    def tell(self, then: Then) -> None:
        self._warm_up()
        miss = self._miss()
        self._upquery()
        self._hit(miss)
        self._vote()
        self._eviction()
        self._how_to_go_on(then)

    # --- the acts ---------------------------------------------------------------------------------------------------

    def _warm_up(self) -> None:
        """Ask for a story that is not there, so that the first time shown is not that of a cold connection."""
        self._view.lookup(short_id="none")

    def _miss(self) -> float:
        printer = self._printer
        printer.heading(1, "A miss")
        printer.say(
            "A story's page asks for the story with its votes and its number of comments. No column holds these: "
            f"[b]{VIEW}[/b] is SQL over the votes and comments themselves. Nobody has asked for this story yet, so "
            "there is a [b]hole[/b] where its answer would be."
        )
        self._filled_before = self._fills()
        rows, took = timed(lambda: self._view.lookup(short_id=self.short_id))
        printer.request("GET", self.path)
        printer.outcome("miss", "yellow", took, "computed now, and kept")
        self._show(rows[0])
        return took

    def _upquery(self) -> None:
        printer = self._printer
        printer.heading(2, "Its upquery")
        entries = self._fills() - self._filled_before
        printer.say(
            "The hole was filled by asking upwards: each operator looked up what it needed from the one above, down to "
            f"the rows of the base tables that this story has, and no others. [b]{entries} entries[/b] were filled on "
            "the way, in the nodes that are [b]partial[/b]:"
        )
        printer.request("GET", f"/v1/views/{VIEW}/explain")
        lines = self._view.explain().splitlines()
        printer.tree(lines[:TREE_LINES], left_out=max(0, len(lines) - TREE_LINES))

    def _hit(self, miss: float) -> None:
        printer = self._printer
        printer.heading(3, "The hit after it")
        printer.say(
            "The same request again is one look-up in a memory-mapped file: no dataflow, no SQL, no lock. Most of the "
            "time is HTTP's."
        )
        took = median(timed(lambda: self._view.lookup(short_id=self.short_id))[1] for _ in range(HITS))
        printer.request("GET", self.path)
        printer.outcome("hit", "green", took, f"median of {HITS}")
        printer.say("A hit costs the same whatever its query is made of. For the story's author:")
        author = self._read()["user_id"]
        printer.table(
            [("view", "left"), ("made of", "left"), ("miss", "right"), ("hit", "right")],
            [
                (VIEW, "a story's votes and comments", _ms(miss), _ms(took)),
                self._both("stats_of_user", "votes on all that the author wrote", author),
                self._both("notifications_of_user", "replies by others, not read yet", author),
            ],
        )

    def _both(self, name: str, made_of: str, user: int) -> tuple[str, str, str, str]:
        """A row of the table: a view by user, its first read and the ones after it."""
        view = self._db.view(name)
        _, miss = timed(lambda: view.lookup(user_id=user))
        hit = median(timed(lambda: view.lookup(user_id=user))[1] for _ in range(HITS))
        return name, made_of, _ms(miss), _ms(hit)

    def _vote(self) -> None:
        printer = self._printer
        printer.heading(4, "A vote changes the answer")
        printer.say(
            "One row into [b]votes[/b]. Nothing is invalidated: the row flows down to every answer that it is a part "
            "of. The write answers a [b]token[/b]; a read that carries it waits until it reflects the write."
        )
        before, before_hotness = self._read(), self._hotness()
        row = {"user_id": self._voter(), "story_id": self.number, "vote": 1}
        written, took = timed(lambda: self._db.table("votes").insert(row))
        printer.request("POST", "/v1/tables/votes/rows", _json({"rows": [row]}))
        printer.outcome("written", "cyan", took, f"on disk; token {_shortened(written.token)}")
        rows, took = timed(lambda: self._view.lookup(short_id=self.short_id, token=written.token))
        after = rows[0]
        assert after["score"] == before["score"] + 1, "a view does not reflect the write whose token it was given"
        printer.request("GET", self.path, f"Headrace-Token: {_shortened(written.token)}")
        printer.outcome("hit", "green", took, "no recomputation")
        printer.table(
            [("", "left"), ("before", "right"), ("after", "right")],
            [
                ("upvotes", str(before["upvotes"]), Text(str(after["upvotes"]), style="bold green")),
                ("score", str(before["score"]), Text(str(after["score"]), style="bold green")),
                ("hotness on the front page", before_hotness, Text(self._hotness(), style="bold green")),
            ],
        )

    def _eviction(self) -> None:
        printer = self._printer
        printer.heading(5, "An eviction")
        printer.say(
            "Memory is finite, so answers that nobody reads are forgotten, the longest unread first. Here by hand. "
            "A forgotten answer is a hole again, never a wrong answer: the next read is a miss."
        )
        count, took = timed(lambda: self._view.evict([(self.short_id,)]))
        assert count == 1, f"{count} keys were evicted, not 1"
        printer.request("POST", f"/v1/views/{VIEW}/evict", _json({"keys": [[self.short_id]]}))
        printer.outcome("evicted", "red", took, f"{count} key")
        rows, took = timed(lambda: self._view.lookup(short_id=self.short_id))
        printer.request("GET", self.path)
        printer.outcome("miss", "yellow", took, f"score {rows[0]['score']}, as before")
        took = median(timed(lambda: self._view.lookup(short_id=self.short_id))[1] for _ in range(HITS))
        printer.outcome("hit", "green", took, "and from now on again")

    def _how_to_go_on(self, then: Then) -> None:
        printer, url = self._printer, self._url
        printer.heading(6, "How to go on")
        author = self._read()["user_id"]
        select = f"SELECT title, score FROM story_with_votes WHERE user_id = {author} ORDER BY score DESC LIMIT 5"
        vote = _json({"rows": [{"user_id": self._voter(), "story_id": self.number, "vote": 1}]})
        printer.say(then.value)
        printer.command("read a view", f"curl '{url}{self.path}'")
        printer.command("vote", f"curl {url}/v1/tables/votes/rows -d '{vote}'")
        printer.command(
            "run any SQL: it is answered at once, and kept fresh if it is asked often",
            f"curl {url}/v1/sql -d '{_json({'sql': select})}'",
        )
        printer.command("the same as a table", f'{_headrace()} sql "{select}"{_url_option(url)}')
        printer.command("see a view's dataflow", f"curl -H 'accept: text/plain' {url}/v1/views/frontpage_ids/explain")
        printer.command("health, memory, counters", f"curl {url}/v1/status")
        if then is Then.SERVES_ON:
            printer.say(f"All calls: [b]{url}/docs[/b]. Stop with [b]Ctrl-C[/b].")
        printer.blank()

    # --- what the acts need -----------------------------------------------------------------------------------------

    def _read(self) -> Record:
        return self._view.lookup(short_id=self.short_id)[0]

    def _show(self, row: Record) -> None:
        self._printer.table(
            [
                ("story", "left"),
                ("upvotes", "right"),
                ("downvotes", "right"),
                ("score", "right"),
                ("comments", "right"),
            ],
            [(row["title"], *(str(row[each]) for each in ("upvotes", "downvotes", "score", "comments_count")))],
        )

    def _hotness(self) -> str:
        ranked = [(row["story_id"], row["hotness"]) for row in self._db.view("frontpage_ids").lookup()]
        for rank, (story, hotness) in enumerate(ranked, 1):
            if story == self.number:
                return f"{-hotness:.4f}, place {rank}"
        return "not on it"

    def _voter(self) -> int:
        """A user who has not voted on the story yet."""
        mine = self._db.view("story_votes_of_user")
        users = range(1, self._data.shape.users + 1)
        return next(user for user in users if not mine.lookup(user_id=user, story_id=[self.number]))

    def _fills(self) -> int:
        return int(self._db.status()["counters"]["fills"])


def _ms(milliseconds: float) -> str:
    return f"{milliseconds:.2f} ms"


def _json(value: object) -> str:
    return orjson.dumps(value).decode()


def _shortened(token: str) -> str:
    return token if len(token) <= 16 else f"{token[:15]}…"


def _headrace() -> str:
    """The command as the user's shell finds it."""
    if shutil.which("headrace"):
        return "headrace"
    beside, here = Path(sys.executable).parent / "headrace", Path.cwd()
    if not beside.exists():
        return f"{sys.executable} -m headrace"
    return str(beside.relative_to(here)) if beside.is_relative_to(here) else str(beside)


def _url_option(url: str) -> str:
    """The options with which ``headrace sql`` finds this server."""
    return "" if urlsplit(url).port == Settings.model_fields["port"].default else f" --url {url}"
