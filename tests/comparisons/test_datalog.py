"""The classics of Datalog as views: right after every change, beside a naive evaluation of the rules."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from headrace.embedding import embedded

Pairs = set[tuple[int, int]]
Facts = dict[str, Pairs]
"""By table: of rows (a, b)."""
CHANGES = 120
CLOSURE = "SELECT a, b FROM edge UNION SELECT t.a, e.b FROM t JOIN edge e ON e.a = t.b"
GENERATION = (
    "SELECT x.a, y.a FROM edge x JOIN edge y ON x.b = y.b UNION SELECT x.a, y.a FROM t JOIN edge x ON x.b = t.a JOIN "
    "edge y ON y.b = t.b"
)
POINTS_TO = """
WITH RECURSIVE flow (a, b) AS (
  SELECT a, b FROM edge
  UNION SELECT a, a FROM edge
  UNION SELECT b, b FROM edge
  UNION SELECT e.a, m.b FROM edge e JOIN alias m ON m.a = e.b
  UNION SELECT x.a, y.b FROM flow x JOIN flow y ON y.a = x.b),
alias (a, b) AS (
  SELECT a, a FROM edge
  UNION SELECT b, b FROM edge
  UNION SELECT x.b, y.b FROM deref x JOIN same v ON v.a = x.a JOIN deref y ON y.a = v.b),
same (a, b) AS (
  SELECT x.b, y.b FROM flow x JOIN flow y ON y.a = x.a
  UNION SELECT x.b, y.b FROM flow x JOIN alias m ON m.a = x.a JOIN flow y ON y.a = m.b)
"""
"""Value flow, memory alias and value alias, of assignments (edge) and dereferences (Graspan's pointer analysis)."""
VIEWS = {
    "closure": f"WITH RECURSIVE t (a, b) AS ({CLOSURE}) SELECT a, b FROM t",
    "closure_of": f"WITH RECURSIVE t (a, b) AS ({CLOSURE}) SELECT b FROM t WHERE a = ?",
    "generation": f"WITH RECURSIVE t (a, b) AS ({GENERATION}) SELECT a, b FROM t",
    "generation_of": f"WITH RECURSIVE t (a, b) AS ({GENERATION}) SELECT b FROM t WHERE a = ?",
    "strongly": f"WITH RECURSIVE t (a, b) AS ({CLOSURE}) SELECT x.a, x.b FROM t x JOIN t y ON y.a = x.b AND y.b = x.a",
    "flows": f"{POINTS_TO} SELECT a, b FROM flow",
    "aliases": f"{POINTS_TO} SELECT a, b FROM alias",
    "same_values": f"{POINTS_TO} SELECT a, b FROM same",
}


def joined(left: Iterable[tuple[int, int]], right: Iterable[tuple[int, int]]) -> Pairs:
    """(x, z) of (x, y) and (y, z)."""
    by: dict[int, set[int]] = {}
    for y, z in right:
        by.setdefault(y, set()).add(z)
    return {(x, z) for x, y in left for z in by.get(y, ())}


def turned(pairs: Iterable[tuple[int, int]]) -> Pairs:
    return {(b, a) for a, b in pairs}


def fixed(step: Callable[[Facts], Facts]) -> Facts:
    """The least facts that the rules do not add to."""
    facts: Facts = {}
    while (more := step(facts)) != facts:
        facts = more
    return facts


def closure(edge: Pairs) -> Pairs:
    return fixed(lambda f: {"t": edge | joined(f.get("t", ()), edge)})["t"]


def generation(edge: Pairs) -> Pairs:
    return fixed(lambda f: {"t": joined(edge, turned(edge)) | joined(joined(edge, f.get("t", ())), turned(edge))})["t"]


def points_to(edge: Pairs, deref: Pairs) -> Facts:
    self = {(x, x) for pair in edge for x in pair}

    def step(f: Facts) -> Facts:
        flow, alias, same = (f.get(name, set()) for name in ("flow", "alias", "same"))
        return {
            "flow": edge | self | joined(edge, alias) | joined(flow, flow),
            "alias": self | joined(joined(turned(deref), same), deref),
            "same": joined(turned(flow), flow) | joined(joined(turned(flow), alias), flow),
        }

    return fixed(step)


def expected(edge: Pairs, deref: Pairs) -> dict[str, Pairs]:
    reached, pointed = closure(edge), points_to(edge, deref)
    return {
        "closure": reached,
        "generation": generation(edge),
        "strongly": {(a, b) for a, b in reached if (b, a) in reached},
        "flows": pointed["flow"],
        "aliases": pointed["alias"],
        "same_values": pointed["same"],
    }


@pytest.mark.parametrize("shards", [1, 3])
def test_they_are_right_after_every_change(tmp_path: Path, shards: int) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    facts: dict[str, dict[int, tuple[int, int]]] = {"edge": {}, "deref": {}}
    with embedded(tmp_path, read_your_writes=True, read_timeout=60, shards=shards) as db:
        for table in facts:
            db.execute(
                f"CREATE TABLE {table} (id INT NOT NULL PRIMARY KEY, a INT NOT NULL, b INT NOT NULL, KEY (a), KEY (b))"
            )
        for view, text in VIEWS.items():
            db.execute(f"CREATE EXT VIEW {view} AS {text}")
        for _ in range(CHANGES):
            table, id = rng.choice(("edge", "edge", "deref")), rng.randrange(9)
            if facts[table].pop(id, None) is not None:
                db.execute(f"DELETE FROM {table} WHERE id = {id}")
            else:
                facts[table][id] = rng.randrange(6), rng.randrange(6)
                db.execute(f"INSERT INTO {table} VALUES {(id, *facts[table][id])}")
            found = expected(set(facts["edge"].values()), set(facts["deref"].values()))
            for view, pairs in found.items():
                rows = [tuple(row.values()) for row in db.view(view).lookup()]
                assert sorted(rows) == sorted(pairs), view
            for view in ("closure", "generation"):
                key = rng.randrange(6)
                rows = [row["b"] for row in db.view(f"{view}_of").lookup(a=key)]
                assert sorted(rows) == sorted(b for a, b in found[view] if a == key), (view, key)
                if view == "closure" and rng.random() < 0.2:
                    db.view(f"{view}_of").evict([{"a": key}])
