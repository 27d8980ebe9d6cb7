"""Targets for load runs, out of ``load_targets.py``."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from load_targets import HttpStub, OneKind, Recorder


@pytest.fixture
def one_kind() -> OneKind:
    return OneKind()


@pytest.fixture
async def http_stub() -> AsyncIterator[HttpStub]:
    stub = HttpStub()
    await stub.start()
    yield stub
    await stub.stop()


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()
