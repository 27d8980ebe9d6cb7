"""``python -m loadgen.bench.rounds``: every comparison, and then the table.

A round is one target, variant and durability: its server is started, primed, swept with ``headrace loadgen --sweep`` in
a process of its own, run once more at half of what it sustained, for the latencies, and, where pages are asked, stopped
and started again under that load, for the cold start. All rounds are measured by turns (``--turns``), so that what is
compared was measured at about the same time; the table has the medians. What a turn has written is not measured again,
so that a run that was ended goes on where it was; ``--again`` measures everything.

::

    bench-peers/1/lobsters-headrace-natural.json         the sweep of the first turn
    bench-peers/1/lobsters-headrace-natural-half.json    half of the sustained rate
    bench-peers/1/lobsters-headrace-natural-cold.json    the same rate, from a start of the server
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from loadgen.bench import servers, table
from loadgen.pace.errors import LoadRunError

COLD_SECONDS = 30.0
"""The last third is taken for the steady state, so that one which comes after 10 s is seen."""


@dataclass(frozen=True, slots=True)
class BenchRound:
    """``server`` is headrace, headrace-cluster, mariadb, postgres, cached (Redis before MariaDB), redis (by itself) or
    null."""

    workload: str
    server: str
    variant: str = "natural"
    durable: bool = True
    rate: float = 20.0
    """Where the sweep begins."""
    more: tuple[str, ...] = ()
    serve: tuple[str, ...] = ()
    """Options of ``headrace serve`` or ``up``."""
    label: str = ""

    @property
    def name(self) -> str:
        parts = [self.workload, self.server, self.variant, "" if self.durable else "relaxed", self.label]
        return "-".join(part for part in parts if part)


ROUNDS: tuple[BenchRound, ...] = (
    BenchRound("lobsters", "null", rate=500.0),
    BenchRound("lobsters", "headrace", rate=50.0),
    BenchRound("lobsters", "headrace", rate=50.0, serve=("--state", "full"), label="full"),
    BenchRound("lobsters", "headrace-cluster", rate=50.0),
    BenchRound("lobsters", "mariadb", "hand-optimised"),
    BenchRound("lobsters", "mariadb", "hand-optimised", durable=False),
    BenchRound("lobsters", "mariadb", "natural", rate=1.0),
    BenchRound("lobsters", "postgres", "hand-optimised"),
    BenchRound("lobsters", "postgres", "hand-optimised", durable=False),
    BenchRound("lobsters", "postgres", "natural", rate=1.0),
    BenchRound("lobsters", "cached", "hand-optimised"),
    *(
        BenchRound("vote", server, rate=20_000.0, more=("--distribution", each), label=each)
        for server in ("headrace", "redis")
        for each in ("zipf", "uniform")
    ),
    BenchRound("ribbons", "headrace", rate=2_000.0),
    BenchRound("crud", "headrace", rate=200.0),
    BenchRound("crud", "mariadb", rate=200.0),
)


@contextmanager
def started(this: BenchRound, directory: Path) -> Iterator[str]:
    """The URL of the round's target."""
    with ExitStack() as stack:
        match this.server:
            case "null":
                yield "null:"
            case "headrace":
                yield stack.enter_context(servers.headrace(directory, more=this.serve))
            case "headrace-cluster":
                yield stack.enter_context(servers.headrace_cluster(directory, more=this.serve))
            case "mariadb":
                yield stack.enter_context(servers.mariadb(directory, durable=this.durable)) + this.workload
            case "postgres":
                yield stack.enter_context(servers.postgres(directory, durable=this.durable)) + this.workload
            case "cached":
                host, port = stack.enter_context(servers.redis(directory))
                behind = stack.enter_context(servers.mariadb(directory, durable=this.durable)) + this.workload
                yield f"redis://{host}:{port}?behind={behind}"
            case "redis":
                host, port = stack.enter_context(servers.redis(directory))
                yield f"redis://{host}:{port}"
            case _:
                raise LoadRunError(f'there is no server "{this.server}"')


