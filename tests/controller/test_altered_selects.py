"""A SELECT whose table is altered while it is read is answered as of one of the two, never as a mixture."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from controller.embedded.local import LocalDeployment
from controller.lookups.binding import Binding
from domains.plan.packets import Clock
from worker.reader_map import BoundLookup

STAR = "SELECT * FROM t"


@pytest.mark.parametrize(
    ("alteration", "expected"),
    [
        ("ALTER TABLE t ADD COLUMN b INT DEFAULT 5", [("id", "a", "b"), (1, 10, 5)]),
        ("ALTER TABLE t DROP COLUMN a", [("id",), (1,)]),
        ("ALTER TABLE t DROP COLUMN a, ADD COLUMN a INT DEFAULT 7", [("id", "a"), (1, 7)]),
    ],
)
@pytest.mark.parametrize("after", [False, True], ids=["before the reading", "after the reading"])
async def test_a_select_during_an_alteration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, alteration: str, expected: list[Any], after: bool
) -> None:
    deployment = await LocalDeployment.open(tmp_path / "data")
    try:
        await deployment.execute("CREATE TABLE t (id INT PRIMARY KEY, a INT); INSERT INTO t VALUES (1, 10)")
        read = LocalDeployment.read
        alterations = [alteration]

        async def altered(
            self: LocalDeployment, view: str, bind: Callable[[Binding], BoundLookup], token: Clock
        ) -> bytes:
            page = await read(self, view, bind, token) if after else b""
            if alterations:
                await self.execute(alterations.pop())
            return page or await read(self, view, bind, token)

        monkeypatch.setattr(LocalDeployment, "read", altered)
        ((result,), _) = await deployment.execute(STAR)
        assert [tuple(column.name for column in result.columns), *result.rows] == expected
    finally:
        await deployment.close()
