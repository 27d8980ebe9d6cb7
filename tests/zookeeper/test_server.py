"""The bundled server: ports, data, what it says when it cannot start."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import struct
import zlib
from pathlib import Path

import pytest
from authority_kinds import NO_JAVA

import zookeeper.java
from zookeeper.errors import ServerFailed
from zookeeper.kazoo_authority import KazooAuthority
from zookeeper.server import Ensemble, check_log

needs_java = pytest.mark.skipif(NO_JAVA, reason="there is no java on PATH")


def fake_java(folder: Path, script: str) -> Path:
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return folder


async def test_no_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(ServerFailed, match=r"needs Java.*install Java 17"):
        await Ensemble(tmp_path / "data").start()
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    with pytest.raises(ServerFailed, match=r'neither JAVA_HOME \("/nowhere"\) nor PATH'):
        await Ensemble(tmp_path / "data").start()


@pytest.mark.parametrize(
    ("said", "says"),
    [
        ('java version "1.8.0_412"', "is Java 8"),
        ('openjdk version "16.0.2" 2021-07-20', "is Java 16"),
        ("Segmentation fault", "does not name its version of Java, but says: Segmentation fault"),
    ],
)
async def test_old_java(said: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "home", f"echo '{said}' >&2")))
    with pytest.raises(ServerFailed, match=says):
        await Ensemble(tmp_path / "data").start()


async def test_java_that_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A script, whose child holds the pipe: the hanging one had a migration wait for ever."""
    monkeypatch.setattr(zookeeper.java, "VERSION_SECONDS", 0.1)
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "home", "sleep 600; true")))
    async with asyncio.timeout(60):
        with pytest.raises(ServerFailed, match=r"version.* 0\.1 s"):
            await zookeeper.java.java()


async def test_java_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = 'case "$*" in -version) echo \'openjdk version "21"\';; *) echo broken; exit 3;; esac'
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "home", script)))
    with pytest.raises(ServerFailed, match=r"server 1 has ended \(see .*server.out"):
        await Ensemble(tmp_path / "data").start()
    assert (tmp_path / "data" / "1" / "server.out").read_text() == "broken\n"


async def test_no_jars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "home", "echo 'openjdk version \"21\"'")))
    monkeypatch.setattr(zookeeper.java, "find_spec", lambda name: None)
    with pytest.raises(ServerFailed, match=r"not installed \(pip install 'headrace\[spark\]'"):
        await Ensemble(tmp_path / "data").start()


@needs_java
async def test_port_taken(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ServerFailed, match=f"port {port} for ZooKeeper is taken"):
            await Ensemble(tmp_path, ports=[port]).start()


@needs_java
@pytest.mark.parametrize("size", [1, 3])
async def test_clients_find_it_where_it_was(size: int, tmp_path: Path) -> None:
    told: list[str] = []
    ensemble = Ensemble(tmp_path, size, tell=told.append)
    await ensemble.start()
    first = ensemble.address
    await ensemble.stop()
    again = Ensemble(tmp_path, size, tell=told.append)
    await again.start()
    assert again.address == first
    await again.stop()
    port = int(first.rpartition(":")[2])
    with socket.create_server(("127.0.0.1", port)):
        elsewhere = Ensemble(tmp_path, size, tell=told.append)
        await elsewhere.start()
    assert elsewhere.address != first
    assert len(told) == 1
    assert told[0].startswith(f"port {port} for ZooKeeper is taken")
    await elsewhere.stop()
    last = Ensemble(tmp_path, size, tell=told.append)
    await last.start()
    assert (last.address, len(told)) == (elsewhere.address, 1)
    await last.stop()


@needs_java
@pytest.mark.parametrize("kept", ["", "here", "0", "70000", "1 2"])
async def test_ports_that_cannot_be_kept(kept: str, tmp_path: Path) -> None:
    (tmp_path / "ports").write_text(kept)
    ensemble = Ensemble(tmp_path)
    await ensemble.start()
    assert (tmp_path / "ports").read_text() == f"{ensemble.address.rpartition(':')[2]}\n"
    await ensemble.stop()


