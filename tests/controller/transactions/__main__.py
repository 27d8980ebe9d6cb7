"""``make fuzz-transactions``: interleaved transactions from fresh seeds, each held against one after the other."""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
import time
from pathlib import Path

from tests.controller.transactions.interleaved import check

STEPS = 400


async def run(seconds: float, seed: int) -> int:
    until, runs, committed, conflicts = time.monotonic() + seconds, 0, 0, 0
    while time.monotonic() < until:
        with tempfile.TemporaryDirectory() as folder:
            try:
                done = await check(seed + runs, Path(folder), STEPS)
            except AssertionError as error:
                print(f"seed {seed + runs}: {error}")
                return 1
        runs, committed, conflicts = runs + 1, committed + len(done.committed), conflicts + done.conflicts
    print(f"{runs} runs, {committed:,} committed, {conflicts:,} in conflict: as one after the other")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.controller.transactions")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, help="drawn and printed without it; a seed that fails is printed")
    options = parser.parse_args()
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(1_000_000_000)
    print(f"transactions from seed {seed} for {options.seconds:.0f} s", flush=True)
    return asyncio.run(run(options.seconds, seed))


if __name__ == "__main__":
    sys.exit(main())
