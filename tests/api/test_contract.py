"""Every call of the HTTP contract, against each deployment."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

import headrace
from controller.cluster.serving.deployment import ClusterDeployment
from controller.deployment import Deployment
from controller.embedded.local import LocalDeployment

STORIES = [{"id": 1, "author": 10, "title": "one"}, {"id": 2, "author": 10, "title": "två & två"}]


async def load(http: httpx.AsyncClient) -> str:
    answer = await http.post("/v1/tables/stories/rows", json={"rows": STORIES})
    assert answer.status_code == 200, answer.text
    assert set(answer.json()) == {"rows_affected", "token"}
    assert answer.json()["rows_affected"] == 2
    token: str = answer.json()["token"]
    return token


async def test_sql_runs_several_statements(http: httpx.AsyncClient) -> None:
    sql = "INSERT INTO stories (id, author, title) VALUES (?, ?, ?); SELECT id, title FROM stories WHERE id = ?"
    answer = await http.post("/v1/sql", json={"sql": sql, "params": [7, 1, "seven", 7]})
    assert answer.status_code == 200, answer.text
    body = answer.json()
    assert set(body) == {"results", "token"}
    insert, select = body["results"]
    assert insert == {"columns": [], "rows": [], "rows_affected": 1}
    assert select["columns"] == [{"name": "id", "type": "BIGINT"}, {"name": "title", "type": "TEXT"}]
    assert select["rows"] == [[7, "seven"]]


async def test_sql_takes_a_body_without_content_type(http: httpx.AsyncClient) -> None:
    answer = await http.post("/v1/sql", content=b'{"sql": "SELECT id FROM stories"}')
    assert answer.status_code == 200, answer.text
    assert answer.json()["results"][0]["rows"] == []


async def test_page_of_one_key(http: httpx.AsyncClient) -> None:
    token = await load(http)
    for headers in ({"Headrace-Token": token}, {}):
        answer = await http.get("/v1/views/StoriesWithVC?id=1", headers=headers)
        assert answer.headers["content-type"] == "application/json"
        assert answer.json() == {"rows": [{"id": 1, "title": "one", "vcount": 0}]}


async def test_page_of_no_rows(http: httpx.AsyncClient) -> None:
    for _ in range(2):
        assert (await http.get("/v1/views/StoriesWithVC?id=99")).json() == {"rows": []}


async def test_page_follows_writes(http: httpx.AsyncClient) -> None:
    await load(http)
    assert (await http.get("/v1/views/StoriesWithVC?id=1")).json()["rows"][0]["vcount"] == 0
    vote = await http.post("/v1/tables/votes/rows", json={"rows": [{"story_id": 1, "user_id": 5}]})
    headers = {"Headrace-Token": vote.json()["token"]}
    assert (await http.get("/v1/views/StoriesWithVC?id=1", headers=headers)).json()["rows"][0]["vcount"] == 1


async def test_percent_encoding(http: httpx.AsyncClient) -> None:
    headers = {"Headrace-Token": await load(http)}
    for query in ("title=tv%C3%A5+%26+tv%C3%A5", "title=tv%C3%A5%20%26%20tv%c3%a5"):
        answer = await http.get(f"/v1/views/ByTitle?{query}", headers=headers)
        assert answer.json() == {"rows": [{"id": 2, "title": "två & två"}]}


async def test_empty_value_is_the_empty_string(http: httpx.AsyncClient) -> None:
    written = await http.post("/v1/tables/stories/rows", json={"rows": [{"id": 3, "author": 1, "title": ""}]})
    for query in ("title=", "title"):
        answer = await http.get(f"/v1/views/ByTitle?{query}", headers={"Headrace-Token": written.json()["token"]})
        assert answer.json() == {"rows": [{"id": 3, "title": ""}]}


async def test_repeated_parameter_is_an_in_list(http: httpx.AsyncClient) -> None:
    token = await load(http)
    answer = await http.get("/v1/views/ByIds?id=2&id=1&id=9", headers={"Headrace-Token": token})
    assert sorted(row["id"] for row in answer.json()["rows"]) == [1, 2]


async def test_lookup_keeps_the_order(http: httpx.AsyncClient) -> None:
    headers = {"Headrace-Token": await load(http)}
    for keys in ([[2], [9], [1]], [{"id": 2}, {"id": 9}, {"id": 1}]):
        for sent in (headers, {}):
            answer = await http.post("/v1/views/StoriesWithVC/lookup", json={"keys": keys}, headers=sent)
            assert [[row["id"] for row in page] for page in answer.json()["results"]] == [[2], [], [1]]


async def test_lookup_mixes_hits_and_misses(http: httpx.AsyncClient) -> None:
    headers = {"Headrace-Token": await load(http)}
    await http.get("/v1/views/StoriesWithVC?id=2", headers=headers)
    answer = await http.post("/v1/views/StoriesWithVC/lookup", json={"keys": [[1], [2], [3]]})
    assert [[row["id"] for row in page] for page in answer.json()["results"]] == [[1], [2], []]


async def test_lookup_of_no_keys(http: httpx.AsyncClient) -> None:
    answer = await http.post("/v1/views/StoriesWithVC/lookup", json={"keys": []})
    assert answer.json() == {"results": []}


async def test_every_look_up_is_counted_once(http: httpx.AsyncClient, request: pytest.FixtureRequest) -> None:
    """As a hit, or, where a domain had to be asked, as a miss. Of workers on other hosts all are asked."""
    has_maps = request.node.callspec.params["deployment"] != "remote"

    async def counted() -> tuple[int, int]:
        counters = (await http.get("/v1/status")).json()["counters"]
        return counters["hits"], counters["misses"]

    await http.get("/v1/views/StoriesWithVC?id=9")
    for method, path, body, hits, misses in (
        ("GET", "/v1/views/StoriesWithVC?id=1", None, 0, 1),
        ("GET", "/v1/views/StoriesWithVC?id=1", None, 1, 0),
        ("POST", "/v1/views/StoriesWithVC/lookup", {"keys": [[1], [2], [3]]}, 1, 2),
        ("POST", "/v1/lookups", {"lookups": [{"view": "StoriesWithVC", "keys": [[1], [2], [4]]}]}, 2, 1),
        ("POST", "/v1/lookups", {"lookups": [{"view": "StoriesWithVC", "keys": [[1], [2], [4]]}]}, 3, 0),
    ):
        before = await counted()
        assert (await http.request(method, path, json=body)).status_code == 200
        after = await counted()
        expected = (hits, misses) if has_maps else (0, hits + misses)
        assert (after[0] - before[0], after[1] - before[1]) == expected, (method, path, body)


async def test_lookups_ask_several_views_at_once(http: httpx.AsyncClient) -> None:
    headers = {"Headrace-Token": await load(http)}
    await http.get("/v1/views/StoriesWithVC?id=2", headers=headers)
    wanted = [
        {"view": "StoriesWithVC", "keys": [[1], {"id": 2}, [9]]},
        {"view": "ByIds", "keys": []},
        {"view": "StoriesWithVC", "keys": [[2]]},
    ]
    for sent in (headers, {}):
        answer = await http.post("/v1/lookups", json={"lookups": wanted}, headers=sent)
        ids = [[[row["id"] for row in page] for page in pages] for pages in answer.json()["results"]]
        assert ids == [[[1], [2], []], [], [[2]]]
    assert (await http.post("/v1/lookups", json={"lookups": []})).json() == {"results": []}


NO_LOOKUPS: list[tuple[Any, int, str]] = [
    (
        {"lookups": [{"view": "StoriesWithVC", "keys": []}, {"view": "StoriesWithV", "keys": []}]},
        404,
        "StoriesWithV",
    ),
    ({"lookups": [{"view": "StoriesWithVC"}]}, 400, "lookups[0]"),
    ({"lookups": [{"view": "StoriesWithVC", "keys": [], "key": 1}]}, 400, "lookups[0]"),
    ({"lookups": {}}, 400, "lookups"),
    ({"lookups": [], "keys": []}, 400, "nothing else"),
    ({"lookups": [{"view": "StoriesWithVC", "keys": []}] * 257}, 413, "256"),
]


async def test_lookups_that_are_none(http: httpx.AsyncClient, subtests: pytest.Subtests) -> None:
    await load(http)
    for body, status, said in NO_LOOKUPS:
        with subtests.test(said):
            answer = await http.post("/v1/lookups", json=body)
            assert answer.status_code == status, answer.text
            assert said in answer.json()["error"]["message"]


async def test_update_and_delete_rows(http: httpx.AsyncClient) -> None:
    await load(http)
    changed = await http.patch("/v1/tables/stories/rows", json={"key": {"id": 1}, "set": {"title": "uno"}})
    assert changed.json()["rows_affected"] == 1
    headers = {"Headrace-Token": changed.json()["token"]}
    assert (await http.get("/v1/views/StoriesWithVC?id=1", headers=headers)).json()["rows"][0]["title"] == "uno"
    deleted = await http.request("DELETE", "/v1/tables/stories/rows", json={"key": {"id": 1}})
    assert set(deleted.json()) == {"rows_affected", "token"}
    headers = {"Headrace-Token": deleted.json()["token"]}
    assert (await http.get("/v1/views/StoriesWithVC?id=1", headers=headers)).json() == {"rows": []}


async def test_evict(http: httpx.AsyncClient) -> None:
    await load(http)
    await http.get("/v1/views/StoriesWithVC?id=1")
    answer = await http.post("/v1/views/StoriesWithVC/evict", json={"keys": [[1]]})
    assert answer.json() == {"evicted": 1}
    assert (await http.get("/v1/views/StoriesWithVC?id=1")).json()["rows"][0]["id"] == 1


async def test_migration(http: httpx.AsyncClient) -> None:
    created = "DROP VIEW ByTitle; CREATE VIEW ByAuthor AS SELECT id FROM stories WHERE author = ?"
    accepted = await http.post("/v1/migrations", json={"sql": created})
    assert accepted.status_code == 202, accepted.text
    assert set(accepted.json()) == {"id"}
    where = f"/v1/migrations/{accepted.json()['id']}"
    assert accepted.headers["location"] == where
    async with asyncio.timeout(30):
        while (status := (await http.get(where)).json())["state"] in ("queued", "running"):
            await asyncio.sleep(0.005)  # The answers take no turn of the event loop, and the migration does.
    assert status["state"] == "done", status
    assert status["progress"] == 1
    assert status["error"] is None
    assert (await http.get("/v1/views/ByAuthor?author=10")).json() == {"rows": []}
    assert (await http.get("/v1/views/ByTitle?title=one")).status_code == 404
    assert (await http.delete(where)).json()["state"] == "done"


async def test_tables_and_views(http: httpx.AsyncClient) -> None:
    tables = {each["name"]: each for each in (await http.get("/v1/tables")).json()["tables"]}
    assert set(tables) == {"stories", "votes"}
    assert tables["votes"]["primary_key"] == ["story_id", "user_id"]
    shown = {"name": "title", "type": "TEXT", "nullable": True, "default": None, "auto_increment": False}
    shown["collation"] = "utf8mb4_bin"
    assert shown in tables["stories"]["columns"]
    views = {each["name"]: each for each in (await http.get("/v1/views")).json()["views"]}
    assert {"StoriesWithVC", "ByTitle", "ByIds"} <= set(views)
    assert views["ByTitle"]["parameters"] == [{"name": "title", "kind": "=", "type": "TEXT"}]
    assert [each["name"] for each in views["StoriesWithVC"]["columns"]] == ["id", "title", "vcount"]


async def test_links_between_domains_are_shown(deployment: Deployment, http: httpx.AsyncClient) -> None:
    if isinstance(deployment, LocalDeployment):
        token = await load(http)
        await http.get("/v1/views/StoriesWithVC?id=1", headers={"Headrace-Token": token})
        links = (await http.get("/v1/status")).json()["links"]
        assert links
        assert all(set(link) == {"from", "to", "packets", "lag"} for link in links)
        assert sum(link["packets"] for link in links) > 0
        assert all(0 <= link["lag"] <= link["packets"] for link in links)
        told = (await http.get("/metrics")).text
        assert f'headrace_link_lag{{from="{links[0]["from"]}",to="{links[0]["to"]}"}} ' in told


async def test_explain(http: httpx.AsyncClient) -> None:
    answer = (await http.get("/v1/views/StoriesWithVC/explain")).json()
    assert answer["view"] == "StoriesWithVC"
    assert "StoriesWithVC" in answer["explain"]
    plain = await http.get("/v1/views/StoriesWithVC/explain", headers={"accept": "text/plain"})
    assert plain.text == answer["explain"] + "\n"


async def test_head_is_get_without_its_body(http: httpx.AsyncClient) -> None:
    for path in (
        "/healthz",
        "/readyz",
        "/v1/views",
        "/v1/views/StoriesWithVC?id=9",
        "/v1/tables",
        "/v1/views/ByTitle/explain",
    ):
        got, head = await http.get(path), await http.head(path)
        assert head.status_code == got.status_code == 200
        assert (head.content, dict(head.headers)) == (b"", dict(got.headers))
    assert (await http.head("/v1/views/Nothing")).status_code == 404


async def test_operations(http: httpx.AsyncClient) -> None:
    assert (await http.get("/healthz")).json() == {"status": "ok"}
    assert (await http.get("/readyz")).json() == {"status": "ok", "reasons": []}
    assert (await http.get("/livez")).status_code == 404
    status = (await http.get("/v1/status")).json()
    assert "counters" in status
    assert status["version"] == headrace.__version__
    assert set((await http.get("/v1/graph")).json()) >= {"domains", "nodes", "edges", "links"}


async def test_metrics(http: httpx.AsyncClient) -> None:
    await http.get("/v1/views/StoriesWithVC?id=1")
    await http.get("/v1/views/StoriesWithVC?nope=1")
    await http.get("/v1/tables")
    await http.get("/nowhere")
    text = (await http.get("/metrics")).text
    view = 'headrace_http_requests_total{route="GET /v1/views/{view}",status="%s"} 1.0'
    assert view % 200 in text
    assert view % 400 in text
    assert 'headrace_http_requests_total{route="GET /v1/tables",status="200"} 1.0' in text
    assert 'headrace_http_requests_total{route="unmatched",status="404"} 1.0' in text
    assert 'headrace_http_seconds_count{route="GET /v1/views/{view}"} 2.0' in text


async def test_metrics_of_a_cluster(http: httpx.AsyncClient, deployment: Deployment) -> None:
    text = (await http.get("/metrics")).text
    if not isinstance(deployment, ClusterDeployment):
        assert "headrace_worker_" not in text
        return
    for line in (
        "headrace_cluster_epoch ",
        "headrace_cluster_shards 3.0",
        'headrace_worker_registered{worker="w1"} 1.0',
        'headrace_domain_linked{domain="2"} 1.0',
        'headrace_link_waiting_bytes{from="w0",to="w1"} 0.0',
    ):
        assert line in text, text
    assert 'headrace_worker_memory_accounted{worker="w0"}' in text


async def test_a_deployment_without_an_archive_says_so(http: httpx.AsyncClient) -> None:
    answer = await http.post("/v1/archive")
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert error["code"] == "bad_request"
    assert "--archive" in error["hint"]
    assert "archive" not in (await http.get("/v1/status")).json()


async def test_a_list_is_followed_by_its_tag(http: httpx.AsyncClient) -> None:
    for path, makes in (("/v1/tables", "CREATE TABLE more (id INT PRIMARY KEY)"), ("/v1/views", "DROP VIEW ByTitle")):
        first = await http.get(path)
        again = await http.get(path, headers={"if-none-match": f'"other", W/{first.headers["etag"]}'})
        assert (again.status_code, again.content) == (304, b"")
        assert (await http.post("/v1/sql", json={"sql": makes})).status_code == 200
        after = await http.get(path, headers={"if-none-match": first.headers["etag"]})
        assert after.status_code == 200
        assert after.json() != first.json()


async def test_openapi_documents_every_call(http: httpx.AsyncClient) -> None:
    paths = (await http.get("/openapi.json")).json()["paths"]
    calls = {f"{method.upper()} {path}" for path, methods in paths.items() for method in methods}
    assert calls == {
        "POST /v1/sql",
        "GET /v1/views",
        "GET /v1/views/{view}",
        "GET /v1/views/{view}/live",
        "POST /v1/live",
        "POST /v1/views/{view}/lookup",
        "POST /v1/lookups",
        "GET /v1/views/{view}/held",
        "POST /v1/views/{view}/evict",
        "GET /v1/views/{view}/explain",
        "GET /v1/views/{view}/stats",
        "GET /v1/tables",
        "POST /v1/tables/{table}/rows",
        "PATCH /v1/tables/{table}/rows",
        "DELETE /v1/tables/{table}/rows",
        "GET /v1/tables/{table}/streams",
        "GET /v1/tables/{table}/streams/{stream}",
        "DELETE /v1/tables/{table}/streams/{stream}",
        "POST /v1/migrations",
        "GET /v1/migrations",
        "GET /v1/migrations/{id}",
        "POST /v1/archive",
        "GET /v1/archive",
        "GET /v1/backups",
        "DELETE /v1/migrations/{id}",
        "GET /v1/graph",
        "GET /v1/lineage",
        "GET /v1/accounts",
        "GET /v1/sessions",
        "GET /v1/drills",
        "GET /v1/drills/{drill}/picture",
        "GET /v1/queries",
        "GET /v1/queries/running",
        "DELETE /v1/queries/running/{id}",
        "GET /v1/transactions",
        "POST /v1/transactions",
        "POST /v1/transactions/{id}/commit",
        "POST /v1/transactions/{id}/rollback",
        "GET /v1/upstreams/{source}/token",
        "GET /v1/snapshots",
        "POST /v1/snapshots",
        "GET /v1/snapshots/{name}",
        "DELETE /v1/snapshots/{name}",
        "GET /v1/schema",
        "GET /v1/status",
        "GET /healthz",
        "GET /readyz",
        "GET /metrics",
    }
    assert (await http.get("/docs")).status_code == 200


async def test_no_call_that_changes_something_is_a_form(http: httpx.AsyncClient) -> None:
    """What a page of any origin may post without asking: with another method, or as JSON, its browser asks first."""
    paths = (await http.get("/openapi.json")).json()["paths"]
    reads = ("/v1/views/{view}/lookup", "/v1/lookups", "/v1/live")
    posted = [path for path, methods in paths.items() if "post" in methods and path not in reads]
    assert len(posted) == 9
    for path in posted:
        for kind in ({}, {"content-type": "text/plain"}):
            headers = {"origin": "http://evil.example", **kind}
            answer = await http.post(
                path.format(view="ByTitle", table="stories", id="none"), content=b"{}", headers=headers
            )
            assert (answer.status_code, "a browser sent" in answer.text) == (400, True), (path, answer.text)


async def test_statements_are_listed_and_stopped(deployment: Deployment, http: httpx.AsyncClient) -> None:
    told = (await http.get("/v1/queries")).json()
    assert told == {"queries": [], "missing": []}
    told = (await http.get("/v1/queries/running")).json()
    assert told == {"running": [], "missing": []}
    for nobody in ("7", "3000000000007", "99999999999999999999999"):
        stopped = await http.delete(f"/v1/queries/running/{nobody}")
        assert (stopped.status_code, stopped.json()["error"]["code"]) == (404, "not_found"), stopped.text


# --- numbered streams of inserts ------------------------------------------------------------------------------------


def votes(*pairs: tuple[int, int]) -> list[dict[str, int]]:
    return [{"story_id": story, "user_id": user} for story, user in pairs]


async def numbered(http: httpx.AsyncClient, number: object, rows: object, stream: str = "load") -> httpx.Response:
    body = {"rows": rows, "once": {"stream": stream, "number": number}}
    return await http.post("/v1/tables/votes/rows", json=body)


async def test_a_number_is_done_once(http: httpx.AsyncClient) -> None:
    await load(http)
    first = votes(*((story, user) for story in range(4) for user in range(3)))
    for repeated in (False, True):
        answer = await numbered(http, 1, first)
        assert answer.status_code == 200, answer.text
        assert answer.json().get("repeated", False) == repeated
        assert answer.json()["rows_affected"] == (0 if repeated else 12)
        page = await http.get("/v1/views/StoriesWithVC?id=1", headers={"Headrace-Token": answer.json()["token"]})
        assert page.json()["rows"][0]["vcount"] == 3
    assert (await numbered(http, 2, [])).json()["rows_affected"] == 0
    assert (await numbered(http, 1, votes((9, 9)), "other stream")).json()["rows_affected"] == 1
    assert (await http.get("/v1/tables/votes/streams")).json() == {
        "streams": [{"stream": "load", "number": 2}, {"stream": "other stream", "number": 1}]
    }
    assert (await http.get("/v1/tables/votes/streams/other%20stream")).json() == {"stream": "other stream", "number": 1}
    assert (await http.get("/v1/tables/votes/streams/none")).json() == {"stream": "none", "number": 0}
    assert (await http.get("/v1/tables/none/streams")).status_code == 404


async def test_a_number_is_not_skipped(http: httpx.AsyncClient) -> None:
    assert (await numbered(http, 1, votes((1, 1)))).status_code == 200
    answer = await numbered(http, 3, votes((1, 2)))
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "out_of_order")
    for wrong in (0, -1, 1.5, "1", None, True, 2**63):
        assert (await numbered(http, wrong, [])).json()["error"]["code"] == "bad_request", wrong
    for wrong in ("", "x" * 129):
        assert (await numbered(http, 1, [], wrong)).json()["error"]["code"] == "bad_request", wrong


async def test_all_rows_that_are_refused_are_named(http: httpx.AsyncClient) -> None:
    assert (await numbered(http, 1, votes((1, 1), (2, 2), (3, 3)))).status_code == 200
    rows = votes((4, 4), (1, 1), (5, 5), (3, 3), (6, 6))
    answer = await numbered(http, 2, rows)
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "rows_refused")
    refused = answer.json()["error"]["rows"]
    assert [each["row"] for each in refused] == [2, 4]
    assert all(each["reason"] for each in refused)
    answer = await numbered(http, 2, [rows[0], rows[2], rows[4]])
    assert answer.status_code == 200, answer.text
    found = await http.post("/v1/sql", json={"sql": "SELECT user_id FROM votes ORDER BY 1"})
    assert found.json()["results"][0]["rows"] == [[1], [2], [3], [4], [5], [6]]


async def test_a_stream_that_is_forgotten_begins_anew(http: httpx.AsyncClient) -> None:
    assert (await numbered(http, 1, votes((1, 1)))).status_code == 200
    assert (await numbered(http, 2, [])).status_code == 200
    for _ in range(2):
        answer = await http.delete("/v1/tables/votes/streams/load")
        assert (answer.status_code, answer.json()) == (200, {"stream": "load", "number": 0})
    assert (await http.get("/v1/tables/votes/streams")).json() == {"streams": []}
    assert (await numbered(http, 2, [])).json()["error"]["code"] == "out_of_order"
    assert (await numbered(http, 1, votes((2, 2)))).json()["rows_affected"] == 1
