"""A short walk through each scene: its files, some places in them, and without them."""

from __future__ import annotations

import random
import shutil
import time
from itertools import islice
from pathlib import Path

import pytest

from tests.damage.scenes import SCENES
from tests.damage.walk import Walk

SECONDS = 2.0
NO_JAVA = shutil.which("java") is None


@pytest.mark.parametrize(
    "scene",
    [
        pytest.param(each, marks=pytest.mark.skipif(each == "zookeeper" and NO_JAVA, reason="there is no java on PATH"))
        for each in SCENES
    ],
)
def test_a_short_walk_through_damage(tmp_path: Path, scene: str) -> None:
    seed = random.SystemRandom().randrange(10**6)
    print(f"seed {seed}")
    walk = Walk(SCENES[scene](), tmp_path, seed)
    found = list(islice(walk.damages(of_each=1), 200))
    walk.chance.shuffle(found)
    until, done = time.monotonic() + SECONDS, 0
    for damage in found:
        if done and time.monotonic() > until:
            break
        print(damage, walk.step(damage))
        done += 1
    assert done
