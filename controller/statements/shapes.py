"""What is asked without a view of its own, by its shape: how often, at what cost, and whether it pays to keep it.

A *shape* is a SELECT with parameters for its constants: ``WHERE id > 7`` and ``WHERE id > 9`` are one. It is answered
over the base tables each time, until that has cost more than an *automatic view* of it would. The rule, which ``SHOW
QUERIES`` shows for each shape:

* it was asked at least :data:`KEEP_CALLS` times, and answering it has taken :data:`KEEP_SECONDS` in all;
* a view of it can be partial, or reads at most :data:`FULL_ROWS` base rows;
* each constant that is no parameter by itself was the same in these (a shape has a *variant* for each). Where there are
  as many variants as that, one view answers all of them: the constants of all conditions are its parameters, and what
  is no key is applied when it is read.

Automatic views are at most :data:`KEPT_VIEWS`, and :data:`TABLE_VIEWS` that read one table, since each write to it pays
for them. Beyond that one goes for another that was asked :data:`OFTENER` times as often lately, and else none is made:
where more shapes are asked in turns than may be kept, views would be made and dropped all the time. One goes whose
tables are written to :data:`WRITES_AN_ASKING` times and more for each time that it is asked; and the one that was asked
longest ago where all of them hold more bytes than ``max_automatic_size``. Look-ups by a unique key
have none: their table answers them. Where memory is short they go before partial state does, one after the other, and
none is made for :data:`SHORT_SECONDS`. None of them is in the recipe, so a start begins without them.

In a cluster each api process counts what it is asked, and the leader, which counts how often they are asked together,
makes them and holds the limits (``cluster/leader/automatic.py``).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from math import inf
from time import monotonic
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # Settings name the mode, and a command or a worker that reads them has no use for the parser.
    from migrations.statements.statement import SelectStatement

KEEP_CALLS = 4
"""A page that is loaded four times is loaded a fifth time; three could be somebody who tries something out."""
KEEP_SECONDS = 0.005
"""The total cost from which on a shape is kept. Building a view takes some 10 ms, and then it costs something at each
write."""
FULL_ROWS = 100_000
"""Base rows that a view without a key may read: it holds all of its answer."""
KEPT_VIEWS = 64
"""A page of an application asks some ten queries."""
TABLE_VIEWS = 8
"""Each view costs every write to its tables some 10 µs, and an insert takes 400 of the processor: these make it slower
by a fifth at most."""
OFTENER = 4
"""How many times as often a shape must be asked to take a kept one's place. Making one takes some 10 ms, as long as a
hundred answers by it."""
LATELY = 1_000
"""SELECTs."""
WRITES_AN_ASKING = 10
"""A view costs each write to its tables 15 to 35 µs, the latter where it holds what changes; it saves an asking 300."""
WRITES = 1_000
"""After which that is looked at."""
REVIEW_SECONDS = 1.0
"""Seconds between two looks how often tables were written to."""
FOLLOWED_ASKINGS = 1_000
"""A view that is followed counts as asked so often, at its making and whenever a cluster's leader is told."""
SHORT_SECONDS = 60.0
"""After an automatic view went for its bytes: what is made sooner goes at once, and costs its making."""
SHAPES = 500
"""Shapes that are remembered, those asked latest: some kB each."""
TRY_AGAIN = 100
"""SELECTs after which it is tried again to make a view of a whole shape: it is planned for that."""
VARIANTS = 20
"""Variants of a shape that are told apart, those asked latest: the ones that are asked again and again are among them.
"""
SHAPE_CHARACTERS = 2_000
"""Characters of a shape's text that are kept and shown."""
LISTED_CHARACTERS = 4_000
"""Characters of a statement that is listed: there may be 10,000 of them."""
DIGITS = 16
"""Digits of the digest that tells long ones apart."""

OF_NOW = "its answer depends on the time when it is asked"
OF_SESSION = "it may read a temporary table"
DRAWN = "it draws random values each time it is asked"


def never_kept(statement: SelectStatement) -> str:
    """Why no view can answer it; empty where one may."""
    if "`#" in statement.sql:
        return OF_SESSION
    return DRAWN if statement.draws else OF_NOW if statement.of_now else ""


def listed_text(text: str) -> str:
    """A shape's text as it is listed and known by: of one that is long, its beginning and a digest."""
    if len(text) <= SHAPE_CHARACTERS:
        return text
    return f"{text[:SHAPE_CHARACTERS]} … {hashlib.sha256(text.encode()).hexdigest()[:DIGITS]}"


