"""The command line: many seeds one after another, or one of them again with its trace."""

from __future__ import annotations

import argparse
import gc
import json
import logging
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager

from tests.cluster_simulation.cluster import Cluster
from tests.cluster_simulation.faults import KINDS
from tests.cluster_simulation.loop import PROCESS
from tests.cluster_simulation.mutants import MUTANTS, mutated
from tests.cluster_simulation.scenario import Scenario
from tests.cluster_simulation.size import PARTS, Shape, shape_of

TRACE_LINES = 60


def run_seed(
    seed: int,
    totals: Counter[str] | None = None,
    *,
    trace: bool = False,
    calm: bool = False,
    only: Sequence[str] = (),
    shape: Shape | None = None,
) -> str | None:
    """What is wrong, with the end of the trace; None where nothing is."""
    with collected():  # Here nothing holds the scenario: what is held would be collected later, and unseen no more.
        return _run(Scenario(seed, calm=calm, only=only, shape=shape), Counter() if totals is None else totals, trace)


def _run(scenario: Scenario, totals: Counter[str], trace: bool) -> str | None:
    problem = None
    try:
        with told(scenario.cluster):
            scenario.run()
    except Exception as error:
        text = "".join(traceback.format_exception(error)) if trace else f"{type(error).__name__}: {error}"
        problem = f"seed {scenario.seed} ({scenario.size}): {text}"
    lines = [f"{at:9.4f}  {line}" for at, line in scenario.cluster.trace]
    if trace:
        print("\n".join(lines))
    totals.update(scenario.counts)
    totals["events"] += scenario.loop.steps
    totals["simulated milliseconds"] += int((scenario.loop.time() - 1000) * 1000)
    if problem is not None and not trace:
        problem += "\n" + "\n".join(lines[-TRACE_LINES:])
    return problem


class _Teller(logging.Handler):
    """Puts what the processes log into the trace."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(logging.INFO)
        self._cluster = cluster

    def emit(self, record: logging.LogRecord) -> None:
        process = PROCESS.get()
        text = record.getMessage()
        if record.exc_info:
            text += "\n" + "".join(traceback.format_exception(record.exc_info[1]))
        self._cluster.say(f"    {process}: {text}")


@contextmanager
def told(cluster: Cluster) -> Iterator[None]:
    logger = logging.getLogger("headrace")
    teller = _Teller(cluster)
    before = logger.level, logger.propagate
    logger.addHandler(teller)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(teller)
        logger.level, logger.propagate = before


@contextmanager
def collected() -> Iterator[None]:
    """What a simulation leaves is collected at its end, and not within the next one: a task that never ended is closed
    then, and what it does at that has no loop to be done on."""
    gc.disable()
    gc.freeze()
    before, sys.unraisablehook = sys.unraisablehook, lambda _: None
    try:
        yield
    finally:
        logging.disable()  # What a migration says whose leader is dead is nothing that happened.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            gc.collect()
        logging.disable(logging.NOTSET)
        sys.unraisablehook = before
        gc.enable()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster_simulation", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seeds", type=int, help="so many, however long it takes")
    parser.add_argument("--replay", type=int, metavar="SEED", help="this one alone")
    parser.add_argument("--trace", action="store_true", help="all that happened in it")
    parser.add_argument("--jobs", type=int, default=1, help="processes, each with seeds of its own")
    parser.add_argument("--failures", type=int, default=1, help="go on until so many are found")
    parser.add_argument(
        "--calm", action="store_true", help="nothing goes wrong: to see that the simulation itself is right"
    )
    parser.add_argument("--only", default="", metavar="KINDS", help=f"these faults alone: {', '.join(KINDS)}")
    parser.add_argument(
        "--shape", default="", help=f"instead of what the seed says, as in shards=4,workers=4: {', '.join(PARTS)}"
    )
    parser.add_argument("--mutant", choices=sorted(MUTANTS), help="with a mistake that is to be found")
    given = parser.parse_args()
    with mutated(given.mutant):
        _do(given)


def _do(given: argparse.Namespace) -> None:
    if given.replay is not None:
        only, shape = kinds_of(given.only), shape_of(given.shape)
        problem = run_seed(given.replay, trace=given.trace, calm=given.calm, only=only, shape=shape)
        print(problem or f"seed {given.replay}: nothing is wrong")
        sys.exit(problem is not None)
    sys.exit(not shared(given))


def kinds_of(text: str) -> tuple[str, ...]:
    kinds = tuple(each.strip() for each in text.split(",") if each.strip())
    unknown = sorted(set(kinds) - KINDS.keys())
    if unknown:
        sys.exit(f"no such fault: {', '.join(unknown)}; there are {', '.join(KINDS)}")
    return kinds


def shared(given: argparse.Namespace) -> bool:
    """The campaign, by several processes: number n of j has every j-th seed."""
    jobs = [
        (
            given.seconds,
            given.seed + number,
            given.seeds,
            given.failures,
            given.calm,
            given.jobs,
            kinds_of(given.only),
            shape_of(given.shape),
        )
        for number in range(given.jobs)
    ]
    if len(jobs) == 1:
        return campaign(*jobs[0])
    with ProcessPoolExecutor(given.jobs) as pool:
        return all(list(pool.map(campaign, *zip(*jobs, strict=True))))


def campaign(
    seconds: float,
    seed: int,
    seeds: int | None,
    failures: int,
    calm: bool = False,
    step: int = 1,
    only: Sequence[str] = (),
    shape: Shape | None = None,
) -> bool:
    """Seeds ``seed``, ``seed + step`` …, for so long or (``seeds``) so many; False when something was found."""
    began, number, failed, done = time.monotonic(), seed, 0, 0
    totals: Counter[str] = Counter()
    while (time.monotonic() - began < seconds) if seeds is None else done < seeds:
        problem = run_seed(number, totals, calm=calm, only=only, shape=shape)
        done += 1
        if problem is not None:
            failed += 1
            print(problem)
            print(f"again: python -m tests.cluster_simulation --replay {number} --trace", flush=True)
            if failed >= failures:
                break
        number += step
    elapsed = time.monotonic() - began
    print(f"{done} seeds from {seed} in steps of {step}: {failed} failed, {elapsed:.0f} s")
    print(json.dumps(dict(sorted(totals.items()))))
    return not failed
