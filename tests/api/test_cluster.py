"""An api process of a cluster: what it does when parts of the cluster are away, are elsewhere than it knows, or change
while it asks."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from api.lookups.lookups import LookupCalls
from controller.cluster.serving import directory
from controller.cluster.serving.deployment import ClusterDeployment
from controller.cluster.serving.directory import Directory
from controller.cluster.serving.overview import views_of
from controller.cluster.state import ClusterState
from controller.deployment import ReasonKind, health_of
from domains.errors import (
    AlreadyExists,
    NoLeader,
    NotFound,
    NotServed,
    OutcomeUnknown,
    StorageFailure,
    Unavailable,
    UnknownName,
)
from domains.plan.graph import DomainIndex
from domains.plan.packets import Once
from tests.kit.cluster_deployment import SHARDS, InProcess, open_cluster
from worker.protocol.messages import ConnectionLost, Role, WriteRequest
from worker.rocks.table import RocksTable
from worker.wire.connection import greeting
from zookeeper.memory import MemoryZooKeeper

SCHEMA = """
CREATE TABLE items (id BIGINT NOT NULL PRIMARY KEY, kind TEXT NOT NULL, n BIGINT NOT NULL DEFAULT 0);
CREATE VIEW ById AS SELECT id, kind, n FROM items WHERE id = ?;
CREATE VIEW ByKind AS SELECT kind, COUNT(*) AS items, SUM(n) AS total FROM items WHERE kind = ? GROUP BY kind
"""
DEADLINE = 60.0


@pytest.fixture(params=["maps", "remote"])
async def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[InProcess]:
    opened = await open_cluster(tmp_path, maps=request.param == "maps")
    await opened.execute(SCHEMA)
    yield opened
    await opened.close()


async def eventually(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE):
        while not holds():
            await asyncio.sleep(0.002)


async def rows(cluster: ClusterDeployment, view: str, key: str) -> list[dict[str, object]]:
    parameter = "id" if view == "ById" else "kind"
    found: list[dict[str, object]] = json.loads(b"[" + await cluster.page(view, {parameter: [key]}) + b"]")
    return found


async def another(cluster: InProcess) -> ClusterDeployment:
    """A second api process of the same cluster."""
    authority = cluster.zookeeper.authority()
    await authority.start()
    cluster.around.push_async_callback(authority.close)
    return await ClusterDeployment.open(
        authority, greeting("main", Role.API, "api2", 1), lambda _: cluster.leader, read_timeout=DEADLINE
    )


# --- what was written is read ---------------------------------------------------------------------------------------


async def test_every_write_is_read_with_its_token(cluster: InProcess) -> None:
    """Also where the view's shard is another than the table's, at another worker."""
    for number in range(60):
        kind = f"k{number % 7}"
        written = await cluster.insert("items", [{"id": number, "kind": kind, "n": 1}])
        page = await cluster.page("ByKind", {"kind": [kind]}, token=written.clock)
        assert json.loads(page)["items"] == number // 7 + 1
    assert cluster.counted()[0] == 0, "a token that nobody has seen is never answered by a hit"
    written = await cluster.insert("items", [{"id": 100 + number, "kind": "all"} for number in range(2 * SHARDS)])
    for _ in range(2):
        assert json.loads(await cluster.page("ByKind", {"kind": ["all"]}, token=written.clock))["items"] == 2 * SHARDS


async def test_a_view_whose_base_cannot_be_read_at_another_worker_says_so_at_once(
    cluster: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    await cluster.insert("items", [{"id": number, "kind": f"k{number % 7}"} for number in range(21)])

    def fail(table: RocksTable, *_: object) -> None:
        raise table._database.cannot_read("a block of 7.sst has another checksum")

    with monkeypatch.context() as broken:
        broken.setattr(RocksTable, "find_many", fail)
        asked = [cluster.page("ByKind", {"kind": [f"k{number}"]}) for number in (*range(7), *range(7))]
        async with asyncio.timeout(DEADLINE / 2):
            answers = await asyncio.gather(*asked, return_exceptions=True)
    assert all(isinstance(answer, StorageFailure) for answer in answers), answers
    assert all('table "items"' in str(answer) and "7.sst" in str(answer) for answer in answers)
    for number in range(7):
        assert (await rows(cluster, "ByKind", f"k{number}"))[0]["items"] == 3


async def test_what_is_known_to_be_reached_is_a_hit(tmp_path: Path) -> None:
    cluster = await open_cluster(tmp_path)
    await cluster.execute(SCHEMA)
    written = await cluster.insert("items", [{"id": 1, "kind": "a"}])
    for _ in range(5):
        await cluster.page("ById", {"id": ["1"]}, token=written.clock)
    assert cluster.counted()[0] == 4
    await cluster.close()


async def test_another_process_sees_what_this_one_defined(cluster: InProcess) -> None:
    other = await another(cluster)
    await cluster.execute("CREATE VIEW Count AS SELECT COUNT(*) AS items FROM items")
    await eventually(lambda: "count" in other.state.catalog.views)
    assert json.loads(await other.page("Count", {})) == {"items": 0}
    with pytest.raises(AlreadyExists):
        await other.execute("CREATE VIEW Count AS SELECT id FROM items")
    await cluster.execute("DROP VIEW Count")
    with pytest.raises(NotFound):
        await cluster.page("Count", {})
    await eventually(lambda: "count" not in other.state.catalog.views)
    await other.directory.close()


async def test_what_another_process_defined_a_moment_ago_is_looked_for(
    cluster: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Directory, "_announced", lambda self, change: None)  # ZooKeeper announces nothing here.
    other = await another(cluster)
    lookups = LookupCalls(other)

    async def by_sql() -> None:
        await other.execute("INSERT INTO made VALUES (1)")

    async def by_rows() -> None:
        await other.insert("made", [{"id": 1}])

    async def by_page() -> None:
        coming = lookups.page("MadeView", {"id": ["1"]}, None)
        assert not isinstance(coming, tuple)
        assert await coming == (b'{"rows":[]}', b"")

    async def by_lookup() -> None:
        assert await lookups.pages("MadeView", [[1]], None) == (b'{"results":[[]]}', b"")

    async def by_lookups() -> None:
        asked = lookups.many.ask(b'{"lookups":[{"view":"MadeView","keys":[[1]]}]}', None)
        assert await lookups.many.finish(asked, None) == (b'{"results":[[[]]]}', b"")

    for use in (by_sql, by_rows, by_page, by_lookup, by_lookups):
        await cluster.execute("CREATE TABLE made (id INT PRIMARY KEY)")
        await cluster.execute("CREATE VIEW MadeView AS SELECT id FROM made WHERE id = ?")
        await use()
        await cluster.execute("DROP VIEW MadeView")
        await cluster.execute("DROP TABLE made")
        with pytest.raises((NotFound, UnknownName)):
            await other.execute("SELECT id FROM made")
        with pytest.raises(NotFound):
            await other.page("MadeView", {"id": ["1"]})
    await other.directory.close()


async def test_the_same_select_from_two_processes_at_once(cluster: InProcess) -> None:
    other = await another(cluster)
    sql = "SELECT n, COUNT(*) AS items FROM items GROUP BY n"
    answers = await asyncio.gather(*(each.execute(sql) for each in (cluster, other) for _ in range(3)))
    assert {results[0].rows for results, _ in answers} == {()}
    await other.directory.close()


# --- parts that are away --------------------------------------------------------------------------------------------


async def test_without_a_leader_only_changes_are_refused(cluster: InProcess) -> None:
    cluster.leader.away = True
    await cluster.insert("items", [{"id": 1, "kind": "a"}])
    assert await rows(cluster, "ById", "1")
    cluster.read_timeout = 0.3
    with pytest.raises(NoLeader) as raised:
        await cluster.execute("CREATE VIEW Other AS SELECT id FROM items")
    assert "reads and writes" in str(raised.value.hint)
    asyncio.get_running_loop().call_later(0.2, lambda: setattr(cluster.leader, "away", False))
    cluster.read_timeout = DEADLINE
    await cluster.execute("CREATE VIEW Other AS SELECT id FROM items")  # an election is waited for


async def test_without_zookeeper_reads_and_writes_go_on(cluster: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster.zookeeper.stop()
    for number in range(20):
        written = await cluster.insert("items", [{"id": number, "kind": "a"}])
        assert json.loads(await cluster.page("ByKind", {"kind": ["a"]}, token=written.clock))["items"] == number + 1
    await eventually(lambda: not cluster.directory.connected)
    assert (await cluster.status())["cluster"]["zookeeper"] == "away"
    assert health_of(await cluster.unready()) == "ok"  # For as long as an election might take.
    monkeypatch.setattr(directory, "UNLED_SECONDS", 0.05)
    await eventually_unwell(
        cluster, "ZooKeeper does not answer: tables and views cannot be changed, and lost shards not taken over"
    )
    # A connection that breaks now is made again without anybody's help.
    for worker in cluster.workers:
        for accepted in list(worker.server.connections):
            if accepted.hello.role is Role.API:
                accepted.abort(ConnectionLost("cut by the test"))
    connections = cluster.hosts._connections  # type: ignore[attr-defined]
    await eventually(lambda: not any(connections.known(worker.descriptor) for worker in cluster.workers))
    assert (await rows(cluster, "ByKind", "a"))[0]["items"] == 20
    await cluster.insert("items", [{"id": 100, "kind": "a"}])
    cluster.zookeeper.start()
    await eventually(lambda: cluster.directory.connected)
    await eventually_unwell(cluster, "ok")


async def test_a_cluster_that_nobody_leads_says_so(cluster: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directory, "UNLED_SECONDS", 0.05)
    assert await cluster.unready() == ()
    told = cluster.directory.authority.leader
    monkeypatch.setattr(cluster.directory.authority, "leader", nobody)
    await cluster.directory.refresh()
    await eventually_unwell(
        cluster, "no controller leads: tables and views cannot be changed, and lost shards not taken over"
    )
    assert [each.kind for each in await cluster.unready()] == [ReasonKind.LEADER]
    assert (await cluster.status())["health"] != "ok"
    await cluster.insert("items", [{"id": 1, "kind": "a"}])
    monkeypatch.setattr(cluster.directory.authority, "leader", told)
    await cluster.directory.refresh()
    await eventually_unwell(cluster, "ok")


async def nobody() -> None:
    return None


async def test_a_zookeeper_that_has_lost_everything_is_not_believed(cluster: InProcess) -> None:
    """A controller has made a deployment of the same name there, without tables, and it has begun with a new worker."""
    await cluster.insert("items", [{"id": 1, "kind": "a"}])
    cluster.zookeeper.forget()
    anew = cluster.zookeeper.authority()
    await anew.start(create=True)
    cluster.around.push_async_callback(anew.close)
    await anew.write(ClusterState("main", SHARDS, 1, 1).encode(), 0)
    await cluster.directory.refresh()
    await eventually(lambda: not cluster.directory.connected)
    await cluster.insert("items", [{"id": 2, "kind": "a"}])
    assert (await rows(cluster, "ByKind", "a"))[0]["items"] == 2
    assert (await cluster.status())["cluster"]["zookeeper"] == "away"
    assert await anew.workers() == {}


async def test_before_the_first_start_everything_says_so() -> None:
    zookeeper = MemoryZooKeeper()
    authority = zookeeper.authority()
    await authority.start(create=True)
    deployment = await ClusterDeployment.open(authority, greeting("main", Role.API, "api", 1), lambda _: _NoDoor())
    assert "not started" in health_of(await deployment.unready())
    with pytest.raises(Unavailable, match="not started"):
        await deployment.page("any", {})
    with pytest.raises(Unavailable, match="not started"):
        await deployment.insert("any", [{"id": 1}])
    status = await deployment.status()
    assert status["cluster"]["started"] is False
    await deployment.close()


class _NoDoor:
    def __getattr__(self, name: str) -> Callable[[], Awaitable[dict[str, object]]]:
        async def nothing() -> dict[str, object]:
            return {}

        return nothing


# --- domains that are elsewhere -------------------------------------------------------------------------------------


async def test_a_domain_that_moves_is_found_again(cluster: InProcess) -> None:
    await cluster.insert("items", [{"id": number, "kind": f"k{number % 5}"} for number in range(30)])
    before = [await rows(cluster, "ByKind", f"k{number}") for number in range(5)]
    domain, target = DomainIndex(0), "w1"
    assert cluster.directory.assignment(domain).worker != target  # type: ignore[union-attr]
    ended = asyncio.Event()
    was_read = written = 0

    async def read() -> None:
        nonlocal was_read
        while not ended.is_set():
            assert await rows(cluster, "ById", str(was_read % 30))
            await asyncio.sleep(0)  # A hit waits for nobody.
            was_read += 1

    async def write() -> None:
        nonlocal written
        while not ended.is_set():
            await cluster.insert("items", [{"id": 1000 + written, "kind": "moving"}])
            written += 1

    tasks = [asyncio.create_task(read()), asyncio.create_task(write())]
    for place in (target, "w0", target):
        await cluster.leader.move(domain, place)
        reads, writes = was_read + 30, written + 10
        await eventually(lambda reads=reads, writes=writes: was_read >= reads and written >= writes)  # type: ignore[misc]
    ended.set()
    await asyncio.gather(*tasks)
    assert [await rows(cluster, "ByKind", f"k{number}") for number in range(5)] == before
    (counted,), _ = await cluster.execute("SELECT id FROM items WHERE kind = 'moving'")
    assert len(counted.rows) == written


async def test_a_directory_that_is_old_is_mended_by_the_first_refusal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Directory, "_announced", lambda self, change: None)  # ZooKeeper announces nothing here.
    cluster = await open_cluster(tmp_path, maps=False)
    await cluster.execute(SCHEMA)
    await cluster.insert("items", [{"id": number, "kind": "a"} for number in range(9)])
    for place in ("w1", "w0"):
        await cluster.leader.move(DomainIndex(0), place)
        known = cluster.directory.owner(DomainIndex(0))
        assert known is not None
        assert known.name != place
        if place == "w1":
            assert await rows(cluster, "ById", "0")
        else:
            await cluster.insert("items", [{"id": 30, "kind": "a"}])
        known = cluster.directory.owner(DomainIndex(0))
        assert known is not None
        assert known.name == place
    await cluster.close()


async def test_a_write_without_an_answer_is_not_repeated(cluster: InProcess) -> None:
    """Whether it was done is told by reading; an error says that it is not known."""
    worker = cluster.workers[0]
    handle = worker.server.handler
    began = 0

    def cut(connection: object, message: object) -> object:
        nonlocal began
        answer = handle(connection, message)  # type: ignore[arg-type]
        if isinstance(message, WriteRequest):
            began += 1
            connection.abort(ConnectionLost("cut by the test"))  # type: ignore[attr-defined]
        return answer

    for accepted in list(worker.server.connections):
        accepted.handler = cut
    worker.server.handler = cut
    with pytest.raises(OutcomeUnknown, match="not known"):
        await cluster.insert("items", [{"id": 0, "kind": "a"}])
    assert began == 1
    worker.server.handler = handle
    await eventually_found(cluster, "0")


async def test_a_numbered_insert_without_an_answer_is_sent_again(cluster: InProcess) -> None:
    """Its connection is cut behind the write, again and again: it is done once, and the caller never hears of it."""
    worker = cluster.workers[0]
    handle = worker.server.handler
    cuts = 0

    def cut(connection: object, message: object) -> object:
        nonlocal cuts
        answer = handle(connection, message)  # type: ignore[arg-type]
        if isinstance(message, WriteRequest) and cuts < 3:
            cuts += 1
            connection.abort(ConnectionLost("cut by the test"))  # type: ignore[attr-defined]
        return answer

    for accepted in list(worker.server.connections):
        accepted.handler = cut
    worker.server.handler = cut
    rows_of_first = [{"id": number, "kind": "a"} for number in range(12)]
    await cluster.insert("items", rows_of_first, Once("load", 1))
    assert cuts == 3
    assert (await cluster.insert("items", rows_of_first, Once("load", 1))).repeated
    assert await cluster.streams("items") == {"load": 1}
    (found,), _ = await cluster.execute("SELECT COUNT(*) FROM items")
    assert found.rows == ((12,),)


async def eventually_found(cluster: ClusterDeployment, key: str) -> None:
    async with asyncio.timeout(DEADLINE):
        while not await rows(cluster, "ById", key):
            await asyncio.sleep(0.01)


async def eventually_unwell(cluster: ClusterDeployment, why: str) -> None:
    async with asyncio.timeout(DEADLINE):
        while health_of(await cluster.unready()) != why:
            await asyncio.sleep(0.01)


async def healths(cluster: ClusterDeployment) -> dict[str, str]:
    return {each["worker"]: each["health"] for each in (await cluster.status())["workers"]}


async def test_a_lost_worker(cluster: InProcess) -> None:
    """Its hits are served until its domains are elsewhere; what must ask it waits for that, or says that it does."""
    await cluster.insert("items", [{"id": number, "kind": "a"} for number in range(12)])
    warm = [number for number in range(12) if number % SHARDS != 1]
    for number in warm:
        await rows(cluster, "ById", str(number))
    lost = cluster.workers[0]
    lost.server.abort()
    connections = cluster.hosts._connections  # type: ignore[attr-defined]
    await eventually(lambda: connections.known(lost.descriptor) is None)
    if lost.descriptor in cluster.hosts._maps._clients and cluster.hosts._maps.client(lost.descriptor):  # type: ignore[attr-defined]
        for number in warm:
            assert await rows(cluster, "ById", str(number))
    cluster.hosts.write_timeout = cluster.read_timeout = 0.3  # type: ignore[attr-defined]
    with pytest.raises(NotServed) as raised:
        await cluster.insert("items", [{"id": SHARDS * 10, "kind": "a"}])
    assert "status" in str(raised.value.hint)
    with pytest.raises(NotServed):
        await rows(cluster, "ById", str(SHARDS * 11))
    cluster.hosts.write_timeout = cluster.read_timeout = DEADLINE  # type: ignore[attr-defined]
    async with asyncio.timeout(DEADLINE):
        while await healths(cluster) != {"w0": "silent", "w1": "ok"}:
            await asyncio.sleep(0.002)  # A status waits for a second only, which the other may be held up for, too.
    own = [str(domain) for domain, given in cluster.leader.decided.placement.items() if given.worker == "w0"]
    unserved = f"shard{'s' * (len(own) > 1)} {', '.join(own)} not served now"
    await eventually_unwell(cluster, unserved)
    assert (await cluster.status())["health"] == unserved
    assert await rows(cluster, "ById", "1")  # the other worker's


async def test_the_status_says_what_nobody_hosts(cluster: InProcess) -> None:
    """The leader can give the domains of a worker with a directory of its own to nobody, and leaves them with it. What
    it knows more of, here a shard that cannot be opened, is told too."""
    lost = cluster.workers[0]
    own = [domain for domain, given in cluster.leader.decided.placement.items() if given.worker == "w0"]
    assert (await cluster.status())["cluster"]["unplaced"] == []
    cluster.authorities[0].cut()
    cluster.authorities[0].expire()
    await eventually(lambda: "w0" not in cluster.directory.registered)
    # It answers still: ZooKeeper alone has lost sight of it.
    async with asyncio.timeout(DEADLINE):
        while (await cluster.status())["cluster"]["unplaced"]:
            await asyncio.sleep(0.002)
    lost.server.abort()
    async with asyncio.timeout(DEADLINE):
        while (await cluster.status())["cluster"]["unplaced"] != own:
            await asyncio.sleep(0.002)
    cluster.leader.closed = {"1": "its disk cannot be read"}
    assert (await cluster.status())["cluster"]["unplaced"] == sorted({*own, 1})


async def test_a_worker_that_was_started_anew_is_not_drained(cluster: InProcess) -> None:
    async def drained(process: int) -> list[str]:
        leader = cluster.leader
        leader.decided = replace(leader.decided, draining={"w0": process, "w7": 1})
        leader._version = await leader._authority.write(leader.decided.encode(), leader._version)
        await cluster.directory.refresh()
        found: list[str] = (await cluster.status())["cluster"]["draining"]
        return found

    process = cluster.workers[0].descriptor.incarnation
    assert await drained(process) == ["w0"], "and not one that is gone"
    assert await drained(process - 1) == []


async def test_a_leader_that_is_gone_is_not_shown(cluster: InProcess) -> None:
    await cluster.directory.refresh()
    assert (await cluster.status())["cluster"]["leader"] == {"name": "leader", "host": "127.0.0.1", "port": 1}
    await cluster.leader.candidacy.resign()
    await cluster.directory.refresh()
    assert (await cluster.status())["cluster"]["leader"] is None
    assert cluster.directory.leader is not None, "who may be asked: an election may be over before it is heard of"


async def test_documents_make_rows_where_they_are_stored(cluster: InProcess) -> None:
    sql = (
        "SELECT d.id, j.n, j.tag FROM d, JSON_TABLE(d.doc, '$[*]' COLUMNS (n FOR ORDINALITY, has INT EXISTS "
        "PATH '$.tags', NESTED PATH '$.tags[*]' COLUMNS (tag VARCHAR(10) PATH '$'))) j WHERE j.tag = "
    )
    await cluster.execute(
        f"CREATE TABLE d (id INT PRIMARY KEY, doc JSON); CREATE EXT VIEW tagged AS {sql}?;"
        """INSERT INTO d VALUES (1, '[{"tags": ["a", "b"]}]'), (2, '[{}, {"tags": ["a"]}]'), (3, '[]')"""
    )
    (found,), clock = await cluster.execute(f"{sql} 'a' ORDER BY d.id")
    assert list(found.rows) == [(1, 1, "a"), (2, 2, "a")]
    page = json.loads(b"[" + await cluster.page("tagged", {"tag": ["a"]}, token=clock) + b"]")
    assert sorted((each["id"], each["n"]) for each in page) == [(1, 1), (2, 2)]


async def test_a_write_of_two_tables_is_made_anew_where_the_second_was_altered(
    cluster: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Directory, "_announced", lambda self, change: None)  # ZooKeeper announces nothing here.
    await cluster.execute(
        "CREATE TABLE a (id INT PRIMARY KEY, n INT) SHARD BY (id) SHARDS 1;"
        "CREATE TABLE b (id INT PRIMARY KEY, n INT) SHARD BY (id) SHARDS 1;"
        "INSERT INTO a VALUES (1, 1), (2, 2); INSERT INTO b VALUES (1, 10), (3, 30)"
    )
    other = await another(cluster)
    await cluster.execute("ALTER TABLE b ADD COLUMN x INT DEFAULT 4")
    assert len(other.state.catalog.tables["b"].columns) == 2, "it has not heard of it"
    (done,), _ = await other.execute("UPDATE a JOIN b ON a.id = b.id SET a.n = 5, b.n = 50")
    assert done.rows_affected == 2
    (shown,), _ = await cluster.execute("SELECT a.n, b.id, b.n, b.x FROM b LEFT JOIN a ON a.id = b.id ORDER BY b.id")
    assert [tuple(row) for row in shown.rows] == [(5, 1, 50, 4), (None, 3, 30, 4)]
    await other.directory.close()


async def test_a_change_that_is_stopped_after_the_deployment_was_closed_ends(
    cluster: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It asks for the newest state last, which nobody reads any more."""
    begun = asyncio.Event()

    async def run(*_: object) -> None:
        begun.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(cluster.leader, "run", run)
    asking = asyncio.create_task(cluster.execute("CREATE VIEW Late AS SELECT COUNT(*) AS items FROM items"))
    refreshing = asyncio.create_task(cluster.directory.refresh())
    await asyncio.wait_for(begun.wait(), DEADLINE)
    await cluster.directory.close()
    asking.cancel()
    late = asyncio.create_task(cluster.directory.refresh())
    _, hanging = await asyncio.wait([asking, refreshing, late], timeout=DEADLINE / 6)
    assert not hanging
    assert asking.cancelled()
    assert not cluster.directory.connected, "so that no caller takes the copy for the newest"


