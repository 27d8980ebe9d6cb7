"""The command line: many seeds one after another, or one of them again with its trace."""

from __future__ import annotations

import argparse
import gc
import json
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from tests.cluster_simulation.scenario import Scenario

TRACE_LINES = 60


def run_seed(seed: int, totals: Counter[str] | None = None, *, trace: bool = False, calm: bool = False) -> str | None:
    """What is wrong, with the end of the trace; None where nothing is."""
    with collected():
        return _run(seed, Counter() if totals is None else totals, trace, calm)


def _run(seed: int, totals: Counter[str], trace: bool, calm: bool) -> str | None:
    scenario = Scenario(seed, calm=calm)
    problem = None
    try:
        scenario.run()
    except Exception as error:
        text = "".join(traceback.format_exception(error)) if trace else f"{type(error).__name__}: {error}"
        problem = f"seed {seed} ({scenario.size}): {text}"
    lines = [f"{at:9.4f}  {line}" for at, line in scenario.cluster.trace]
    if trace:
        print("\n".join(lines))
    totals.update(scenario.counts)
    totals["events"] += scenario.loop.steps
    totals["simulated milliseconds"] += int((scenario.loop.time() - 1000) * 1000)
    if problem is not None and not trace:
        problem += "\n" + "\n".join(lines[-TRACE_LINES:])
    return problem


@contextmanager
def collected() -> Iterator[None]:
    """What a simulation leaves is collected at its end, and not within the next one: a task that never ended is closed
    then, and what it does at that has no loop to be done on."""
    gc.disable()
    before, sys.unraisablehook = sys.unraisablehook, lambda _: None
    try:
        yield
    finally:
        gc.collect()
        sys.unraisablehook = before
        gc.enable()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster_simulation", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seeds", type=int, help="so many, however long it takes")
    parser.add_argument("--replay", type=int, metavar="SEED", help="this one alone")
    parser.add_argument("--trace", action="store_true", help="all that happened in it")
    parser.add_argument("--failures", type=int, default=1, help="go on until so many are found")
    parser.add_argument("--calm", action="store_true", help="nothing goes wrong: to see that the simulation itself is right")
    given = parser.parse_args()
    if given.replay is not None:
        problem = run_seed(given.replay, trace=given.trace, calm=given.calm)
        print(problem or f"seed {given.replay}: nothing is wrong")
        sys.exit(problem is not None)
    sys.exit(not campaign(given.seconds, given.seed, given.seeds, given.failures, given.calm))


def campaign(seconds: float, seed: int, seeds: int | None, failures: int, calm: bool = False) -> bool:
    began, number, failed = time.monotonic(), seed, 0
    totals: Counter[str] = Counter()
    while (time.monotonic() - began < seconds) if seeds is None else number < seed + seeds:
        problem = run_seed(number, totals, calm=calm)
        if problem is not None:
            failed += 1
            print(problem)
            print(f"again: python -m tests.cluster_simulation --replay {number} --trace", flush=True)
            if failed >= failures:
                break
        number += 1
    elapsed = time.monotonic() - began
    print(f"seeds {seed} to {number - 1}: {failed} failed, {elapsed:.0f} s")
    print(json.dumps(dict(sorted(totals.items()))))
    return not failed