def measure(this: BenchRound, out: Path, scale: float, runtime: float) -> None:
    """Writes ``out/<round>.json`` and, at half of what was sustained, ``-half.json`` and ``-cold.json``."""
    flags = ["--data-scale", str(scale), *this.more]
    if this.workload == "lobsters":
        flags += ["--variant", this.variant]
    with TemporaryDirectory(prefix="headrace-bench-") as directory:
        with started(this, Path(directory)) as url:
            sweep = ["--target", url, *flags, "--prime", "--sweep", "--rate", str(this.rate)]
            _loadgen(this, [*sweep, "--runtime", str(runtime), "--warmup", "10"], Path(directory, "a"))
            result = _taken(this, Path(directory, "a"), out / f"{this.name}.json")
            if not result["sustained"]:
                return
            half = [*flags, "--rate", str(result["sustained"] / 2)]
            warm = ["--target", url, *half, "--runtime", str(runtime), "--warmup", "5"]
            _loadgen(this, warm, Path(directory, "b"))
            _taken(this, Path(directory, "b"), out / f"{this.name}-half.json")
        if this.workload == "lobsters" and this.server != "null":
            with started(this, Path(directory)) as url:
                cold = ["--target", url, *half, "--runtime", str(max(runtime, COLD_SECONDS)), "--warmup", "0"]
                _loadgen(this, cold, Path(directory, "c"))
                _taken(this, Path(directory, "c"), out / f"{this.name}-cold.json")


def _loadgen(this: BenchRound, flags: Sequence[str], out: Path) -> None:
    command = [sys.executable, "-m", "headrace", "loadgen", this.workload, *flags, "--out", str(out)]
    print("$ headrace loadgen", this.workload, *flags, flush=True)
    done = subprocess.run(command, check=False)
    if done.returncode not in (0, 1):  # 1: measured, and not valid or not sustained; that is a result, too.
        raise LoadRunError(f"headrace loadgen ended with {done.returncode}")


def _taken(this: BenchRound, source: Path, path: Path) -> dict[str, Any]:
    """The one result that a run has written, with the round's name in it."""
    found = list(source.glob("*.json"))
    if not found:
        raise LoadRunError("headrace loadgen has measured nothing", hint="the reason is above")
    result: dict[str, Any] = json.loads(found[0].read_text("utf-8"))
    result["name"] = this.name
    result["durable"] = this.durable
    result["label"] = this.label
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result), encoding="utf-8")
    return result


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m loadgen.bench.rounds", description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("bench-peers"), help="where the JSONs go")
    parser.add_argument("--docs", type=Path, default=Path("docs"), help="where benchmarks.md and img/ are")
    parser.add_argument("--only", default="", help="rounds whose name has this in it")
    parser.add_argument("--data-scale", type=float, default=1.0)
    parser.add_argument("--runtime", type=float, default=20.0, help="seconds a rate")
    parser.add_argument("--turns", type=int, default=3, help="how often each round is measured")
    parser.add_argument("--again", action="store_true", help="also measure rounds that were measured before")
    parser.add_argument("--table", action="store_true", help="measure nothing; write the table of what there is")
    given = parser.parse_args(arguments)
    failed = False
    rounds = [] if given.table else [this for this in ROUNDS if given.only in this.name]
    for turn, this in product(range(1, given.turns + 1), rounds):
        out = given.out / str(turn)
        if (out / f"{this.name}.json").exists() and not given.again:
            print(f"{this.name}, turn {turn}: measured before")
            continue
        try:
            print(f"== {this.name}, turn {turn} of {given.turns}", flush=True)
            measure(this, out, given.data_scale, given.runtime)
        except LoadRunError as error:
            failed = True
            print(f"{this.name}: {error}" + (f" ({error.hint})" if error.hint else ""), flush=True)
    table.write(given.out, given.docs)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
