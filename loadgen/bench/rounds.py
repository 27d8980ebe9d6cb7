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
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from loadgen.bench import servers
from loadgen.peers.store import LoadRunError

# The rounds' JSONs as the table of ``docs/benchmarks.md``, and the pictures beside it.
#
# The page has prose that people write and one part that is written here, between two marks; pictures go to ``img/``.

BEGIN = "<!-- written by make bench-peers: begin -->"
END = "<!-- written by make bench-peers: end -->"
DRAWN_WITHIN = 120

Result = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Measured:
    """A round's turns, by the one with the median of the sustained rates."""

    result: Result
    half: Result | None
    cold: Result | None
    cpu_ms: float | None
    """Server CPU each at the highest sustained rate: the median of the turns."""
    rates: tuple[float, ...]
    """The sustained rate of each turn, 0 for none."""


def read(out: Path) -> dict[str, Measured]:
    """Measured rounds by name, in the order of their first measurement."""
    turns: dict[str, list[Path]] = {}
    for path in sorted(out.glob("*/*.json"), key=lambda path: path.stat().st_mtime):
        if not path.stem.endswith(("-half", "-cold")):
            turns.setdefault(path.stem, []).append(path)
    return {name: _median_turn(paths) for name, paths in turns.items()}


def _median_turn(paths: Sequence[Path]) -> Measured:
    def load(path: Path) -> Result | None:
        return json.loads(path.read_text("utf-8")) if path.exists() else None

    loaded = [(path, json.loads(path.read_text("utf-8"))) for path in paths]
    loaded.sort(key=lambda each: _rate(each[1]))
    path, result = loaded[(len(loaded) - 1) // 2]
    points = [best(each) or each["points"][-1] for _, each in loaded]
    cpu = [each["server_cpu_ms_each"] for each in points if each["server_cpu_ms_each"] is not None]
    half, cold = (load(path.with_name(f"{path.stem}-{kind}.json")) for kind in ("half", "cold"))
    return Measured(result, half, cold, median(cpu) if cpu else None, tuple(_rate(each) for _, each in loaded))


def _rate(result: Result) -> float:
    point = best(result)
    return float(point["offered"]) if point else 0.0


def write(out: Path, docs: Path) -> None:
    """Puts the table of all turns in ``out`` into ``docs/benchmarks.md``."""
    measured = read(out)
    if not measured:
        print("nothing was measured, so nothing is written")
        return
    page = docs / "benchmarks.md"
    text = page.read_text("utf-8")
    before, rest = text.split(BEGIN, 1)
    _, after = rest.split(END, 1)
    pictures = _pictures({name: each.result for name, each in measured.items()}, docs / "img")
    page.write_text(f"{before}{BEGIN}\n\n{report(measured, pictures)}\n{END}{after}", encoding="utf-8")
    print(f"written: {page}")


def report(measured: dict[str, Measured], pictures: Sequence[str]) -> str:
    """Markdown: where and when, one table a workload, ratios, settings."""
    results = {name: each.result for name, each in measured.items()}
    turns = max(len(each.rates) for each in measured.values())
    first = next(iter(results.values()))
    machine = first["machine"]
    dates = sorted(str(each["date"])[:10] for each in results.values())
    when = dates[0] if dates[0] == dates[-1] else f"{dates[0]} to {dates[-1]}"
    parts = [
        f"Measured {when} on {machine['cpus']} cores of {machine['processor']}, {machine['system']}, Python "
        f"{machine['python']}; data scale {first['options']['data_scale']:g}, {first['options']['runtime']:g} s a "
        f"rate; {f'medians of the turns, {turns} at most' if turns > 1 else 'one turn'}."
    ]
    for workload in dict.fromkeys(each["options"]["workload"] for each in results.values()):
        own = {name: each for name, each in measured.items() if each.result["options"]["workload"] == workload}
        parts += [f"### {workload}", _sustained(own)]
        ratios = _ratios(own)
        if ratios:
            parts.append(ratios)
    parts += [f"![{name}](img/{name}.svg)" for name in pictures]
    parts += ["### Settings", _settings(results)]
    return "\n\n".join(parts) + "\n"


def best(result: Result) -> Result | None:
    """The fastest point that was sustained."""
    held = [each for each in result["points"] if each["sustained"]]
    return max(held, key=lambda each: each["offered"]) if held else None


def _sustained(measured: dict[str, Measured]) -> str:
    unit = next(iter(measured.values())).result["unit"]
    header = (
        "round",
        f"sustained {unit}/s",
        "in the turns",
        "server CPU ms each",
        "p95 ms there",
        "p95 ms at half",
        "Story, Frontpage p95 at half",
        "cold start s",
        "largest RSS MB",
        "generator CPU",
        "remarks",
    )
    rows = []
    for name, each in measured.items():
        result, point = each.result, best(each.result)
        shown = point or result["points"][-1]
        at_half = each.half["points"][-1] if each.half else None
        settled = each.cold["points"][-1]["settled_after_s"] if each.cold else None
        kinds = at_half["kinds"] if at_half else {}
        pages = ", ".join(f"{kinds[kind]['sojourn']['p95']:.1f}" for kind in ("Story", "Frontpage") if kind in kinds)
        rows.append(
            (
                name,
                f"{point['offered']:,.0f}" if point else "none",
                " ".join(f"{rate:,.0f}" for rate in sorted(each.rates)),
                "–" if each.cpu_ms is None else f"{each.cpu_ms:.3g}",
                f"{shown['all']['sojourn']['p95']:.1f}",
                f"{at_half['all']['sojourn']['p95']:.1f}" if at_half else "–",
                pages or "–",
                "–" if settled is None else f"{settled}",
                f"{sum(server['resident_max'] for server in shown['servers']) / 1e6:,.0f}" if shown["servers"] else "–",
                f"{shown['generator_cpu']:.0%}",
                _remarks(result, shown),
            )
        )
    return _markdown(header, rows)


def _remarks(result: Result, point: Result) -> str:
    told = []
    busy = [each for each in result["points"] if any("bottleneck" in doubt for doubt in each["doubts"])]
    if busy:
        told.append("the generator was the limit above this")
    part = point["notes"].get("stale_part")
    if part is not None:
        told.append(f"{part:.2%} of the cached reads were stale")
    if result["cut"]:
        told.append("ended early")
    return "; ".join(told)


def _ratios(measured: dict[str, Measured]) -> str:
    """Each of Headrace's own rounds against each other one of its label: rate, and processor time each."""
    rows = []
    for name, each in measured.items():
        for own_name, own in measured.items():
            if _server(own) != "headrace" or _server(each) in ("null", "headrace") or _label(own) != _label(each):
                continue
            other, point = best(each.result), best(own.result)
            if other is not None and point is not None:
                cpu = f"{each.cpu_ms / own.cpu_ms:.2f}×" if own.cpu_ms and each.cpu_ms else "–"
                rows.append((own_name, name, f"{point['offered'] / other['offered']:.2f}×", cpu))
    return _markdown(("round", "against", "sustained rate", "server CPU each, less by"), rows) if rows else ""


def _label(each: Measured) -> str:
    return str(each.result["label"])


def _server(each: Measured) -> str:
    return str(each.result["name"]).split("-")[1]


def _settings(results: dict[str, Result]) -> str:
    rows = []
    for name, result in results.items():
        told = {key: value for key, value in result["target"].items() if key != "server"}
        rows.append((name, result["target"]["server"], ", ".join(f"{key} {value}" for key, value in told.items())))
    return _markdown(("round", "server", "settings"), rows)


def _markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(header)} |", "|---" + "|---:" * (len(header) - 1) + "|"]
    return "\n".join(lines + [f"| {' | '.join(row)} |" for row in rows])


def _pictures(results: dict[str, Result], directory: Path) -> list[str]:
    """One of throughput against latency a workload; the memory of Headrace's last point."""
    directory.mkdir(parents=True, exist_ok=True)
    made = []
    for workload in dict.fromkeys(each["options"]["workload"] for each in results.values()):
        own = [each for each in results.values() if each["options"]["workload"] == workload and each["points"]]
        own.sort(key=lambda each: each["name"].split("-")[1] != "headrace")
        with TemporaryDirectory() as scratch:
            files = [Path(scratch, f"{number}.json") for number in range(len(own))]
            for path, result in zip(files, own, strict=True):
                path.write_text(json.dumps(result), encoding="utf-8")
            command = [sys.executable, "-m", "loadgen.report.curves", scratch, *map(str, files)]
            subprocess.run(command, check=True, timeout=DRAWN_WITHIN)
            for kind in ("latency", "memory"):
                shutil.copyfile(Path(scratch, f"{kind}.svg"), directory / f"{workload}-{kind}.svg")
                made.append(f"{workload}-{kind}")
    return made


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
    """First rate of the sweep."""
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
    write(given.out, given.docs)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
