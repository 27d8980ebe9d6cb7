"""Texts of SQL as statements: short ones on the event loop, where they are read within milliseconds, others off it.

::

    known? ──► as it was read before, or as one that differs in constants only
    short ───► measured and parsed here
    long ────► measured in a process beside ──► one write without parameters: bound there too, its rows come in parts
                                          ├──► one very long SELECT: planned there too
                                          └──► anything else: parsed in a thread, which takes turns with the loop

Without a process (an embedded deployment that no application stands in front of, a simulation) all is read here.
"""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any, TypeVar

from controller.access.session import Caller
from controller.transactions.temporary import OwnTables
from domains.language.types import Row, TableSchema
from domains.plan.estimates import Statistics
from domains.plan.packets import Insert, Operation
from migrations.catalog import Catalog
from migrations.flow.plan import State
from migrations.flow.planned_alone import PlannedAlone, plan_alone
from migrations.parse.grammar import SCHEMA, VIRTUAL_SCHEMAS
from migrations.parse.measure import SqlLimits, check_length, measure
from migrations.parse.reading import qualified
from migrations.parse.temporary import MAKES_TEMPORARY, said_by_session
from migrations.statements.alone import read_alone
from migrations.statements.prepared import TEXTS_KEPT, PreparedStatement, PreparedTexts, prepared_of
from migrations.statements.statement import ConstantSelect
from migrations.statements.texts_of_shape import QualifiedShapes, TextsOfShape
from worker.service.child_pool import ChildPool

Found = TypeVar("Found")

SHORT_TEXT = 1_000
"""Characters. The parser takes some 5 µs for each where a text is all numbers and commas, and 4 for a usual query."""
PLANNED_TEXT = 500
"""Characters of a text that is planned on the loop, where that takes some 5 µs for each, beside its reading."""
VERY_LONG = 10_000
"""Characters, from which on a SELECT is planned in a process beside: its trees take some kB for each item."""
FEW_PARAMETERS = 2_000
"""Values that are bound on the loop: a millisecond or two."""


