"""``python -m tests.damage``: walk through damage for a while; exit 1 where something wrong came of it."""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.damage.walk import Walk, damages


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    given = parser.parse_args()
    print(f"seed {given.seed}", flush=True)
    outcomes: Counter[str] = Counter()
    wrong = 0
    with TemporaryDirectory() as directory:
        walk = Walk(Path(directory), given.seed)
        until = time.monotonic() + given.seconds
        for damage in damages(walk.image, walk.chance, of_each=3):
            if time.monotonic() > until:
                break
            try:
                outcomes[walk.step(damage).partition(":")[0]] += 1
            except Exception as error:
                wrong += 1
                print(f"WRONG {damage}: {type(error).__name__}: {error}", flush=True)
    print(f"{wrong} wrong; {dict(outcomes)}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
