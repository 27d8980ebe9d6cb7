"""Servers for the client's and the command line's tests, and the way to the fake deployment."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from serving_process import Launch, Process, emptied

sys.path.insert(0, str(Path(__file__).parents[1] / "api"))


@pytest.fixture(params=["fake", "local"])
def launch(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Launch]:
    """Starts servers on free ports in the test's own directory; kills what is left of them."""
    yield from launching(request.param, tmp_path)


@pytest.fixture
def launch_fake(tmp_path: Path) -> Iterator[Launch]:
    """Only the fake: for tests of what is around the deployment, and for those that need its switches."""
    yield from launching("fake", tmp_path)


@pytest.fixture
def launch_local(tmp_path: Path) -> Iterator[Launch]:
    yield from launching("local", tmp_path)


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], str]]:
    """The URL of a server of a kind, started once and empty for each test: a start is a second of processor time."""
    with ExitStack() as stack:
        urls: dict[str, str] = {}

        def url(kind: str) -> str:
            if kind not in urls:
                launch = stack.enter_context(contextmanager(launching)(kind, tmp_path_factory.mktemp(kind)))
                urls[kind] = launch("--read-timeout", "60", "--max-body-size", "100kB").url
            return emptied(urls[kind])

        yield url


@pytest.fixture(params=["fake", "local"])
def served(request: pytest.FixtureRequest, shared: Callable[[str], str]) -> str:
    """For tests of what a server answers, not of how it starts, stops or is set."""
    return shared(request.param)


@pytest.fixture
def served_local(shared: Callable[[str], str]) -> str:
    return shared("local")


def launching(kind: str, tmp_path: Path) -> Iterator[Launch]:
    started: list[Process] = []

    def start(*arguments: str, wait: bool = True, **environment: str) -> Process:
        where = [] if "--data" in arguments else ["--data", str(tmp_path / "data")]
        port = [] if "--port" in arguments else ["--port", "0"]
        process = Process(kind, ["serve", *where, *port, *arguments], environment)
        started.append(process)
        if wait:
            process.url = process.read_until(r"answers at (https?://\S+)")[1]
        return process

    yield start
    for process in started:
        process.kill()
