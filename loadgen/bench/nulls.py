"""Null assignments that go: where null may come to in a program, kept up to date, beside finding it out anew.

The *dataflow* analysis of K-Pg's section 5.5: null is propagated along assignments. A program is made by chance, of
functions of some hundred variables, whose later ones are assigned from earlier ones, and sometimes from the result of
another function. One null assignment after another is taken out of it; each time the whole set of reached variables is
right when the count of it is answered. Against it stands the same SELECT without a view, over the same tables.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from statistics import median

from headrace.embedding import embedded
from loadgen.bench.measurement import Measurement

ASSIGNMENTS, NULLS, REMOVED, ANEW = 10_000, 1_000, 300, 10
VARIABLES = 100
"""Of a function."""
FAR = 0.05
"""The share of assignments from another function."""
REACHED = (
    "WITH RECURSIVE reached (id) AS (SELECT variable FROM null_assignment UNION SELECT a.target FROM reached r JOIN "
    "assignment a ON a.source = r.id) SELECT COUNT(*) AS n FROM reached WHERE id >= {}"
)
_BATCH = 1_000


def assignments(rng: Random, number: int) -> Iterator[dict[str, int]]:
    functions = max(1, number // VARIABLES)
    for id in range(number):
        function = rng.randrange(functions)
        source, target = sorted(rng.sample(range(VARIABLES), 2))
        begun = rng.randrange(functions) if rng.random() < FAR else function
        yield {"id": id, "source": begun * VARIABLES + source, "target": function * VARIABLES + target}


def measure(directory: Path, quick: bool) -> Measurement:
    rng = Random(1)
    number, removed, anew = (1_000, 20, 3) if quick else (ASSIGNMENTS, REMOVED, ANEW)
    nulls = rng.sample(range(number), number * NULLS // ASSIGNMENTS)
    with embedded(directory / "nulls", read_your_writes=True) as db:
        db.execute(
            "CREATE TABLE assignment (id INT NOT NULL PRIMARY KEY, source INT NOT NULL, target INT NOT NULL, "
            "KEY (source), KEY (target)); CREATE TABLE null_assignment (id INT NOT NULL PRIMARY KEY, "
            "variable INT NOT NULL)"
        )
        rows = list(assignments(rng, number))
        for first in range(0, number, _BATCH):
            db.table("assignment").insert(rows[first : first + _BATCH])
        db.table("null_assignment").insert([{"id": id, "variable": id_} for id, id_ in enumerate(nulls)])
        db.execute(f"CREATE EXT VIEW reached_variables AS {REACHED.format(0)}")
        view = db.view("reached_variables")
        before = view.lookup()[0]["n"]
        ours: list[float] = []
        for id in rng.sample(range(len(nulls)), removed):
            begun = time.perf_counter()
            db.execute(f"DELETE FROM null_assignment WHERE id = {id}")
            after = view.lookup()[0]["n"]
            ours.append(time.perf_counter() - begun)
        theirs: list[float] = []
        for least in range(-anew, 0):  # Another constant each time: nothing of the one before is of use.
            begun = time.perf_counter()
            found = db.execute(REACHED.format(least)).rows[0][0]
            theirs.append(time.perf_counter() - begun)
            assert found == after, f"{found} variables are reached, and the view has {after}"
    ours.sort()
    return Measurement(
        "nulls",
        f"taking one of {len(nulls):,} null assignments out of {number:,} assignments",
        "the same SELECT anew",
        f"{median(ours) * 1e3:.1f} ms (p99 {ours[int(len(ours) * 0.99)] * 1e3:.1f})",
        f"{median(theirs) * 1e3:.0f} ms",
        median(theirs) / median(ours),
        100.0,
        details={"reached_before": before, "reached_after": after, "slowest_ms": ours[-1] * 1e3},
    )
