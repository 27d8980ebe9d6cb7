"""JSON, ENUM, SET, YEAR and BIT over shards, a restart, an archive and a restore."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import headrace
from headrace.backup.restoring import restore
from headrace.backup.taking import back_up_running
from headrace.embedding import Embedded

SCHEMA = """
CREATE TABLE t (id INT PRIMARY KEY, size ENUM('small', 'large') NOT NULL DEFAULT 'small', tags SET('x', 'y'), doc JSON,
  made YEAR, bits BIT(64), price DECIMAL(5,2) UNSIGNED);
CREATE EXT VIEW by_size AS SELECT id, tags, doc, made, bits, price FROM t WHERE size = ? ORDER BY tags DESC, id;
CREATE EXT VIEW arrays AS SELECT size, JSON_ARRAYAGG(doc ORDER BY id) AS docs, JSON_OBJECTAGG(id, tags) AS tags
  FROM t WHERE size = ? GROUP BY size;
CREATE EXT VIEW sizes AS SELECT size, COUNT(*) AS n FROM t GROUP BY size ORDER BY size DESC
"""


def check(db: Embedded) -> None:
    large = db.view("by_size").lookup(size="large")
    assert [(row["id"], row["tags"], row["doc"]) for row in large] == [
        (3, "x,y", {"k": [1, 2.5]}),
        (1, "y", {"k": [1, 2.5]}),
        (5, "x", None),
    ]
    assert {(row["made"], row["bits"]) for row in large} == {(2001, 2**63 + 1), (2003, 2**63 + 3), (2005, 2**63 + 5)}
    (arrays,) = db.view("arrays").lookup(size="large")
    assert arrays == {
        "size": "large",
        "docs": [{"k": [1, 2.5]}, {"k": [1, 2.5]}, None],
        "tags": {"1": "y", "3": "x,y", "5": "x"},
    }
    assert db.view("sizes").lookup() == [{"size": "large", "n": 3}, {"size": "small", "n": 3}]
    counts: Any = db.execute("SELECT size, COUNT(*), COUNT(doc) FROM t WHERE size = 'large' GROUP BY size").rows
    assert counts == (("large", 3, 2),)


@pytest.mark.parametrize("shards", [1, 3])
def test_they_stay_what_they_are(tmp_path: Path, shards: int) -> None:
    def opened(name: str) -> Embedded:
        archive = str(tmp_path / f"archive of {name}")
        return headrace.embedded(
            tmp_path / name, shards=shards, read_your_writes=True, archive=archive, archive_interval=3600
        )

    with opened("data") as db:
        db.execute(SCHEMA)
        rows = [
            {
                "id": i,
                "size": 1 + i % 2,
                "tags": {1: "y", 3: 3, 5: "x"}.get(i),
                "doc": {"k": [1, 2.5]} if i < 4 else None,
                "made": 2000 + i,
                "bits": 2**63 + i,
                "price": f"{i}.5",
            }
            for i in range(6)
        ]
        db.table("t").insert(rows)
        check(db)
    with opened("data") as db:
        check(db)
        back_up_running(db, str(tmp_path / "backup"))
    restore(str(tmp_path / "backup"), tmp_path / "restored")
    with opened("restored") as db:
        check(db)
