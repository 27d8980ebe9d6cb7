"""The process of a load. It reads its orders as lines of JSON from standard input, and answers each with one line.

``python -m loadgen.drills.load --url URL [--url …] --seed S --records FILE [--reads N] [--writes N]``

====================================  ==================================================================
``{"do": "prepare"}``                 tables, views, stories, warm pages
``{"do": "go"}``                      begin to send; ``{"do": "pause"}``: stop, and wait for what is under way
``{"do": "rest"}``                    write nothing, and wait for writes under way; ``{"do": "resume"}``: write again
``{"do": "judge", "within": 10}``     findings; only after a pause
``{"do": "mark"}``                    remember what is known of all writes now
``{"do": "judge_copy", "base": …}``   findings of a copy of the base tables that was asked for after the mark
``{"do": "end"}``                     also at the end of input
====================================  ==================================================================
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from copy import deepcopy
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import urlsplit

from loadgen.drills.load import judging, ledger
from loadgen.drills.load.judging import BaseRows, Findings, check_copy
from loadgen.drills.load.load import DrillLoad, HttpTarget, Rates


async def obey(load: DrillLoad, order: dict[str, Any], file: Path) -> dict[str, Any]:
    match order["do"]:
        case "prepare":
            await judging.prepare(load)
        case "go":
            load.go()
        case "pause":
            await load.pause()
            ledger.write(file, load.records)
            load.records.clear()
        case "rest":
            await load.rest()
        case "resume":
            load.resting = False
        case "judge":
            findings = await judging.judge(load, order["within"])
            return {
                "findings": findings.to_json(),
                "unseen": load.unseen,
                "acknowledged": load.ledger.acknowledged(),
                "problems": dict(load.problems.most_common(30)),
            }
        case "mark":
            load.marked = deepcopy(load.ledger)
        case "judge_copy":
            findings = Findings()
            base = BaseRows(tuple(map(tuple, order["entries"])), dict(order["revisions"]))
            check_copy(load.marked, load.ledger, base, findings)
            return {"findings": findings.to_json()}
        case unknown:
            raise ValueError(f"unknown order: {unknown!r}")
    return {}


async def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m loadgen.drills.load", description="the load of a drill")
    parser.add_argument("--url", action="append", required=True)
    parser.add_argument("--seed", default="0")
    parser.add_argument("--records", type=Path, required=True)
    parser.add_argument("--reads", type=float, default=Rates().reads, help="a second")
    parser.add_argument("--writes", type=float, default=Rates().writes, help="a second")
    given = parser.parse_args()
    targets = [HttpTarget(each.hostname or "127.0.0.1", each.port or 80) for each in map(urlsplit, given.url)]
    load = DrillLoad(targets, Rates(given.reads, given.writes), Random(given.seed))
    while line := await asyncio.to_thread(sys.stdin.readline):
        order = json.loads(line)
        if order["do"] == "end":
            break
        try:
            answer = await obey(load, order, given.records)
        except (judging.NotAnswered, ValueError) as error:
            answer = {"failed": str(error)}
        print(json.dumps(answer), flush=True)
    await load.pause()
    for target in targets:
        target.close()


if __name__ == "__main__":
    asyncio.run(main())
