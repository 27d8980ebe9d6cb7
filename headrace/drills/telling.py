"""The drills on a terminal: the list, the run, and what came out."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from secrets import randbelow

from rich.table import Table

from headrace.drills.catalogue import DRILLS, SHORT, Drill
from headrace.drills.loading import DrillFailed
from headrace.drills.possible import NotPossible
from headrace.drills.report import Result
from headrace.drills.running import Plan, run
from headrace.errors import BadRequest
from headrace.render import console

ALL = "all"
SEEDS = 1_000_000


def list_drills() -> None:
    table = Table(box=None, pad_edge=False)
    for heading in ("drill", "what is done"):
        table.add_column(heading)
    for drill in DRILLS.values():
        table.add_row(drill.name, drill.says + (" (short set)" if drill.name in SHORT else ""))
    console().print(table)


def chosen(name: str, *, short: bool) -> list[Drill]:
    """The drills that are meant. Raises BadRequest."""
    if name == ALL:
        return [DRILLS[each] for each in (SHORT if short else DRILLS)]
    if short:
        raise BadRequest("--short chooses among all drills", hint="headrace drill all --short")
    if name not in DRILLS:
        near = get_close_matches(name, DRILLS, 1)
        hint = f'did you mean "{near[0]}"?' if near else "headrace drill --list"
        raise BadRequest(f'there is no drill "{name}"', hint=hint)
    return [DRILLS[name]]


def run_drills(
    drills: Sequence[Drill],
    *,
    rounds: int,
    seed: int | None,
    out: Path,
    data: Path | None,
    rates: tuple[float, float],
) -> bool:
    """Whether everything held. One that is not possible here is skipped among several, and an error alone."""
    printer = console()
    # The drill looks on through a session of its own; that ZooKeeper goes away is what it is about.
    logging.getLogger("headrace.zookeeper").setLevel(logging.ERROR)
    held = True
    for drill in drills:
        chance = randbelow(SEEDS) if seed is None else seed
        at = data if data is None or len(drills) == 1 else data / drill.name
        try:
            result = run(Plan(drill, rounds, chance, out, at, rates), lambda line: printer.print(line, markup=False))
        except NotPossible as error:
            if len(drills) == 1:
                raise
            printer.print(f"{drill.name}: {error}", markup=False)
            continue
        except DrillFailed as error:
            if len(drills) == 1:
                raise
            printer.print(f"{drill.name}: {error}", markup=False, style="bold red")
            held = False
            continue
        show(result, out)
        held = held and result.held
    return held


def show(result: Result, out: Path) -> None:
    document, printer = result.document, console()
    style = "bold green" if result.held else "bold red"
    printer.print(f"{result.drill}:", "held" if result.held else "DID NOT HOLD", style=style)
    wrong = {kind: count for kind, count in document["findings"].items() if count}
    printer.print(
        f"  {document['acknowledged_writes']:,} acknowledged writes, {document['requests']:,} requests; "
        + (f"wrong: {wrong}" if wrong else "nothing missing, doubled or wrong"),
        markup=False,
    )
    for text in (*document["broken"], *document["examples"]):
        printer.print(f"  {text}", markup=False)
    for verdict in result.verdicts:
        seen = "none seen" if verdict.seen is None else f"{verdict.seen:g}"
        met = "" if verdict.met else "  ← missed"
        printer.print(f"  {seen} {verdict.goal} (at most {verdict.limit:g}){met}", markup=False)
    printer.print(f"  {out / result.drill}.json, {out / result.drill}.png", markup=False)
