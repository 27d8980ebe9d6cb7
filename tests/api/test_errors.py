"""Every error has one shape and the status of one table; nothing that went wrong shows how."""

from __future__ import annotations

import gc
import weakref
from collections.abc import AsyncIterator, Collection, Iterator
from itertools import product

import httpx
import pytest
from fake_deployment import FakeDeployment
from headrace_client.tokens import decode, encode
from starlette.requests import Request
from starlette.types import Message, Receive, Scope, Send

from api.endpoints import RequestMetrics
from api.gate import HUNG_UP, UNMATCHED, Gate
from api.limits import Admission, Limits
from api.statuses import STATUSES, describe
from controller.deployment import Deployment, Reason, ReasonKind
from domains import errors
from domains.errors import HeadraceError

ROWS = "/v1/tables/stories/rows"
LOOKUP = "/v1/views/ByTitle/lookup"


def subclasses(kind: type[HeadraceError]) -> Iterator[type[HeadraceError]]:
    for each in kind.__subclasses__():
        if each.__module__ == errors.__name__:
            yield each
            yield from subclasses(each)


def error(answer: httpx.Response, status: int, code: str, more: Collection[str] = ()) -> dict[str, str]:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/json"
    assert set(answer.json()) == {"error", *more}
    found: dict[str, str] = answer.json()["error"]
    assert set(found) == {"code", "message", "hint"}
    assert found["code"] == code
    assert "Traceback" not in answer.text
    return found


def test_the_table_names_every_error() -> None:
    assert {kind for kind in STATUSES if kind.__module__ == errors.__name__} == set(subclasses(HeadraceError))


@pytest.mark.parametrize("kind", sorted(STATUSES, key=lambda kind: kind.__name__))
async def test_status_on_both_doors(http: httpx.AsyncClient, fake: FakeDeployment, kind: type[HeadraceError]) -> None:
    fake.broken = kind("it broke", hint="mend it")
    calls = [
        await http.post("/v1/sql", json={"sql": "SELECT 1"}),
        await http.get("/v1/views/ByTitle?title=x"),
        await http.post(LOOKUP, json={"keys": [["x"]]}),
        await http.get("/v1/status"),
    ]
    for answer in calls:
        shown = error(answer, STATUSES[kind], kind.code)
        assert shown == {"code": kind.code, "message": "it broke", "hint": "mend it"}


async def test_unexpected_exceptions_are_logged_by_an_id(
    http: httpx.AsyncClient, fake: FakeDeployment, caplog: pytest.LogCaptureFixture
) -> None:
    fake.broken = RuntimeError("secret detail")
    calls = [
        await http.post("/v1/sql", json={"sql": "SELECT 1"}),
        await http.get("/v1/views/ByTitle?title=x"),
        await http.post(LOOKUP, json={"keys": [["x"]]}),
        await http.get("/v1/status"),
    ]
    for answer in calls:
        shown = error(answer, 500, "internal_error")
        assert "secret" not in answer.text
        reference = shown["message"].removeprefix("internal error ")
        assert reference in caplog.text


async def test_an_error_that_quotes_half_a_character() -> None:
    status, body = describe(errors.BadRequest('unknown "\ud800"', hint="\ud800"), "test")
    assert status == 400
    assert b'unknown \\"?\\"' in body


WRONG_SQL = [
    ("SELEC 1", 400, "syntax_error"),
    ("SELECT nope FROM stories", 400, "unknown_name"),
    ("WITH RECURSIVE n AS (SELECT id FROM stories UNION SELECT MAX(id) FROM n) SELECT id FROM n", 422, "unsupported"),
    ("CREATE TABLE stories (id BIGINT)", 409, "already_exists"),
]


async def test_sql_errors(http: httpx.AsyncClient, subtests: pytest.Subtests) -> None:
    for sql, status, code in WRONG_SQL:
        with subtests.test(sql):
            shown = error(await http.post("/v1/sql", json={"sql": sql}), status, code)
            if code == "syntax_error":
                assert "line 1, column" in shown["message"]


