"""Texts of statements that came before: parsed once, and writes of common forms bound without their tree.

Parsing is most of what a statement costs (0.4 ms for an UPDATE by key, 25 ms for an INSERT of 100 rows), and follows
from the text alone. What a write means follows from the table's schema too: a template holds for the schema that it was
made for, and is made anew when the catalog has another, so ALTER TABLE needs to tell nobody.

Values are no part of the text where they are parameters; a text with values in it is another one each time, and gains
nothing here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from migrations.catalog import Catalog
from migrations.parse import Parsed, exp
from migrations.statements.constants import count_placeholders, parameter, scalars
from migrations.statements.interpret import interpret_one, split
from migrations.statements.statement import Statement, WriteStatement
from migrations.statements.templates import Template, template_of

TEXTS_KEPT = 1000
"""Texts that are remembered, the latest used ones: an application has some hundred."""
CHARACTERS_KEPT = 200_000
"""Of these texts together. A tree takes some 250 bytes for each, so 50 MB at most."""


class Prepared:
    """One statement of a text."""

    def __init__(self, parsed: Parsed) -> None:
        self.parsed = parsed
        self.defines = isinstance(parsed.expression, (exp.Create, exp.Alter, exp.Drop))
        """Whether it belongs to a migration."""
        self.parameters = 0 if self.defines else count_placeholders(parsed)
        self._template: Template | None = None
        self._shards = 0
        self._is_write = isinstance(parsed.expression, (exp.Insert, exp.Update, exp.Delete))

    def interpret(self, catalog: Catalog, params: Sequence[Any], now: str) -> Statement:
        """What the statement means; see ``interpret_one``."""
        template = self._template
        if template is not None and self._holds(template, catalog):
            arguments = tuple([parameter(value, number) for number, value in enumerate(params, 1)])
            return WriteStatement(template.bind(scalars(arguments), now))
        statement = interpret_one(self.parsed, catalog, params, now)
        if self._is_write and isinstance(statement, WriteStatement):
            schema = catalog.table(statement.operation.table)
            self._template = template_of(self.parsed.expression, schema, statement.operation)
            self._shards = catalog.shards
        return statement

    def _holds(self, template: Template, catalog: Catalog) -> bool:
        schema = template.schema
        return catalog.tables.get(schema.name.lower()) is schema and catalog.shards == self._shards


class PreparedTexts:
    """The statements of texts, of which the latest used ones are remembered."""

    def __init__(self) -> None:
        self._known: dict[str, list[Prepared]] = {}
        self._characters = 0

    def __len__(self) -> int:
        return len(self._known)

    def statements(self, sql: str) -> list[Prepared]:
        """:raises SqlSyntaxError: with line and column."""
        known = self._known.pop(sql, None)
        if known is not None:
            self._known[sql] = known  # It is the latest now.
            return known
        made = [Prepared(parsed) for parsed in split(sql)]
        if len(sql) <= CHARACTERS_KEPT and not any(each.defines for each in made):
            self._known[sql] = made
            self._characters += len(sql)
            while len(self._known) > TEXTS_KEPT or self._characters > CHARACTERS_KEPT:
                oldest = next(iter(self._known))
                del self._known[oldest]
                self._characters -= len(oldest)
        return made
