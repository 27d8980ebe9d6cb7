"""``python -m tests.attack [--seconds 30] [--seed 1]``."""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
from pathlib import Path

from tests.attack.run import run

parser = argparse.ArgumentParser(prog="tests.attack", description="strangers and users of each right at a cluster")
parser.add_argument("--seconds", type=float, default=30.0, help="of strangers at all ports")
parser.add_argument("--seed", type=int, default=None)
given = parser.parse_args()
seed = random.randrange(10**6) if given.seed is None else given.seed
print(f"seed {seed}", flush=True)
with tempfile.TemporaryDirectory(prefix="headrace-attack-") as directory:
    faults = asyncio.run(run(Path(directory), given.seconds, seed))
for each in faults:
    print(each)
print("nothing was found" if not faults else f"{len(faults)} faults")
sys.exit(1 if faults else 0)
