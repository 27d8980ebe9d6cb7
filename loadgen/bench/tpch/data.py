"""The rows of TPC-H in DuckDB, which is where the benchmark's rows come from and what its answers are compared with."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from ast import literal_eval
from collections.abc import Iterator, Sequence
from decimal import Decimal
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from domains.language.types import Row
from headrace.errors import HeadraceError

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

TABLES = ("region", "nation", "part", "supplier", "partsupp", "customer", "orders", "lineitem")
DATES = ("o_orderdate", "l_shipdate", "l_commitdate", "l_receiptdate")
ROWS_TOGETHER = 20_000


class GeneratorMissing(HeadraceError):
    """What generates or judges the rows is a development dependency."""

    code = "generator_missing"


def table_definitions() -> str:
    return files(__package__).joinpath("tables.sql").read_text("utf-8")


_SUBSTITUTED = re.compile(r"\{(DATE )?(.*?)\}")


def queries() -> dict[int, str]:
    """The text of each query by its number, with the parameters of the validation run."""
    return {number: _SUBSTITUTED.sub(r"\1\2", text) for number, text in _marked().items()}


def parameterised(number: int) -> tuple[str, list[Any]]:
    """The same query with ``?`` for each substitution parameter, and the values of the validation run for these."""
    text = _marked()[number]
    values = [list(v) if isinstance(v := literal_eval(found[2]), tuple) else v for found in _SUBSTITUTED.finditer(text)]
    return _SUBSTITUTED.sub("?", text), values


def _marked() -> dict[int, str]:
    parts = re.split(r"^-- (\d+)\n", files(__package__).joinpath("queries.sql").read_text("utf-8"), flags=re.MULTILINE)
    return {int(number): text.strip().rstrip(";") for number, text in zip(parts[1::2], parts[2::2], strict=True)}


def generate(scale: float, folder: Path) -> None:
    """The tables as Parquet files in the folder, unless they are there.

    :raises GeneratorMissing: tpchgen-cli or duckdb is not installed.
    """
    program = Path(sys.executable).parent / "tpchgen-cli"
    if not program.exists() or find_spec("duckdb") is None:
        raise GeneratorMissing("this measurement needs tpchgen-cli and duckdb", hint="pip install headrace[dev]")
    if all((folder / f"{table}.parquet").exists() for table in TABLES):
        return
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run([program, "parquet", "-s", str(scale), "--output-dir", folder], check=True, capture_output=True)


class Recomputed:
    """All tables in memory, without any state of a query: each answer is computed anew, on all cores."""

    def __init__(self, folder: Path) -> None:
        import duckdb

        self._peer: DuckDBPyConnection = duckdb.connect()
        for table in TABLES:
            self._peer.execute(f"CREATE VIEW loaded_{table} AS SELECT * FROM '{folder / table}.parquet'")
            self._peer.execute(f"CREATE TABLE {table} AS SELECT * FROM loaded_{table}")

    def rows(self, select: str) -> list[tuple[Any, ...]]:
        return self._peer.execute(select).fetchall()

    def stored(self, table: str, where: str = "true") -> Iterator[list[Row]]:
        """Rows of a table, or of ``loaded_`` and a table, as the engine stores them: dates are text."""
        columns = [name for name, *_ in self.rows(f"DESCRIBE {table}")]
        shown = ", ".join(f"CAST({name} AS VARCHAR)" if name in DATES else name for name in columns)
        answer = self._peer.cursor().execute(f"SELECT {shown} FROM {table} WHERE {where}")
        while rows := answer.fetchmany(ROWS_TOGETHER):
            yield rows

    def insert(self, table: str, rows: Sequence[Row]) -> None:
        """In statements of many rows: one row after the other takes a millisecond each."""
        for at in range(0, len(rows), ROWS_TOGETHER):
            values = (", ".join(map(_quoted, row)) for row in rows[at : at + ROWS_TOGETHER])
            self._peer.execute(f"INSERT INTO {table} VALUES ({'), ('.join(values)})")

    def timed(self, select: str) -> tuple[float, list[tuple[Any, ...]]]:
        """Seconds, and the answer."""
        begun = time.perf_counter()
        rows = self.rows(select)
        return time.perf_counter() - begun, rows


def difference(ours: Sequence[Sequence[Any]], theirs: Sequence[Sequence[Any]]) -> str:
    """What differs between two answers, as bags; "" where they are equal.

    Ours are JSON values. An average and a quotient are DECIMAL with some digits in MySQL's dialect and DOUBLE in
    DuckDB's: such values are equal if the latter, rounded to as many digits, is the former.
    """
    if len(ours) != len(theirs):
        return f"{len(ours)} rows, and {len(theirs)} in DuckDB"
    inexact = {at for row in theirs for at, value in enumerate(row) if isinstance(value, float)}

    def exact(row: Sequence[Any]) -> list[str]:
        return [_text(value) for at, value in enumerate(row) if at not in inexact]

    for own, other in zip(sorted(ours, key=exact), sorted(theirs, key=exact), strict=True):
        if exact(own) != exact(other) or not all(_close(own[at], other[at]) for at in inexact):
            return f"{list(own)}, and {list(map(str, other))} in DuckDB"
    return ""


def _quoted(value: object) -> str:
    return "'" + str(value).replace("'", "''") + "'"


def _text(value: Any) -> str:
    """One text for a value, however it is written: 17, 17.00 and "17.00" are the same."""
    text = str(value)
    return format(Decimal(text).normalize(), "f") if re.fullmatch(r"-?\d+(\.\d+)?", text) else text


def _close(own: Any, other: float | None) -> bool:
    if own is None or other is None:
        return own is other
    digits = len(str(own).partition(".")[2])
    return abs(float(own) - other) <= 0.5000001 * 10.0**-digits + 1e-9 * abs(other)
