"""Views of tables with foreign keys, under evictions, late packets and restarts, while random writes cascade.

The rows are those of MariaDB (``tests/comparisons/test_foreign_keys.py`` draws the same tables and writes); the views
are judged by the same queries over the rows that are stored.
"""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from domains.errors import ConstraintViolation
from tests.campaign.simulated import Simulated
from tests.campaign.subject import Setting
from tests.comparisons.test_foreign_keys import SPELLED, definitions, write

WRITES = 60
VIEWS = {
    "chain": "SELECT a.id, b.id AS bid, c.id AS cid FROM a JOIN b ON b.p = a.id JOIN c ON c.p = b.id WHERE a.id = ?",
    "missing": "SELECT a.id, b.id AS bid FROM a LEFT JOIN b ON b.p = a.id WHERE a.id = ?",
    "own": "SELECT s.id, t.id AS up FROM s JOIN s AS t ON s.p = t.id WHERE t.id = ?",
    "pairs": "SELECT a.id, s.id AS sid FROM a JOIN s ON s.p = a.x AND s.q = a.y WHERE a.id = ?",
    "counted": "SELECT b.q, COUNT(*) AS n, SUM(c.q) AS t FROM b JOIN c ON c.p = b.id WHERE b.q = ? GROUP BY b.q",
    "named": "SELECT n.id, COUNT(m.id) AS k FROM n JOIN m ON m.x = n.x WHERE n.id = ? GROUP BY n.id",
    "orphans": "SELECT COUNT(*) AS k FROM b WHERE q = ? AND NOT EXISTS (SELECT 1 FROM a WHERE a.id = b.p)",
}
KEYS = range(6)


def compare(subject: Simulated, said: list[str]) -> None:
    subject.settle()
    subject.check()
    for view in VIEWS:
        for key in KEYS:
            held, stored = subject.lookup(view, [key]), subject.view_evaluated(view, [key])
            assert Counter(held) == Counter(stored), (view, key, said)


@pytest.mark.parametrize("seed", range(12))
def test_views_follow_what_cascades(seed: int) -> None:
    random = Random(seed)
    setting = Setting(seed, seed % 4 != 3, 1 + seed % 3, (1, 1, 3)[seed // 4])
    subject, said = Simulated(setting), list[str]()
    whole = " SHARD BY (id) SHARDS 1" if setting.shards > 1 else ""
    late: list[str] = []
    for table, drawn in definitions(random):
        # Two in three go on where the comparison draws three kinds of refusing to one of going on.
        keys = [
            key.replace("NO ACTION", "CASCADE").replace("RESTRICT", "CASCADE") if seed % 3 else key for key in drawn
        ]
        late += [f"ALTER TABLE {table[0]} ADD {key}" for key in keys[1 - seed % 2 :]]
        said.append(f"CREATE TABLE {', '.join([table[:-1], *keys[: 1 - seed % 2]])}){whole}")
        subject.execute(said[-1])
    for view, query in VIEWS.items():
        subject.execute(f"CREATE EXT VIEW {view} AS {query}")
    for table in "anbcsm":
        values = SPELLED[::2] if table in "nm" else [str(each) for each in KEYS]
        pairs = [(value, key if table in "as" else random.choice(KEYS)) for key, value in enumerate(values)]
        said += [f"INSERT INTO {table} VALUES ({key}, {value}, {other})" for key, (value, other) in enumerate(pairs)]
        for text in said[-len(pairs) :]:
            subject.execute(text)
    for number in range(WRITES):
        said.append(late.pop(0) if late and number % 10 == 9 else write(random))
        refused = False
        try:
            subject.execute(said[-1])
        except ConstraintViolation:
            refused = True
        said[-1] += " (refused)" if refused else ""
        for _ in range(random.randrange(3)):
            subject.lookup(random.choice(list(VIEWS)), [random.choice(KEYS)])
        for _ in range(random.randrange(4)):
            subject.step(random)
        if random.random() < 0.2:
            subject.evict_some(random)
        if random.random() < 0.04:
            said.append("restart")
            subject.restart()
        if number % 6 == 5:
            compare(subject, said)
    compare(subject, said)
    assert any("refused" not in each and each.startswith("DELETE") for each in said)
