"""A short walk: each file of a data directory, some places in it, and without it."""

from __future__ import annotations

import random
import time
from itertools import islice
from pathlib import Path

from tests.damage.walk import Walk, damages

SECONDS = 25.0


def test_a_short_walk_through_damage(tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(10**6)
    print(f"seed {seed}")
    walk = Walk(tmp_path, seed)
    until, done = time.monotonic() + SECONDS, 0
    for damage in islice(damages(walk.image, walk.chance, of_each=1), 200):
        if time.monotonic() > until:
            break
        print(damage, walk.step(damage))
        done += 1
    assert done > 10
