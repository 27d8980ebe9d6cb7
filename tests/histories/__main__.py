"""``python -m tests.histories``: check a history; Headrace; the control on MariaDB; how fast a long history is checked.

python -m tests.histories check run.json --level strict-serializable
python -m tests.histories control --seconds 60 --seed 1
python -m tests.histories headrace --seconds 60 --seed 1 --kills
python -m tests.histories headrace --isolation repeatable-read --locking --shards 3
python -m tests.histories cluster --seconds 600 --seed 1
python -m tests.histories long --operations 10_000_000
python -m tests.histories simulated --operations 10_000_000
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import random
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from controller.transactions.limits import Isolation
from loadgen.bench import servers
from tests.histories.anomalies import LEVELS
from tests.histories.checker import Report, check
from tests.histories.clustered import WAYS, Clustered
from tests.histories.control import control
from tests.histories.events import BadHistory, Event, HistoryFile, write
from tests.histories.long import judged as judge_simulated
from tests.histories.mariadb import Kept
from tests.histories.registers import SPANS
from tests.histories.served import Asked, recorded_beside_kills, run_on_headrace
from tests.histories.workload import MOST_BLOCKS, Workload, modelled


def check_file(path: Path, level: str, spans: str | None) -> int:
    began = time.process_time()
    gc.disable()  # What is made here has no cycles of references; to look for them took a third of the time.
    try:
        report = check(HistoryFile(path), level, spans=spans)
    except (BadHistory, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(report)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    used = time.process_time() - began
    print(f"{used:.1f} s of a core, {memory:,.0f} MiB, at most {report.most_nodes:,} nodes at once")
    return 0 if report.holds else 1


def check_long(operations: int, seed: int) -> int:
    """A history without anomalies, made and checked."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "long.json"
        written, began = 0, time.process_time()
        workload = Workload(seed, keys=16, most_blocks=operations, go_on=lambda: written < operations)

        def events() -> Iterator[Event]:
            nonlocal written
            for event in modelled("serializable", workload):
                written += len(event["value"]) if event["type"] in ("ok", "info") else 0
                yield event

        write(path, events())
        print(f"{path.stat().st_size / 2**20:,.0f} MiB written in {time.process_time() - began:.0f} s", flush=True)
        return check_file(path, "strict-serializable", None)


def check_headrace(seconds: float, seed: int, keep: Path | None, *, kills: bool, shards: int, how: Asked) -> int:
    """Each way to keep a list or a register, for equal parts of the time."""
    right = True
    ways: tuple[Kept, ...] = ("texts", "rows", "registers")
    for way in ways:
        with tempfile.TemporaryDirectory() as folder:
            workload = Workload(seed, lists=way != "registers")
            part = seconds / len(ways)
            events, killed = run_on_headrace(
                Path(folder), way, workload, seconds=part, kills=kills, shards=shards, how=how
            )
        if keep is not None:
            write(keep / f"headrace-{way}.json", events)
        right &= told(way, how.judged(events, way), killed)
    return 0 if right else 1


def told(way: str, reports: list[Report], killed: int) -> bool:
    """Whether all hold."""
    for report in reports:
        found = ", ".join(f"{name} {count:,}" for name, count in report.found.most_common()) or "no anomaly"
        done = ", ".join(f"{count:,} {name}" for name, count in report.outcomes.most_common())
        verdict = "" if report.holds else ", broken"
        print(f"{way}: {done}, {killed} kills: {found}; {report.level}{verdict}", flush=True)
        for finding in () if report.holds else report.findings:
            print(finding)
    return all(report.holds for report in reports)


