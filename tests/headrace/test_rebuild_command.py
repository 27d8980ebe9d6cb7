"""What ``headrace rebuild`` takes and says; what it does: tests/controller/cluster/lost_shards/."""

from __future__ import annotations

from typing import Any

import pytest
from headrace_client.calls import Call
from headrace_client.results import Progress

from headrace.cli.rebuild import Operation, rebuild, told
from headrace.errors import BadRequest, ConnectionFailed, HeadraceError, NotFound, Unavailable

TABLE = {"shard": 2, "worker": "w3", "base": "votes@2", "position": 41_200, "rows": 39_007}


def test_the_tail_is_named() -> None:
    assert told({**TABLE, "known": 41_230, "lost": 30}) == [
        'votes@2: as of position 41,200, 39,007 rows, on worker "w3"',
        "votes@2: positions 41,201 to 41,230 were not archived: 30 writes are lost",
    ]
    assert told({**TABLE, "known": 41_201, "lost": 1})[1] == (
        "votes@2: position 41,201 was not archived: 1 write is lost"
    )
    assert told({**TABLE, "known": 41_200, "lost": 0})[1] == "votes@2: nothing is known to be lost"


@pytest.mark.parametrize(("shards", "lost"), [([], False), ([1], True)])
def test_nothing_is_given_up_by_default(shards: list[int], lost: bool) -> None:
    with pytest.raises(BadRequest, match="say which shards, or --lost"):
        rebuild(shards, lost)


BACKFILL = {"backfill": "spark", "why": "900 rows", "rows": 5, "rows_total": 9, "stages_done": 0, "stages": 2}
BACKFILL |= {"tasks_done": 1, "tasks": 3, "seconds_left": 4.0, "ui": "http://spark:4040"}
RUNNING = {"id": "3-r1", "sql": "rebuild", "state": "running", "step": "fold", "progress": 0.2, "steps": ["fold"]}
RUNNING |= {"error": None, "rebuilt": [], **BACKFILL}


class Controller:
    """Answers what it is given, one after another."""

    def __init__(self, *answers: dict[str, Any] | HeadraceError) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, str]] = []

    def send(self, call: Call[Any]) -> Any:
        self.asked.append((call.method, call.path))
        answer = self.answers.pop(0)
        if isinstance(answer, HeadraceError):
            raise answer
        return answer


def watched(*answers: dict[str, Any] | HeadraceError) -> tuple[Operation, Controller]:
    controller = Controller(*answers)
    return Operation(controller, RUNNING), controller  # type: ignore[arg-type]


def test_how_far_it_is_is_told_until_it_ends() -> None:
    one, controller = watched(RUNNING, {**RUNNING, "state": "done", "progress": 1.0, "rebuilt": [TABLE]})
    shown: list[Progress] = []
    assert one.wait(shown.append).finished
    assert (shown[0].backfill, shown[0].rows, shown[0].ui) == ("spark", 5, "http://spark:4040")
    assert one.rebuilt == [TABLE]
    assert controller.asked == [("GET", "/v1/rebuild/3-r1")] * 2


def test_what_made_it_fail_is_raised() -> None:
    error = {"code": "bulk_failed", "message": "the job was killed", "hint": "ask again"}
    failed = {**RUNNING, "state": "failed", "error": error}
    with pytest.raises(Unavailable, match="the job was killed") as caught:
        watched(failed)[0].wait(lambda _: None)
    assert (caught.value.code, caught.value.hint) == ("bulk_failed", "ask again")


@pytest.mark.parametrize("error", [ConnectionFailed("nobody answers"), NotFound("no rebuild"), Unavailable("c2 leads")])
def test_a_lost_leader_is_told(error: HeadraceError) -> None:
    with pytest.raises(Unavailable, match=f"leader.*lost.*{error.message}"):
        watched(RUNNING, error)[0].wait(lambda _: None)
