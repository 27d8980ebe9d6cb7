"""The controller's port takes garbage as any other port does: an answer of our shape, no trace, a bounded body."""

from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest
from headrace_client.calls import progress

from api.control import create_control_app
from api.limits import Limits
from api.schemas import MigrationAnswer
from controller.cluster.leader.candidate import Candidate, NotLeading
from controller.cluster.lost_shards.rebuild_way import Rebuilding, RebuildMethod
from domains.errors import Unavailable


class Broken:
    """A candidate that does not lead, and whose status is a bug."""

    def status(self) -> dict[str, Any]:
        raise ZeroDivisionError("division by zero")

    async def leading(self) -> Any:
        raise NotLeading("c2 leads")


@pytest.fixture
async def http() -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(create_control_app(cast(Candidate, Broken())))
    async with httpx.AsyncClient(transport=transport, base_url="http://controller") as client:
        yield client


def told(answer: httpx.Response) -> dict[str, str]:
    assert "Traceback" not in answer.text
    error: dict[str, str] = answer.json()["error"]
    assert set(error) == {"code", "message", "hint"}
    return error


@pytest.mark.parametrize(
    "body",
    [b"", b"\x00\xff" * 50, b"{", b"[" * 5000, b"null", b"[]", b'{"entry": 1, "sql": 2}', b'{"shards": ["x"]}'],
)
@pytest.mark.parametrize("path", ["/v1/migrations", "/v1/rebuild"])
async def test_garbage_is_a_bad_request(http: httpx.AsyncClient, path: str, body: bytes) -> None:
    answer = await http.post(path, content=body)
    assert answer.status_code == 400, answer.text
    assert told(answer)["code"] == "bad_request"


async def test_a_path_or_method_that_is_not_there(http: httpx.AsyncClient) -> None:
    assert told(await http.get("/v1/%00/nothing"))["code"] == "not_found"
    assert told(await http.put("/v1/rebuild"))["code"] == "method_not_allowed"
    assert told(await http.post("/v1/workers/%2e%2e%2f/drain"))["code"] in ("not_found", "not_leading")


async def test_who_does_not_lead_says_so(http: httpx.AsyncClient) -> None:
    answer = await http.get("/v1/directory")
    assert (answer.status_code, told(answer)["code"]) == (503, "not_leading")


async def test_a_bug_is_an_internal_error_of_our_shape(http: httpx.AsyncClient) -> None:
    answer = await http.get("/v1/status")
    assert (answer.status_code, told(answer)["code"]) == (500, "internal_error")
    assert "division" not in answer.text, "what broke is in the log"


async def test_a_body_is_bounded_announced_or_not() -> None:
    async def streamed() -> AsyncIterator[bytes]:
        for _ in range(20):
            yield b" " * 100

    limits = Limits(max_body_size=1000)
    transport = httpx.ASGITransport(create_control_app(cast(Candidate, Broken()), limits))
    async with httpx.AsyncClient(transport=transport, base_url="http://controller") as client:
        for content in (b" " * 1001, streamed()):
            answer = await client.post("/v1/migrations", content=content)
            assert (answer.status_code, told(answer)["code"]) == (413, "limit_exceeded")


async def test_a_rebuild_is_told_as_a_migration_is() -> None:
    one = Rebuilding("3-r1", "rebuild shards: 2", "failed", error=Unavailable("the job was killed", hint="ask again"))
    one.begin(RebuildMethod("spark", "900 rows are more than 5", 900))

    class Leading(Broken):
        async def leading(self) -> Any:
            return SimpleNamespace(rebuild_operations=SimpleNamespace(get={one.id: one}.__getitem__))

    transport = httpx.ASGITransport(create_control_app(cast(Candidate, Leading())))
    async with httpx.AsyncClient(transport=transport, base_url="http://controller") as client:
        answer = (await client.get("/v1/rebuild/3-r1")).json()
    assert answer.pop("rebuilt") == []
    assert MigrationAnswer.model_validate(answer).model_dump(exclude_unset=True) == answer
    far = progress(answer)
    assert (far.backfill, far.why, far.rows_total) == ("spark", "900 rows are more than 5", 900)
    assert far.error is not None
    assert (far.error.code, far.error.hint) == ("unavailable", "ask again")
