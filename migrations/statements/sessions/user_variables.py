"""User variables: ``SET @name = …``, and the statements after it in the same text that read ``@name``.

::

    SET @last = (SELECT MAX(id) FROM stories);  SELECT * FROM comments WHERE story_id = @last
         └────────── 7 ──────────┐                                                     │
                       variables of the request  ── with_variables ──►  … WHERE story_id = 7

A request has no session, so a variable lives as long as the request whose text sets it; a connection of MySQL's
protocol keeps its variables. What reads one is planned as if its value had been written there: a number, a text, bytes,
a TIME, or NULL. A variable that the text has not set is an error, and not NULL as in a session of MySQL: it would be
NULL whenever two requests were sent where one was meant.
"""

from __future__ import annotations

from collections.abc import Mapping

from domains.errors import Unsupported
from domains.language.types import Value
from migrations.parse.reading import Parsed, exp, nodes, parse, text_of
from migrations.statements.constants import keep_names
from migrations.statements.subqueries import literal_node

Variables = dict[str, Value]
"""By name in lower case: as in MySQL, ``@A`` is ``@a``."""


def reads_variables(parsed: Parsed) -> bool:
    """Whether a statement names a user variable, also one that it sets."""
    return "@" in parsed.sql and any(isinstance(node, exp.Parameter) for node in nodes(parsed.expression))


def with_variables(parsed: Parsed, variables: Mapping[str, Value], *, lasting: bool = False) -> Parsed:
    """A statement that reads values where it names variables. Its columns keep their names. ``lasting``: they are a
    session's, in which one that was not set is NULL.

    :raises Unsupported: a variable that was not set.
    """
    copy = parsed.expression.copy()
    keep_names(copy, lambda node: isinstance(node, exp.Parameter))
    for node in [node for node in nodes(copy) if isinstance(node, exp.Parameter)]:
        node.replace(_value(node, variables, lasting=lasting))
    return Parsed(copy, parsed.sql)


def assignments(parsed: Parsed) -> list[tuple[str, exp.Expr]]:
    """The variables that SET sets, in its order, with what each is set to; of another statement none."""
    if not isinstance(parsed.expression, exp.Set):
        return []
    pairs = [item.this for item in parsed.expression.expressions if isinstance(item.this, exp.EQ)]
    return [(_name(pair.this), pair.expression) for pair in pairs if isinstance(pair.this, exp.Parameter)]


def asked(value: exp.Expr, variables: Mapping[str, Value], *, lasting: bool = False) -> Parsed:
    """The SELECT that computes what a variable is set to."""
    select = exp.Select(expressions=[exp.alias_(value.copy(), "value")])
    (whole,) = parse(text_of(with_variables(Parsed(select, ""), variables, lasting=lasting).expression))
    return whole


def _name(node: exp.Expr) -> str:
    return node.name.lower()


def _value(node: exp.Expr, variables: Mapping[str, Value], *, lasting: bool) -> exp.Expr:
    name = _name(node)
    if name not in variables:
        if lasting:
            return exp.Null()
        raise Unsupported(
            f"the user variable @{node.name}, which is not set",
            hint="it lives as long as a request: SET it before, in the same text, or give its value for a ?",
        )
    return literal_node(variables[name])