class AdHocMode(StrEnum):
    """What becomes of a SELECT that no view answers."""

    OFF = "off"
    """It is refused."""
    ANSWER = "answer"
    """It is answered, and nothing is kept."""
    KEEP = "keep"
    """It is answered, and an automatic view is made of a shape that pays."""


@dataclass(slots=True)
class Variant:
    """One choice of those constants of a shape that cannot be parameters of a view, and the view that answers it."""

    view_sql: str
    reusable: bool
    """False: values of the user's parameters stand in ``view_sql``."""
    calls: int = 0
    seconds: float = 0.0
    """Seconds that its evaluations took, in all."""
    view: str | None = None
    """The automatic view that answers it now."""
    refused: str = ""
    """Why no view is made of it, where that was tried."""
    waits: str = ""
    """Why none is made now."""
    tables: frozenset[str] = frozenset()
    """The tables that the view reads, while there is one."""
    told: int = 0
    """The number of its calls that the leader of a cluster has been told."""
    general: bool = False
    """Whether it is for all constants of its shape."""
    reviewed: tuple[int, int] | None = None
    """How often its tables had been written to when that was last looked at, and how often it had been asked."""
    followed: int = 0
    """How many live answers of the view there are."""
    is_for_followers: bool = False
    """The view was made for these."""
    lately: int = 0
    """How often it was asked, what is long ago counting less: it is halved after each :data:`LATELY` SELECTs."""

    @property
    def pays(self) -> bool:
        return self.reusable and not self.refused and self.calls >= KEEP_CALLS and self.seconds >= KEEP_SECONDS

    def why(self, mode: AdHocMode, obstacle: str) -> str:
        """Why it is kept, or not; ``obstacle`` says why none is."""
        if self.view is not None:
            return f"kept: it was asked {self.calls} times"
        if obstacle or mode is not AdHocMode.KEEP:
            return f"not kept: {obstacle or f'ad_hoc is {mode}'}"
        if self.refused or self.waits:
            return f"not kept: {self.refused or self.waits}"
        if not self.reusable:
            return "not kept: a parameter of it cannot be one of a view"
        if self.calls < KEEP_CALLS:
            return f"not kept: it was asked {self.calls} times with these constants, and {KEEP_CALLS} are wanted"
        if self.seconds >= KEEP_SECONDS:
            return "not kept yet: it pays, and a view is made of it when it is asked again"
        return f"not kept: it has taken {self.seconds * 1000:.1f} ms in all, and {KEEP_SECONDS * 1000:g} are wanted"


@dataclass(slots=True)
class Shape:
    """A SELECT with all of its constants as parameters, since the start."""

    text: str
    calls: int = 0
    seconds: float = 0.0
    rows: int = 0
    """Rows of all answers that were evaluated."""
    variants: dict[str, Variant] = field(default_factory=dict)
    """Keyed by the name of a view, the one that was asked longest ago first."""
    refused: str = ""
    """Why there is no view for all of its constants, where that was tried."""
    waits_until: int = 0
    """Before so many SELECTs it is not tried again."""

    @property
    def pays(self) -> bool:
        """Whether it is asked again and again, with ever other constants."""
        many = len(self.variants) >= KEEP_CALLS and all(each.view is None for each in self.variants.values())
        return many and not self.refused and self.seconds >= KEEP_SECONDS

    def hottest(self) -> Variant:
        return max(self.variants.values(), key=lambda each: (each.view is not None, each.calls, each.seconds))


