"""``python -m tests.damage``: walk through damage for a while; exit 1 where something wrong came of it."""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.damage.scenes import SCENES
from tests.damage.walk import Walk


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--scene", action="append", choices=SCENES)
    given = parser.parse_args()
    print(f"seed {given.seed}", flush=True)
    outcomes: Counter[str] = Counter()
    wrong = 0
    for name in given.scene or SCENES:
        with TemporaryDirectory() as directory:
            walk = Walk(SCENES[name](), Path(directory), given.seed)
            until = time.monotonic() + given.seconds / len(given.scene or SCENES)
            for damage in walk.damages(of_each=3):
                if time.monotonic() > until:
                    break
                try:
                    outcomes[f"{name} {walk.step(damage).partition(':')[0]}"] += 1
                except Exception as error:
                    wrong += 1
                    print(f"WRONG {name} {damage}: {type(error).__name__}: {error}", flush=True)
    print(f"{wrong} wrong; {dict(outcomes)}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
