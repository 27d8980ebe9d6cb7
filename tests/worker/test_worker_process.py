"""Workers as others meet them: over the wire, on real ports, with real storage; and in processes that are killed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from domains.errors import BadRequest, HeadraceError, NotFound, ReadTimeout, Unavailable
from domains.plan.commands import Activate, CreateTable, Progress
from domains.plan.graph import DomainIndex, NodeIndex
from domains.plan.packets import Evicted, Insert
from tests.kit.leading_workers import SECRET, Led, Told, leading, planned
from worker.embedded import shard_directory
from worker.protocol.messages import (
    CloseDomain,
    Done,
    EvictRequest,
    NotHere,
    OpenDomain,
    PagesInParts,
    Perform,
    Ping,
    Pong,
    ProtocolError,
    ReadRequest,
    Reconfigure,
    Report,
    Role,
    RowCounts,
    RowsRequest,
    StaleEpoch,
    Status,
    TouchRequest,
    WorkerReport,
    WriteRequest,
    version_of,
)
from worker.protocol.operations import FlushDomain, LinkRequest
from worker.reader_map import BoundLookup
from worker.service import system
from worker.service.process import running
from worker.service.shards import Shard, read_owner
from worker.wire.connection import connect, greeting
from zookeeper.memory import MemoryZooKeeper
from zookeeper.registration import WorkerDescriptor

SQL = """
CREATE TABLE stories (id INT PRIMARY KEY, author INT NOT NULL) SHARD BY (id);
CREATE TABLE votes (story INT NOT NULL, user INT NOT NULL) SHARD BY (story);
CREATE VIEW ByAuthor AS SELECT id, author FROM stories WHERE author = ? ORDER BY id;
CREATE VIEW VoteCount AS SELECT story, COUNT(*) AS n FROM votes WHERE story = ? GROUP BY story;
CREATE VIEW Karma AS SELECT author, COUNT(*) AS n FROM votes JOIN stories ON story = id WHERE author = ? GROUP BY author
"""
STORIES = 12
BASE = DomainIndex(0)


async def fill(led: Led) -> dict[str, int]:
    """Story ``n`` is by author ``n % 3`` and has ``n`` votes."""
    await led.write(Insert("stories", tuple((number, number % 3) for number in range(STORIES))))
    token: dict[str, int] = {}
    for number in range(1, STORIES):
        token |= await led.write(Insert("votes", tuple((number, user) for user in range(number))))
    return token


async def check(led: Led, token: dict[str, int]) -> None:
    for author in range(3):
        votes = sum(number for number in range(STORIES) if number % 3 == author)
        assert await led.page("Karma", (author,), token) == b'{"author":%d,"n":%d}' % (author, votes)


async def test_a_sharded_graph_over_two_workers(tmp_path: Path) -> None:
    async with leading(tmp_path, SQL, names=("a", "b"), shards=2, groups=2) as led:
        token = await fill(led)
        await check(led, token)
        token = await led.write(Insert("votes", ((4, 100),)))
        assert await led.page("Karma", (1,), token) == b'{"author":1,"n":23}'
        pages = await asyncio.gather(*(led.page("VoteCount", (number,)) for number in range(STORIES)))
        assert pages[5] == b'{"story":5,"n":5}'
        await led.quiet()


async def test_state_gives_way_to_what_else_a_worker_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    beyond = 10_000_000
    monkeypatch.setattr(system, "private_bytes", lambda: system.explained_bytes(Told.memory_limit) + beyond)
    async with leading(tmp_path, SQL, names=("a",), shards=1, groups=1) as led:
        assert led.own["a"].dataflow.hosted.outside == beyond
        beyond = 0
        async with asyncio.timeout(10):
            while led.own["a"].dataflow.hosted.outside:
                await asyncio.sleep(0.05)


async def test_domains_move_while_others_serve(tmp_path: Path) -> None:
    async with leading(tmp_path, SQL, names=("a", "b"), shards=2, groups=2) as led:
        token = await fill(led)
        await check(led, token)
        for index, to in ((BASE, "b"), (DomainIndex(3), "a"), (BASE, "a")):
            for name in "aab":
                assert await led.ask(name, FlushDomain(led.epoch, index)) == Done()
            await check(led, token)
            assert await led.ask(led.homes[index][0], CloseDomain(led.epoch, index)) == Done()
            await led.place({index: to})
            await check(led, token)
            await led.quiet()
        owner = read_owner(shard_directory(tmp_path, 0))
        assert owner is not None
        assert (owner.worker, owner.incarnation) == ("a", led.homes[BASE][1])


async def test_who_waits_for_a_domain_is_told_when_it_is_linked(tmp_path: Path) -> None:
    async with leading(tmp_path, SQL, names=("a", "b"), shards=2, groups=1) as led:
        to = "b" if led.homes[BASE][0] == "a" else "a"
        write = WriteRequest(BASE, Insert("stories", ((2, 1),)), version_of(led.state.catalog.table("stories")))
        with pytest.raises(NotHere) as refused:
            await led.apis[to].ask(write)
        assert refused.value.unlinked
        with pytest.raises(NotHere, match="not linked here within"):
            await led.apis[to].ask(LinkRequest(BASE, 0.01))
        waits = [asyncio.ensure_future(led.apis[to].ask(LinkRequest(BASE, 60.0))) for _ in range(3)]
        await led.ask(led.homes[BASE][0], CloseDomain(led.epoch, BASE))
        assert not any(wait.done() for wait in waits)
        await led.place({BASE: to})
        assert await asyncio.gather(*waits) == [Done()] * 3
        assert await led.apis[to].ask(LinkRequest(BASE, 0.0)) == Done()
        assert await led.apis[to].ask(write)


async def test_others_go_on_while_a_shard_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Closing takes long. A report does not come before its end: whoever opened a shard that is locked would kill."""
    may_close, is_closing, close = threading.Event(), threading.Event(), Shard.close

    def slow(shard: Shard) -> None:
        is_closing.set()
        may_close.wait()
        close(shard)

    monkeypatch.setattr(Shard, "close", slow)
    async with leading(tmp_path, SQL, names=("a",), shards=2, groups=1) as led:
        try:
            closing = asyncio.ensure_future(led.controls["a"].ask(CloseDomain(led.epoch, BASE)))
            assert await asyncio.to_thread(is_closing.wait, 10)
            report = asyncio.ensure_future(led.controls["a"].ask(Report(led.epoch)))
            other = next(n for n in range(STORIES) if led.reader("VoteCount", (n,))[0] != BASE)
            await led.write(Insert("votes", ((other, 77),)))
            assert not closing.done()
            assert not report.done()
        finally:
            may_close.set()
        assert await closing == Done()
        assert set((await report).domains) == {1}


