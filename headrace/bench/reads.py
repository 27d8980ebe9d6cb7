"""Reads over HTTP: one key a request against constant bytes, and a thousand keys against a dict."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from random import Random

import orjson
import psutil

from headrace.bench.client import Client, get, post, running
from headrace.bench.measurement import Measurement, Rate, ratio, thousands, typical
from headrace.bench.program import VIEW, zipf

GOAL_OF_ONE = 0.6
GOAL_OF_MANY = 0.5
KEYS = 1_000


def measure_one(directory: Path, quick: bool) -> Measurement:
    stories, rounds, count = (2_000, 3, 4_000) if quick else (10_000, 9, 20_000)
    requests = [get(f"/v1/views/{VIEW}?id={number}") for number in zipf(stories, Random(1))(5_000)]
    with (
        running("headrace", stories, directory) as (ours, our_process),
        running("constant", stories, directory) as (theirs, their_process),
    ):
        same = get(f"/v1/views/{VIEW}?id=1")
        assert ours.ask(same) == theirs.ask(same), "both servers answer the same bytes"
        a, b = _alternate(ours, our_process, theirs, their_process, requests, count, rounds)
    by_clock, by_cpu = ratio(a, b)
    return Measurement(
        "reads",
        "GET of one key, one server process",
        "an ASGI app that returns constant bytes under the same uvicorn",
        thousands(typical(a)),
        thousands(typical(b)),
        by_clock,
        GOAL_OF_ONE,
        details={
            "stories": stories,
            "rounds": rounds,
            "requests_a_round": count,
            "ratio_by_processor_time": round(by_cpu, 3),
            "our_processor_us_a_request": _microseconds(a),
            "their_processor_us_a_request": _microseconds(b),
        },
    )


def measure_many(directory: Path, quick: bool) -> Measurement:
    stories, rounds, count = (2_000, 3, 150) if quick else (10_000, 9, 600)
    random, numbers = Random(1), range(1, stories + 1)
    bodies = [orjson.dumps({"keys": [[number] for number in random.sample(numbers, KEYS)]}) for _ in range(50)]
    requests = [post(f"/v1/views/{VIEW}/lookup", body) for body in bodies]
    with (
        running("headrace", stories, directory) as (ours, our_process),
        running("dictionary", stories, directory) as (theirs, their_process),
    ):
        assert ours.ask(requests[0]) == theirs.ask(requests[0]), "both servers answer the same bytes"
        a, b = _alternate(ours, our_process, theirs, their_process, requests, count, rounds)
    by_clock, by_cpu = ratio(a, b)
    return Measurement(
        "lookups",
        "look-up of 1,000 keys a request, keys a second",
        "an ASGI loop that parses the request, reads a dict and joins bytes",
        thousands(typical(a) * KEYS),
        thousands(typical(b) * KEYS),
        by_clock,
        GOAL_OF_MANY,
        details={
            "stories": stories,
            "rounds": rounds,
            "requests_a_round": count,
            "ratio_by_processor_time": round(by_cpu, 3),
            "our_processor_us_a_request": _microseconds(a),
            "their_processor_us_a_request": _microseconds(b),
        },
    )


def _alternate(
    ours: Client,
    our_process: psutil.Process,
    theirs: Client,
    their_process: psutil.Process,
    requests: Sequence[bytes],
    count: int,
    rounds: int,
) -> tuple[list[Rate], list[Rate]]:
    sides = ((ours, our_process), (theirs, their_process))
    rates: tuple[list[Rate], list[Rate]] = ([], [])
    for client, _ in sides:
        client.drive(requests, count // 4)
    for _ in range(rounds):
        for (client, process), into in zip(sides, rates, strict=True):
            cpu, wall = _cpu(process), time.perf_counter()
            client.drive(requests, count)
            wall, cpu = time.perf_counter() - wall, _cpu(process) - cpu
            into.append(Rate(count / wall, count / max(cpu, 0.01)))
    return rates


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _microseconds(rates: list[Rate]) -> float:
    ordered = sorted(1e6 / each.cpu for each in rates)
    return round(ordered[len(ordered) // 2], 1)