class Texts:
    """The texts of one deployment's statements."""

    def __init__(self) -> None:
        self._known = PreparedTexts()
        self._of_shape = TextsOfShape()
        self._limits: SqlLimits | None = None
        self._beside: ChildPool | None = None
        self._thread: ThreadPoolExecutor | None = None
        self._qualified: dict[tuple[str, str], str] = {}
        self._qualified_shapes = QualifiedShapes()
        self._pickled: tuple[State | None, bytes] = None, b""

    def read_within(self, limits: SqlLimits, beside: ChildPool) -> None:
        """Refuse texts beyond these limits from now on, and read long ones beside."""
        self._limits, self._beside = limits, beside
        # One, since each that runs has its turn with the interpreter's lock before the loop has it again.
        self._thread = ThreadPoolExecutor(1, "texts")

    @property
    def limits(self) -> SqlLimits:
        return self._limits or SqlLimits()

    @property
    def most_items(self) -> int:
        """The most items that a list in a text may have."""
        return self.limits.max_list_items

    @property
    def has_thread(self) -> bool:
        return self._thread is not None

    def is_long(self, sql: str) -> bool:
        return self._beside is not None and len(sql) > SHORT_TEXT and not self._known.knows(sql)

    async def check(self, sql: str) -> None:
        """:raises LimitExceeded: with the limit's name."""
        if self.is_long(sql):
            await self.write_of(sql, None, 1, "")
        elif self._limits is not None and not (self._known.knows(sql) or self._of_shape.knows(sql)):
            check_length(sql, self._limits)
            measure(sql, self._limits)

    async def statements(self, sql: str) -> list[PreparedStatement]:
        """The statements of a text, which is checked first where it is not short.

        :raises SqlSyntaxError: with line and column.
        :raises LimitExceeded: with the limit's name.
        """
        if self.is_long(sql):
            return self._known.keep(sql, await self.aside(lambda: prepared_of(sql)))
        shaped = None if self._known.knows(sql) else self._of_shape.statements(sql)
        if shaped is not None:
            return shaped
        await self.check(sql)
        is_new = not self._known.knows(sql)
        made = self._known.statements(sql)
        if is_new:
            self._of_shape.learn(sql, made)
        return made

    async def said(self, sql: str, caller: Caller, catalog: Catalog) -> str:
        """What a text says to this session, in words that say it to all.

        :raises HeadraceError: what is wrong with it."""
        schema, session = caller.values.schema, caller.session
        if session is not None and (session.temporary is not None or MAKES_TEMPORARY.search(sql)):
            own = session.temporary = session.temporary or OwnTables()
            await self.check(sql)
            known = own.known(catalog)
            said = partial(said_by_session, sql, own.secret, schema or SCHEMA, known)
            sql, made = await self.aside(said) if self.is_left(sql) else said()
            own.made |= made
        if schema not in (SCHEMA, *VIRTUAL_SCHEMAS):
            sql = await self.qualified(sql, schema or SCHEMA)
        return sql

    async def qualified(self, sql: str, schema: str) -> str:
        """What the text says to a session whose database this is, in words that say it to all. Nothing that is
        remembered of a text depends on who has sent it.

        :raises SqlSyntaxError: with line and column.
        """
        if (said := self._qualified_shapes.said(sql, schema)) is not None:
            return said
        known = self._qualified.pop((schema, sql), None)
        if known is None:
            if self._limits is not None:
                check_length(sql, self._limits)
                measure(sql, self._limits)
            whole = partial(qualified, sql, schema)
            known = await self.aside(whole) if self.is_left(sql) else whole()
            self._qualified_shapes.learn(sql, schema, known)
        if len(sql) <= SHORT_TEXT:
            self._qualified[schema, sql] = known
            if len(self._qualified) > TEXTS_KEPT:
                del self._qualified[next(iter(self._qualified))]
        return known

    def qualified_before(self, sql: str, schema: str | None) -> str | None:
        """The same of a text that came before."""
        schema = schema or SCHEMA
        return self._qualified_shapes.said(sql, schema) or self._qualified.get((schema, sql))

    def one_known(self, sql: str) -> PreparedStatement | None:
        """See :class:`migrations.statements.prepared.PreparedTexts`."""
        return self._known.one_known(sql)

    def of_known_shape(self, sql: str) -> PreparedStatement:
        """The statement of a text that differs from a measured one in constants only."""
        (statement,) = self._known.statements(sql)
        return statement

    def is_left(self, sql: str) -> bool:
        """Whether a text is too long for the loop to do anything with it, and there is a thread for that."""
        return self._thread is not None and len(sql) > SHORT_TEXT

    def is_planned_aside(self, sql: str) -> bool:
        """Whether to plan it takes too long for the loop, and there is a thread for that."""
        return self._thread is not None and len(sql) > PLANNED_TEXT

    async def aside(self, work: Callable[[], Found]) -> Found:
        """What takes longer than the loop may be held, in Python that gives the lock away in between."""
        assert self._thread is not None
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    async def parts(self, function: Callable[..., Iterator[list[Found]]], *arguments: Any, few: bool) -> list[Found]:
        """All that it yields: in a process beside, unless it is ``few``."""
        if few or self._beside is None:
            return list(chain.from_iterable(function(*arguments)))
        return [each async for part in self._beside.run(function, *arguments) for each in part]

    async def planned(
        self, sql: str, params: Sequence[Any], state: State, now: str, statistics: Statistics | None = None
    ) -> PlannedAlone | ConstantSelect | None:
        """What a very long text is evaluated by, where it is a SELECT, or EXPLAIN of one; None: something else.

        :raises HeadraceError: what is wrong with it.
        """
        assert self._beside is not None
        if self._pickled[0] is not state:
            self._pickled = state, await self.aside(lambda: pickle.dumps(state, pickle.HIGHEST_PROTOCOL))
        made = [each async for each in self._beside.run(plan_alone, sql, params, self._pickled[1], now, statistics)]
        found: PlannedAlone | ConstantSelect | None = await self.aside(lambda: pickle.loads(made[0])) if made else None
        return found

    async def write_of(
        self, sql: str, tables: Mapping[str, TableSchema] | None, shards: int, now: str
    ) -> Operation | None:
        """The operation that a long text is, where it is a single write of values, bound to these tables; None where it
        is something else, or there are no tables. In either case it has been measured.

        :raises HeadraceError: what is wrong with it.
        """
        assert self._beside is not None
        assert self._limits is not None
        check_length(sql, self._limits)
        known = None if tables is None else dict(tables)
        operation: Operation | None = None
        rows: list[Row] = []
        async for part in self._beside.run(read_alone, sql, known, shards, now, self._limits):
            if isinstance(part, tuple):
                rows += part
            else:
                operation = part
        return replace(operation, rows=tuple(rows)) if isinstance(operation, Insert) else operation