async def test_what_a_leader_may_ask(tmp_path: Path) -> None:
    async with leading(tmp_path, SQL, names=("a", "b"), shards=2, groups=2) as led:
        await fill(led)
        incarnation = led.workers["a"].incarnation
        assert await led.ask("a", Ping(led.epoch)) == Pong("a", incarnation)
        report = await led.ask("a", Report(led.epoch))
        assert isinstance(report, WorkerReport)
        assert report.epoch == led.epoch
        assert set(report.domains) == {index for index, (name, _) in led.homes.items() if name == "a"}
        assert report.known == {index: at for index, (_, at) in led.homes.items()}
        base = report.domains[BASE]
        assert (base.incarnation, base.linked, base.building) == (2, True, frozenset())
        assert {schema.name for schema in base.tables} == {"stories", "votes"}
        assert base.positions["stories@0"] == 1
        assert await led.ask("a", OpenDomain(led.epoch, BASE, 2, 0, 2)) == Done(), "it is open already"
        assert await led.ask("a", CloseDomain(led.epoch, DomainIndex(77))) == Done()
        # Another leads from now on.
        assert await led.ask("a", Ping(led.epoch + 1))
        for message in (
            Ping(led.epoch),
            Report(led.epoch),
            OpenDomain(led.epoch, DomainIndex(9), 2, 1, 2),
            CloseDomain(led.epoch, BASE),
            Perform(led.epoch, BASE, Activate()),
            Reconfigure(led.epoch, {}),
        ):
            with pytest.raises(StaleEpoch) as raised:
                await led.ask("a", message)
            assert raised.value.epoch == led.epoch + 1
        with pytest.raises(StaleEpoch, match="later than 1"):
            await led.ask("a", OpenDomain(led.epoch + 1, BASE, 1, 0, 2))


