"""The campaign: cases one after another until the time is over, shrinking and reporting what they find."""

from __future__ import annotations

import json
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import FrameType
from typing import Any

from tests.campaign.cases import Case, case_of, setting_of
from tests.campaign.execution import Execution, Finding, Tally
from tests.campaign.judge import Judge
from tests.campaign.shrink import Recipe, Shrinker
from tests.campaign.statements import Operation
from tests.campaign.subject import Setting, Subject, SubjectFactory

SHRINK_SECONDS = 40.0
CASE_SECONDS = 30.0
"""Of processor time. A case takes a second or two; one that takes this long goes round in circles."""
PATIENCE = 10
"""So many times as long by the clock: a case that waits for what never comes uses no processor, and on a machine that
is shared with others one of two seconds has taken thirty."""
MOST_UNSUPPORTED = 0.25
"""More than this share of refused views, and the campaign would be testing something else than it says."""


@dataclass(frozen=True, slots=True)
class Report:
    """One failure, shrunk."""

    seed: int
    kind: str
    message: str
    script: tuple[str, ...]
    command: str


@dataclass
class Campaign:
    factory: SubjectFactory
    subject_name: str
    domains: int | None = None
    partial: bool | None = None
    shards: int | None = None
    bulk: bool | None = None
    say: Callable[[str], None] = print
    shrink_seconds: float = SHRINK_SECONDS
    tally: Tally = field(default_factory=Tally)
    reports: list[Report] = field(default_factory=list)

    # --- running --------------------------------------------------------------------------------------------------

    def run(self, *, seconds: float, seed: int, failures: int = 1, most_cases: int | None = None) -> bool:
        """True if nothing was found. Stops after ``failures`` findings; one that looks like an earlier one is only
        counted."""
        started = time.monotonic()
        spoken = started
        number = seed
        while time.monotonic() - started < seconds and (most_cases is None or number - seed < most_cases):
            if not self.run_case(number) and len(self.reports) >= failures:
                break
            number += 1
            if time.monotonic() - spoken > 15:
                spoken = time.monotonic()
                self.say(f"  … seed {number}, {self._line(spoken - started)}")
        elapsed = time.monotonic() - started
        self.say(f"seeds {seed} to {number - 1 if not self.reports else number}: {self._line(elapsed)}")
        self._say_unsupported()
        self.say(json.dumps(self.summary(seed, elapsed)))
        return not self.reports and self.unsupported_share <= MOST_UNSUPPORTED

    def run_case(self, seed: int, recipe: Recipe | None = None) -> bool:
        """One case, or what a recipe keeps of it. True if nothing was found."""
        case = self._case(seed)
        operations = recipe.applied(case.operations) if recipe is not None else case.operations
        self.tally.counts["cases"] += 1
        finding, tally, _ = self._attempt(case, operations)
        self.tally.add(tally)
        if finding is None:
            return True
        self.tally.counts["failing cases"] += 1
        if finding.kind != "different" and finding.kind in [report.kind for report in self.reports]:
            return False
        self.say(f"seed {seed} ({_setting_text(case.setting)}): {finding.kind}\n{finding.message}")
        if recipe is None:
            self.say(f"shrinking {len(operations)} operations for at most {self.shrink_seconds:.0f} s …")
            recipe = self._shrunk(case, finding.kind)
        self._report(case, finding, recipe)
        return False

    def _case(self, seed: int) -> Case:
        setting = setting_of(seed)
        if self.domains is not None:
            setting = replace(setting, domains=self.domains)
        if self.shards is not None:
            setting = replace(setting, shards=self.shards)
        if self.partial is not None:
            setting = replace(setting, partial=self.partial)
        if self.bulk is not None:
            setting = replace(setting, bulk=self.bulk)
        return case_of(seed, setting)

    def _attempt(
        self, case: Case, operations: Sequence[Operation], trace: list[str] | None = None
    ) -> tuple[Finding | None, Tally, list[str] | None]:
        subject = self.factory(case.setting)
        judge = Judge()
        execution = Execution(subject, judge, case.seed, trace)
        try:
            with time_limit(CASE_SECONDS):
                execution.run(operations)
        except Finding as finding:
            return finding, execution.tally, trace
        except TooLong:
            return Finding("hangs", f"the case was not over after {CASE_SECONDS:.0f} s"), execution.tally, trace
        finally:
            judge.close()
            subject.close()
            _count_bulk(subject, execution.tally)
        return None, execution.tally, trace

    # --- failures -------------------------------------------------------------------------------------------------

    def _shrunk(self, case: Case, kind: str) -> Recipe:
        def fails(operations: Sequence[Operation]) -> bool:
            finding, _, _ = self._attempt(case, operations)
            return finding is not None and finding.kind == kind

        return Shrinker(case.operations, fails, time.monotonic() + self.shrink_seconds).shrink()

    def _report(self, case: Case, finding: Finding, recipe: Recipe) -> None:
        trace: list[str] = []
        last, _, _ = self._attempt(case, recipe.applied(case.operations), trace)
        finding = last or finding
        command = f"python -m tests.campaign --replay '{case.seed}:{recipe.text()}' --subject {self.subject_name}"
        if self.domains is not None:
            command += f" --domains {self.domains}"
        if self.shards is not None:
            command += f" --shards {self.shards}"
        if self.partial is not None:
            command += " --partial" if self.partial else " --full"
        if self.bulk is not None:
            command += " --bulk" if self.bulk else " --no-bulk"
        self.reports.append(Report(case.seed, finding.kind, finding.message, tuple(trace), command))
        self.say(f"--- the shrunk case ({_setting_text(case.setting)}) ---")
        for line in trace:
            self.say(line if line.startswith("--") else line + ";")
        self.say(f"--- {finding.kind} ---\n{finding.message}\nto run it again:\n{command}")

    # --- figures --------------------------------------------------------------------------------------------------

    @property
    def unsupported_share(self) -> float:
        asked = self.tally.counts["views asked"]
        return self.tally.counts["views unsupported"] / asked if asked >= 40 else 0.0

    def _line(self, elapsed: float) -> str:
        counts = self.tally.counts
        rate = counts["operations"] / elapsed if elapsed else 0.0
        return ", ".join(
            (
                f"{counts['cases']} cases",
                f"{counts['operations']} operations ({rate:.0f}/s)",
                f"{counts['writes']} writes",
                f"{counts['lookups']} look-ups",
                f"{counts['reads compared']} answers compared ({counts['rows compared']} rows)",
                f"{counts['evictions']} evictions",
                f"{counts['restarts']} restarts",
                f"{counts['views']} views",
                f"{elapsed:.0f} s",
            )
        )

    def _say_unsupported(self) -> None:
        asked, refused = self.tally.counts["views asked"], self.tally.counts["views unsupported"]
        if refused:
            self.say(f"unsupported: {refused} of {asked} queries ({100 * refused / asked:.1f} %)")
            for message, number in self.tally.unsupported.most_common(12):
                self.say(f"  {number:5} {message}")
        if self.unsupported_share > MOST_UNSUPPORTED:
            self.say(f"that is more than {MOST_UNSUPPORTED:.0%}: the campaign no longer tests what it says")

    def summary(self, seed: int, elapsed: float) -> dict[str, Any]:
        return {
            "seed": seed,
            "seconds": round(elapsed, 1),
            "subject": self.subject_name,
            **dict(sorted(self.tally.counts.items())),
            "unsupported": dict(self.tally.unsupported.most_common()),
            "findings": [{"seed": r.seed, "kind": r.kind, "command": r.command} for r in self.reports],
        }


