"""Every file of SQL logic tests, in every mode."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.campaign.subject import DEFAULT_SUBJECT, subject_named
from tests.sql_logic.records import parse_values
from tests.sql_logic.runner import MODES, Mode, run_file

FILES = sorted((Path(__file__).parent / "cases").glob("*.test"))


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_file(path: Path, mode: Mode) -> None:
    assert run_file(path, mode, subject_named(DEFAULT_SUBJECT)) > 0


def test_there_are_many_files() -> None:
    assert len(FILES) >= 25


def test_values_of_a_look_up() -> None:
    assert parse_values("1 [2, NULL] 'it''s' 1.5e0") == [1, [2, None], "it's", 1.5]
