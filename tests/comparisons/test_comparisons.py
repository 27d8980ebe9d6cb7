"""Every kind of column with every kind of constant, and with every other column: one answer, whichever way it is asked.

``expected.txt`` has the answers, and MariaDB is asked for the same where it is installed. ``python -m
tests.comparisons.test_comparisons`` writes the file anew: read what has changed before you keep it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import asyncmy
import pytest

from domains.language.compile import compile_expression
from domains.language.expressions import Field
from domains.language.functions.comparands import are_alike, comparand, keys
from domains.language.types import Kind
from loadgen.bench import servers
from tests.comparisons.answers import (
    Pair,
    column_of,
    column_type,
    column_values,
    compiled,
    constant,
    met,
    pairs,
    rows_of,
    shown,
    signs,
)
from tests.comparisons.matrix import COLUMNS, CONDITIONS, CONSTANTS, LOSSY, OPERATORS, tables

EXPECTED = Path(__file__).parent / "expected.txt"
PAIRS = list(pairs())


def recorded() -> dict[str, str]:
    lines = EXPECTED.read_text().splitlines()
    return dict(line.rsplit(" : ", 1) for line in lines)


def answered() -> dict[str, str]:
    return {pair.name: compiled(pair) for pair in PAIRS} | {condition: met(condition) for condition in CONDITIONS}


def test_predicates_answer_as_recorded() -> None:
    assert answered() == recorded()


def test_two_columns_answer_alike_from_either_side() -> None:
    mirrored = str.maketrans("<>", "><")
    for one in COLUMNS:
        for other in COLUMNS:
            there, back = compiled(Pair(one, other)), compiled(Pair(other, one))
            width = len(column_values(one))
            turned = "".join(back[at::width] for at in range(width))
            assert there == turned.translate(mirrored), (one, other)


def test_a_look_up_finds_what_the_predicate_finds() -> None:
    """Views' parameters, and the rows that a write reads, by equality and by ranges."""
    looked_up = 0
    for pair in (Pair(column, text) for column in COLUMNS for text in CONSTANTS):
        type = column_type(pair.column)
        made = comparand(constant(pair.other), type)
        if made is None or pair.other.startswith("x'"):
            continue  # Those are numbers among numbers, which the planner has found out.
        looked_up += 1
        value: Any = made.value
        found = ""
        for own in column_values(pair.column):
            known: Any = own
            if known is None or value is None:
                found += "N"
            elif known == value:
                found += "=" if made.exact else "<"
            else:
                found += "<" if known < value else ">"
        assert found == compiled(pair), (pair, made)
    assert looked_up > len(COLUMNS) * len(CONSTANTS) / 2


def test_join_keys_are_equal_where_the_columns_are() -> None:
    for one in COLUMNS:
        for other in COLUMNS:
            left, right = keys(Field(0, column_type(one)), Field(1, column_type(other)))
            assert left.type.kind is right.type.kind
            ours, theirs = compile_expression(left), compile_expression(right)
            rows = rows_of(Pair(one, other))
            found = [ours(row) is not None and ours(row) == theirs(row) for row in rows]
            assert found == [sign == "=" for sign in compiled(Pair(one, other))], (one, other)


def test_columns_that_are_alike_share_a_parameter() -> None:
    """Where two columns are alike, what equals a value in one equals what equals it in the other."""
    for one in COLUMNS:
        for other in COLUMNS:
            if not are_alike(column_type(one), column_type(other)):
                continue
            for text in CONSTANTS:
                if comparand(constant(text), column_type(one)) is None or text.startswith("x'"):
                    continue
                ours, theirs = compiled(Pair(one, text)), compiled(Pair(other, text))
                both = compiled(Pair(one, other))
                for i, a in enumerate(ours):
                    for j, b in enumerate(theirs):
                        if a == "=" and b == "=":
                            assert both[i * len(theirs) + j] == "=", (one, other, text)


# --- MariaDB ----------------------------------------------------------------------------------------------------

MISSING = servers.missing("mariadb")


def _kinds(pair: Pair) -> tuple[Kind, Kind]:
    if pair.other in COLUMNS:
        return column_type(pair.column).kind, column_type(pair.other).kind
    return column_type(pair.column).kind, constant(pair.other).type.kind


_TEMPORAL = {Kind.DATE, Kind.DATETIME}
_NUMBERS = {Kind.INTEGER, Kind.DECIMAL, Kind.DOUBLE}
_TEXTS = {Kind.TEXT, Kind.BLOB}

