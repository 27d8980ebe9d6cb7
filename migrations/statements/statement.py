"""The meaning of a statement, as data: the union that ``interpret.py`` yields and the controller matches exhaustively.

Statements that change a table's shape carry its whole new schema, so that whoever performs them compares two schemas
and knows no DDL. Statements that write carry an operation of ``domains/plan/packets.py``, ready to send; one that must
ask first (``DELETE … WHERE id IN (SELECT …)``) is a :class:`PendingWrite` until the answers are known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from domains.language.compile import compile_expression
from domains.language.expressions import Expression
from domains.language.types import Column, Row, TableSchema, Value
from domains.plan.packets import Operation, Stamps
from migrations.catalog import Namespace, Policy, ViewDefinition
from migrations.parse.reading import exp
from migrations.query.relation import Relation
from migrations.statements.constants import Argument


@dataclass(frozen=True, slots=True)
class CreateTableStatement:
    schema: TableSchema
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class CreateSchema:
    namespace: Namespace
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class DropSchema:
    name: str
    """In lower case."""
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class DropTableStatement:
    name: str
    """The name as the catalog has it, if it has it."""
    if_exists: bool = False
    cascade: bool = False
    """Whether the views that read it go too, and those that read these."""


@dataclass(frozen=True, slots=True)
class AlterTableStatement:
    """ADD and DROP COLUMN, in any number, and indexes that come and go with them."""

    table: str
    schema: TableSchema
    """The new one: columns appended, dropped ones marked, ``indexes`` as they are to be.

    An appended column's ``default`` is what the rows that are stored get, also where ``has_default`` is false (a NOT
    NULL column without DEFAULT pads with zero or the empty string). It may be the schema that the table has.
    """
    cascade: bool = False
    """Whether the views go too that would not stay what they are."""


@dataclass(frozen=True, slots=True)
class CreateIndex:
    table: str
    columns: tuple[int, ...]
    schema: TableSchema
    """The table's new schema."""


@dataclass(frozen=True, slots=True)
class DropIndex:
    table: str
    columns: tuple[int, ...]
    schema: TableSchema
    """The table's new schema. Another index of it may have the same columns."""


@dataclass(frozen=True, slots=True)
class CreateView:
    definition: ViewDefinition
    or_replace: bool = False
    if_not_exists: bool = False
    meaning: Relation | None = field(default=None, compare=False, repr=False)
    """The query's plan in the catalog that the statement met, where that is known: see ``frozen``."""


@dataclass(frozen=True, slots=True)
class DropView:
    name: str
    """The name as the catalog has it, if it has it."""
    if_exists: bool = False
    cascade: bool = False
    """Whether the views that read it go too."""


@dataclass(frozen=True, slots=True)
class SetPolicies:
    """The policies that a table is to have from now on: one has come, or gone."""

    table: TableSchema
    policies: tuple[Policy, ...]


@dataclass(frozen=True, slots=True)
class SelectStatement:
    """An ad-hoc SELECT: ``adhoc.parameterise`` makes a view of it."""

    query: exp.Query = field(compare=False, repr=False)
    sql: str
    params: tuple[Argument, ...] = ()
    """The values of its ``?``, in the order of the text."""
    of_now: bool = False
    """Its text asks for the time, which stands in ``query``: what is known of it holds for no later asking."""
    draws: bool = False
    """Whether it has RAND() or UUID(): then it is ``of_now`` too."""
    now: str = ""
    """The time of the statement, which is that of the views it reads as well."""


@dataclass(frozen=True, slots=True)
class ConstantSelect:
    """A SELECT without FROM, already answered."""

    columns: tuple[Column, ...]
    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class Returning:
    """What MariaDB's RETURNING tells of the rows."""

    columns: tuple[Column, ...]
    expressions: tuple[Expression, ...]
    """Over a stored row."""

    def rows(self, stored: Sequence[Row]) -> list[Row]:
        evaluate = [compile_expression(expression) for expression in self.expressions]
        return [tuple([each(row) for each in evaluate]) for row in stored]


