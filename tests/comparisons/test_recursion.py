"""WITH RECURSIVE over tables that change answers as MariaDB does: as views that are kept up to date, by a key and
whole, with evictions between the writes, and as SELECTs. Data has circles, which writes cut and close."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pymysql
import pytest

from headrace.embedding import Embedded, embedded
from headrace.errors import HeadraceError, LimitExceeded
from loadgen.bench import servers

MISSING = servers.missing("mariadb")
SCHEMA = (
    "CREATE TABLE edge (id INT NOT NULL PRIMARY KEY, src INT, dst INT, kind INT, KEY (src), KEY (dst))",
    "CREATE TABLE node (id INT NOT NULL PRIMARY KEY, boss INT, name VARCHAR(10), KEY (boss))",
)
KEYED = {
    "reach": "WITH RECURSIVE r (source, target) AS (SELECT src, dst FROM edge UNION SELECT r.source, e.dst FROM r JOIN "
    "edge e ON e.src = r.target) SELECT target FROM r WHERE source = {}",
    "reach_seeded": "WITH RECURSIVE r AS (SELECT src, dst FROM edge WHERE src = {} UNION SELECT e.src, e.dst FROM r "
    "JOIN edge e ON e.src = r.dst) SELECT src, dst FROM r",
    "reached": "WITH RECURSIVE r (source, target) AS (SELECT src, dst FROM edge UNION SELECT e.src, r.target FROM edge "
    "e JOIN r ON e.dst = r.source WHERE e.kind > 0) SELECT source FROM r WHERE target = {}",
    "hops": "WITH RECURSIVE r (source, target, n) AS (SELECT src, dst, 1 FROM edge UNION SELECT source, e.dst, n + 1 "
    "FROM r, edge e WHERE e.src = r.target AND n < 4) SELECT target, MIN(n) FROM r WHERE source = {} GROUP BY target",
    "paths": "WITH RECURSIVE r (source, target, n) AS (SELECT src, dst, 1 FROM edge UNION ALL SELECT source, e.dst, "
    "n + 1 FROM r JOIN edge e ON e.src = r.target WHERE n < 3) SELECT target, n, COUNT(*) FROM r WHERE source = {} "
    "GROUP BY target, n",
    "two_ways": "WITH RECURSIVE r (source, target) AS (SELECT id, id FROM node UNION SELECT source, e.dst FROM r JOIN "
    "edge e ON e.src = target UNION SELECT source, n.boss FROM r JOIN node n ON n.id = target WHERE n.boss IS NOT "
    "NULL) "
    "SELECT target FROM r WHERE source = {}",
    "not_through": "WITH RECURSIVE r (source, target) AS (SELECT src, dst FROM edge UNION SELECT r.source, e.dst FROM "
    "r "
    "JOIN edge e ON e.src = r.target WHERE NOT EXISTS (SELECT 1 FROM node n WHERE n.id = e.src AND n.name = 'x')) "
    "SELECT target FROM r WHERE source = {}",
    "optional": "WITH RECURSIVE r (source, target, name) AS (SELECT src, dst, CAST('' AS CHAR(10)) FROM edge UNION "
    "SELECT r.source, e.dst, COALESCE(n.name, '-') FROM r JOIN edge e ON e.src = r.target LEFT JOIN node n ON "
    "n.id = e.dst) SELECT target, name FROM r WHERE source = {}",
    "even": "WITH RECURSIVE odd (source, target) AS (SELECT src, dst FROM edge UNION SELECT v.source, e.dst FROM even "
    "v JOIN edge e ON e.src = v.target), even (source, target) AS (SELECT id, id FROM node UNION SELECT o.source, "
    "e.dst FROM odd o JOIN edge e ON e.src = o.target) SELECT target FROM even WHERE source = {}",
    "by_turns": "WITH RECURSIVE up (source, label, target) AS (SELECT id, name, boss FROM node UNION SELECT d.source, "
    "n.name, n.boss FROM down d JOIN node n ON n.id = d.target), down (target, source) AS (SELECT dst, src FROM edge "
    "WHERE kind = 0 UNION SELECT e.dst, u.source FROM up u JOIN edge e ON e.src = u.target WHERE u.label = 'x'), mixed "
    "AS (SELECT source, target, label FROM up WHERE label <> 'x' UNION ALL SELECT source, target, 'down' FROM down) "
    "SELECT label, target FROM mixed WHERE source = {}",
    "shortest": "WITH RECURSIVE r (source, target, n) AS (SELECT src, dst, 1 FROM edge UNION SELECT source, e.dst, "
    "MIN(n + 1) FROM r JOIN edge e ON e.src = r.target GROUP BY source, e.dst) SELECT target, n FROM r WHERE source = "
    "{}",
    "cheapest": "WITH RECURSIVE r (source, target, n) AS (SELECT src, dst, CAST(kind AS SIGNED) FROM edge UNION SELECT "
    "e.src, r.target, MIN(e.kind + r.n) AS less FROM edge e JOIN r ON r.source = e.dst WHERE r.n < 3 GROUP BY e.src, "
    "r.target) SELECT source, n FROM r WHERE target = {}",
    "widest": "WITH RECURSIVE r (source, target, w) AS (SELECT src, dst, kind FROM edge UNION SELECT r.source, e.dst, "
    "MAX(LEAST(r.w, e.kind)) FROM r JOIN edge e ON e.src = r.target GROUP BY e.dst, r.source) SELECT target, w FROM r "
    "WHERE source = {}",
    "by_view": "WITH RECURSIVE r (source, target) AS (SELECT a, b FROM pairs UNION SELECT r.source, p.b FROM r JOIN "
    "pairs p ON p.a = r.target) SELECT target FROM r WHERE source = {}",
}
REWRITTEN = {
    "shortest": "WITH RECURSIVE r (source, target, n) AS (SELECT src, dst, 1 FROM edge UNION SELECT source, e.dst, n + "
    "1 FROM r JOIN edge e ON e.src = r.target WHERE n < 8) SELECT target, MIN(n) FROM r WHERE source = {} GROUP BY "
    "target",
    "cheapest": "WITH RECURSIVE r (source, target, n) AS (SELECT src, dst, CAST(kind AS SIGNED) FROM edge UNION SELECT "
    "e.src, r.target, e.kind + r.n FROM edge e JOIN r ON r.source = e.dst WHERE r.n < 3) SELECT source, MIN(n) FROM r "
    "WHERE target = {} GROUP BY source",
    "widest": "WITH RECURSIVE r (source, target, w) AS (SELECT src, dst, kind FROM edge UNION SELECT r.source, e.dst, "
    "LEAST(r.w, e.kind) FROM r JOIN edge e ON e.src = r.target) SELECT target, MAX(w) FROM r WHERE source = {} GROUP "
    "BY target",
    "labels": "WITH RECURSIVE r AS (SELECT id, id AS label FROM node UNION SELECT e.dst, r.label FROM r JOIN edge e ON "
    "e.src = r.id) SELECT id, MIN(label) FROM r GROUP BY id",
    "even": "WITH RECURSIVE b (odd, source, target) AS (SELECT 1, src, dst FROM edge UNION SELECT 0, id, id FROM node "
    "UNION SELECT 1 - b.odd, b.source, e.dst FROM b JOIN edge e ON e.src = b.target) SELECT target FROM b WHERE odd = "
    "0 AND source = {}",
    "by_turns": "WITH RECURSIVE b (down, source, label, target) AS (SELECT 0, id, name, boss FROM node UNION SELECT 1, "
    "src, 'down', dst FROM edge WHERE kind = 0 UNION SELECT 0, b.source, n.name, n.boss FROM b JOIN node n ON n.id = "
    "b.target WHERE down UNION SELECT 1, b.source, 'down', e.dst FROM b JOIN edge e ON e.src = b.target WHERE NOT down "
    "AND label = 'x') SELECT label, target FROM b WHERE label <> 'x' AND source = {}",
}
"""What MariaDB is asked instead: it has no MIN in a recursion, and comes to no end over two that read each other."""
WHOLE = {
    "labels": "WITH RECURSIVE r AS (SELECT id, id AS label FROM node UNION SELECT e.dst, MIN(r.label) FROM r JOIN edge "
    "e ON e.src = r.id GROUP BY e.dst) SELECT id, label FROM r",
    "counts": "WITH RECURSIVE r (source, target) AS (SELECT src, dst FROM edge UNION SELECT r.source, e.dst FROM r "
    "JOIN "
    "edge e ON e.src = r.target) SELECT source, COUNT(*) FROM r GROUP BY source",
    "roots": "WITH RECURSIVE r AS (SELECT id, id AS root FROM node WHERE boss IS NULL UNION SELECT n.id, r.root FROM r "
    "JOIN node n ON n.boss = r.id) SELECT root, COUNT(*) FROM r GROUP BY root",
    "circles": "WITH RECURSIVE r (source, target) AS (SELECT src, dst FROM edge UNION SELECT r.source, e.dst FROM r "
    "JOIN "
    "edge e ON e.src = r.target) SELECT a.source, b.source FROM r a JOIN r b ON a.target = b.source AND b.target = "
    "a.source",
}
ALONE = (
    "WITH RECURSIVE c AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM c WHERE n < 20) SELECT n FROM c",
    "WITH RECURSIVE f (n, a, b) AS (SELECT 1, 0, 1 UNION ALL SELECT n + 1, b, a + b FROM f WHERE n < 20) SELECT n, a "
    "FROM f",
    "WITH RECURSIVE p (id, path) AS (SELECT id, CAST(id AS CHAR(200)) FROM node WHERE boss IS NULL UNION ALL SELECT "
    "n.id, CONCAT(p.path, ',', n.id) FROM p JOIN node n ON n.boss = p.id) SELECT id, path FROM p",
    "WITH RECURSIVE d AS (SELECT DATE '2024-02-27' AS day UNION ALL SELECT day + INTERVAL 1 DAY FROM d WHERE day < "
    "'2024-03-02') SELECT DAYOFMONTH(day), COUNT(n.id) FROM d LEFT JOIN node n ON n.id = DAYOFMONTH(day) GROUP BY day",
)
ROUNDS, NODES = 40, 7


def writes(rng: random.Random) -> Iterator[str]:
    """Few nodes, so that circles of every length close and open."""

    def value() -> str:
        return "NULL" if rng.random() < 0.05 else str(rng.randrange(NODES))

    for _ in range(rng.choice((1, 1, 2))):
        id = rng.randrange(14)
        match rng.randrange(6):
            case 0 | 1:
                yield f"REPLACE INTO edge VALUES ({id}, {value()}, {value()}, {rng.randrange(2)})"
            case 2:
                yield f"DELETE FROM edge WHERE id = {id}"
            case 3:
                yield f"UPDATE edge SET dst = {value()} WHERE id = {id}"
            case 4:
                yield f"REPLACE INTO node VALUES ({rng.randrange(NODES)}, {value()}, '{rng.choice('xy')}')"
            case _:
                yield f"DELETE FROM node WHERE id = {rng.randrange(NODES)}"


def bag(rows: Any) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row) for row in rows)


def parameter_of(view: str) -> str:
    """The column that its text compares last."""
    return KEYED[view].split(" = {}")[0].rsplit(" ", 1)[1]


def kept(db: Embedded, view: str, key: int) -> Counter[tuple[Any, ...]]:
    return bag(row.values() for row in db.view(view).lookup({parameter_of(view): key}))


@pytest.mark.skipif(MISSING is not None, reason=MISSING or "")
@pytest.mark.parametrize("shards", [1, 3])
def test_mariadb_answers_the_same(tmp_path: Path, mariadb: int, shards: int) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    theirs = pymysql.connect(host="127.0.0.1", port=mariadb, user="root", autocommit=True)
    name = f"recursion_{seed}"
    with embedded(tmp_path, read_your_writes=True, read_timeout=60, shards=shards) as db, theirs.cursor() as cursor:

        def expected(sql: str) -> Counter[tuple[Any, ...]]:
            cursor.execute(sql)
            return bag(cursor.fetchall())

        for text in (f"CREATE DATABASE {name}", f"USE {name}", *SCHEMA):
            cursor.execute(text)
        db.execute(";".join(SCHEMA))
        for text in ("CREATE VIEW pairs AS SELECT DISTINCT src AS a, dst AS b FROM edge WHERE src < dst OR kind = 1",):
            cursor.execute(text)
            db.execute(text)
        for view, text in KEYED.items():
            db.execute(f"CREATE EXT VIEW {view} AS {text.format('?')}")
        for view, text in WHOLE.items():
            db.execute(f"CREATE EXT VIEW {view} AS {text}")
        for _ in range(ROUNDS):
            for text in writes(rng):
                cursor.execute(text)
                db.execute(text)
            for view, text in KEYED.items():
                for key in rng.sample(range(NODES), 2):
                    assert kept(db, view, key) == expected(REWRITTEN.get(view, text).format(key)), (view, key)
                if rng.random() < 0.2:
                    db.view(view).evict([{parameter_of(view): rng.randrange(NODES)}])
            for view, text in WHOLE.items():
                assert bag(row.values() for row in db.view(view).lookup()) == expected(REWRITTEN.get(view, text)), view
            view, key = rng.choice(list(KEYED)), rng.randrange(NODES)
            judge = REWRITTEN.get(view, KEYED[view])
            assert bag(db.execute(KEYED[view].format(key)).rows) == expected(judge.format(key)), view
        cursor.execute("DELETE FROM node WHERE boss IS NOT NULL")
        db.execute("DELETE FROM node WHERE boss IS NOT NULL")
        for text in ALONE:
            assert bag(db.execute(text).rows) == expected(text), text


@pytest.fixture(params=[1, 3], ids=["one shard", "three shards"])
def db(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Embedded]:
    with embedded(tmp_path, read_your_writes=True, read_timeout=60, shards=request.param) as db:
        db.execute(";".join(SCHEMA))
        yield db


def test_a_recursion_that_joins_itself(db: Embedded) -> None:
    """What leads from b may be found by whoever asks a: so it is one recursion, and kept whole."""
    text = (
        "WITH RECURSIVE r (source, target) AS (SELECT src, dst FROM edge UNION SELECT a.source, b.target FROM r a JOIN "
        "r b ON b.source = a.target) SELECT target FROM r WHERE source = {}"
    )
    db.execute(f"CREATE EXT VIEW reach AS {text.format('?')}")
    db.execute("INSERT INTO edge VALUES (1, 1, 2, 0), (2, 2, 3, 0), (3, 3, 4, 0), (4, 4, 2, 0)")
    for _ in range(2):
        for key, targets in ((1, [2, 3, 4]), (3, [2, 3, 4]), (9, [])):
            assert sorted(row["target"] for row in db.view("reach").lookup(source=key)) == targets
            assert sorted(row[0] for row in db.execute(text.format(key)).rows) == targets
        db.execute("DELETE FROM edge WHERE id = 3")
        assert sorted(row["target"] for row in db.view("reach").lookup(source=1)) == [2, 3]
        db.execute("INSERT INTO edge VALUES (3, 3, 4, 0)")


def test_queries_that_read_each_other_are_named_anywhere(db: Embedded) -> None:
    """In any order, with others between."""
    text = (
        "WITH RECURSIVE even (source, target) AS (SELECT o.source, s.dst FROM odd o JOIN steps s ON s.src = o.target), "
        "steps AS (SELECT src, dst FROM edge), odd (source, target) AS (SELECT src, dst FROM steps UNION SELECT "
        "v.source, s.dst FROM even v JOIN steps s ON s.src = v.target) SELECT target FROM even WHERE source = 1"
    )
    rows = "(1, 1, 2, 0), (2, 2, 3, 0), (3, 3, 4, 0), (4, 4, 5, 0)"
    db.execute(f"INSERT INTO edge VALUES {rows}")
    assert bag(db.execute(text).rows) == bag([(3,), (5,)])
    with pytest.raises(HeadraceError, match="later"):  # But for what comes back, a later name is a table's or view's.
        db.execute("WITH RECURSIVE a AS (SELECT src FROM later), later AS (SELECT src FROM edge) SELECT * FROM a")


def test_its_tables_are_altered(db: Embedded) -> None:
    """What a round does over a table is what it was, whatever the table has besides and its columns are called."""
    for view in ("reach", "shortest"):
        db.execute(f"CREATE EXT VIEW {view} AS {KEYED[view].format('?')}")
    db.execute("INSERT INTO edge VALUES (1, 1, 2, 0), (2, 2, 3, 0)")
    edges = {1: (1, 2), 2: (2, 3)}
    for number, change in enumerate(
        (
            "ADD COLUMN colour INT NOT NULL DEFAULT 7 FIRST",
            "ADD COLUMN twice INT AS (colour * 2) VIRTUAL",
            "RENAME COLUMN src TO source",
            "MODIFY kind BIGINT",
            "DROP COLUMN twice",
            "DROP COLUMN colour",
        )
    ):
        assert {row["target"] for row in db.view("reach").lookup(source=1)} == set(range(2, number + 4))
        db.execute(f"ALTER TABLE edge {change}")
        source = "source" if number >= 2 else "src"
        db.execute(f"INSERT INTO edge (id, {source}, dst) VALUES ({number + 3}, {number + 3}, {number + 4})")
        edges[number + 3] = (number + 3, number + 4)
        found = {(row["target"], row["n"]) for row in db.view("shortest").lookup(source=1)}
        assert found == {(dst, src) for src, dst in edges.values()}
        db.view("reach").evict([{"source": 1}])


def test_policies_hold_in_every_round(db: Embedded) -> None:
    """Who may see the edges of kind 1 alone finds no way over one of another kind, nor one that begins with such."""
    reach = KEYED["reach"]
    db.execute(f"CREATE EXT VIEW reach AS {reach.format('?')}")
    db.execute("CREATE POLICY own ON edge USING (kind = CURRENT_CLAIM('k'))")
    rows = ((1, 1, 2, 1), (2, 2, 3, 1), (3, 3, 4, 2), (4, 4, 5, 1), (5, 1, 6, 2), (6, 6, 7, 1))
    db.execute(f"INSERT INTO edge VALUES {', '.join(map(str, rows))}")
    expected = {1: {1: [2, 3], 4: [5], 6: [7], 3: []}, 2: {1: [6], 3: [4], 4: [], 6: []}, 9: {1: []}}
    for claim, targets in expected.items():
        asker = db.session(claims={"k": claim})
        for key, found in targets.items():
            assert sorted(row["target"] for row in asker.view("reach").lookup(source=key)) == found, (claim, key)
            assert sorted(row[0] for row in asker.execute(reach.format(key)).rows) == found, (claim, key)
    db.execute("UPDATE edge SET kind = 1 WHERE id = 3")
    assert sorted(row["target"] for row in db.session(claims={"k": 1}).view("reach").lookup(source=1)) == [2, 3, 4, 5]
    assert len(db.execute("SELECT target FROM reach WHERE source = 1").rows) == 6, "an administrator sees all"


def test_a_recursion_within_another(db: Embedded) -> None:
    db.execute("INSERT INTO edge VALUES (1, 1, 2, 0), (2, 2, 3, 0), (3, 3, 1, 0), (4, 9, 1, 0)")
    inner = (
        "WITH RECURSIVE s AS (SELECT src FROM edge WHERE src = 2 UNION SELECT e.dst FROM s JOIN edge e ON "
        "e.src = s.src) "
        "SELECT src FROM s"
    )
    around = (
        "WITH RECURSIVE r AS (SELECT src FROM edge WHERE id = 4 UNION SELECT x.src FROM r JOIN ({}) x ON x.src > 1) "
        "SELECT src FROM r"
    )
    assert bag(db.execute(around.format(inner)).rows) == bag([(9,), (2,), (3,)])
    inner = (
        "WITH RECURSIVE s AS (SELECT src FROM r UNION SELECT r.src FROM s JOIN r ON r.src = s.src) SELECT src FROM s"
    )
    with pytest.raises(HeadraceError, match="within it"):
        db.execute(around.format(inner))
    same = "WITH RECURSIVE r AS (SELECT kind FROM edge UNION SELECT kind FROM r) SELECT kind FROM r"
    assert bag(db.execute(same).rows) == bag([(0,)])


@pytest.mark.parametrize("length", range(1, 6))
def test_a_circle_that_nothing_leads_to_any_more_is_gone(db: Embedded, length: int) -> None:
    """Its nodes derive each other: counting would keep them for ever."""
    db.execute(f"CREATE EXT VIEW reach AS {KEYED['reach'].format('?')}")
    for view in ("hops", "shortest", "even"):
        db.execute(f"CREATE EXT VIEW {view} AS {KEYED[view].format('?')}")
    circle = [(10 + at, 10 + at, 10 + (at + 1) % length) for at in range(length)]
    rows = ", ".join(f"({id}, {src}, {dst}, 1)" for id, src, dst in [(1, 1, 10), *circle])
    db.execute(f"INSERT INTO edge VALUES {rows}")
    everything = sorted({10 + at for at in range(length)})
    for _ in range(2):
        assert sorted(row["target"] for row in db.view("reach").lookup(source=1)) == everything
        found = {(row["target"], row["n"]) for row in db.view("shortest").lookup(source=1)}
        assert found == {(10 + at, 1 + at) for at in range(length)}
        assert db.view("hops").lookup(source=1)
        assert {row["target"] for row in db.view("even").lookup(source=1)} == {
            10 + at for at in range(length) if at % 2 or length % 2
        }
        db.execute("DELETE FROM edge WHERE id = 1")
        for view in ("reach", "hops", "shortest", "even"):
            assert db.view(view).lookup(source=1) == [], view
        assert sorted(row["target"] for row in db.view("reach").lookup(source=10)) == everything
        db.execute("INSERT INTO edge VALUES (1, 1, 10, 1)")


def test_what_comes_to_no_end_is_an_error_of_its_key_until_it_does(db: Embedded) -> None:
    db.execute(
        "CREATE EXT VIEW up AS WITH RECURSIVE r AS (SELECT id, boss FROM node WHERE id = ? UNION ALL SELECT "
        "n.id, n.boss FROM r JOIN node n ON n.id = r.boss) SELECT id FROM r"
    )
    db.execute("INSERT INTO node VALUES (1, NULL, 'x'), (2, 1, 'x'), (3, 2, 'x'), (4, NULL, 'x')")
    assert len(db.view("up").lookup(id=3)) == 3
    db.execute("UPDATE node SET boss = 3 WHERE id = 1")  # A circle; the write is done.
    with pytest.raises(LimitExceeded, match='the recursion "r"'):
        db.view("up").lookup(id=3)
    assert db.view("up").lookup(id=4) == [{"id": 4}]
    db.execute("UPDATE node SET boss = NULL WHERE id = 1")
    assert len(db.view("up").lookup(id=3)) == 3


def test_a_circle_that_betters_itself_is_an_error_until_it_is_cut(db: Embedded) -> None:
    db.execute(
        "CREATE EXT VIEW least AS WITH RECURSIVE r (source, target, n) AS (SELECT src, dst, kind FROM edge UNION "
        "SELECT r.source, e.dst, MIN(r.n + e.kind) FROM r JOIN edge e ON e.src = r.target GROUP BY r.source, e.dst) "
        "SELECT target, n FROM r WHERE source = ?"
    )
    db.execute("INSERT INTO edge VALUES (1, 1, 2, 5), (2, 2, 3, -2), (3, 3, 2, 1), (4, 7, 8, 4)")
    with pytest.raises(LimitExceeded, match='the recursion "r"'):
        db.view("least").lookup(source=1)
    assert db.view("least").lookup(source=7) == [{"target": 8, "n": 4}]
    db.execute("UPDATE edge SET kind = 2 WHERE id = 3")
    assert bag(row.values() for row in db.view("least").lookup(source=1)) == bag([(2, 5), (3, 3)])
    db.execute("UPDATE edge SET kind = -9 WHERE id = 3")
    with pytest.raises(LimitExceeded):
        db.view("least").lookup(source=1)


def _measured(item: str, where: str = "") -> str:
    return (
        f"WITH RECURSIVE r (id, n) AS (SELECT src, kind FROM edge UNION SELECT e.dst, {item} FROM r JOIN edge e ON "
        f"e.src = r.id {where} GROUP BY e.dst) SELECT * FROM r"
    )


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (_measured("MIN(5 - n)"), "does not always rise"),
        (_measured("MIN(n * e.kind)"), "does not always rise"),
        (_measured("MIN(n)", "WHERE n > 3"), "above a bound"),
        (_measured("MAX(n)", "WHERE 3 > n"), "below a bound"),
        (_measured("MIN(n)", "AND e.kind = r.n"), "goes by"),
        (_measured("MIN(n)", "AND NOT EXISTS (SELECT 1 FROM node WHERE node.id = r.n)"), "goes by"),
        (_measured("SUM(n)"), "grouped by all other columns"),
        (_measured("MIN(n + e.kind)"), "kept whole and may come to no end"),
        (_measured("MIN(n)").replace("UNION", "UNION ALL"), "UNION ALL"),
        (_measured("MIN(n)").replace(") SELECT *", " UNION SELECT id, n FROM r) SELECT *"), "has other parts"),
        (
            "WITH RECURSIVE a AS (SELECT id FROM b UNION SELECT id FROM b), b AS (SELECT id FROM a) SELECT * FROM a",
            "reads it already",
        ),
        (
            "WITH RECURSIVE a AS (SELECT id FROM node UNION SELECT id FROM b), b AS (SELECT a.id FROM a JOIN b ON "
            "a.id = b.id) SELECT * FROM a",
            "begins it",
        ),
        (
            "WITH RECURSIVE r AS (SELECT id AS n FROM node UNION SELECT n + 1 FROM r) SELECT n FROM r",
            "kept whole and may come to no end",
        ),
        (
            "WITH RECURSIVE r AS (SELECT id FROM node UNION SELECT MAX(n.id) FROM r JOIN node n ON n.boss = r.id) "
            "SELECT * "
            "FROM r",
            "within it",
        ),
        (
            "WITH RECURSIVE r AS (SELECT id FROM node UNION SELECT n.id FROM node n LEFT JOIN r ON n.boss = r.id) "
            "SELECT * "
            "FROM r",
            "optional side",
        ),
        (
            "WITH RECURSIVE r AS (SELECT id FROM node UNION SELECT n.id, 1 FROM r JOIN node n ON n.boss = r.id) "
            "SELECT * "
            "FROM r",
            "1 and 2 columns",
        ),
        ("WITH RECURSIVE r AS (SELECT id FROM r UNION SELECT id FROM node) SELECT * FROM r", "stand before"),
        (
            "WITH RECURSIVE r AS (SELECT id FROM node UNION SELECT id FROM r UNION ALL SELECT id FROM r) SELECT * "
            "FROM r",
            "one of them throughout",
        ),
        (
            "WITH RECURSIVE r AS (SELECT id FROM node UNION SELECT id FROM r ORDER BY id) SELECT * FROM r",
            "more than a UNION",
        ),
        (
            "WITH RECURSIVE r AS (SELECT id FROM node UNION SELECT n.id FROM r JOIN node n ON n.boss = r.id WHERE "
            "n.name = "
            "?) SELECT * FROM r",
            'the part of "r" that repeats',
        ),
    ],
)
def test_what_is_refused_says_why(db: Embedded, text: str, told: str) -> None:
    with pytest.raises(HeadraceError, match=told):
        db.execute(f"CREATE EXT VIEW v AS {text}")