DIFFERENCES: dict[str, Callable[[Pair, set[Kind]], bool]] = {
    "MySQL 8 takes a hexadecimal literal for a number where it meets one, MariaDB for a text": lambda pair, kinds: (
        pair.other.startswith("x'") and bool(kinds & _NUMBERS)
    ),
    "what is no UTF-8 cannot be compared with text in MariaDB": lambda pair, kinds: (
        pair.other == "x'ff'" and Kind.TEXT in kinds
    ),
    "a text that names no moment is day zero in MariaDB, an error in MySQL 8, NULL here": lambda pair, kinds: (
        bool(kinds & _TEMPORAL) and bool(kinds & _TEXTS)
    ),
    "a number that names no moment is day zero in MariaDB, and compared as a number in MySQL 8": lambda pair, kinds: (
        bool(kinds & _TEMPORAL) and bool(kinds & _NUMBERS)
    ),
    "DECIMAL and text are compared as DOUBLE in MySQL, and exactly here": lambda pair, kinds: (
        Kind.DECIMAL in kinds and bool(kinds & _TEXTS)
    ),
    "DECIMAL and a DOUBLE that is a constant are compared as DOUBLE in MySQL, and exactly here": lambda pair, kinds: (
        kinds == {Kind.DECIMAL, Kind.DOUBLE} and pair.other not in COLUMNS
    ),
}
"""Why an answer of MariaDB may be another one."""


async def _asked(port: int) -> dict[str, str]:
    connection = await asyncmy.connect(host="127.0.0.1", port=port, user="root", password="", autocommit=True)
    cursor = connection.cursor()

    async def rows(sql: str) -> list[tuple[Any, ...]]:
        await cursor.execute(sql)
        return list(await cursor.fetchall())

    # As text is compared here: by code point, and with its spaces.
    await rows("CREATE DATABASE compared COLLATE utf8mb4_nopad_bin")
    await rows("USE compared")
    await rows("SET NAMES utf8mb4 COLLATE utf8mb4_nopad_bin")
    await rows("SET max_error_count = 0")  # Warnings that nobody reads.
    for statement in tables():
        await rows(statement)
    found: dict[str, str] = {}
    for pair in PAIRS:
        is_column = pair.other in COLUMNS
        other = f"b.{pair.other}" if is_column else pair.other
        source = f"of_{pair.column} AS a" + (f" JOIN of_{pair.other} AS b" if is_column else "")
        order = "a.k, b.k" if is_column else "a.k"
        answers: dict[str, list[int | None]] = {}
        try:
            for operator in OPERATORS:
                condition = f"a.{pair.column} {operator} {other}"
                values = await rows(f"SELECT {condition} FROM {source} ORDER BY {order}")
                answers[operator] = [value for (value,) in values]
                # Where it is a condition the server may go by a key, or join by one.
                (count,) = (await rows(f"SELECT COUNT(*) FROM {source} WHERE {condition}"))[0]
                assert count == sum(value == 1 for (value,) in values), condition
        except asyncmy.errors.Error as error:
            found[pair.name] = str(error.args[0])
        else:
            found[pair.name] = signs(answers)
    for condition in CONDITIONS:
        values = await rows(f"SELECT {condition} FROM of_{column_of(condition)} ORDER BY k")
        found[condition] = shown(value for (value,) in values)
    connection.close()
    return found


@pytest.mark.skipif(MISSING is not None, reason=MISSING or "")
def test_mariadb_says_the_same(mariadb: int) -> None:
    theirs, ours = asyncio.run(_asked(mariadb)), recorded()
    used, unexplained = set(), {}
    for pair in PAIRS:
        if theirs[pair.name] == ours[pair.name]:
            continue
        why = next((why for why, covers in DIFFERENCES.items() if covers(pair, set(_kinds(pair)))), None)
        used.add(why)
        if why is None:
            unexplained[pair.name] = (theirs[pair.name], ours[pair.name])
    assert not unexplained
    assert {condition for condition in CONDITIONS if theirs[condition] != ours[condition]} == set(LOSSY)
    assert used == set(DIFFERENCES), "a difference that is none any more"


if __name__ == "__main__":
    EXPECTED.write_text("".join(f"{asked} : {answer}\n" for asked, answer in answered().items()))
