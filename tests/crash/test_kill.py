"""``kill -9`` under load: a few rounds by default, many with ``-m long``."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.crash.rounds import Rounds


def kill(tmp_path: Path, seed: int, rounds: int, *options: str) -> None:
    print(f"seed {seed}")
    killing = Rounds(tmp_path / "data", seed, *options)
    for _ in range(rounds):
        killing.run()
    assert killing.acknowledged > 0
    killing.close()
    print(f"{killing.rounds} kills, {killing.acknowledged} batches at the end")


def test_kill_under_load(tmp_path: Path) -> None:
    kill(tmp_path, 20_260_105, 3, "--domains", "2", "--memory-limit", "1MB")


@pytest.mark.long
@pytest.mark.parametrize("options", [("--domains", "1"), ("--domains", "3", "--memory-limit", "200kB")])
def test_many_kills_under_load(tmp_path: Path, options: tuple[str, ...]) -> None:
    kill(tmp_path, random.SystemRandom().randrange(10**6), 30, *options)
