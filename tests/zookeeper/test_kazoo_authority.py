"""What only the real client meets: wrong addresses, access lists, servers that hang, how long a failover takes."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest
from authority_kinds import NO_JAVA, until

import zookeeper.kazoo_authority
from zookeeper.address import Address, parse_address
from zookeeper.errors import AccessRefused, AuthorityError, AuthorityUnavailable, NotZooKeeper
from zookeeper.kazoo_authority import KazooAuthority
from zookeeper.registration import ControllerDescriptor
from zookeeper.server import Ensemble

needs_java = pytest.mark.skipif(NO_JAVA, reason="there is no java on PATH")

PATIENT_SECONDS = 30.0
"""For what takes some seconds; how many, `headrace drill controller-kill` tells."""


@pytest.fixture
async def ensemble(tmp_path: Path) -> AsyncIterator[Ensemble]:
    ensemble = Ensemble(tmp_path)
    await ensemble.start()
    yield ensemble
    await ensemble.stop()


@pytest.fixture
async def sized(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Ensemble]:
    """Of as many servers as the test's parameter says."""
    ensemble = Ensemble(tmp_path, request.param)
    await ensemble.start()
    yield ensemble
    await ensemble.stop()


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zookeeper.kazoo_authority, "START_SECONDS", 0.5)
    monkeypatch.setattr(zookeeper.address, "PROBE_SECONDS", 0.3)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("a", Address((("a", 2181),), "")),
        ("a:1, b:2", Address((("a", 1), ("b", 2)), "")),
        ("a:1,b/x/y", Address((("a", 1), ("b", 2181)), "/x/y")),
        ("[::1]:5,::1", None),
        ("[::1]:5,[fe80::2]", Address((("::1", 5), ("fe80::2", 2181)), "")),
        ("a:0", None),
        ("a:65536", None),
        ("a:", None),
        (":2181", None),
        ("", None),
        ("a,,b", None),
        ("http://a:1", None),
        ("a b", None),
    ],
)
def test_addresses(text: str, address: Address | None) -> None:
    if address is None:
        with pytest.raises(AuthorityError, match="is not an address of ZooKeeper"):
            parse_address(text)
        return
    assert parse_address(text) == address
    assert parse_address(str(address)) == address


async def test_nobody_listens(hasty: None) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(AuthorityUnavailable, match=rf'cannot reach ZooKeeper at "127.0.0.1:{port}": Connect'):
        await KazooAuthority(f"127.0.0.1:{port}", "main").start()


async def test_no_such_host(hasty: None) -> None:
    with pytest.raises(AuthorityUnavailable, match=r'cannot reach ZooKeeper at "nowhere\.invalid:2181"'):
        await KazooAuthority("nowhere.invalid", "main").start()


@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"", b"\x00" * 1000, None])
async def test_something_else_listens(answer: bytes | None, hasty: None) -> None:
    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if answer is None:
            await reader.read()  # It says nothing until the client goes.
        else:
            writer.write(answer)
        writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server:
        with pytest.raises(NotZooKeeper, match=f'what answers at "127.0.0.1:{port}" is not ZooKeeper'):
            await KazooAuthority(f"127.0.0.1:{port}", "main").start()


async def test_a_server_that_says_nothing_is_asked_again_before_the_session_is_over() -> None:
    """One that is only just starting takes a connection, and never says anything on it."""
    timeout, came = 4.0, list[float]()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if await reader.read(4) == b"srvr":
            writer.write(b"Zookeeper version: 3.9.5\nMode: standalone\n")
        else:
            came.append(time.monotonic())
            await reader.read()
        writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server:
        authority = KazooAuthority(f"127.0.0.1:{port}", "main", session_timeout=timeout)
        starting = asyncio.create_task(authority.start())
        await until(lambda: len(came) > 1 or starting.done())
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
    assert came[1] - came[0] < timeout


@needs_java
async def test_one_of_several_addresses_is_enough(ensemble: Ensemble) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    authority = KazooAuthority(f"127.0.0.1:{port},{ensemble.address}/below/here", "main")
    await authority.start(create=True)
    await authority.write(b"state", 0)
    other = KazooAuthority(ensemble.address, "main")
    with pytest.raises(AuthorityError, match="no deployment"):
        await other.start()
    await authority.close()


@needs_java
async def test_access_lists(ensemble: Ensemble) -> None:
    ours = KazooAuthority(ensemble.address, "main", auth="us:secret")
    await ours.start(create=True)
    await ours.write(b"state", 0)
    for auth in (None, "us:wrong"):
        theirs = KazooAuthority(ensemble.address, "main", auth=auth)
        with pytest.raises(AccessRefused, match='refuses access to "/headrace') as caught:
            await theirs.start(create=True)
        assert "zookeeper_auth" in str(caught.value)
    again = KazooAuthority(ensemble.address, "main", auth="us:secret")
    await again.start()
    assert await again.read() == (b"state", 1)
    await again.close()
    await ours.close()


