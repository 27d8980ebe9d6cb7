"""``python -m tests.hostile [--seconds 10] [--seed 1] [--only name,name] [--soak 3600]``."""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
from pathlib import Path

from tests.hostile.lines import LINES
from tests.hostile.run import run
from tests.hostile.soak import soak

parser = argparse.ArgumentParser(prog="tests.hostile", description="hostile clients beside one that polls a view")
parser.add_argument("--seconds", type=float, default=10.0, help="for each line")
parser.add_argument("--seed", type=int, default=None)
parser.add_argument("--only", default="", help=f"of {', '.join(LINES)}")
parser.add_argument("--soak", type=float, default=0.0, help="seconds: all of them at once, and the server's size")
given = parser.parse_args()
seed = random.randrange(10**6) if given.seed is None else given.seed
names = [each.strip() for each in given.only.split(",") if each.strip()] or list(LINES)
if unknown := [each for each in names if each not in LINES]:
    parser.error(f"no line {unknown[0]!r}")
with tempfile.TemporaryDirectory(prefix="headrace-hostile-") as directory:
    if given.soak:
        print(f"seed {seed}, all lines for {given.soak:g} s", flush=True)
        faults = asyncio.run(soak(Path(directory), given.soak, seed))
    else:
        print(f"seed {seed}, {given.seconds:g} s each; sizes: before → at most → after", flush=True)
        seen = asyncio.run(run(Path(directory), names, given.seconds, seed))
        faults = [f"{each.line}: {fault}" for each in seen for fault in each.faults()]
for each in faults:
    print(each)
sys.exit(1 if faults else 0)
