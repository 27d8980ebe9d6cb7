"""The server that the comparisons of a file are judged by."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from loadgen.bench import servers


@pytest.fixture(scope="module")
def mariadb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of a MariaDB of its own."""
    with servers.mariadb(tmp_path_factory.mktemp("mariadb"), durable=False) as url:
        yield int(url.rstrip("/").rsplit(":", 1)[1])