async def test_write_errors_leave_nothing_behind(http: httpx.AsyncClient) -> None:
    good = {"id": 1, "author": 1, "title": "a"}
    twice = await http.post(ROWS, json={"rows": [good, good]})
    error(twice, 409, "constraint_violation")
    typed = await http.post(ROWS, json={"rows": [good, {"id": "x", "author": 1, "title": "b"}]})
    error(typed, 422, "type_violation")
    named = await http.post(ROWS, json={"rows": [good, {"ident": 2}]})
    assert named.status_code == 400
    rows = (await http.post("/v1/sql", json={"sql": "SELECT id FROM stories"})).json()["results"][0]["rows"]
    assert rows == []


BAD_ADDRESSES = [
    ("/v1/views/ByTitel?title=x", 404, "not_found"),
    ("/v1/views/ByTitle?titel=x", 400, "bad_request"),
    ("/v1/views/ByTitle", 400, "bad_request"),
    ("/v1/views/ByTitle?title=a&title=b", 400, "bad_request"),
    ("/v1/views/ByTitle?title=%ff", 400, "bad_request"),
    ("/v1/views/StoriesWithVC?id=seven", 422, "type_violation"),
    ("/v1/views/ByTitel/explain", 404, "not_found"),
    ("/v1/migrations/none", 404, "not_found"),
    ("/v1/nothing", 404, "not_found"),
    ("/v1/views/", 404, "not_found"),
    ("/v1/tables/", 404, "not_found"),
]


async def test_bad_addresses(http: httpx.AsyncClient, subtests: pytest.Subtests) -> None:
    for path, status, code in BAD_ADDRESSES:
        with subtests.test(path):
            error(await http.get(path), status, code)


async def test_unknown_parameter_names_the_known_ones(http: httpx.AsyncClient) -> None:
    assert '"title"' in (await http.get("/v1/views/ByTitle?titel=x")).text.replace('\\"', '"')


WRONG_METHODS = [
    ("GET", "/v1/sql", "POST"),
    ("PUT", "/v1/views/ByTitle", "GET, HEAD"),
    ("GET", LOOKUP, "POST"),
    ("GET", ROWS, "DELETE, PATCH, POST"),
    ("PUT", "/v1/migrations/1", "DELETE, GET, HEAD"),
    ("HEAD", ROWS, "DELETE, PATCH, POST"),
]


async def test_wrong_method(http: httpx.AsyncClient, subtests: pytest.Subtests) -> None:
    for method, path, allowed in WRONG_METHODS:
        with subtests.test(f"{method} {path}"):
            answer = await http.request(method, path)
            assert answer.status_code == 405
            assert answer.headers["allow"] == allowed
            if method != "HEAD":
                error(answer, 405, "method_not_allowed")


BODIES = [
    b"",
    b"{",
    b"[]",
    b"7",
    b"{}",
    b'{"sql": "\xff"}',
    b'{"sql": "\\ud800"}',
    b'{"sql": NaN}',
    b'{"surplus": 1}',
    b'{"sql": 7, "rows": 7, "keys": 7}',
    b'{"rows": [7], "keys": null}',
    b"[" * 100_000,
    b'{"sql": "", "rows": [], "keys": [], "params": ' + b"1" * 9000 + b"}",
]


async def test_bad_bodies(http: httpx.AsyncClient, subtests: pytest.Subtests) -> None:
    for body in BODIES:
        with subtests.test(repr(body[:20])):
            for path in ("/v1/sql", ROWS, "/v1/migrations", LOOKUP, "/v1/views/ByTitle/evict"):
                error(await http.post(path, content=body), 400, "bad_request")