@dataclass(slots=True)
class AskedShapes:
    """The shapes that were asked latest, the one asked longest ago first."""

    mode: AdHocMode = AdHocMode.KEEP
    known: dict[str, Shape] = field(default_factory=dict)
    """Keyed by their texts."""
    kept: dict[str, Variant] = field(default_factory=dict)
    """Keyed by their views, the one that was asked longest ago first."""

    askings: int = 0
    short_at: float = -inf
    """When one was dropped because memory was short, or because all of them were too large."""
    now: Callable[[], float] = monotonic

    @property
    def keeps(self) -> bool:
        return self.mode is AdHocMode.KEEP and not self.obstacle

    @property
    def obstacle(self) -> str:
        """Why none is made now, whatever is asked."""
        if self.now() - self.short_at >= SHORT_SECONDS:
            return ""
        return f"one had to go less than {SHORT_SECONDS:g} s ago (memory_limit, max_automatic_size)"

    def asked(self, text: str, name: str, view_sql: str, reusable: bool) -> tuple[Shape, Variant]:
        shape = self.known.pop(text, None) or Shape(text)
        self.known[text] = shape
        variant = shape.variants.pop(name, None) or self.kept.get(name) or Variant(view_sql, reusable)
        shape.variants[name] = variant
        shape.calls += 1
        self._count(variant, 1)
        if name in self.kept:
            self.kept[name] = self.kept.pop(name)
        if len(shape.variants) > VARIANTS:
            del shape.variants[next(iter(shape.variants))]
        if len(self.known) > SHAPES:
            del self.known[next(iter(self.known))]
        return shape, variant

    def _count(self, variant: Variant, times: int) -> None:
        variant.calls += times
        variant.lately += times
        before, self.askings = self.askings, self.askings + times
        if before // LATELY != self.askings // LATELY:
            known = [each for other in self.known.values() for each in other.variants.values()]
            for each in {id(each): each for each in (*known, *self.kept.values())}.values():
                each.lately //= 2

    def asked_elsewhere(self, name: str, times: int) -> None:
        """A view that is kept here was asked in other processes."""
        variant = self.kept.pop(name, None)
        if variant is not None:
            self.kept[name] = variant
            self._count(variant, times)

    def variant(self, text: str, name: str) -> Variant | None:
        """The one of this shape that a view of this name answers."""
        shape = self.known.get(text)
        return None if shape is None else shape.variants.get(name)

    def try_again(self) -> None:
        """What was refused may be had now: there are other tables and indexes."""
        for shape in self.known.values():
            shape.refused = ""
            for variant in shape.variants.values():
                variant.refused = ""

    def uses(self) -> dict[str, int]:
        """How often each of those that are kept was asked since this was last called."""
        for each in self.kept.values():
            each.calls += FOLLOWED_ASKINGS if each.followed else 0
        found = {name: each.calls - each.told for name, each in self.kept.items() if each.calls > each.told}
        for name in found:
            self.kept[name].told = self.kept[name].calls
        return found

    def shown(self, views: Mapping[str, tuple[str, frozenset[str]]]) -> list[str]:
        """The leader of a cluster keeps these: name → SELECT, tables. Answers which it keeps no more."""
        gone = [name for name in self.kept if name not in views]
        for name in gone:
            self.kept.pop(name).view = None
        known = {name: each for shape in self.known.values() for name, each in shape.variants.items()}
        for name, (view_sql, tables) in views.items():
            if name not in self.kept:
                variant = known.get(name)
                if variant is None or variant.general:  # A general one is asked for again by its shape.
                    variant = Variant(view_sql, reusable=True)
                self.keep(name, variant, tables)
        return gone

    def first(self) -> str:
        """The automatic view that goes first: that was asked longest ago, and that nobody follows, if there is one."""
        return min(self.kept, key=lambda name: self.kept[name].followed > 0)

    def keep(self, name: str, variant: Variant, tables: frozenset[str]) -> None:
        variant.view, variant.waits, variant.tables, variant.reviewed = name, "", tables, None
        self.kept[name] = variant

    def too_dear(self, writes: Callable[[frozenset[str]], int]) -> list[str]:
        """The automatic views that cost writes more than they save; they are judged anew from now on. ``writes``: how
        often tables were written to so far."""
        found: list[str] = []
        for name, kept in self.kept.items():
            written = writes(kept.tables)
            before, calls = kept.reviewed or (written, kept.calls)
            since = written - before
            if kept.reviewed is None or not 0 <= since < WRITES:
                kept.reviewed = written, kept.calls
            if not kept.followed and since >= max(WRITES, WRITES_AN_ASKING * (kept.calls - calls)):
                found.append(name)
        for name in found:
            kept = self.kept[name]
            kept.waits = f"its tables were written to {WRITES_AN_ASKING} times and more for each time that it was asked"
            kept.calls, kept.seconds = 0, 0.0
            for shape in self.known.values():
                if name in shape.variants:
                    shape.waits_until = self.askings + TRY_AGAIN
        return found

    def going(self, variant: Variant, tables: frozenset[str]) -> list[str] | None:
        """The automatic views that go where one is made of this variant, which reads these tables. None: it waits,
        since they are asked as often."""
        going: list[str] = []
        limits = [("", KEPT_VIEWS), *((table, TABLE_VIEWS) for table in sorted(tables))]
        for table, most in limits:
            kept = [name for name, each in self.kept.items() if not table or table in each.tables]
            kept.sort(key=lambda name: (self.kept[name].followed > 0, self.kept[name].lately))
            for name in kept[: max(0, len(kept) + 1 - most)]:
                if self.kept[name].followed or self.kept[name].lately * OFTENER > variant.lately:
                    of = f'of the table "{table}" ' if table else ""
                    variant.waits = f"{len(kept)} automatic views {of}are asked about as often (at most {most})"
                    return None
                if name not in going:
                    going.append(name)
        return going