async def test_what_was_asked_before_a_report_is_in_it(tmp_path: Path) -> None:
    """Also where a command has to wait, and an opening takes its time."""
    async with leading(tmp_path, SQL, names=("a",), shards=2, groups=1) as led:
        schema = planned("CREATE TABLE extra (a INT)", 2, 1).catalog.table("extra")
        control = led.controls["a"]
        asked = [
            control.ask(Perform(led.epoch, BASE, CreateTable(schema))),
            control.ask(OpenDomain(led.epoch, DomainIndex(7), led.epoch, 1, 2)),
            control.ask(CloseDomain(led.epoch, DomainIndex(1))),
        ]
        report = await control.ask(Report(led.epoch))
        assert "extra" in {table.name for table in report.domains[BASE].tables}
        assert set(report.domains) == {0, 7}
        assert await asyncio.gather(*asked) == [Progress(0, True), Done(), Done()]


async def test_who_may_lead(tmp_path: Path) -> None:
    async with leading(tmp_path, SQL, names=("a",), shards=1, groups=1) as led:
        for message in (Ping(99), Report(99), OpenDomain(99, BASE, 99, 0, 1), Perform(99, BASE, Activate())):
            hello = greeting("main", Role.API, "an api", 1)
            connection = await connect("127.0.0.1", led.workers["a"].port, hello, secret=SECRET)
            with pytest.raises(ProtocolError, match="for controllers alone"):
                await connection.ask(message)
            connection.close()
        assert (await led.ask("a", Report(led.epoch))).epoch == led.epoch


# --- api processes ------------------------------------------------------------------------------------------------


async def test_what_an_api_process_may_ask(tmp_path: Path) -> None:
    async with leading(tmp_path, SQL, names=("a", "b"), shards=2, groups=2) as led:
        await fill(led)
        await check(led, {})
        index, node = led.reader("Karma", (1,))
        api = led.apis[led.homes[index][0]]
        request = ReadRequest(index, node, (BoundLookup(((1,),)), BoundLookup(())), {}, 5.0)
        assert (await api.ask(request)).pages == (b'{"author":1,"n":22}', b"")
        parts = await api.ask(replace(request, lookups=(BoundLookup(((1,),)),), in_parts=True))
        assert isinstance(parts, PagesInParts)
        ((_, row),) = parts.pages[0][0]
        assert row == b'{"author":1,"n":22}'
        assert await api.ask(EvictRequest(index, node, ((1,), (1,), (77,)))) == Evicted(1)
        api.tell(TouchRequest(index, node, ((1,),)))
        api.tell(TouchRequest(DomainIndex(99), node, ((1,),)))
        assert (await api.ask(request)).pages[0] == b'{"author":1,"n":22}'
        counts = [await led.apis[led.homes[base][0]].ask(RowsRequest(base)) for base in (BASE, DomainIndex(1))]
        assert all(isinstance(count, RowCounts) for count in counts)
        assert sum(count.rows["votes"] for count in counts) == STORIES * (STORIES - 1) // 2
        status = (await api.ask(Status())).document
        json.dumps(status)
        assert status["health"] == "ok"
        assert status["memory"]["accounted"] > 0
        assert {domain["domain"] for domain in status["domains"]} <= set(led.homes)