@needs_java
async def test_the_state_outlives_a_stop_and_a_kill(tmp_path: Path) -> None:
    ensemble = Ensemble(tmp_path)
    for version in range(3):
        await ensemble.start()
        authority = KazooAuthority(ensemble.address, "main")
        await authority.start(create=True)
        assert (await authority.read())[1] == version
        await authority.write(b"%d" % version, version)
        await authority.close()
        await (ensemble.stop() if version else ensemble.kill(1))
        assert ensemble.pids == {}
    assert (tmp_path / "1" / "server.log").stat().st_size > 0


@needs_java
async def test_the_end_of_a_server_is_noticed(tmp_path: Path) -> None:
    ensemble = Ensemble(tmp_path, 3)
    await ensemble.start()
    ended = asyncio.create_task(ensemble.ended())
    await ensemble.restart(1)
    assert not ended.done()
    os.kill(ensemble.pids[2], signal.SIGKILL)
    assert await asyncio.wait_for(ended, 60) == 2
    assert sorted(ensemble.pids) == [1, 3]
    await ensemble.restart(2)
    assert sorted(ensemble.pids) == [1, 2, 3]
    await ensemble.stop()


@needs_java
async def test_a_directory_that_nobody_can_write() -> None:
    with pytest.raises(ServerFailed, match='cannot write to "/proc/headrace"'):
        await Ensemble(Path("/proc/headrace")).start()


async def test_the_number_of_servers_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(ServerFailed, match="needs Java"):
        await Ensemble(tmp_path).start()
    with pytest.raises(ServerFailed, match=r"one of 1 .*one of 3 .*start it with 1"):
        await Ensemble(tmp_path, 3).start()


@pytest.mark.parametrize("size", [0, 2, 4])
def test_sizes_that_make_no_sense(size: int, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="1 server or 3"):
        Ensemble(tmp_path, size)


CHANGES = [b"one", b"another change", b"the last one"]


def log_of(changes: list[bytes]) -> bytes:
    """As ZooKeeper writes it, with what it has allocated behind."""
    records = [struct.pack(">qi", zlib.adler32(each), len(each)) + each + b"B" for each in changes]
    return struct.pack(">4siq", b"ZKLG", 2, 0) + b"".join(records) + bytes(300)


def taken_from(log: bytes) -> list[bytes] | None:
    """The changes that ZooKeeper takes from a log; None where it refuses it."""
    at, found = 16, []
    while len(log) > at + 12:
        checksum, length = struct.unpack_from(">qi", log, at)
        change = log[at + 12 : at + 12 + length]
        if length <= 0 or log[at + 12 + length : at + 13 + length] != b"B":
            return found
        if zlib.adler32(change) != checksum:
            return None
        found.append(change)
        at += 13 + length
    return found


def is_refused(path: Path, log: bytes) -> bool:
    path.write_bytes(log)
    try:
        check_log(path)
    except ServerFailed as error:
        assert "is damaged at byte" in error.message  # noqa: PT017
        return True
    return False


def test_a_bit_that_turns_in_zookeepers_log_takes_no_change_without_a_word(tmp_path: Path) -> None:
    path, whole = tmp_path / "log.1", log_of(CHANGES)
    assert taken_from(whole) == CHANGES
    assert not is_refused(path, whole)
    read_past = 0
    for bit in range(8 * 16, 8 * len(whole.rstrip(b"\0"))):
        log = bytearray(whole)
        log[bit // 8] ^= 1 << bit % 8
        taken = taken_from(bytes(log))
        read_past += taken not in (None, CHANGES)
        assert is_refused(path, bytes(log)) or taken in (None, CHANGES), bit
    assert read_past > 20


def test_a_log_that_a_crash_has_torn_is_none_that_is_damaged(tmp_path: Path) -> None:
    whole = log_of(CHANGES)
    for end in range(16, len(whole.rstrip(b"\0")) - 1):
        assert not is_refused(tmp_path / "log.1", whole[:end] + bytes(300)), end