async def test_body_too_large(http: httpx.AsyncClient, subtests: pytest.Subtests) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(30):
            yield b" " * 10_000

    for path in ("/v1/sql", LOOKUP):
        for content in (b" " * 300_000, pieces()):
            with subtests.test(path, announced=isinstance(content, bytes)):
                shown = error(await http.post(path, content=content), 413, "limit_exceeded")
                assert '"max_body_size"' in shown["message"]


async def test_a_browser_must_say_json(http: httpx.AsyncClient) -> None:
    """A foreign page may post forms and plain text without asking; it may not post JSON."""
    sent = b'{"sql": "DROP VIEW ByTitle"}'
    for kind in ("text/plain", "application/x-www-form-urlencoded"):
        headers = {"origin": "https://elsewhere.example", "content-type": kind}
        error(await http.post("/v1/sql", content=sent, headers=headers), 400, "bad_request")
    assert (await http.get("/v1/views/ByTitle?title=x")).status_code == 200


MALFORMED_TOKENS = ["", "x", "h1.", "h1.!!!", "h1.W10", "h1.eyJhIjoieCJ9", "h2.e30", "h1.eyJhIjotMX0"]


async def test_malformed_tokens(http: httpx.AsyncClient, subtests: pytest.Subtests) -> None:
    for token in MALFORMED_TOKENS:
        with subtests.test(token):
            headers = {"Headrace-Token": token}
            error(await http.get("/v1/views/ByTitle?title=x", headers=headers), 400, "bad_request")
            error(await http.post(LOOKUP, json={"keys": [["x"]]}, headers=headers), 400, "bad_request")
            error(
                await http.post("/v1/sql", json={"sql": "SELECT id FROM stories"}, headers=headers), 400, "bad_request"
            )


async def test_unreachable_token_times_out(http: httpx.AsyncClient, deployment: Deployment) -> None:
    deployment.read_timeout = 0.2
    rows = [{"id": id, "author": 1, "title": "a"} for id in range(20)]
    token = (await http.post(ROWS, json={"rows": rows})).json()["token"]
    far = {base: position + 10**9 for base, position in decode(token).items()}
    headers = {"Headrace-Token": encode(far)}
    error(await http.get("/v1/views/ByTitle?title=x", headers=headers), 504, "read_timeout")
    error(await http.post(LOOKUP, json={"keys": [["x"]]}, headers=headers), 504, "read_timeout")
    error(await http.post("/v1/sql", json={"sql": "SELECT id FROM stories"}, headers=headers), 504, "read_timeout")


async def test_unhealthy(http: httpx.AsyncClient, fake: FakeDeployment) -> None:
    fake.condition = (Reason(ReasonKind.SHARDS, "shard 2 not served now"), Reason(ReasonKind.LEADER, "nobody leads"))
    reasons = [
        {"reason": "shards", "message": "shard 2 not served now"},
        {"reason": "leader", "message": "nobody leads"},
    ]
    for path in ("/readyz", "/readyz?exclude=leader", "/readyz?exclude=changes,storage"):
        answer = await http.get(path)
        told = error(answer, 503, "unavailable", more=["reasons"])
        assert ("nobody leads" in told["message"]) == ("leader" not in path)
        assert answer.json()["reasons"] == reasons
    assert (await http.get("/readyz?exclude=leader,%20shards")).json() == {"status": "ok", "reasons": reasons}
    assert (await http.head("/readyz")).status_code == 503
    assert (
        "starting, storage, shards" in error(await http.get("/readyz?exclude=leader,all"), 400, "bad_request")["hint"]
    )
    assert (await http.get("/healthz")).json() == {"status": "ok"}, "it is alive"
    assert (await http.get("/v1/status")).json()["health"] == "shard 2 not served now; nobody leads"


async def test_cancelled_migration(http: httpx.AsyncClient, fake: FakeDeployment) -> None:
    fake.pausing = True
    id = (await http.post("/v1/migrations", json={"sql": "DROP VIEW ByTitle"})).json()["id"]
    assert (await http.get(f"/v1/migrations/{id}")).json()["state"] == "running"
    status = (await http.delete(f"/v1/migrations/{id}")).json()
    assert status["state"] == "cancelled"
    assert status["error"]["code"] == "cancelled"


