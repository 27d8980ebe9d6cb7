"""What running tasks tell of the rows that they have fed."""

from __future__ import annotations

import socket
import time
from dataclasses import replace

import pytest

from migrations.backfill.spark import reporting
from migrations.backfill.spark.reporting import Tally, TaskReporter


@pytest.fixture(autouse=True)
def told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reporting, "SECONDS", 0.0)


def until(counted: Tally, rows: int) -> None:
    deadline = time.monotonic() + 60
    while counted.rows() != rows:
        assert time.monotonic() < deadline, counted.rows()


def test_tasks_tell_while_they_run_and_a_second_try_counts_once() -> None:
    counted = Tally("127.0.0.1", "127.0.0.1")
    one, other, again = (TaskReporter(counted.address, 0, task) for task in (0, 1, 0))
    one.fed(10)
    one.fed(5)
    other.fed(7)
    until(counted, 22)
    again.fed(3)
    again.fed(20)
    until(counted, 30)
    for each in (one, other, again, counted):
        each.close()


def test_whoever_does_not_know_the_secret_is_passed_over() -> None:
    counted = Tally("127.0.0.1", "127.0.0.1")
    stranger = TaskReporter(replace(counted.address, secret=bytes(16)), 0, 0)
    stranger.fed(10**6)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as noise:
        noise.sendto(b"x" * 1000, (counted.address.host, counted.address.port))
    known = TaskReporter(counted.address, 0, 1)
    known.fed(4)
    until(counted, 4)
    for each in (stranger, known, counted):
        each.close()


def test_where_nobody_can_listen_nothing_is_told() -> None:
    counted = Tally("192.0.2.1", "192.0.2.1")
    teller = TaskReporter(counted.address, 0, 0)
    teller.fed(5)
    assert counted.rows() == 0
    teller.close()
    counted.close()
