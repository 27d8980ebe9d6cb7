"""What ``headrace up`` does with its parts, whatever they do: start, keep, stop, refuse."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import cast

import httpx
import pytest
from running_cluster import DEADLINE, Running, alive, until

from controller.cluster.state import ClusterState
from headrace.cluster.child import LONGEST_SECONDS, Backoff, ClusterPart, PartProcess, ending
from headrace.cluster.directory import ClusterDirectory, shards_of
from headrace.cluster.supervisor import Supervisor
from headrace.serving.listening import StartFailed
from headrace.settings import Settings
from zookeeper.kazoo_authority import KazooAuthority
from zookeeper.registration import ControllerDescriptor, WorkerDescriptor

Launch = Callable[..., Running]


def test_up_and_down_and_up_again(launch_fake: Launch, tmp_path: Path) -> None:
    addresses = set()
    for stop in (signal.SIGINT, signal.SIGTERM):
        running = launch_fake("--workers", "2", "--verbose").serves()
        assert httpx.get(f"{running.url}/healthz", timeout=60).text == "api-1"
        pids = running.pids()
        assert sorted(pids) == ["api-1", "controller-1", "controller-2", "worker-1", "worker-2", "zookeeper-1"]
        assert all(map(alive, pids.values()))
        (tmp_path / "data" / "stopped").unlink(missing_ok=True)
        code, out, err = running.stop(stop)
        assert (code, err) == (0, "")
        assert f"  worker-2: process {pids['worker-2']}" in out
        where = re.search(r"2 workers, 2 controllers, 1 api; ZooKeeper at (127\.0\.0\.1:\d+)\n", out)
        assert where is not None
        addresses.add(where[1])
        assert out.endswith("headrace has stopped\n")
        assert not any(map(alive, pids.values()))
        order = [line.rpartition("-")[0] for line in (tmp_path / "data" / "stopped").read_text().split()]
        assert order == ["api", "controller", "controller", "worker", "worker"]
    assert len(addresses) == 1, "whoever was told of ZooKeeper finds it after a restart, too"


def test_what_dies_is_started_again_and_what_was_decided_need_not_be_said_again(launch_fake: Launch) -> None:
    """One test of both, since each start of three ZooKeepers is three JVMs."""
    several = ("--workers", "2", "--apis", "2", "--zookeepers", "3")
    running = launch_fake(*several, "--deployment", "ours").serves()
    for name in ("worker-1", "controller-2", "api-1", "zookeeper-2"):
        pid = running.pids()[name]
        os.kill(pid, signal.SIGKILL)
        running.read_until(rf"{name} (was killed by SIGKILL|has ended); it is started again in 0.1 s")
        until(lambda: running.pids().get(name, pid) != pid)  # noqa: B023  (it is asked within the round)
        # The socket is the supervisor's: no request meets a closed port.
        assert httpx.get(f"{running.url}/healthz", timeout=60).is_success
    assert all(map(alive, running.pids().values()))
    assert len(running.pids()) == 9
    assert running.stop()[0] == 0
    one = ("--workers", "1", "--controllers", "1")
    again = launch_fake(*one).serves()
    assert {"zookeeper-1", "zookeeper-2", "zookeeper-3"} < again.pids().keys()
    assert again.stop()[0] == 0
    code, _, err = launch_fake(*one, "--zookeepers", "1").finish()
    assert code == 1
    assert re.search(r"one of 3 .*one of 1 .*start it with 3", err), err


def test_all_parts_get_the_settings(launch_fake: Launch, elsewhere: tuple[str, str], tmp_path: Path) -> None:
    (tmp_path / "headrace.toml").write_text('shards = 7\nworker_port = 1\nname = "mine"\ndeployment = "other"\n')
    running = launch_fake("--workers", "1", *elsewhere, HEADRACE_ZOOKEEPER_AUTH="us:secret").serves()
    for name in ("worker-1", "controller-1", "api-1"):
        assert (tmp_path / "data" / "logs" / f"{name}.log").read_text() == f"{name} runs with shards 7\n"
        command = Path(f"/proc/{running.pids()[name]}/cmdline").read_text()
        assert "us:secret" not in command
    assert running.stop()[0] == 0


def test_another_zookeeper_need_not_be_named_again(launch_fake: Launch, ensemble_address: str) -> None:
    one, address = ("--workers", "1", "--controllers", "1"), f"{ensemble_address}/another"
    for given in ((address,), (), (address.replace("127.0.0.1", "localhost"),), ()):
        asked = ("--zookeeper", *given) if given else ()
        running = launch_fake(*one, *asked).serves()
        assert "zookeeper-1" not in running.pids()
        code, out, _ = running.stop()
        assert code == 0
        address = given[0] if given else address
        assert f"ZooKeeper at {address}\n" in out


class Decided:
    """As much of an authority as is asked: its state."""

    deployment = "ours"

    def __init__(self, shards: int | None) -> None:
        self.shards = shards

    async def read(self) -> tuple[bytes | None, int]:
        return (None, 0) if self.shards is None else (ClusterState("ours", self.shards, 1, 1).encode(), 1)


@pytest.mark.parametrize(
    ("decided", "given", "counts"), [(None, None, 4), (None, 7, 7), (6, None, 6), (6, 6, 6), (6, 8, None), (6, 1, None)]
)
async def test_how_many_shards_count(decided: int | None, given: int | None, counts: int | None) -> None:
    authority = cast(KazooAuthority, Decided(decided))
    if counts is not None:
        assert await shards_of(Settings(shards=given), authority) == counts
        return
    with pytest.raises(StartFailed, match=f'"ours" has 6 shards since its first start, not {given}'):
        await shards_of(Settings(shards=given), authority)


def test_a_part_that_does_not_start(launch_fake: Launch, elsewhere: tuple[str, str]) -> None:
    running = launch_fake(*elsewhere, FAKE="worker-2=refuses")
    code, out, err = running.finish()
    assert code == 1
    assert "answers" not in out
    assert re.search(r"worker-2 .*the fake refuses \(ask it", err), err
    assert "hint: see " in err
    assert "Traceback" not in err
    assert running.pids() == {}


class Empty:
    """As much of an authority as is asked: nobody is registered."""

    async def workers(self) -> dict[str, WorkerDescriptor]:
        return {}

    async def candidates(self) -> dict[str, ControllerDescriptor]:
        return {}


async def test_a_part_that_has_died_is_missing_until_it_is_back(tmp_path: Path) -> None:
    """While it is down it has no process number, and whoever is not registered has none either."""
    part = ClusterPart("worker-1", ("sh", "-c", "echo error: no room; exit 1"), os.environ, tmp_path / "log", 5.0)
    supervisor = Supervisor(Settings(data=tmp_path), print)
    supervisor._directory = ClusterDirectory(tmp_path)
    child = PartProcess(part, print, supervisor._changed)
    child._backoff.next = LONGEST_SECONDS
    supervisor._children = [child]
    await child.start()
    async with asyncio.timeout(DEADLINE):
        await supervisor._ended.wait()
    assert child.pid is None
    assert await supervisor._missing(cast(KazooAuthority, Empty())) == "worker-1"
    assert re.search("worker-1.*: no room", supervisor._not_started().message)
    await child.stop()


async def test_a_stop_while_a_part_is_started_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """At whatever moment it comes, the process is waited for by one only; two of them tell of an unknown child."""
    for moment in range(40):
        part = ClusterPart("worker-1", ("sh", "-c", "exit 1"), os.environ, tmp_path / "log", 5.0)
        child = PartProcess(part, lambda told: None, lambda: None)
        child._backoff.next = 0.0
        await child.start()
        async with asyncio.timeout(DEADLINE):
            while not child.ends:
                await asyncio.sleep(0)
            for _ in range(moment):
                await asyncio.sleep(0)
            await child.stop()
        assert child.pid is None
    assert not caplog.records


def test_a_part_that_keeps_dying_is_tried_again_later_and_later(
    launch_fake: Launch, elsewhere: tuple[str, str], tmp_path: Path
) -> None:
    running = launch_fake("--workers", "1", *elsewhere).serves()
    # From now on it cannot live: its directory is another deployment's.
    (tmp_path / "data" / "deployment.json").write_text('{"deployment": "other", "id": "1"}')
    os.kill(running.pids()["worker-1"], signal.SIGKILL)
    for wait in ("0.1", "0.2", "0.4", "0.8"):
        running.read_until(rf"worker-1 (was killed by SIGKILL|ended with exit code 1); .* in {wait} s")
    assert httpx.get(f"{running.url}/healthz", timeout=60).is_success
    code, _, err = running.stop()
    assert (code, err) == (0, "")


def test_two_on_one_directory(launch_fake: Launch, elsewhere: tuple[str, str]) -> None:
    first = launch_fake("--workers", "1", *elsewhere).serves()
    code, _, err = launch_fake("--workers", "1", *elsewhere).finish()
    assert code == 1
    assert f"(process {first.popen.pid})" in err
    assert "--data" in err
    assert httpx.get(f"{first.url}/healthz", timeout=60).is_success
    assert first.stop()[0] == 0


def test_a_supervisor_that_is_killed_leaves_nothing_in_the_way(launch_fake: Launch) -> None:
    first = launch_fake("--workers", "2", FAKE="worker-2=ignores").serves()
    left = first.pids()
    os.kill(first.popen.pid, signal.SIGKILL)
    # Those that can end do, since their input has ended.
    until(lambda: not any(alive(pid) for name, pid in left.items() if name not in ("worker-2", "zookeeper-1")))
    second = launch_fake("--workers", "2").serves()
    assert any("left running: worker-2, zookeeper-1" in line for line in second.lines)
    assert not any(map(alive, left.values()))
    assert second.stop()[0] == 0


def test_who_is_in_a_hurry_says_so_twice(launch_fake: Launch, elsewhere: tuple[str, str]) -> None:
    running = launch_fake("--workers", "1", *elsewhere, FAKE="worker-1=ignores").serves()
    running.popen.send_signal(signal.SIGINT)
    running.read_until("stopping")
    until(lambda: not alive(running.pids().get("api-1", 0)) and not alive(running.pids().get("controller-1", 0)))
    running.popen.send_signal(signal.SIGINT)
    code, out, _ = running.finish()
    assert code == 0
    assert out.endswith("headrace has stopped\n")


def test_a_stop_while_it_starts(launch_fake: Launch) -> None:
    running = launch_fake()
    until(lambda: (running.data / "zookeeper" / "1" / "zoo.cfg").exists())
    code, out, err = running.stop()
    assert (code, err) == (0, "")
    assert "answers" not in out
    # And nothing is in the way of the next.
    assert launch_fake("--workers", "1").serves().stop()[0] == 0


def test_port_taken(launch_fake: Launch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, _, err = launch_fake("--port", str(port)).finish()
    assert code == 1
    assert f"cannot listen on 127.0.0.1:{port}" in err


def test_data_of_an_embedded_server(launch_fake: Launch, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "recipe.json").write_text("{}")
    code, _, err = launch_fake().finish()
    assert code == 1
    assert "is that of headrace serve" in err


def test_wrong_zookeeper(launch_fake: Launch) -> None:
    for address, says in (("nonsense:x", "is not an address of ZooKeeper"), ("127.0.0.1:1", "cannot reach ZooKeeper")):
        code, _, err = launch_fake("--zookeeper", address).finish()
        assert code == 1
        assert says in err
        assert "Traceback" not in err


def test_no_java(launch_fake: Launch, tmp_path: Path) -> None:
    code, _, err = launch_fake(PATH=str(tmp_path), JAVA_HOME="").finish()
    assert code == 1
    assert "needs Java" in err
    assert "--zookeeper" in err


def test_clusters_share_a_zookeeper_and_not_a_directory(launch_fake: Launch) -> None:
    first = launch_fake("--workers", "1").serves()
    other = ("--workers", "1", "--zookeeper", first.zookeeper())
    code, _, err = launch_fake(*other, "--deployment", "second", data="stranger").finish()
    assert code == 1, "it has another secret"
    assert "--secret-file" in err
    other += ("--secret-file", str(first.data / "secret"))
    second = launch_fake(*other, "--deployment", "second", data="second").serves()
    assert sorted(second.pids()) == ["api-1", "controller-1", "controller-2", "worker-1"]
    code, _, err = launch_fake(*other, "--deployment", "second", data="third").finish()
    assert code == 1, "its names are taken"
    assert second.stop()[0] == 0
    # The directory remembers whose it is.
    code, _, err = launch_fake(*other, "--deployment", "third", data="second").finish()
    assert code == 1
    assert 'belongs to deployment "second", not to "third"' in err
    assert first.stop()[0] == 0
    # And which ZooKeeper's, also where that is away.
    again = launch_fake("--workers", "1", "--deployment", "second", data="second")
    code, _, err = again.finish()
    assert code == 1
    assert "cannot reach ZooKeeper" in err
    kept = again.data / "zookeeper.address"
    assert f'"{kept}" has it from the last start' in err
    kept.unlink()
    code, _, err = launch_fake("--workers", "1", "--deployment", "second", data="second").finish()
    assert code == 1
    assert 'belongs to another deployment "second"' in err


def test_backoff() -> None:
    backoff = Backoff()
    assert [round(backoff.after(1.0), 1) for _ in range(8)] == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]
    assert backoff.after(11.0) == 0.1
    assert backoff.after(1.0) == 0.2


def test_endings() -> None:
    assert ending(3) == "ended with exit code 3"
    assert ending(-9) == "was killed by SIGKILL"
    assert ending(-99) == "was killed by signal 99"
