"""What a worker does where its memory is short, and what the log says of it."""

from __future__ import annotations

import logging

import pytest

from worker.dataflow.memory_limiter import TELL_SECONDS, Pressure, room_of


def test_evictions_are_logged_once_in_a_while_and_all_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    now = 100.0
    pressure = Pressure(lambda: now)
    with caplog.at_level(logging.INFO, "headrace.worker"):
        for _ in range(5):
            pressure.add(3, 1000)
        now += TELL_SECONDS
        pressure.add(1, 1000)
    assert [record.args[1] for record in caplog.records if isinstance(record.args, tuple)] == [3, 13]


def test_state_gives_way_to_what_others_in_the_process_take() -> None:
    assert room_of(1000, 0) == 1000
    assert room_of(1000, 300) == 700
    assert room_of(1000, 5000) == 250


def test_evictions_wait_for_what_gives_way_but_only_so_far() -> None:
    pressure = Pressure()
    assert pressure.evicts(1001, 1000), "nothing else gives way"
    pressure.give_way = lambda: True
    assert not pressure.evicts(1125, 1000)
    assert pressure.evicts(1126, 1000)
