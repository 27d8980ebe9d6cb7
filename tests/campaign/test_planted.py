"""The campaign finds what is planted: one mistake for each kind of thing that it draws, each in code of the product.

Each begins at a seed that has what it takes, so that it is found at once; where the draws have changed, others follow.
"""

from __future__ import annotations

from typing import Any

import pytest

from domains.engine import control
from domains.engine.lifecycle.expected import Expected, _KeyToCome
from domains.engine.writing import foreign_keys, write
from domains.engine.writing.write import TableChange
from domains.engine.writing.written import Assigning
from domains.language import coercion
from domains.store.memory_store import MemoryTable
from domains.store.widening import Widening
from migrations.query.expressions import documents
from migrations.statements.definitions import modify
from tests.campaign.cases import case_of, setting_of
from tests.campaign.execution import Execution, Finding
from tests.campaign.judge import Judge
from tests.campaign.simulated import Simulated

CASES = 60
"""Within so many a mistake is found, wherever one begins."""

call = documents.call


def _unplaced(name: str, *arguments: Any, **types: Any) -> Any:
    """A term of ORDER BY without the place of its member."""
    return arguments[0] if name == "cast" else call(name, *arguments, **types)


def _all_at_once(change: TableChange, changed: Any) -> int:
    return write._replace_all(change, changed, keeps_keys=False)


def _of_those_left(table: MemoryTable, _count: int) -> int:
    at = next(at for at, column in enumerate(table.schema.columns) if column.auto_increment)
    return 1 + max((row[at] for row, _ in table.find((), ())), default=0)  # type: ignore[type-var, operator]


PLANTED: dict[str, tuple[object, str, Any, int]] = {
    "ENUM and SET are sorted as texts": (documents, "call", _unplaced, 4),
    "members of a SET stay in the order of the write": (coercion, "_chosen", lambda value, *_: value, 8),
    "checks are not asked": (TableChange, "broken", lambda *_: None, 10),
    "IGNORE does not ask checks": (TableChange, "unbroken", lambda _, rows: tuple(rows), 10),
    "UPDATE IGNORE does not ask keys": (write, "_replace_each", _all_at_once, 20),
    "nothing cascades": (foreign_keys, "_react", lambda *_: None, 2),
    "keys that cascade are not changed": (foreign_keys, "_with_key", lambda _, row, *rest: row, 22),
    "RESTRICT allows all": (foreign_keys, "_check_kept", lambda _: None, 12),
    "a row may name none": (foreign_keys, "_check_parents", lambda *_: None, 3),
    "IGNORE does not ask foreign keys": (foreign_keys, "_ask_row_by_row", lambda *_: None, 3),
    "a write of two tables changes one": (foreign_keys, "Amend", type("Never", (), {}), 10),
    "a UNIQUE key comes though rows are equal": (Expected, "_doubled", lambda *_: iter(()), 17),
    "a foreign key comes though rows name none": (_KeyToCome, "orphans", lambda *_: iter(()), 32),
    "a check comes though rows break it": (Expected, "_misfit", lambda *_: "", 9),
    "a column that comes is computed of no row": (
        Widening,
        "value",
        lambda self, _, at: self.constants[at - self.width],
        7,
    ),
    "foreign keys keep the former name of what they name": (control, "following", lambda *_: [], 17),
    "CHANGE leaves the name": (modify, "_named", lambda schema, *_: schema, 8),
    "MODIFY leaves the values": (modify, "_holds", lambda *_: True, 109),
    "FIRST and AFTER are read over": (modify, "placed", lambda schema, *_: schema, 1),
    "numbers of rows that are gone are given again": (MemoryTable, "next_auto_increment", _of_those_left, 33),
    "an UPDATE leaves generated columns as they were": (Assigning, "__call__", Assigning._assigned, 1),
}


def _finds(seed: int) -> bool:
    case, subject, judge = case_of(seed), Simulated(setting_of(seed)), Judge()
    try:
        Execution(subject, judge, seed).run(case.operations)
    except Finding:
        return True
    finally:
        judge.close()
        subject.close()
    return False


@pytest.mark.parametrize("mistake", PLANTED)
def test_a_planted_mistake_is_found(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, name, instead, seed = PLANTED[mistake]
    monkeypatch.setattr(owner, name, instead)
    found = next((number for number in range(seed, seed + CASES) if _finds(number)), None)
    print(f"{mistake}: seed {found}")
    assert found is not None
