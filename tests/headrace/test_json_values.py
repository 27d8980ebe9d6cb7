"""JSON from a client and back: the value itself, in rows of tables, views and SELECTs alike."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace import embedded
from headrace.errors import HeadraceError

DOC = {"bb": [1, 2.5, "x", None, {"deep": True}], "a": 10**19}


def test_values_go_in_and_come_out(tmp_path: Path) -> None:
    with embedded(tmp_path / "data", read_your_writes=True) as db:
        db.execute("CREATE TABLE docs (id INT PRIMARY KEY, author INT, doc JSON)")
        db.execute("CREATE EXT VIEW of_author AS SELECT id, doc FROM docs WHERE author = ? ORDER BY id")
        db.execute(
            "CREATE EXT VIEW liked AS SELECT id, doc, JSON_TYPE(doc) AS type FROM docs WHERE author = ? AND id > ?"
        )
        db.table("docs").insert([{"id": 1, "author": 7, "doc": DOC}, {"id": 2, "author": 7, "doc": '"text"'}])
        db.execute("INSERT INTO docs VALUES (3, 7, 'null'), (4, 7, ?)", ['{"n": [ ]}'])
        shown = [{"id": 1, "doc": DOC}, {"id": 2, "doc": "text"}, {"id": 3, "doc": None}, {"id": 4, "doc": {"n": []}}]
        assert db.view("of_author").lookup(author=7) == shown
        assert [row[0] for row in db.execute("SELECT doc, id FROM docs WHERE id < 9 ORDER BY id").rows] == [
            each["doc"] for each in shown
        ]
        types = [row["type"] for row in db.view("liked").lookup(author=7, id=1)]
        assert types == ["STRING", "NULL", "OBJECT"]
        db.execute("CREATE TABLE copies (id INT PRIMARY KEY, doc JSON)")
        db.execute("INSERT INTO copies SELECT id, doc FROM docs WHERE author = 7")
        kinds = db.execute("SELECT JSON_TYPE(doc) AS t FROM copies ORDER BY id").rows
        assert [row[0] for row in kinds] == ["OBJECT", "STRING", "NULL", "OBJECT"]
        with pytest.raises(HeadraceError, match="not JSON"):
            db.table("docs").insert([{"id": 9, "author": 7, "doc": "text"}])