async def test_what_is_not_here_is_refused_and_nothing_is_done(tmp_path: Path) -> None:
    async with leading(tmp_path, SQL, names=("a", "b"), shards=2, groups=2) as led:
        index, node = led.reader("Karma", (1,))
        schema = led.state.catalog.table("stories")
        insert = Insert("stories", ((2, 1),))
        elsewhere = led.apis["b" if led.homes[BASE][0] == "a" else "a"]
        here = led.apis[led.homes[BASE][0]]
        refused: list[tuple[Any, Any]] = [
            (elsewhere, WriteRequest(BASE, insert, version_of(schema))),
            (elsewhere, RowsRequest(BASE)),
            (elsewhere, EvictRequest(BASE, node, ())),
            (here, WriteRequest(BASE, insert, version_of(schema) + 1)),
            (led.apis[led.homes[index][0]], ReadRequest(index, NodeIndex(9999), (BoundLookup(((1,),)),), {}, 1.0)),
            (led.apis["b" if led.homes[index][0] == "a" else "a"], ReadRequest(index, node, (), {}, 1.0)),
        ]
        for connection, message in refused:
            with pytest.raises(NotHere) as raised:
                await connection.ask(message)
            assert raised.value.epoch in (0, led.epoch)
        assert await here.ask(WriteRequest(BASE, insert, version_of(schema)))
        with pytest.raises(HeadraceError) as twice:
            await here.ask(WriteRequest(BASE, insert, version_of(schema)))
        assert twice.value.code == "constraint_violation"


async def test_a_read_does_not_wait_longer_than_it_says(tmp_path: Path) -> None:
    async with leading(tmp_path, SQL, names=("a",), shards=1, groups=1) as led:
        with pytest.raises(ReadTimeout):
            await led.page("Karma", (1,), {"votes": 99}, within=0.05)
        dataflow = led.own["a"].dataflow
        await asyncio.wrap_future(dataflow.call(lambda: None))
        await led.write(Insert("votes", ((1, 1),)))
        assert len(dataflow.hosted.waits) == 0, "who gave up is forgotten"
        assert await led.page("Karma", (1,), {"votes": 1}) == b""


# --- starting and stopping ----------------------------------------------------------------------------------------


async def test_a_port_that_is_taken_and_a_directory_of_another_deployment(tmp_path: Path) -> None:
    zookeeper = MemoryZooKeeper()
    one, two = zookeeper.authority("main"), zookeeper.authority("other")
    await one.start(create=True)
    await two.start(create=True)
    async with running(Told("a", tmp_path / "data"), one) as worker:
        with pytest.raises(Unavailable, match="cannot listen"):
            async with running(Told("b", tmp_path / "elsewhere", worker_port=worker.descriptor.port), two):
                raise AssertionError("it has no port")
        with pytest.raises(BadRequest, match='belongs to deployment "main"'):
            async with running(Told("b", tmp_path / "data"), two):
                raise AssertionError("it is not its data")
        assert not list((tmp_path / "elsewhere" / "workers" / "b").glob("*")), "nothing is left behind"
    (tmp_path / "file").write_text("")
    with pytest.raises(HeadraceError, match="data directory"):
        async with running(Told("c", tmp_path / "file"), one):
            raise AssertionError("it is a file")


