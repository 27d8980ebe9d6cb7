"""Texts that differ from an earlier one in constants only, known by what stands around these, and not parsed again.

::

    BEGIN; UPDATE stock SET n = n - 1 WHERE item = 7; COMMIT      parsed as it is; so is the next of its shape, and as
                                                                  … SET n = n - ? WHERE item = ?; COMMIT
    BEGIN; UPDATE stock SET n = n - 3 WHERE item = 9; COMMIT      from the third on: these statements, with [3, 9]

A constant of a write is a parameter where it says the same as one: the two trees differ in nothing but these places,
and hold only what :data:`_PLAIN` lists, in which a constant is a value and nothing else. A SELECT among such statements
is known by its own text (``adhoc/recognising.py``). A text with anything unusual (a comment, a backslash, a parameter,
a user variable, a definition, another statement with constants) is parsed each time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

from domains.errors import HeadraceError
from domains.language.types import Value
from migrations.access.statements import Needed
from migrations.catalog import Catalog
from migrations.parse.reading import exp, nodes, position, same_tree
from migrations.statements.adhoc.recognising import ConstantGroup, around_constants
from migrations.statements.constants import placeholders
from migrations.statements.prepared import CHARACTERS_KEPT, TEXTS_KEPT, PreparedStatement, prepared_of
from migrations.statements.sessions.session_values import NO_SESSION, SessionValues
from migrations.statements.statement import Statement

_PLAIN: tuple[type[exp.Expr], ...] = (
    *(exp.Insert, exp.Update, exp.Delete, exp.Schema, exp.Table, exp.Identifier, exp.TableAlias, exp.Column),
    *(exp.Values, exp.Tuple, exp.Where, exp.And, exp.Or, exp.Not, exp.Paren, exp.EQ, exp.NEQ, exp.GT, exp.GTE),
    *(exp.LT, exp.LTE, exp.In, exp.Between, exp.Null, exp.Boolean, exp.Add, exp.Sub, exp.Mul, exp.Neg),
    *(exp.Literal, exp.OnConflict, exp.Var),
)
_UNUSUAL = ("?", "\\", '"', "--", "#", "/*", "@", "\0")
"""In the text around constants: it may be that what looks like a constant there is none."""


class SentText:
    """A text that is parsed where that is needed after all."""

    def __init__(self, sql: str) -> None:
        self.sql = sql
        self._statements: list[PreparedStatement] | None = None

    def statements(self) -> list[PreparedStatement]:
        self._statements = self._statements or prepared_of(self.sql)
        return self._statements


class StatementOfShape(PreparedStatement):
    """A statement that is like another one, with other constants."""

    def __init__(
        self, like: PreparedStatement, values: Sequence[Value], sql: str, start: int, sent: SentText, number: int
    ) -> None:
        self.parsed = replace(like.parsed, sql=sql)
        self.fills = self.defines = self.draws = self.variables = False
        self.parameters = 0
        self.reads, self.in_transactions, self.is_write = like.reads, like.in_transactions, like.is_write
        self.text, self.start = sql, start
        self._like, self._values = like, values
        self._sent, self._number = sent, number

    @property
    def tree(self) -> exp.Expr:
        """The statement as it was sent; ``parsed`` has parameters for its constants."""
        return self._written().tree

    def _written(self) -> PreparedStatement:
        return self._sent.statements()[self._number]

    def interpret(
        self, catalog: Catalog, params: Sequence[Any], now: str, session: SessionValues = NO_SESSION
    ) -> Statement:
        if self.is_write:
            try:
                return self._like.interpret(catalog, self._values, now, session)
            except HeadraceError:
                pass  # What is wrong is said of the text as it was sent.
        return self._written().interpret(catalog, params, now, session)

    def needed(self, catalog: Catalog) -> tuple[Needed, tuple[str, ...]]:
        return self._like.needed(catalog)

    def is_bound_quickly(self, catalog: Catalog) -> bool:
        return self._like.is_bound_quickly(catalog)


@dataclass(frozen=True, slots=True)
class _ShapedStatement:
    like: PreparedStatement
    """With a parameter for each constant."""
    first: int
    """The number of its first constant in the text."""
    constants: int
    before: int
    """The characters from the end of the constant before it, or from the text's start, to its own."""
    behind: int
    """The characters from the end of its last constant, or from its start, to its end."""


