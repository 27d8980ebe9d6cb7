"""What docs/graphs.md shows is run."""

from __future__ import annotations

import re
from pathlib import Path

from headrace.embedding import embedded
from tests.test_house import ROOT


def test_the_examples_of_the_page(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "graphs.md").read_text("utf-8")
    blocks = re.findall(r"```(sql|python)\n(.*?)```", page, re.DOTALL)
    with embedded(tmp_path, read_your_writes=True) as db:
        told = 0
        for language, text in blocks:
            if language == "sql":
                db.execute(text)
                continue
            for line in text.strip().splitlines():
                call, _, comment = line.partition("  # ")
                answer = eval(call, {"db": db})
                if comment:
                    rows = comment.partition(":")[0]
                    expected = [] if rows == "nothing" else sorted(rows.split(", "))
                    assert sorted(" ".join(map(str, row.values())) for row in answer) == expected, line
                    told += 1
        assert told == 6
        assert "fix t  full by (who), (team)" in str(db.execute("EXPLAIN VIEW teams_of").rows)
        schema = blocks[0][1]
        db.execute(f"DROP VIEW files_of, teams_of; {re.findall('CREATE EXT VIEW teams_of.*?;', schema, re.DOTALL)[0]}")
        assert "fix t  partial by (who)" in str(db.execute("EXPLAIN VIEW teams_of").rows)
        assert "fix d, MIN(km)  partial by (start)" in str(db.execute("EXPLAIN VIEW distance").rows)