async def test_a_client_that_hangs_up_is_no_fault_of_ours(caplog: pytest.LogCaptureFixture) -> None:
    async def receive() -> Message:
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        raise AssertionError(f"{message} is for nobody")

    requests = RequestMetrics()
    scope = {"type": "http", "method": "POST", "path": "/v1/sql", "headers": []}

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await Request(scope, receive).body()

    await Gate(app, requests=requests, admission=Admission(Limits(max_body_size=100)))(scope, receive, send)
    assert requests.route(UNMATCHED).statuses == {HUNG_UP: 1}
    assert not caplog.records


# --- what nests deep ----------------------------------------------------------------------------------------------

DEEP = "[" * 900 + "1" + "]" * 900
DEEP_OBJECTS = '{"a": ' * 900 + "1" + "}" * 900


DEEP_BODIES = [
    ("POST", "/v1/sql", '{"sql": "SELECT id FROM stories WHERE id = ?", "params": [%s]}'),
    ("POST", ROWS, '{"rows": [{"id": %s, "author": 1}]}'),
    ("POST", ROWS, '{"rows": %s}'),
    ("PATCH", ROWS, '{"key": {"id": 1}, "set": {"title": %s}}'),
    ("DELETE", ROWS, '{"key": {"id": %s}}'),
    ("POST", LOOKUP, '{"keys": [[%s]]}'),
    ("POST", "/v1/lookups", '{"lookups": [{"view": "ByTitle", "keys": [[%s]]}]}'),
    ("POST", "/v1/lookups", '{"lookups": %s}'),
    ("POST", "/v1/views/ByTitle/evict", '{"keys": [[%s]]}'),
]


async def test_a_body_that_nests_deep_is_refused_before_it_is_walked(
    http: httpx.AsyncClient, caplog: pytest.LogCaptureFixture, subtests: pytest.Subtests
) -> None:
    for (method, path, body), deep in product(DEEP_BODIES, (DEEP, DEEP_OBJECTS)):
        with subtests.test(f"{method} {body[:30]}", deep=deep[0]):
            answer = await http.request(method, path, content=body % deep)
            assert "nests deeper" in error(answer, 400, "bad_request")["message"]
            assert not caplog.records


async def test_brackets_in_a_text_are_no_levels(http: httpx.AsyncClient) -> None:
    await http.post(ROWS, json={"rows": [{"id": number, "author": 1, "title": "[{" * 50} for number in range(40)]})
    assert len((await http.post(LOOKUP, json={"keys": [["[{" * 50]]})).json()["results"][0]) == 40


async def test_a_sum_of_too_many_terms_is_refused(
    deployment: Deployment, http: httpx.AsyncClient, caplog: pytest.LogCaptureFixture, subtests: pytest.Subtests
) -> None:
    texts = ["SELECT {} FROM stories", "UPDATE stories SET id = {} WHERE author = 1"]
    for text, terms in product(texts, [500, 1000, 3000]):
        with subtests.test(text, terms=terms):
            answer = await http.post("/v1/sql", json={"sql": text.format("+".join(["id"] * terms))})
            if type(deployment) is not FakeDeployment:  # The fake does not read SQL.
                assert "too deep" in error(answer, 413, "limit_exceeded")["message"]
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def test_what_an_error_has_passed_goes_with_its_answer() -> None:
    class Body:
        pass

    def fails() -> weakref.ref[Body]:
        body = Body()
        gone = weakref.ref(body)
        try:
            raise errors.BadRequest("no")
        except errors.BadRequest as error:
            known = error  # As a task knows the error that ended it, and its frame the task.
            describe(known, "test")
        return gone

    gc.disable()
    try:
        assert fails()() is None
    finally:
        gc.enable()
