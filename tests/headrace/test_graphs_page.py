"""What docs/graphs.md shows is run."""

from __future__ import annotations

import re
from pathlib import Path

from headrace.embedding import embedded
from tests.test_house import ROOT


def test_the_example_of_the_page(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "graphs.md").read_text("utf-8")
    (schema,) = re.findall(r"```sql\n(.*?)```", page, re.DOTALL)
    (calls,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    with embedded(tmp_path, read_your_writes=True) as db:
        db.execute(schema)
        told = 0
        for line in calls.strip().splitlines():
            call, _, comment = line.partition("  # ")
            answer = eval(call, {"db": db})
            if comment:
                names = comment.partition(":")[0]
                expected = [] if names == "nothing" else sorted(names.split(", "))
                assert sorted(next(iter(row.values())) for row in answer) == expected, line
                told += 1
        assert told == 3
        assert "fix t  full by (who), (team)" in str(db.execute("EXPLAIN VIEW teams_of").rows)
        db.execute(f"DROP VIEW files_of, teams_of; {re.findall('CREATE EXT VIEW teams_of.*?;', schema, re.DOTALL)[0]}")
        assert "fix t  partial by (who)" in str(db.execute("EXPLAIN VIEW teams_of").rows)
