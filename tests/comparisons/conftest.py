"""The server that the comparisons are judged by."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from loadgen.bench import servers


@pytest.fixture(scope="session")
def mariadb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of a MariaDB, one for all tests of a process: to make one takes seconds of waiting for a disk. A test
    has databases of names that no other one has."""
    with servers.mariadb(tmp_path_factory.mktemp("mariadb"), durable=False) as url:
        yield int(url.rstrip("/").rsplit(":", 1)[1])