@dataclass(frozen=True, slots=True)
class WriteStatement:
    operation: Operation
    returning: Returning | None = None


@dataclass(frozen=True, slots=True)
class ChosenTable:
    """A table that is written to by what a SELECT chooses."""

    schema: TableSchema
    """As it was when the statement was read."""
    columns: range
    """Which of the SELECT's columns are its."""
    changes: tuple[tuple[int, Expression | int], ...] | None
    """(position, expression over the stored row, or a number: which of the columns behind the row's); None: DELETE."""
    stamps: Stamps = ()


@dataclass(frozen=True, slots=True)
class ChosenWrite:
    """UPDATE or DELETE of the rows that a SELECT chooses: ask it, then ``chosen.chosen``."""

    tables: tuple[ChosenTable, ...]
    """One at least."""
    select: SelectStatement
    """Of each table the live columns, then what is set where it depends on more than the row."""
    single: bool
    """Whether a row stands for one of those that equal it: so it does with LIMIT."""
    returning: Returning | None = None
    ignore: bool = False
    """UPDATE IGNORE."""


@dataclass(frozen=True, slots=True)
class PendingWrite:
    """A write that needs the answers of its ``subqueries`` first: run them, then ``dml.resolve``."""

    schema: TableSchema
    """The table that is written to, as it was when the statement was read."""
    subqueries: tuple[SelectStatement, ...]
    expression: exp.Expr = field(compare=False, repr=False)
    """The statement; the SELECT of an INSERT also gives the columns that ON DUPLICATE KEY UPDATE names of it."""
    params: tuple[Value, ...]
    now: str


@dataclass(frozen=True, slots=True)
class ShowViews:
    where: Expression | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        return ("view",)


@dataclass(frozen=True, slots=True)
class ShowCreate:
    """The statement that makes a table or a view."""

    name: str
    is_view: bool

    @property
    def columns(self) -> tuple[str, ...]:
        if self.is_view:
            return ("View", "Create View", "character_set_client", "collation_connection")
        return ("Table", "Create Table")


@dataclass(frozen=True, slots=True)
class ShowQueries:
    """What was asked without a view, by its shape."""

    where: Expression | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        return ("query", "calls", "milliseconds", "rows", "view", "why", "create_view")


@dataclass(frozen=True, slots=True)
class ShowProcesslist:
    """What runs now; MySQL's columns."""

    full: bool = False
    """Whether the whole text of each statement is shown."""
    where: Expression | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        return ("Id", "User", "Host", "db", "Command", "Time", "State", "Info")


@dataclass(frozen=True, slots=True)
class ShowPolicies:
    """The policies of a table, or of all."""

    table: str | None
    where: Expression | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        return ("policy", "table", "command", "using", "with_check")


@dataclass(frozen=True, slots=True)
class Kill:
    """Stop a running statement, and unless it is ``query`` close the connection of this number."""

    number: int
    query: bool = False


Shown = ShowViews | ShowQueries | ShowProcesslist | ShowPolicies
"""Rows of texts, which LIKE and WHERE choose from."""


@dataclass(frozen=True, slots=True)
class Explain:
    """The dataflow of a view, or of what a SELECT would become."""

    target: str | SelectStatement
    analyze: bool = False
    """Whether the SELECT is run, and what its evaluation does is measured."""


@dataclass(frozen=True, slots=True)
class UseSchema:
    """From now on, names without one are of this schema."""

    name: str


@dataclass(frozen=True, slots=True)
class NoOperation:
    """Accepted, and there is nothing to do."""

    reason: str


Statement = (
    CreateTableStatement
    | CreateSchema
    | DropSchema
    | DropTableStatement
    | AlterTableStatement
    | CreateIndex
    | DropIndex
    | CreateView
    | DropView
    | SetPolicies
    | SelectStatement
    | ConstantSelect
    | WriteStatement
    | PendingWrite
    | ChosenWrite
    | ShowViews
    | ShowQueries
    | ShowProcesslist
    | ShowPolicies
    | Kill
    | ShowCreate
    | Explain
    | UseSchema
    | NoOperation
)
