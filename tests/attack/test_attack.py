"""A short form of ``make attack``."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.attack.run import run

SEED = 1


@pytest.mark.cluster
@pytest.mark.skipif(shutil.which("java") is None, reason="there is no java on PATH")
async def test_neither_strangers_nor_users_get_what_is_not_theirs(tmp_path: Path) -> None:
    assert await run(tmp_path, 3.0, SEED) == []