async def test_names_and_hosts_that_nobody_could_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is made: a worker that is registered where nobody reaches it is given domains by nobody."""
    authority = MemoryZooKeeper().authority("main")
    await authority.start(create=True)
    monkeypatch.setattr(socket, "gethostname", lambda: "a" * 80)
    for told, says in (
        (Told("a", tmp_path / "data", host="0.0.0.0"), 'cannot reach this process at "0.0.0.0"'),
        (Told("a", tmp_path / "data", advertise="::"), 'cannot reach this process at "::"'),
        (Told("", tmp_path / "data"), "is not a name of a worker"),
    ):
        with pytest.raises(BadRequest, match=says):
            async with running(told, authority):
                raise AssertionError("it runs")
    assert not (tmp_path / "data").exists()
    async with running(Told("a", tmp_path / "data", host="0.0.0.0", advertise="127.0.0.1"), authority) as worker:
        assert worker.descriptor.host == "127.0.0.1"


async def test_a_newer_process_of_the_same_name_takes_its_place(tmp_path: Path) -> None:
    zookeeper = MemoryZooKeeper()
    one, two = zookeeper.authority("main"), zookeeper.authority("main")
    await one.start(create=True)
    await two.start()
    async with running(Told("a", tmp_path), one) as first, AsyncExitStack() as opened:
        second = await opened.enter_async_context(running(Told("a", tmp_path), two))
        async with asyncio.timeout(60):
            await one.superseded.wait()
        assert second.descriptor.incarnation > first.descriptor.incarnation
        assert (await two.workers())["a"] == second.descriptor
        assert not Path(first.descriptor.reader_map).exists()
        assert Path(second.descriptor.reader_map).exists()


class Child:
    """A worker in a process of its own."""

    def __init__(self, process: asyncio.subprocess.Process, descriptor: WorkerDescriptor) -> None:
        self.process = process
        self.descriptor = descriptor


@asynccontextmanager
async def children(data: Path, *names: str, bug: bool = False) -> AsyncIterator[dict[str, Child]]:
    found: dict[str, Child] = {}
    script = str(Path(__file__).parent / "worker_child.py")
    root = str(Path(__file__).parents[2])
    try:
        for name in names:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                script,
                name,
                str(data),
                *(["bug"] if bug else []),
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env={**os.environ, "PYTHONPATH": f"{root}:{root}/clients/python"},
            )
            assert process.stdout is not None
            line = await asyncio.wait_for(process.stdout.readline(), 60)
            found[name] = Child(process, WorkerDescriptor(**json.loads(line)))
        yield found
    finally:
        for child in found.values():
            if child.process.returncode is None:
                child.process.kill()
            await child.process.communicate()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
async def test_a_worker_that_dies_or_hangs_is_taken_over(tmp_path: Path, how: signal.Signals) -> None:
    led = Led(tmp_path, planned(SQL, 2, 2))
    async with children(tmp_path, "a", "b") as both, AsyncExitStack() as opened:
        for child in both.values():
            await led.join(child.descriptor, opened)
        await led.place({DomainIndex(index): "ab"[index % 2] for index in range(4)})
        token = await fill(led)
        await check(led, token)
        lost = both["a"].process
        lost.send_signal(how)
        if how is signal.SIGKILL:
            await lost.wait()
        homeless = [index for index, (name, _) in led.homes.items() if name == "a"]
        del led.workers["a"], led.controls["a"], led.apis["a"]
        await led.place(dict.fromkeys(homeless, "b"))
        await check(led, token)
        assert await asyncio.wait_for(lost.wait(), 60) == -signal.SIGKILL, "who hung was killed by who took over"
        token = await led.write(Insert("votes", ((4, 100),)))
        assert await led.page("Karma", (1,), token) == b'{"author":1,"n":23}'
        await led.quiet()


async def test_a_worker_that_is_asked_to_stop_leaves_its_shards_to_others(tmp_path: Path) -> None:
    led = Led(tmp_path, planned(SQL, 1, 1))
    async with children(tmp_path, "a", "b") as both, AsyncExitStack() as opened:
        for child in both.values():
            await led.join(child.descriptor, opened)
        await led.place({BASE: "a"})
        token = await fill(led)
        both["a"].process.terminate()
        _, log = await asyncio.wait_for(both["a"].process.communicate(), 60)
        assert both["a"].process.returncode == 0
        assert b'worker "a" stops' in log
        assert not Path(both["a"].descriptor.reader_map).exists()
        owner = read_owner(shard_directory(tmp_path, 0))
        assert owner is not None
        assert not owner.is_alive
        del led.workers["a"], led.controls["a"], led.apis["a"]
        await led.place({BASE: "b"})
        await check(led, token)


async def test_a_bug_ends_the_process_with_an_error(tmp_path: Path) -> None:
    async with children(tmp_path, "a", bug=True) as one:
        _, log = await asyncio.wait_for(one["a"].process.communicate(), 60)
        assert one["a"].process.returncode == 1
        assert b"a step failed" in log
        assert b'CRITICAL worker "a" cannot go on' in log


async def test_a_table_that_is_not_there(tmp_path: Path) -> None:
    async with leading(tmp_path, SQL, names=("a",), shards=1, groups=1) as led:
        with pytest.raises((NotHere, NotFound)):
            await led.apis["a"].ask(WriteRequest(BASE, Insert("nothing", ((1,),)), 1))
