"""When a cluster is whole, and when a drill has held: whatever is wrong, missing or not judged makes it fail."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from loadgen.drills.analysis import Fault
from loadgen.drills.catalogue import DRILLS
from loadgen.drills.cluster import ClusterShape, DrillCluster, missing, placement, uneven
from loadgen.drills.load.ledger import Record
from loadgen.drills.running import DrillResult, _progress, result_of
from loadgen.drills.stage import DrillStage, Observer

CLEAN = {
    "findings": {
        **dict.fromkeys(("missing", "doubled", "returned", "invented", "reverted", "wrong_reads"), 0),
        "examples": [],
    },
    "unseen": 0,
    "acknowledged": 40,
    "problems": {},
}


def worker(number: int, *domains: int, **more: Any) -> dict[str, Any]:
    return {"worker": f"worker-{number}", "registered": True, "health": "ok", "domains": list(domains), **more}


def domain(number: int, host: int, linked: bool = True) -> dict[str, Any]:
    return {"domain": number, "worker": f"worker-{host}", "linked": linked}


def status(**changed: Any) -> dict[str, Any]:
    return {
        "cluster": {"leader": {"name": "controller-1"}, "zookeeper": "connected"},
        "workers": [worker(1, 0, 3), worker(2, 1), worker(3, 2)],
        "domains": [domain(0, 1), domain(3, 1), domain(1, 2), domain(2, 3)],
        **changed,
    }


def test_a_whole_cluster_lacks_nothing() -> None:
    assert missing(status(), ClusterShape()) == []
    assert uneven(status()) == []
    assert placement(status()) == {0: "worker-1", 3: "worker-1", 1: "worker-2", 2: "worker-3"}


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"cluster": {"leader": None, "zookeeper": "connected"}}, "no leader"),
        ({"cluster": {"leader": {}, "zookeeper": "connected"}}, "no leader"),
        ({"cluster": {"leader": {"name": "c"}, "zookeeper": "away"}}, "ZooKeeper is away"),
        ({"workers": [worker(1, 0, 3), worker(2, 1)]}, "1 of 3 workers are away, 1 of 4 domains are not served"),
        (
            {"workers": [worker(1, 0, 3), worker(2, 1), worker(3, 2, registered=False)]},
            "1 of 3 workers are away",
        ),
        ({"workers": [worker(1, 0, 3), worker(2, 1), worker(3, 2, health="silent")]}, "1 of 3 workers are away"),
        ({"domains": [domain(0, 1), domain(3, 1, linked=False), domain(1, 2), domain(2, 3)]}, "1 of 4 domains"),
        ({"domains": [domain(0, 1), domain(3, 2), domain(1, 2), domain(2, 3)]}, "1 of 4 domains"),
    ],
)
def test_what_is_missing_is_named(changed: dict[str, Any], words: str) -> None:
    assert ", ".join(missing(status(**changed), ClusterShape())).startswith(words)


def test_a_worker_that_has_two_more_than_another_is_to_give_one_away() -> None:
    assert uneven(status(workers=[worker(1, 0, 3), worker(2, 1, 2), worker(3)]))


# --- results --------------------------------------------------------------------------------------------------------


def records(outage: float) -> list[Record]:
    """A read of story 0 and of story 1 in each hundredth of a second; from second 10 on those of story 1 fail."""
    made = []
    for step in range(2_000):
        due = step / 100
        lost = 10.0 <= due < 10.0 + outage
        made.append(Record(due, 0.01, "Newest", 0, "ok"))
        made.append(Record(due, 0.01, "Newest", 1, "error" if lost else "ok"))
    return made


def outcome(
    *judgements: dict[str, Any], outage: float = 1.0, broken: tuple[str, ...] = (), name: str = "worker-kill"
) -> DrillResult:
    cluster = DrillCluster(Path("unused"), ClusterShape())
    stage = DrillStage(cluster, cast(Observer, None), Random(0), Path("unused"), print)
    stage.faults.append(Fault(10.0, frozenset({1}), detected=10.1, whole=12.0))
    stage.broken.extend(broken)
    return result_of(DRILLS[name], 7, (100.0, 0.0), records(outage), stage, judgements)


def test_it_holds_where_nothing_is_wrong() -> None:
    result = outcome(CLEAN)
    assert result.held
    assert [verdict.met for verdict in result.verdicts] == [True, True, True]
    assert json.loads(json.dumps(result.document))["outage_s"]["max"] == pytest.approx(1.0, abs=0.02)


@pytest.mark.parametrize("kind", ["missing", "doubled", "returned", "invented", "reverted", "wrong_reads"])
def test_one_of_anything_wrong_and_it_does_not_hold(kind: str) -> None:
    wrong = {**CLEAN, "findings": {**CLEAN["findings"], kind: 1}}  # type: ignore[dict-item]
    result = outcome(CLEAN, wrong)
    assert not result.held
    assert result.document["findings"][kind] == 1


def test_an_own_write_that_was_not_seen_and_it_does_not_hold() -> None:
    assert not outcome({**CLEAN, "unseen": 1}).held


def test_what_was_not_judged_does_not_hold() -> None:
    assert not outcome(CLEAN, {}).held
    assert not outcome().held
    assert not outcome(CLEAN, broken=("the cluster is not whole",)).held


def test_a_goal_of_time_that_was_missed_is_told_and_no_failure() -> None:
    result = outcome(CLEAN, outage=3.0)
    assert result.held
    [service] = [verdict for verdict in result.verdicts if verdict.goal == "s until full service"]
    assert not service.met
    assert service.seen == pytest.approx(3.0, abs=0.02)


def test_what_was_not_seen_has_missed_its_goal() -> None:
    stage_of = outcome(CLEAN, name="controller-kill")
    assert {verdict.goal: verdict.met for verdict in stage_of.verdicts}["s until it was noticed"]


def test_a_round_in_which_something_was_broken_does_not_sound_right() -> None:
    def said(broken: list[str], judgement: dict[str, Any]) -> str:
        plan: Any = SimpleNamespace(rounds=3)
        stage: Any = SimpleNamespace(faults=[], broken=broken)
        return _progress(2, plan, stage, judgement)

    assert said([], CLEAN) == "  round 2 of 3; 40 acknowledged writes are right"
    assert said(["nobody led"], CLEAN) == "  round 2 of 3; 40 acknowledged writes are right; but nobody led"
    assert said(["nobody led"], {}) == "  round 2 of 3; not judged; but nobody led"
