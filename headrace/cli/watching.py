"""A migration, or a rebuild, as a bar at the terminal: what it does, how far it is, how long it may still take.

::

    compute full states from the archive (spark)  ━━━━━━╸     61%  3,100,000 of 5,000,000 rows, stage 1 of 2, 21 s left
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable

from headrace_client.results import Progress
from rich.console import Console
from rich.progress import BarColumn, TaskProgressColumn, TextColumn
from rich.progress import Progress as Bar

_CREATE_VIEW = re.compile(
    r"\s*CREATE\s+(?:OR\s+REPLACE\s+)?(?:EXT\s+)?VIEW\s+(`[^`]+`|[^\s(;]+)[^;]*;?\s*", re.IGNORECASE
)

PLAIN_SECONDS = 5.0
"""Between two lines of progress where no terminal shows a bar."""


def created_view(text: str) -> str | None:
    """The view's name where this is one CREATE VIEW, which may take its time, and nothing else."""
    found = _CREATE_VIEW.fullmatch(text)
    return None if found is None else found[1].strip("`")


def watched(
    console: Console,
    wait: Callable[[Callable[[Progress], None]], Progress],
    cancel: Callable[[], object],
    what: str = "backfilled",
) -> Progress:
    """See a migration through, or a rebuild: ``wait`` is its, and is told whom to tell. Raises what made it fail.

    Where ``console`` is no terminal, a line every few seconds takes the bar's place. Ctrl-C cancels it and waits for
    its end, which may be that it was done already. A second one only stops watching.
    """
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TextColumn("{task.fields[more]}"))
    with Bar(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=1.0, more="")
        told = time.monotonic()

        def tell(progress: Progress) -> None:
            nonlocal told
            step, more = progress.step or progress.state, details(progress)
            bar.update(task, completed=progress.progress, description=step, more=more)
            if not console.is_terminal and time.monotonic() - told >= PLAIN_SECONDS:
                told = time.monotonic()
                console.print(f"{progress.progress:.0%} {step}{', ' if more else ''}{more}", highlight=False)

        try:
            done = wait(tell)
        except KeyboardInterrupt:
            cancel()
            done = wait(tell)
    if done.backfill is not None:
        console.print(f"{what} by {done.backfill}: {done.why}", style="dim", highlight=False)
    return done


def details(progress: Progress) -> str:
    """Rows, stages, time left and the job's page, as far as they are known."""
    parts: list[str] = []
    if progress.rows_total:
        parts.append(f"{progress.rows:,} of {progress.rows_total:,} rows")
    if progress.stages:
        parts.append(f"stage {min(progress.stages_done + 1, progress.stages)} of {progress.stages}")
    if progress.tasks and not progress.rows:
        parts.append(f"task {min(progress.tasks_done + 1, progress.tasks)} of {progress.tasks}")
    if progress.seconds_left is not None:
        parts.append(f"{progress.seconds_left:.0f} s left")
    if progress.ui is not None:
        parts.append(progress.ui)
    return ", ".join(parts)
