"""Runs one file of SQL logic tests on a subject, in one of the modes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

from domains.errors import HeadraceError
from domains.language.durations import text_of_time
from tests.campaign.subject import Setting, Subject, SubjectFactory
from tests.sql_logic.records import Expect, LookUp, Query, Record, Restart, Statement, read_records


@dataclass(frozen=True, slots=True)
class Mode:
    name: str
    partial: bool = True
    domains: int = 1
    evictions: bool = False


MODES = (
    Mode("full", partial=False),
    Mode("partial"),
    Mode("evictions", evictions=True),
    Mode("domains", domains=3, evictions=True),
)


class Mismatch(AssertionError):
    pass


def run_file(path: Path, mode: Mode, factory: SubjectFactory, *, seed: int = 0, name: str = "") -> int:
    """Run all records; the number of answers that were compared.

    :raises Mismatch: with file, line and both answers. ``name`` is what ``skipif`` calls the subject.
    """
    subject = factory(Setting(seed, partial=mode.partial, domains=mode.domains))
    try:
        return _Run(path, mode, subject, Random(f"{path.name} {mode.name} {seed}"), name).run(read_records(path))
    finally:
        subject.close()


@dataclass
class _Run:
    path: Path
    mode: Mode
    subject: Subject
    random: Random
    name: str
    compared: int = 0

    def run(self, records: Sequence[Record]) -> int:
        for number, record in enumerate(records):
            if self.name in record.skip:
                continue
            try:
                self._perform(record)
                self._disturb([r for r in records[number:] if isinstance(r, LookUp) and self.name not in r.skip])
            except Mismatch:
                raise
            except Exception as error:
                raise Mismatch(f"{self._place(record)}: {error!r}") from error
        self.subject.settle()
        self.subject.check()
        return self.compared

    def _place(self, record: Record) -> str:
        return f"{self.path.name}:{record.line} ({self.mode.name})"

    def _perform(self, record: Record) -> None:
        match record:
            case Statement(sql=sql, error=None):
                self.subject.execute(sql)
            case Statement():
                self._refused(record)
            case Query(sql=sql, expect=expect):
                self.subject.settle()
                self._same(record, self.subject.execute(sql)[-1].rows, expect)
            case LookUp(view=view, values=values, expect=expect):
                self.subject.settle()
                self._same(record, self.subject.lookup(view, values), expect)
            case Restart():
                self.subject.restart()

    def _refused(self, record: Statement) -> None:
        try:
            self.subject.execute(record.sql)
        except HeadraceError as error:
            if error.code != record.error and self.name != "mariadb":
                raise Mismatch(f"{self._place(record)}: {error.code} instead of {record.error}: {error}") from error
            return
        raise Mismatch(f"{self._place(record)}: no error instead of {record.error}: {record.sql}")

    def _same(self, record: Query | LookUp, found: Sequence[Sequence[Any]], expect: Expect) -> None:
        self.compared += 1
        want = [tuple(map(_key, row)) for row in expect.rows]
        got = [tuple(_as_expected(value) for value in row) for row in found]
        got = _read_as(got, want)
        if (got != want) if expect.ordered else (Counter(got) != Counter(want)):
            raise Mismatch(
                f"{self._place(record)}:\n{_text(record)}\nexpected:\n{_lines(expect.rows)}\nfound:\n{_lines(found)}"
            )

    def _disturb(self, coming: Sequence[LookUp]) -> None:
        """Reads of what will be asked, evictions and deliveries, as the mode has it."""
        if not self.mode.partial:
            return
        for look_up in coming:
            if self.random.random() < (0.5 if self.mode.evictions else 1.0):
                self._ignoring_absence(look_up)
            if self.mode.domains > 1 and self.random.random() < 0.5:
                self.subject.step(self.random)
        if self.mode.evictions:
            for look_up in coming:
                if self.random.random() < 0.3 and look_up.view in self._known:
                    self.subject.evict(look_up.view, look_up.values)
            if self.random.random() < 0.1:
                self.subject.evict_some(self.random)
        if self.random.random() < 0.5:
            self.subject.check()

    def __post_init__(self) -> None:
        self._known: set[str] = set()

    def _ignoring_absence(self, look_up: LookUp) -> None:
        """Views that are not there yet, and those that an error record is about, cannot be read early."""
        try:
            self.subject.lookup(look_up.view, look_up.values)
        except HeadraceError:
            self._known.discard(look_up.view)
        else:
            self._known.add(look_up.view)


def _key(value: Any) -> Any:
    """Decimals count with their scale: 1.5 is not 1.50. With none they are written like integers."""
    if isinstance(value, Decimal):
        return f"decimal {value}" if value.as_tuple().exponent else int(value)
    return value


def _as_expected(value: Any) -> Any:
    if isinstance(value, timedelta):
        return text_of_time(value)
    return _key(float(f"{value:.12g}") if isinstance(value, float) else value)


def _read_as(got: list[tuple[Any, ...]], want: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """A DECIMAL may come as text (JSON has none): columns of which decimals are expected are read so."""
    decimal = {i for row in want for i, value in enumerate(row) if isinstance(value, str) and value[:8] == "decimal "}
    return [
        tuple(
            f"decimal {value}" if i in decimal and isinstance(value, str) and value[:8] != "decimal " else value
            for i, value in enumerate(row)
        )
        for row in got
    ]


def _text(record: Query | LookUp) -> str:
    return record.sql if isinstance(record, Query) else f"lookup {record.view} {list(record.values)}"


def _lines(rows: Sequence[Sequence[Any]]) -> str:
    return "\n".join("  " + show_row(row) for row in rows) or "  (no rows)"


def show_row(row: Sequence[Any]) -> str:
    """A row in the format of the files."""
    return " | ".join(map(show_value, row))


def show_value(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return f"{value!r}e0" if isinstance(value, float) else str(value)
