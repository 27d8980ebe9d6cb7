"""The HTTP client and the Headrace target: bytes on the wire, answers in order, clear words when something is wrong."""

from __future__ import annotations

import json
import socket

import pytest
from load_targets import HttpStub, SilentTeller

from loadgen.peers.headrace import HeadraceConnection, HeadraceTarget, request
from loadgen.peers.opening import open_target
from loadgen.peers.store import (
    Conflict,
    InsertRow,
    LoadRunError,
    Lookup,
    Program,
    Query,
    RequestFailed,
    UpdateRow,
    parse_queries,
)
from loadgen.running import LoadRun, RunOptions
from loadgen.workloads.lobsters import natural

QUERY = Query.parse("votes_of", "SELECT id FROM votes WHERE user_id = ? AND story_id IN (?)")


def closed_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


def test_queries_know_which_parameters_are_lists() -> None:
    text = "-- CREATE EXT VIEW no AS SELECT 1;\nCREATE EXT VIEW a AS\nSELECT x FROM t WHERE y = ? AND z IN (?);\n"
    (query,) = parse_queries(text).values()
    assert (query.name, query.lists) == ("a", (False, True))
    assert query.sql == "SELECT x FROM t WHERE y = ? AND z IN (?)"


async def test_a_round_is_answered_in_order(http_stub: HttpStub) -> None:
    http_stub.answers = {f"/{n}": (200, b"x" * n * 1000) for n in range(1, 40)}
    connection = await HeadraceConnection.connect("127.0.0.1", http_stub.port)
    answers = await connection.ask([request("GET", f"/{n}", "h") for n in range(1, 40)])
    assert [len(each.body) for each in answers] == [n * 1000 for n in range(1, 40)]
    assert [path for _, path, _ in http_stub.requests] == [f"/{n}" for n in range(1, 40)]
    (again,) = await connection.ask([request("GET", "/7", "h")])
    assert len(again.body) == 7000
    connection.close()


async def test_a_connection_that_ends_fails_its_round_and_the_next_one_is_new(http_stub: HttpStub) -> None:
    target = HeadraceTarget("127.0.0.1", http_stub.port)
    session = await target.session()
    session._connection.close()
    (answer,) = await session.read([Lookup(QUERY, (1, [2]))])
    assert answer.rows() == []
    await session.close()
    assert await target.session()  # the connection is used again
    await target.close()


async def test_look_ups_and_changes_as_the_server_takes_them(http_stub: HttpStub) -> None:
    http_stub.answers = {
        "/v1/lookups": (200, b'{"results":[[[{"id":1},{"id":2}]],[[]]]}'),
        "/v1/tables/votes/rows": (200, b'{"rows_affected":2,"token":"t"}'),
        "/v1/sql": (200, b'{"results":[{"columns":[],"rows":[],"rows_affected":1}],"token":"t"}'),
    }
    target = HeadraceTarget("127.0.0.1", http_stub.port)
    session = await target.session()
    answer, other = await session.read([Lookup(QUERY, (7, [1, 2])), Lookup(QUERY, (8, [1]))])
    assert (answer.column("id"), other.rows()) == ([1, 2], [])
    asked = [{"view": "votes_of", "keys": [[7, [1, 2]]]}, {"view": "votes_of", "keys": [[8, [1]]]}]
    assert json.loads(http_stub.requests[0][2]) == {"lookups": asked}

    changed = await session.write(
        [
            InsertRow("votes", [{"id": 1}, {"id": 2}]),
            UpdateRow("votes", {"id": 1}, {"vote": -1}),
            UpdateRow("votes", {"id": 1}, {"reason": "O"}, {"score": 1}),
        ]
    )
    assert changed == 5
    made = [(method, path, json.loads(body)) for method, path, body in http_stub.requests[1:]]
    assert made == [
        ("POST", "/v1/tables/votes/rows", {"rows": [{"id": 1}, {"id": 2}]}),
        ("PATCH", "/v1/tables/votes/rows", {"key": {"id": 1}, "set": {"vote": -1}}),
        (
            "POST",
            "/v1/sql",
            {
                "sql": "UPDATE `votes` SET `reason` = ?, `score` = `score` + ? WHERE `id` = ?",
                "params": ["O", 1, 1],
            },
        ),
    ]


async def test_errors_of_the_server_are_told(http_stub: HttpStub) -> None:
    error = b'{"error":{"code":"%b","message":"no","hint":null}}'
    http_stub.answers = {
        "/v1/lookups": (503, error % b"unavailable"),
        "/v1/tables/votes/rows": (409, error % b"constraint_violation"),
    }
    session = await HeadraceTarget("127.0.0.1", http_stub.port).session()
    with pytest.raises(RequestFailed, match="503 unavailable: no"):
        await session.read([Lookup(QUERY, (7, [1]))])
    with pytest.raises(Conflict, match="409 constraint_violation"):
        await session.write([InsertRow("votes", [{"id": 1}])])


async def test_nobody_there() -> None:
    port = closed_port()
    with pytest.raises(LoadRunError, match=f"cannot reach 127.0.0.1:{port}") as told:
        await HeadraceTarget("127.0.0.1", port).describe()
    assert told.value.hint


async def test_another_server_and_one_without_the_schema(http_stub: HttpStub) -> None:
    target = HeadraceTarget("127.0.0.1", http_stub.port)
    http_stub.answers = {"/v1/status": (200, b"<html>"), "/v1/views": (200, b'{"views":[]}')}
    with pytest.raises(LoadRunError, match="does not speak as Headrace does"):
        await target.describe()
    program = Program("lobsters", "natural", "", "", {QUERY.name: QUERY}, "")
    with pytest.raises(LoadRunError, match='has no view "votes_of"') as told:
        await target.check(program, None)
    assert "--prime" in (told.value.hint or "")
    http_stub.answers["/v1/views"] = (200, b'{"views":[{"name":"votes_of"}]}')
    with pytest.raises(LoadRunError, match="less data"):
        await target.check(program, Lookup(QUERY, (1, [1])))


@pytest.mark.parametrize("url", ["ftp://x", "http://x:99999", "redis://127.0.0.1:1?behind=ftp://x", "mongodb://x/y"])
def test_urls_that_name_no_target(url: str) -> None:
    with pytest.raises(LoadRunError) as told:
        open_target(url)
    assert told.value.hint


async def test_a_target_that_fails_at_the_start_is_told(http_stub: HttpStub) -> None:
    views = [{"name": name} for name in natural().queries]
    http_stub.answers = {
        "/v1/status": (200, b"{}"),
        "/v1/views": (200, json.dumps({"views": views}).encode()),
        "/v1/lookups": (500, b"oh"),
    }
    options = RunOptions("lobsters", f"http://127.0.0.1:{http_stub.port}", data_scale=0.002)
    with pytest.raises(LoadRunError, match="the target failed: 500"):
        await LoadRun(options, SilentTeller()).execute()


def test_urls_of_headrace() -> None:
    for url in ("http://127.0.0.1:8080", "127.0.0.1:8080", "http://127.0.0.1:8080/"):
        target = open_target(url)
        assert isinstance(target, HeadraceTarget)
        assert (target.host, target.port) == ("127.0.0.1", 8080)