def check_cluster(seconds: float, seed: int, keep: Path | None) -> int:
    """One cluster, whose parts are killed: each way to keep and to ask, for equal parts of the time."""

    async def run(folder: Path) -> bool:
        system, right, operations = Clustered(folder / "data"), True, 0
        await system.create()
        try:
            for number, (kept, how, by_mysql) in enumerate(WAYS):
                first = number * (MOST_BLOCKS // len(WAYS))
                last = first + MOST_BLOCKS // len(WAYS) - 2
                workload = Workload(seed + number, lists=kept != "registers", block=first, most_blocks=last)
                system.asked(kept, workload.keys, how, by_mysql=by_mysql)
                await system.serves()
                killed = system.kills
                events = await recorded_beside_kills(system, workload, seconds=seconds / len(WAYS), kills=True)
                way = f"{kept}, {how.isolation}{' for share' * how.locking}, {'MySQL' if by_mysql else 'HTTP'}"
                if keep is not None:
                    write(keep / f"{way}.json", events)
                reports = how.judged(events, kept)
                operations += reports[0].operations
                right &= told(way, reports, system.kills - killed)
        finally:
            await system.stop()
        print(f"{operations:,} operations judged, {system.kills} kills", flush=True)
        return right

    with tempfile.TemporaryDirectory() as folder:
        return 0 if asyncio.run(run(Path(folder))) else 1


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.histories", description=(__doc__ or "").split("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    checking = commands.add_parser("check", help="a history in Elle's JSON or EDN; exit code 1 if the level is broken")
    checking.add_argument("file", type=Path)
    checking.add_argument("--level", choices=LEVELS, default="serializable")
    checking.add_argument(
        "--each-key", choices=SPANS, help="what each register alone is taken to be; else what the level promises of it"
    )
    controlling = commands.add_parser("control", help="MariaDB at each isolation level")
    controlling.add_argument("--seconds", type=float, default=60.0)
    controlling.add_argument("--seed", type=int, help="drawn and printed without it")
    controlling.add_argument("--keep", type=Path, help="write the histories into this directory")
    ours = commands.add_parser("headrace", help="a server of Headrace, by what its level promises")
    ours.add_argument("--isolation", choices=[each.value for each in Isolation], default="serializable")
    ours.add_argument("--locking", action="store_true", help="all reads FOR SHARE: strictly serializable at each level")
    ours.add_argument("--seconds", type=float, default=60.0)
    ours.add_argument("--seed", type=int, help="drawn and printed without it")
    ours.add_argument("--kills", action="store_true", help="kill -9 the server every few seconds")
    ours.add_argument("--shards", type=int, default=1)
    ours.add_argument("--keep", type=Path, help="write the histories into this directory")
    cluster = commands.add_parser("cluster", help="a cluster whose parts are killed, over HTTP and MySQL's protocol")
    cluster.add_argument("--seconds", type=float, default=600.0)
    cluster.add_argument("--seed", type=int, help="drawn and printed without it; each way has the next one")
    cluster.add_argument("--keep", type=Path, help="write the histories into this directory")
    long = commands.add_parser("long", help="make a long history without anomalies, and check it")
    long.add_argument("--operations", type=int, default=1_000_000)
    long.add_argument("--seed", type=int, default=1)
    simulated = commands.add_parser("simulated", help="simulated shards, with all that can go wrong, run after run")
    simulated.add_argument("--operations", type=int, default=10_000_000)
    simulated.add_argument("--seed", type=int, help="drawn and printed without it; each run has the next one")
    options = parser.parse_args()
    if options.command == "check":
        return check_file(options.file, options.level, options.each_key)
    if options.command == "long":
        return check_long(options.operations, options.seed)
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(1_000_000_000)
    if getattr(options, "keep", None) is not None:
        options.keep.mkdir(parents=True, exist_ok=True)
    if options.command == "simulated":
        print(f"simulated shards from seed {seed}", flush=True)
        return 1 if judge_simulated(options.operations, seed, lambda line: print(line, flush=True)).found else 0
    if options.command == "cluster":
        print(f"a cluster from seed {seed} for {options.seconds:.0f} s", flush=True)
        return check_cluster(options.seconds, seed, options.keep)
    if options.command == "headrace":
        print(f"Headrace from seed {seed} for {options.seconds:.0f} s")
        how = Asked(options.isolation, options.locking)
        return check_headrace(options.seconds, seed, options.keep, kills=options.kills, shards=options.shards, how=how)
    if reason := servers.missing("mariadb"):
        print(f"error: {reason}", file=sys.stderr)
        return 2
    print(f"MariaDB at each isolation level from seed {seed} for {options.seconds:.0f} s")
    return 0 if control(options.seconds, seed, options.keep, lambda line: print(line, flush=True)) else 1


if __name__ == "__main__":
    sys.exit(main())
