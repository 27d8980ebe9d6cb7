"""A load run on a terminal: progress while it goes, a line for each rate, the verdict, and where the report is."""

from __future__ import annotations

from pathlib import Path

import uvloop
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.table import Table

from headrace.errors import HeadraceError
from headrace.render import console
from loadgen.pace.loop import Glimpse
from loadgen.pace.point import Point
from loadgen.peers.store import LoadRunError
from loadgen.report import page
from loadgen.running import LoadRun, RunOptions, RunResult

KINDS_SHOWN = 14


class LoadFailed(HeadraceError):
    """A load run cannot begin."""

    code = "load_failed"


class Terminal:
    """Shows a run as it goes (``loadgen.running.RunTeller``)."""

    def __init__(self, unit: str) -> None:
        self.console = console(stderr=True)
        self._unit = unit
        self._progress = Progress(
            TextColumn("{task.description:<26}"),
            BarColumn(bar_width=24, complete_style="cyan", finished_style="cyan"),
            TextColumn("[dim]{task.fields[note]}[/]"),
            console=self.console,
            transient=True,
        )
        self._task: TaskID | None = None
        self._rate = 0.0

    def start(self) -> None:
        self._progress.start()

    def stop(self) -> None:
        self._progress.stop()

    def loading(self, what: str, done: int, total: int) -> None:
        self._show("loading", done, total, f"{done:,} of {total:,} rows: {what}")

    def begins(self, rate: float) -> None:
        if self._task is not None:
            self._progress.remove_task(self._task)
            self._task = None
        self._rate = rate

    def glimpse(self, glimpse: Glimpse) -> None:
        note = (
            f"{glimpse.answered:,} answered, {glimpse.waiting:,} under way or waiting, "
            f"p95 {glimpse.recent_p95_ms:,.1f} ms" + (f", {glimpse.failed:,} failed" if glimpse.failed else "")
        )
        self._show(f"{self._rate:,.0f} {self._unit}/s", min(glimpse.elapsed, glimpse.total), glimpse.total, note)

    def ended(self, point: Point) -> None:
        self.console.print(line_of(point, self._unit), markup=False, soft_wrap=True)

    def _show(self, what: str, done: float, total: float, note: str) -> None:
        if self._task is None:
            self._task = self._progress.add_task(what, total=total, note=note)
        self._progress.update(self._task, description=what, completed=done, total=total, note=note)


def run(options: RunOptions, out: Path) -> RunResult:
    """Run, tell, and write JSON and HTML, whatever of it was measured. Raises LoadFailed."""
    teller = Terminal("pages" if options.workload == "lobsters" else "requests")
    going = LoadRun(options, teller)
    printer = console()
    teller.console.print(f"seed {options.seed}", style="dim")
    teller.start()
    try:
        result = uvloop.run(going.execute())
    except LoadRunError as error:
        raise LoadFailed(error.message, hint=error.hint) from error
    except KeyboardInterrupt:
        going.result.cut = True
        result = going.result
    finally:
        teller.stop()
    written = _write(result, out)
    for point in result.points[-1:]:
        printer.print(kinds_table(point))
    for text, style in verdict(result):
        printer.print(text, style=style, markup=False, soft_wrap=True)
    printer.print(f"written: {', '.join(map(str, written))}", style="dim", soft_wrap=True)
    return result


def _write(result: RunResult, out: Path) -> list[Path]:
    options = result.options
    kind = options.target.partition(":")[0]
    name = "-".join((options.workload, "headrace" if kind == "http" else kind, options.variant))
    path = out / f"{name}.json"
    result.write(path)
    html = path.with_suffix(".html")
    page.write(result.document(), html)
    return [path, html]


def line_of(point: Point, unit: str) -> str:
    times, cpu = point.all.sojourn, point.cpu_ms_each
    cost = "" if cpu is None else f", server CPU {cpu:.3f} ms each"
    kept_up = "sustained" if point.sustained else "not valid" if not point.valid else "not sustained"
    return (
        f"{point.offered:,.1f} {unit}/s offered, {point.achieved:,.1f} achieved: mean {times.mean:,.1f} ms, "
        f"p50 {times.p50:,.1f}, p95 {times.p95:,.1f}, p99 {times.p99:,.1f}{cost}, "
        f"generator {point.generator_cpu:.0%} of a core: {kept_up}"
    )


def kinds_table(point: Point) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for title in ("kind", "count", "sojourn p50", "p95", "p99", "max", "service p50", "p95", "p99", "max"):
        table.add_column(title, justify="left" if title == "kind" else "right")
    for name, kind in list(point.kinds.items())[:KINDS_SHOWN]:
        times = [f"{getattr(each, part):,.2f}" for each in (kind.sojourn, kind.service) for part in _PARTS]
        table.add_row(name, f"{kind.service.count:,}", *times)
    return table


_PARTS = ("p50", "p95", "p99", "max")


def verdict(result: RunResult) -> list[tuple[str, str]]:
    """Lines with their styles."""
    lines: list[tuple[str, str]] = []
    if result.cut:
        lines.append(("ended early; what was measured until then is written", "yellow"))
    if not result.points:
        return [*lines, ("nothing was measured", "red")]
    last = result.points[-1]
    lines += [(f"{times:,} × {text}", "yellow") for text, times in last.errors.items()]
    lines += [(f"nothing is known of the processes of {each}", "yellow") for each in last.unseen]
    lines += [(f"{name.replace('_', ' ')}: {value}", "") for name, value in last.notes.items()]
    if result.options.sweep:
        best = result.sustained
        if best is not None:
            lines.append((f"sustained: {best.offered:,.0f} {result.unit} a second", "green"))
            return lines
        lines.append(("no rate was sustained", "red"))
    lines += [(f"not valid: {each}", "red") for each in last.doubts]
    if not last.doubts:
        lines.append(("valid", "green"))
    return lines


def is_good(result: RunResult) -> bool:
    """Whether there is something that may be believed."""
    if result.options.sweep:
        return result.sustained is not None
    return bool(result.points) and result.points[-1].valid