# --- schemas --------------------------------------------------------------------------------------------------------


async def test_full_state_over_the_memory_limit_is_an_alarm(cluster: InProcess) -> None:
    await cluster.execute("CREATE VIEW Kinds AS SELECT kind, COUNT(*) AS items FROM items GROUP BY kind")
    await cluster.insert("items", [{"id": number, "kind": f"k{number}"} for number in range(20)])
    await cluster.page("Kinds", {})
    memory = (await cluster.status())["memory"]
    assert 0 < memory["full"] <= memory["accounted"]
    assert "alarm" not in memory
    limited, *_ = cluster.workers
    limited.dataflow.memory_limit = 1
    shown = await cluster.status()
    alarm = shown["memory"]["alarm"]
    assert alarm.startswith(f'worker "{limited.descriptor.name}": full state takes ')
    assert "memory_limit is 1," in alarm
    assert len(cluster.workers) > 1
    assert alarm.count("worker ") == 1
    assert sum(worker["memory_full"] for worker in shown["workers"]) == shown["memory"]["full"]


async def test_a_write_made_for_an_older_schema_is_made_anew(cluster: InProcess) -> None:
    other = await another(cluster)
    written = 0
    ended = asyncio.Event()

    async def write(deployment: ClusterDeployment, first: int) -> None:
        nonlocal written
        number = first
        while not ended.is_set():
            await deployment.execute("INSERT INTO items (id, kind) VALUES (?, 'a')", [number])
            number, written = number + 1, written + 1

    tasks = [asyncio.create_task(write(each, at * 10**6)) for at, each in enumerate((cluster, other, other))]
    for number in range(6):
        await cluster.execute(f"ALTER TABLE items ADD COLUMN c{number} BIGINT NOT NULL DEFAULT {number}")
        wanted = written + 5
        await eventually(lambda wanted=wanted: written >= wanted)  # type: ignore[misc]
    ended.set()
    await asyncio.gather(*tasks)
    (found,), _ = await cluster.execute("SELECT * FROM items")
    assert len(found.rows) == written > 0
    assert {row[-6:] for row in found.rows} == {tuple(range(6))}
    await other.directory.close()