class TextsOfShape:
    """What was learnt of texts that were parsed."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[_ShapedStatement, ...] | None] = {}
        """Keyed by what stands around the constants. None: it came once."""
        self._characters = 0

    def knows(self, sql: str) -> bool:
        found = around_constants(sql)
        return found is not None and bool(self._known.get(found[0]))

    def statements(self, sql: str) -> list[PreparedStatement] | None:
        """None: the text is to be parsed, and then learnt."""
        found = around_constants(sql)
        if found is None or not self._known.get(found[0]):
            return None
        around, groups = found
        shape = self._known[around] = self._known.pop(around)  # It is the latest now.
        assert shape, "it was found"
        ends, sent = [0, *(group.end for group in groups)], SentText(sql)
        made: list[PreparedStatement] = []
        for number, each in enumerate(shape):
            if each.like.parsed.transaction is not None:
                made.append(each.like)
                continue
            first, behind = each.first, each.first + each.constants
            start, end = ends[first] + each.before, ends[behind] + each.behind
            values = [group.values[0] for group in groups[first:behind]]
            made.append(StatementOfShape(each.like, values, sql[start:end], start, sent, number))
        return made

    def learn(self, sql: str, made: Sequence[PreparedStatement]) -> None:
        """Remember the shape of a text that was parsed, the second time that it comes."""
        found = around_constants(sql)
        if found is None or not any(each.is_write for each in made):
            return
        around, groups = found
        is_new = around not in self._known
        if not is_new and self._known[around] is not None:
            return
        self._known[around] = None if is_new else _shaped(sql, groups, made)
        if is_new:
            self._characters += len(around)
            while len(self._known) > TEXTS_KEPT or self._characters > CHARACTERS_KEPT:
                oldest = next(iter(self._known))
                del self._known[oldest]
                self._characters -= len(oldest)


def _shaped(
    sql: str, groups: Sequence[ConstantGroup], made: Sequence[PreparedStatement]
) -> tuple[_ShapedStatement, ...]:
    """The shape of a text; empty where its constants say more than parameters would."""
    ends = [0, *(group.end for group in groups)]
    starts, around = [group.start for group in groups], _pieces(sql, groups)
    if any(each in part for part in around for each in _UNUSUAL):
        return ()
    try:
        shaped = prepared_of("?".join(around))
    except HeadraceError:
        return ()
    if len(shaped) != len(made) or sum(each.parameters for each in shaped) != len(groups):
        return ()
    if not all(_is_like(each, written) for each, written in zip(shaped, made, strict=True)):
        return ()
    firsts = [0, *accumulate(each.parameters for each in shaped)]
    found, at = list[_ShapedStatement](), 0
    for like, written, first in zip(shaped, made, firsts, strict=False):
        behind = first + like.parameters
        start = sql.index(written.parsed.sql, at)
        at = start + len(written.parsed.sql)
        inside = starts[first:behind]
        if inside and not (start <= inside[0] and inside[-1] < at and ends[first] <= start):
            return ()
        found.append(_ShapedStatement(like, first, like.parameters, start - ends[first], at - ends[behind]))
    return tuple(found)


def _is_like(shaped: PreparedStatement, written: PreparedStatement) -> bool:
    """Whether the statement says with parameters what it says with constants, whatever these are."""
    if not shaped.parameters:
        return not (written.defines or written.fills or written.parsed.account or written.draws or written.variables)
    if shaped.reads:
        return written.reads and not written.variables
    if not shaped.is_write or written.draws or written.variables:
        return False
    tree, mine = written.parsed.expression, shaped.parsed.expression.copy()
    constants = sorted((node for node in nodes(tree) if isinstance(node, exp.Literal)), key=position)
    marks = placeholders(mine)
    if len(constants) != len(marks):
        return False
    for mark, constant in zip(marks, constants, strict=True):
        mark.replace(constant.copy())
    return same_tree(mine, tree) and all(map(_is_plain, nodes(tree)))


def _is_plain(node: exp.Expr) -> bool:
    if isinstance(node, exp.Is):
        return isinstance(node.args["expression"], (exp.Null, exp.Boolean))
    if isinstance(node, exp.Anonymous):
        return node.name.upper() == "VALUES" or (node.name.upper() == "NOW" and not node.expressions)
    return type(node) in _PLAIN


class QualifiedShapes:
    """What texts say to a session in another database, by their shapes: the names in it do not depend on constants."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], list[str]] = {}
        """By the schema and what stands around the constants: what stands around them then."""

    def said(self, sql: str, schema: str) -> str | None:
        """None: the text is to be parsed, and then learnt."""
        found = around_constants(sql)
        around = None if found is None else self._known.get((schema, found[0]))
        if found is None or around is None:
            return None
        constants = [sql[group.start : group.end] for group in found[1]]
        return "".join([part for pair in zip(around, [*constants, ""], strict=True) for part in pair])

    def learn(self, sql: str, schema: str, said: str) -> None:
        found, then = around_constants(sql), around_constants(said)
        if found is None or then is None or not found[1]:
            return
        before, behind = _pieces(sql, found[1]), _pieces(said, then[1])
        kept = [sql[g.start : g.end] for g in found[1]] == [said[g.start : g.end] for g in then[1]]
        # Each constant stands between words, and in none of them, and in no comment.
        if kept and not any(part.count("`") % 2 or any(each in part for each in (*_UNUSUAL, "'")) for part in before):
            self._known[schema, found[0]] = behind
            if len(self._known) > TEXTS_KEPT:
                del self._known[next(iter(self._known))]


def _pieces(sql: str, groups: Sequence[ConstantGroup]) -> list[str]:
    """What stands around the constants of a text."""
    starts, ends = [*(group.start for group in groups), len(sql)], [0, *(group.end for group in groups)]
    return [sql[end:start] for end, start in zip(ends, starts, strict=True)]
