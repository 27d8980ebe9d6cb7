"""What is taken out of texts before they are shown."""

from __future__ import annotations

import re
import time

import pytest

from migrations.access.secrets import without_keys, without_values


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("SELECT 1", "SELECT ?"),
        ("SELECT a1, b_2 FROM t3 WHERE x.y4 = 5", "SELECT a1, b_2 FROM t3 WHERE x.y4 = ?"),
        ("INSERT INTO t VALUES (-1, +2.5, .5, 1e-7, 0x1F, 0b11)", "INSERT INTO t VALUES (-?, +?, ?, ?, ?, ?)"),
        ("WHERE a = 'it''s' AND b = 'x\\'y' AND c = \"d\\\"\"\"e\"", "WHERE a = ? AND b = ? AND c = ?"),
        (
            "WHERE a = X'AB' AND b = N'x' AND c = _utf8mb4'x' AND d = b'01'",
            "WHERE a = X? AND b = N? AND c = _utf8mb4? AND d = b?",
        ),
        ("SELECT `a 1`, `it's` FROM `4711`", "SELECT `a 1`, `it's` FROM `4711`"),
        ("SELECT 'never ends", "SELECT ?"),
        ("SELECT `never ends 'x'", "SELECT `never ends 'x'"),
        ("SELECT a -- it's 4711\nFROM t", "SELECT a  \nFROM t"),
        ("SELECT a # it's\nFROM t", "SELECT a  \nFROM t"),
        ("SELECT /* it's\n4711 */ a", "SELECT   a"),
        ("SELECT a--1", "SELECT a--?"),
        ("SELECT 'a' 'b'", "SELECT ? ?"),
        ("DATE'2026-01-01'", "DATE?"),
        ("SELECT @x1, :p, ?", "SELECT @x1, :p, ?"),
        ("WHERE größe = 'ß'", "WHERE größe = ?"),
    ],
)
def test_values(text: str, shown: str) -> None:
    assert without_values(text) == shown
    whole = re.compile(r"secret|4711|it's")
    for end in range(len(text)):  # A text that is cut anywhere shows no more than the whole one.
        cut = without_values(text[:end])
        assert not whole.search(cut) or "`" in text


def test_values_in_linear_time() -> None:
    began = time.monotonic()
    for part in ("'", "\\'", "''", '"', "`", "/*", "x'", "1e", "_", "--", "a'", "1.", "_a '", "\\"):
        without_values(part * 20_000)
    assert time.monotonic() - began < 10


def test_keys() -> None:
    text = "a hrk_abc-DEF_9 and eyJhbGciOiJ9.eyJzdWIi.c2ln, but not shrk_x or keyJ.a"
    assert without_keys(text) == "a hrk_… and eyJh…, but not shrk_x or keyJ.a"
