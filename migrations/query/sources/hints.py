"""Hints to us: words in a comment behind SELECT that other databases read over.

``SELECT /*+ PARTIAL_BY(user_id) */ … WHERE user_id = ? AND story_id IN (?)`` says by which of its parameters a view
is partial: its reader is filled and evicted by user, and a look-up seeks the stories within the user's rows. So the
first page of a user is one hole and not one for each story, and the 50 stories that he has not hidden take no entry
each.

That is asked for and never guessed. It pays where a key of the prefix has few rows, as one user's marks have, and
is ruinous where it has many (``tag = ? AND story_id IN (?)``): the text does not tell them apart, and what the rows
are like when the view is made says little of what they will be.
"""

from __future__ import annotations

import re

from domains.errors import SqlError
from migrations.parse.reading import exp, nodes, text_of

_CALL = re.compile(r"\bPARTIAL_BY\b\s*(\([^()]*\))?", re.IGNORECASE)
_NAME = re.compile(r"`([^`]+)`|(\w+)")
_USAGE = "write SELECT /*+ PARTIAL_BY(parameter, …) */ …"


def partial_by(query: exp.Expr) -> tuple[str, ...] | None:
    """The names in ``PARTIAL_BY(…)`` behind a query's outermost SELECT (of a UNION its first); None without one.

    Any other hint, such as MySQL's own about its plans, is read over.

    :raises SqlError: it is not written so, stands twice, or in a subquery.
    """
    own = _first_select(query).args.get("hint")
    found: tuple[str, ...] | None = None
    for hint in (node for node in nodes(query) if isinstance(node, exp.Hint)):
        for call in _CALL.finditer(_text(hint)):
            if hint is not own:
                raise SqlError("PARTIAL_BY in a subquery", hint="it is about the whole view: put it behind its SELECT")
            if found is not None:
                raise SqlError("PARTIAL_BY is there twice", hint="one with all names: " + _USAGE)
            found = _names(call[1])
    return found


def without_hints(query: exp.Query) -> None:
    """Take all hints out of a query."""
    for hint in list(query.find_all(exp.Hint)):
        hint.pop()


def _first_select(query: exp.Expr) -> exp.Expr:
    while isinstance(query, (exp.SetOperation, exp.Subquery)):
        query = query.this
    return query


def _text(hint: exp.Hint) -> str:
    # sqlglot keeps a hint that it does not understand as it is written.
    return " ".join(each if isinstance(each, str) else text_of(each) for each in hint.expressions)


def _names(arguments: str | None) -> tuple[str, ...]:
    parts = [_NAME.fullmatch(part.strip()) for part in (arguments or "()")[1:-1].split(",")]
    names = tuple(part[1] or part[2] for part in parts if part is not None)
    if len(names) < len(parts):
        raise SqlError("PARTIAL_BY wants the names of parameters", hint=_USAGE)
    return names