class TooLong(BaseException):
    """No Exception: nothing on the way may take it for a failure of its own."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raises TooLong inside the block after so many seconds of processor time, or ``PATIENCE`` times as many by the
    clock. Signals reach the main thread only; elsewhere there is no limit."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise TooLong

    timers = (
        (signal.ITIMER_PROF, signal.SIGPROF, seconds),
        (signal.ITIMER_REAL, signal.SIGALRM, seconds * PATIENCE),
    )
    before = [signal.signal(number, interrupt) for _, number, _ in timers]
    for timer, _, limit in timers:
        signal.setitimer(timer, limit)
    try:
        yield
    finally:
        for (timer, number, _), handler in zip(timers, before, strict=True):
            signal.setitimer(timer, 0)
            signal.signal(number, handler)


def _setting_text(setting: Setting) -> str:
    state = "partial" if setting.partial else "full"
    state += " in bulk" if setting.bulk else ""
    return f"{_count(setting.domains, 'domain')}, {_count(setting.shards, 'shard')}, {state}"


def _count_bulk(subject: Subject, tally: Tally) -> None:
    """How many migrations were carried out in bulk, where the subject does that."""
    in_bulk = getattr(subject, "in_bulk", None)
    if in_bulk is not None:
        tally.counts["bulk migrations"] += in_bulk.ended
        tally.counts["bulk migrations given up"] += in_bulk.begun - in_bulk.ended


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' if number > 1 else ''}"