# --- how far behind -------------------------------------------------------------------------------------------------


async def test_a_view_says_how_many_writes_it_has_not_seen(cluster: InProcess) -> None:
    await cluster.insert("items", [{"id": number, "kind": "a"} for number in range(20)])
    await rows(cluster, "ByKind", "a")

    async def at_rest() -> bool:
        return {view["lag"] for view in (await cluster.status())["views"].values()} == {0}

    until = asyncio.get_running_loop().time() + DEADLINE
    while not await at_rest():
        assert asyncio.get_running_loop().time() < until
    tables = {f"items@{shard}": {"base": f"items@{shard}", "position": 7} for shard in range(2)}
    clocks = ({"items@0": 5, "items@1": 7}, {"items@0": 6, "items@1": 3})
    readers = [{"ById": {"keys": 1, "bytes": 10, "clock": clock}} for clock in clocks]
    domains = [{"tables": tables, "readers": readers[0]}, {"tables": {}, "readers": readers[1]}]
    assert views_of(cluster.directory.state.flow, domains)["ById"] == {
        "materialization": "partial",
        "keys": 2,
        "bytes": 20,
        "lag": 5,
    }


# --- what was acknowledged ------------------------------------------------------------------------------------------


async def test_it_remembers_how_far_it_has_acknowledged(cluster: InProcess) -> None:
    first = await cluster.insert("items", [{"id": number, "kind": "a"} for number in range(40)])
    last = await cluster.insert("items", [{"id": 100, "kind": "a"}])
    known = (await cluster.status())["cluster"]["acknowledged"]
    assert known == {**first.clock, **last.clock}
    assert len(known) == SHARDS
    await cluster.execute("CREATE TABLE others (id BIGINT PRIMARY KEY)")
    assert (await cluster.status())["cluster"]["acknowledged"] == known
    await cluster.execute("DROP VIEW ById; DROP VIEW ByKind; DROP TABLE items")
    assert not (await cluster.status())["cluster"]["acknowledged"], "another table of the name begins anew"
