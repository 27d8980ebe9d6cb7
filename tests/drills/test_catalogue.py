"""What there is to choose from, and what is said where something cannot be chosen."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from domains.store.storage import DISK_RESERVE
from headrace.cli import app
from headrace.errors import BadRequest
from loadgen.drills import faults, stage
from loadgen.drills.catalogue import DRILLS, SHORT
from loadgen.drills.running import DrillPlan, chosen, run

NAMES = {
    "worker-kill",
    "worker-hang",
    "controller-kill",
    "controller-kill-mid-migration",
    "zookeeper-kill",
    "zookeeper-kill-all",
    "partition",
    "link-cut",
    "slow-link",
    "restart-all",
    "rolling-restart",
    "disk-full",
    "disk-loss",
    "disk-loss-spark",
    "backup",
    "transactions",
    "transactions-partition",
}


def test_all_are_listed() -> None:
    assert set(DRILLS) == NAMES
    listed = CliRunner().invoke(app, ["drill", "--list"])
    assert listed.exit_code == 0
    assert all(name in listed.output for name in NAMES)


def test_choosing() -> None:
    assert [each.name for each in chosen("all", short=True)] == list(SHORT)
    assert [each.name for each in chosen("all", short=False)] == list(DRILLS)
    assert [each.name for each in chosen("slow-link", short=False)] == ["slow-link"]


@pytest.mark.parametrize(
    ("name", "short", "hint"),
    [
        ("woker-kill", False, 'did you mean "worker-kill"?'),
        ("xyz", False, "headrace drill --list"),
        ("link-cut", True, "headrace drill all --short"),
    ],
)
def test_a_wrong_choice_says_what_is_right(name: str, short: bool, hint: str) -> None:
    with pytest.raises(BadRequest) as caught:
        chosen(name, short=short)
    assert caught.value.hint == hint


@pytest.mark.parametrize("name", ["partition", "disk-full"])
def test_what_takes_root_is_refused_before_anything_is_started(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(stage.NotPossible, match=f'"{name}" is not possible here, because .* takes root'):
        run(DrillPlan(DRILLS[name], 1, 1, tmp_path / "out", tmp_path / "data", (1.0, 1.0)), lambda line: None)
    assert not list(tmp_path.rglob("up.json"))


def test_what_the_machine_refuses_is_told() -> None:
    with pytest.raises(stage.NotPossible, match=r"because .ls /no/such/place. says"):
        stage.run("ls", "/no/such/place")


def test_the_disk_that_is_filled_has_room_for_a_cluster_before() -> None:
    """Workers open no shard where less is free than they keep free."""
    assert faults.SIZE.endswith("m")
    assert int(faults.SIZE[:-1]) * 2**20 > 2 * DISK_RESERVE
