"""Runs a case's operations on a subject and a judge side by side, and stops at the first thing that is wrong."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from typing import Any

from domains.errors import ConstraintViolation, HeadraceError, TypeViolation, Unsupported
from tests.campaign.aiming import aimed, value_of
from tests.campaign.comparison import Different, WrongType, compare
from tests.campaign.judge import MOST_ROWS, Judge
from tests.campaign.judged_writes import Changed, Verdict
from tests.campaign.kinds import Kind, Type, Value, absent, draw, literal
from tests.campaign.possible import Possible
from tests.campaign.queries import Query, View
from tests.campaign.rendering import parameters, view_text
from tests.campaign.schema import Column
from tests.campaign.statements import (
    AddColumn,
    AdHoc,
    Aim,
    AlterConstraint,
    AskMore,
    ChangeColumn,
    Compare,
    CreateTable,
    CreateView,
    Delete,
    DropColumn,
    DropView,
    Evict,
    Insert,
    Joined,
    Lookup,
    Operation,
    Pressure,
    RenameColumns,
    RenameTables,
    Restart,
    RetypeColumn,
    Steps,
    Update,
    Write,
)
from tests.campaign.subject import Subject
from tests.campaign.terms import Parameter


class Finding(Exception):
    """Something is wrong. ``kind`` is what shrinking must keep; the message has the details."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message


@dataclass
class Tally:
    """What was done."""

    counts: Counter[str] = field(default_factory=Counter)
    unsupported: Counter[str] = field(default_factory=Counter)

    def add(self, other: Tally) -> None:
        self.counts += other.counts
        self.unsupported += other.unsupported


def draw_values(random: Random, view: View, judge: Judge) -> list[Any]:
    """One look-up's values: often such as some row has just now, else of the columns' domain, some absent, some
    NULL."""
    asked = parameters(view.query)
    found = judge.candidates(view.query) if asked and random.random() < 0.6 else []
    near = random.choice(found) if found else {}
    return [_parameter_value(random, parameter, near) for parameter in asked]


def _parameter_value(random: Random, parameter: Parameter, near: Mapping[int, Value]) -> Any:
    if parameter.id in near:
        value = near[parameter.id]
        value = value_of(value, parameter.type)
        return [value, _one_value(random, parameter.type)] if parameter.kind == "in" else value
    if parameter.kind in ("limit", "offset"):
        return random.randint(0, 5)
    if parameter.kind == "in":
        return [_one_value(random, parameter.type) for _ in range(random.choice((1, 2, 2, 3, 5)))]
    return _one_value(random, parameter.type)


def _one_value(random: Random, type: Type) -> Value:
    roll = random.random()
    if roll < 0.08:
        return absent(type)
    if roll < 0.12:
        return None
    if type.kind is Kind.INT and roll < 0.3:
        return random.randint(0, 24)
    return draw(random, type)