@needs_java
async def test_what_waits_at_a_close_ends(ensemble: Ensemble) -> None:
    authority = KazooAuthority(ensemble.address, "main")
    await authority.start(create=True)
    (pid,) = ensemble.pids.values()
    os.kill(pid, signal.SIGSTOP)
    reading = asyncio.create_task(authority.read())
    await asyncio.sleep(0)
    await authority.close()
    with pytest.raises(AuthorityUnavailable):
        await reading
    os.kill(pid, signal.SIGCONT)


@needs_java
async def test_a_server_that_hangs_is_away(ensemble: Ensemble) -> None:
    authority = KazooAuthority(ensemble.address, "main")
    await authority.start(create=True)
    await authority.write(b"state", 0)
    (pid,) = ensemble.pids.values()
    os.kill(pid, signal.SIGSTOP)
    with pytest.raises(AuthorityUnavailable, match="cannot be reached"):
        async with asyncio.timeout(PATIENT_SECONDS):
            await authority.read()
    os.kill(pid, signal.SIGCONT)
    await until(lambda: authority.connected)
    assert await authority.read() == (b"state", 1)
    await authority.close()


CANDIDATE = """
import asyncio, sys
from zookeeper.registration import ControllerDescriptor
from zookeeper.kazoo_authority import KazooAuthority

async def main():
    authority = KazooAuthority(sys.argv[1], "main")
    await authority.start(create=True)
    await authority.candidate(ControllerDescriptor("killed", "h", 1, 1)).elected()
    print("leads", flush=True)
    await asyncio.sleep(3600)

asyncio.run(main())
"""


@needs_java
@pytest.mark.parametrize("sized", [1, 3], indirect=True)
async def test_the_successor_of_a_killed_leader(sized: Ensemble) -> None:
    authority = KazooAuthority(sized.address, "main")
    await authority.start(create=True)
    took = []
    for _ in range(3):
        killed = await _leading_process(sized.address)
        successor = authority.candidate(ControllerDescriptor("next", "h", 1, 1))
        await asyncio.sleep(len(took) * 0.2)  # At another moment between two signs of life.
        killed.kill()
        began = time.monotonic()
        async with asyncio.timeout(PATIENT_SECONDS):
            await successor.elected()
        took.append(time.monotonic() - began)
        await killed.wait()
        await successor.resign()
    print("seconds to the next leader:", *(f"{each:.2f}" for each in took))
    await authority.close()


async def _leading_process(address: str) -> asyncio.subprocess.Process:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", CANDIDATE, address, stdout=asyncio.subprocess.PIPE, cwd=Path(__file__).parents[2]
    )
    assert process.stdout
    async with asyncio.timeout(60):
        assert await process.stdout.readline() == b"leads\n"
    return process


@needs_java
@pytest.mark.parametrize("sized", [3], indirect=True)
async def test_one_server_of_three_is_killed(sized: Ensemble) -> None:
    # A session that outlives their elections on a machine that is busy too: that it is kept is what is shown.
    authority = KazooAuthority(sized.address, "main", session_timeout=PATIENT_SECONDS)
    await authority.start(create=True)
    election = authority.candidate(ControllerDescriptor("c", "h", 1, 1))
    await election.elected()
    version = 0
    for number in (1, 2, 3):
        await sized.kill(number)
        began = time.monotonic()
        written = False
        while not written:  # For the time of their election nobody is answered.
            with suppress(AuthorityUnavailable):
                version = await authority.write(b"%d" % number, version)
                written = True
        print(f"server {number} killed: written after {time.monotonic() - began:.2f} s")
        await sized.restart(number)
    assert await authority.read() == (b"3", 3)
    assert not election.lost.is_set()
    await authority.close()


@needs_java
async def test_a_name_and_password_that_come_while_others_ask(ensemble: Ensemble) -> None:
    """ZooKeeper answers them ahead of what was asked before; kazoo takes answers in the order of the questions."""
    authority = KazooAuthority(ensemble.address, "main")
    await authority.start(create=True)
    session = authority._session
    await session.create("/counted", b"")
    for number in range(20):
        asked = [asyncio.ensure_future(session.set("/counted", b"", -1)) for _ in range(10)]
        await asyncio.sleep(0)  # They are on their way.
        session.allow([f"one:{number}"])
        later = asyncio.ensure_future(session.get("/counted"))
        assert [await each for each in asked] == list(range(number * 10 + 1, number * 10 + 11))
        assert (await later).version >= number * 10
    await authority.close()