@dataclass
class Execution:
    """One run. ``trace``, if given, is told each thing done, as a readable script."""

    subject: Subject
    judge: Judge
    salt: int
    trace: list[str] | None = None
    tally: Tally = field(default_factory=Tally)
    views: dict[str, View] = field(default_factory=dict)
    renamed: dict[str, str] = field(default_factory=dict)
    """What tables are called by now, by their first names."""
    numbers: dict[str, int] = field(default_factory=dict)
    """The greatest that a row has ever had, by table, where there is AUTO_INCREMENT."""
    columns_renamed: tuple[str, dict[str, str]] | None = None
    """A table, and what its columns are called just now."""

    def __post_init__(self) -> None:
        self.possible = Possible(self.judge.tables, self.views)

    def run(self, operations: Sequence[Operation]) -> None:
        """Raises Finding. Operations whose tables or views are not there (any more) are passed over."""
        random = Random(f"execution {self.salt}")
        for operation in operations:
            if not self.possible(operation):
                continue
            try:
                self._perform(operation)
                if random.random() < 0.3:
                    self.subject.check()
            except Finding:
                raise
            except HeadraceError as error:
                self._note(f"-- failed: {error!r}")
                kind = f"error {error.code}: {_construct(error.message)}"
                raise Finding(kind, f"{operation.text()}\n  raised {error!r}") from error
            except Exception as error:
                self._note(f"-- failed: {error!r}")
                raise Finding(
                    f"{type(error).__name__} {_place(error)}", f"{operation.text()}\n  raised {error!r}"
                ) from error

    def _note(self, line: str) -> None:
        if self.trace is not None:
            self.trace.append(line)

    # --- one operation --------------------------------------------------------------------------------------------

    def _perform(self, operation: Operation) -> None:
        self.tally.counts["operations"] += 1
        match operation:
            case Insert() | Update() | Delete() | Joined():
                self._write(operation)
            case Aim(write, salt):
                self._write(aimed(write, self.judge, Random(salt)))
            case CreateTable(table):
                self._statement(operation.text())
                self.judge.create_table(table)
            case CreateView():
                self._create_view(operation)
            case DropView(name):
                self._statement(operation.text())
                del self.views[name]
            case AddColumn(table_name, column):
                self._add_column(operation, table_name, column)
            case DropColumn(table_name, column_name):
                self._statement(operation.text())
                self.judge.drop_column(table_name, column_name)
            case AskMore():
                if self._asked_of_rows(operation.text(), fits=self.judge.fits(operation)):
                    self.judge.ask_more(operation)
            case AlterConstraint(table_name):
                altered = self.judge.altered(operation)
                if self._asked_of_rows(operation.text(), fits=altered is not None) and altered is not None:
                    self.judge.tables[table_name] = altered
            case RenameTables():
                self._rename_tables(operation)
            case RenameColumns():
                self._rename_columns(operation)
            case RetypeColumn():
                self._retype_column(operation)
            case ChangeColumn():
                self._change_column(operation)
            case AdHoc(query, variables):
                self._ad_hoc(query, operation.text(), alone=not variables)
                self.tally.counts["user variables read"] += len(variables)
            case Lookup(name, salt, count):
                random = Random(salt)
                for _ in range(count):
                    self._look_up(self.views[name], draw_values(random, self.views[name], self.judge))
            case Evict(name, salt):
                values = draw_values(Random(salt), self.views[name], self.judge)
                self._note(f"-- evict {name} {_shown(values)}")
                self.subject.evict(name, values)
                self.tally.counts["evictions"] += 1
            case Pressure(salt):
                self._note("-- memory pressure")
                self.subject.evict_some(Random(salt))
                self.tally.counts["pressures"] += 1
            case Restart():
                self._note("-- restart")
                self.subject.restart()
                self.tally.counts["restarts"] += 1
            case Steps(salt, count):
                self._note(f"-- deliver {count} packets")
                random = Random(salt)
                for _ in range(count):
                    self.subject.step(random)
                self.tally.counts["steps"] += count
            case Compare(salt, every):
                self._compare(Random(salt), every)

    def _statement(self, text: str) -> Any:
        text = self._called(text)
        self._note(text if len(text) < 3000 else text[:200] + " …")
        return self.subject.execute(text)

    def _called(self, text: str) -> str:
        """The statement, with the names that tables have by now."""
        if not self.renamed:
            return text
        return re.sub(r"\bb\d+\b", lambda found: self.renamed.get(found[0], found[0]), text)

    def _asked_of_rows(self, text: str, *, fits: bool) -> bool:
        """Whether an alteration was done, which is refused where rows do not fit it."""
        try:
            self._statement(text + ("" if fits else ";  -- is refused"))
        except (ConstraintViolation, TypeViolation) as error:
            if fits:
                raise Finding("refused", f"{text}\n  was refused: {error!r}") from error
            self.tally.counts["refused alterations"] += 1
            return False
        if not fits:
            raise Finding("accepted", f"{text}\n  was accepted, and rows break it")
        self.tally.counts["alterations of keys and checks"] += 1
        return True

    def _add_column(self, operation: AddColumn, table: str, column: Column) -> None:
        computed = self.judge.with_column(table, column) if column.generated is not None else {}
        if self._asked_of_rows(operation.text(), fits=computed is not None) and computed is not None:
            self.judge.add_column(table, column)
            self.judge.apply(computed)

    def _rename_tables(self, operation: RenameTables) -> None:
        self._statement(operation.text())
        names = [self.renamed.get(name, name) for name in operation.tables]
        now = reversed(names) if len(names) > 1 else [f"renamed{operation.number}"]
        self.renamed |= dict(zip(operation.tables, now, strict=True))
        self.tally.counts["tables renamed for good"] += len(names)

    def _inside(self, operations: Sequence[Operation]) -> None:
        for each in operations:
            if self.possible(each):
                self._perform(each)
                self.tally.counts["operations while columns are altered"] += 1

    def _rename_columns(self, renamed: RenameColumns) -> None:
        """Views keep their answers, whatever their tables and these tables' columns are called."""
        random = Random(renamed.salt)
        self._statement(renamed.text())
        elsewhere = f"{renamed.table}_elsewhere" if random.random() < 0.5 else ""
        if elsewhere:
            self._statement(f"RENAME TABLE {renamed.table} TO {elsewhere}")
            self.tally.counts["tables renamed"] += 1
        self.tally.counts["columns renamed"] += 1
        self.columns_renamed = renamed.table, renamed.names
        if elsewhere:
            before, self.renamed = self.renamed, self.renamed | {renamed.table: elsewhere}
        if random.random() < 0.3:
            self._perform(Restart())
        self._inside(renamed.inside)
        self._compare(random, every=random.random() < 0.3)
        self.columns_renamed = None
        if elsewhere:
            self.renamed = before
            self._statement(f"RENAME TABLE {elsewhere} TO {renamed.table}")
        self._statement(renamed.text(back=True))

    def _retype_column(self, retyped: RetypeColumn) -> None:
        """Rows have their values back afterwards, and a generated column has them, too."""
        random = Random(retyped.salt)
        retyped = replace(retyped, column=self.judge.tables[retyped.table].column(retyped.column.name))
        self._statement(retyped.text())
        self.tally.counts["columns of another type"] += 1
        self._inside(retyped.inside)
        if random.random() < 0.3:
            self._perform(Restart())
        if random.random() < 0.5:
            self._compare(random, every=False)
        self._statement(retyped.text(back=True))
        self._statement(retyped.copied())
        if random.random() < 0.3:
            self._perform(Restart())
        differ = f"NOT ({retyped.copy} <=> {retyped.column.name})"
        if rows := self._statement(f"SELECT * FROM {retyped.table} WHERE {differ}")[-1].rows:
            raise Finding("not computed", f"{retyped.copied()}\n  rows have another value: {rows}")
        self._statement(retyped.without_copy())
        self._compare(random, every=random.random() < 0.3)

    def _change_column(self, changed: ChangeColumn) -> None:
        now, new = self.judge.tables[changed.table].column(changed.name), changed.column
        kept = replace(now, name=new.name, type=new.type, declared=new.declared)
        if new.type != now.type:
            kept = replace(kept, default=None, has_default=False)
        changed = replace(changed, column=kept)
        self._statement(changed.text())
        self.judge.change_column(changed)
        self.tally.counts["columns changed for good"] += 1
        if Random(changed.text()).random() < 0.5:
            self._perform(Restart())

    def _numbered(self, insert: Insert, column: str) -> None:
        """AUTO_INCREMENT gives numbers that no row of the table has ever had. (Of a table that names itself a row may
        name the number that it is given.)"""
        if any(each.parent == insert.table for each in self.judge.tables[insert.table].references):
            return

        def judged(numbers: Sequence[int]) -> tuple[Verdict, Changed]:
            rows = tuple((number, *row) for number, row in zip(numbers, insert.rows, strict=True))
            return self.judge.consider(replace(insert, columns=(column, *insert.columns), rows=rows))

        greatest, many = self.numbers.get(insert.table, 0), len(insert.rows)
        verdict, rows = judged(range(greatest + 1000, greatest + 1000 + many))
        if verdict is Verdict.UNCLEAR or len(rows.get(insert.table, ())) > MOST_ROWS:
            return
        text = self._now(insert.table, f"{insert.text()} RETURNING {column}")
        try:
            answer = self._statement(text)[-1]
        except (ConstraintViolation, TypeViolation) as error:
            if verdict is Verdict.DONE:
                raise Finding("refused", f"{text}\n  was refused: {error!r}") from error
            return
        numbers = [row[0] for row in answer.rows]
        if verdict is Verdict.REFUSED:
            raise Finding("accepted", f"{text[:500]}\n  was accepted, but violates a constraint or a type")
        if len(set(numbers)) != many or min(numbers) <= greatest:
            raise Finding("numbers", f"{text[:500]}\n  gave {numbers}, and {greatest} was given before")
        self._apply(judged(numbers)[1])
        self.tally.counts["rows numbered"] += many

    def _apply(self, rows: Changed) -> None:
        self.judge.apply(rows)
        for name in rows:
            table = self.judge.tables[name]
            if table.auto:
                at = table.names.index(table.auto)
                found = [row[at] for row in self.judge.contents(name)]
                self.numbers[name] = max([self.numbers.get(name, 0), *found])

    def _write(self, write: Write) -> None:
        auto = self.judge.tables[write.table].auto
        if auto and isinstance(write, Insert):
            if auto not in write.columns:
                return self._numbered(write, auto)
            at = write.columns.index(auto)
            if any(not isinstance(row[at], int) or row[at] == 0 for row in write.rows):
                return None  # They ask for a number, too.
        return self._write_as_judged(write)

    def _write_as_judged(self, write: Write) -> None:
        verdict, rows = self.judge.consider(write)
        if verdict is Verdict.UNCLEAR:
            self.tally.counts["unclear writes"] += 1
            return
        if verdict is Verdict.REFUSED and self.judge.tables[write.table].spread and self._write_by_parts(write):
            return
        if isinstance(write, Insert) and len(rows.get(write.table, ())) > MOST_ROWS:
            return
        refused: HeadraceError | None = None
        self.tally.counts["writes"] += 1
        text = self._now(write.table, write.text())
        try:
            self._statement(text + (";  -- is refused" if verdict is Verdict.REFUSED else ""))
        except (ConstraintViolation, TypeViolation) as error:
            refused = error
        if verdict is Verdict.DONE and refused is not None:
            raise Finding("refused", f"{write.text()}\n  was refused: {refused!r}")
        if verdict is Verdict.REFUSED and refused is None:
            raise Finding("accepted", f"{write.text()[:500]}\n  was accepted, but violates a constraint or a type")
        if refused is None:
            self._apply(rows)
            self.tally.counts["writes that cascaded"] += len(rows) > 1
        else:
            self.tally.counts["refused writes"] += 1

    def _now(self, table: str, text: str) -> str:
        """A write's text, with the names that the table's columns have meanwhile."""
        if self.columns_renamed is None or self.columns_renamed[0] != table:
            return text
        names = self.columns_renamed[1]
        return re.sub(r"\b[cfg]\d+\b", lambda found: names.get(found[0], found[0]), text)

    def _write_by_parts(self, write: Write) -> bool:
        """A write that is refused in one shard may have been done in others: so rows come one by one, and nobody can
        tell what became of an UPDATE. False where it is about one row."""
        if not isinstance(write, Insert):
            return True
        for row in write.rows if len(write.rows) > 1 else ():
            self._write(replace(write, rows=(row,)))
        return len(write.rows) > 1

    def _create_view(self, operation: CreateView) -> None:
        self.tally.counts["views asked"] += 1
        for candidate in (operation.view, operation.spare):
            if candidate is None or not self.possible.readable(candidate.query):
                continue
            if not self.judge.affordable(candidate.query):
                self.tally.counts["views too large"] += 1
                continue
            try:
                self._statement(CreateView(candidate).text())
            except Unsupported as error:
                self._note(f"-- unsupported: {error}")
                self.tally.counts["views unsupported"] += 1
                self.tally.unsupported[_construct(error.message)] += 1
                continue
            self.views[candidate.name] = candidate
            self.tally.counts["views"] += 1
            return

    def _ad_hoc(self, query: Query, text: str, *, alone: bool) -> None:
        """``alone``: the text is the query's only."""
        if not self.judge.affordable(query):
            return
        self.subject.settle()
        try:
            answer = self._statement(text)[-1]
        except Unsupported as error:
            self.tally.counts["views asked"] += 1
            self.tally.counts["views unsupported"] += 1
            self.tally.unsupported[_construct(error.message)] += 1
            return
        self._judge_rows(answer.rows, query, [], text)
        called = self._called(text)
        if not alone:
            return
        self._judge_evaluated(lambda: self.subject.select_evaluated(called), query, [], text)

    def _look_up(self, view: View, values: list[Any]) -> list[tuple[Any, ...]]:
        self._note(f"-- lookup {view.name} {_shown(values)}")
        self.tally.counts["lookups"] += 1
        return self.subject.lookup(view.name, values)

    # --- comparing ------------------------------------------------------------------------------------------------

    def _compare(self, random: Random, every: bool) -> None:
        self._note("-- settle")
        self.subject.settle()
        self.subject.check()
        names = sorted(self.views)
        for name in names if every else random.sample(names, min(2, len(names))):
            view = self.views[name]
            reads = (12 if every else 3) if parameters(view.query) else 1
            for _ in range(reads):
                values = draw_values(random, view, self.judge)
                rows = self._look_up(view, values)
                what = f"{name} {_shown(values)}: {view_text(view.query)}"
                self._judge_rows(rows, view.query, values, what)
                self._judge_evaluated(partial(self.subject.view_evaluated, name, values), view.query, values, what)
        if every:
            self.subject.settle()
            self.subject.check()

    def _judge_evaluated(
        self, answer: Callable[[], Sequence[Any] | None], query: Query, values: list[Any], what: str
    ) -> None:
        """The same without a view, over the base tables."""
        try:
            rows = answer()
        except Unsupported:
            self.tally.counts["not evaluated"] += 1
            return
        if rows is not None:
            self.tally.counts["evaluations compared"] += 1
            self._judge_rows(rows, query, values, f"evaluated: {what}")

    def _judge_rows(self, rows: Sequence[Any], query: Query, values: list[Any], what: str) -> None:
        expected = self.judge.expected(query, values)
        self.tally.counts["reads compared"] += 1
        self.tally.counts["rows compared"] += len(rows)
        self.tally.counts["answers with rows"] += bool(rows)
        try:
            compare(rows, expected, [output.term.type for output in query.outputs], query.order)
        except Different as difference:
            self._note(f"-- WRONG: {difference}")
            kind = "wrong type" if isinstance(difference, WrongType) else "different"
            raise Finding(kind, f"{what}\n  {difference}") from difference


def _shown(values: Sequence[Any]) -> str:
    shown = ("[" + ", ".join(map(literal, v)) + "]" if isinstance(v, list) else literal(v) for v in values)
    return "(" + ", ".join(shown) + ")"


def _construct(message: str) -> str:
    """An error's message without the names and numbers of the case."""
    return re.sub(r'"[^"]*"|\d+', "…", message)


def _place(error: Exception) -> str:
    """The innermost file and function of ours, so that shrinking stays with one defect."""
    trace = error.__traceback__
    place = ""
    while trace is not None:
        code = trace.tb_frame.f_code
        if "site-packages" not in code.co_filename:
            place = f"{code.co_filename.rsplit('/', 2)[-1]}:{code.co_name}"
        trace = trace.tb_next
    return place
