"""Playing a recipe again: statements that an earlier build took, and that this one refuses, keep the meaning they had.

A refusal is for whoever writes a statement now. One that was taken once has a meaning that applications rely on and
that tables were filled by, so it is said in today's words where it is played again::

    … WHERE a = ? … UNION … WHERE a = ?      one parameter, a        ► :a in both branches
    a IN (?, ?)                              one list, a             ► a IN (?)
    UNIQUE KEY (name(10))                    on the whole column     ► UNIQUE KEY (name)
    FLOAT(7,2), CHARACTER SET binary, …      read over               ► left out

The recipe itself stays as it was written. What has no such words stops the start: the error names the view, and
``headrace leave-out`` takes it out of the recipe.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from domains.errors import HeadraceError, StorageFailure
from migrations.change import change_of, whose
from migrations.flow.dataflow import Placement
from migrations.flow.plan import State
from migrations.parse.reading import Parsed, exp, nodes, parse, quote, text_of
from migrations.recipe import Recipe, RecipeEntry
from migrations.statements.definitions.columns import COMMENT_LENGTH
from migrations.statements.interpret import split


def replayed(state: State, entry: RecipeEntry, placement: Placement) -> State:
    """The state that an entry of the recipe comes to.

    :raises StorageFailure: this build does not take it; the table or view is named.
    """
    try:
        return change_of(state, entry, placement).state
    except HeadraceError as error:
        failure = error
    statements: list[Parsed] = []
    try:
        statements = [statement for sql in entry.statements for statement in split(sql)]
        said = [_in_todays_words(statement) for statement in statements]
        if not entry.ad_hoc and any(one is not other for one, other in zip(said, statements, strict=True)):
            return change_of(state, entry, placement, said).state
    except HeadraceError as error:
        failure = error
    named = whose(statements[0]) if len(statements) == 1 else ""
    raise StorageFailure(f"the recipe cannot be played again: {named}{failure}", hint=_hint(entry)) from failure


def _hint(entry: RecipeEntry) -> str:
    earlier = "or start the build that wrote it, and drop or replace it there"
    views = [name for sql in entry.statements if (name := _defined_view(sql)) is not None]
    if not views:
        return f"restore the recipe from a back-up, {earlier}"
    return f"headrace leave-out {views[0]} --data … takes the view out of the recipe of a stopped server, {earlier}"


# --- in today's words -------------------------------------------------------------------------------------------------


def _in_todays_words(statement: Parsed) -> Parsed:
    """The statement itself where there is nothing to say anew."""
    node = statement.expression
    if isinstance(node, exp.Create) and node.args.get("kind") == "VIEW":
        return _view(statement)
    if isinstance(node, (exp.Create, exp.Alter)):
        table = _table(node.copy())
        return statement if table == node else replace(statement, expression=table)
    return statement


def _view(statement: Parsed) -> Parsed:
    """Read again from its new text, which ``SHOW CREATE`` then shows."""
    create = statement.expression.copy()
    query = create.args["expression"]
    lists = [each for each in nodes(query) if isinstance(each, exp.In) and _is_list_of_parameters(each)]
    for each in lists:
        each.set("expressions", each.expressions[:1])
    named = _named_in_branches(query)
    if not lists and not named:
        return statement
    name, columns = create.this, ""
    if isinstance(name, exp.Schema):
        columns = f" ({', '.join(quote(column.name) for column in name.expressions)})"
        name = name.this
    words = ["CREATE", "OR REPLACE" * bool(create.args.get("replace")), "EXT" * statement.external, "VIEW"]
    words += ["IF NOT EXISTS" * bool(create.args.get("exists")), f"{quote(name.name)}{columns}", "AS", text_of(query)]
    (anew,) = parse(" ".join(word for word in words if word))
    return anew


def _is_list_of_parameters(node: exp.In) -> bool:
    return len(node.expressions) > 1 and all(isinstance(each, exp.Placeholder) for each in node.expressions)


def _named_in_branches(query: exp.Expr) -> bool:
    """Give each ``?`` below a UNION the name of its column; False, and nothing is changed, where there is none."""
    found = [
        each
        for each in nodes(query)
        if isinstance(each, exp.Placeholder) and not each.args.get("this") and each.find_ancestor(exp.SetOperation)
    ]
    columns = [_compared(each) for each in found]
    if None in columns:
        return False
    for each, column in zip(found, columns, strict=True):
        each.set("this", column)
    return bool(found)


def _compared(placeholder: exp.Placeholder) -> str | None:
    """The column that it is compared with, which named the parameter."""
    node = placeholder.parent
    while isinstance(node, exp.Paren):
        node = node.parent
    if not isinstance(node, (exp.EQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.In)):
        return None
    sides = [node.this] if isinstance(node, exp.In) else [node.this, node.expression]
    return next((side.name for side in sides if isinstance(side, exp.Column)), None)


_KEYS = (exp.PrimaryKey, exp.UniqueColumnConstraint, exp.IndexParameters)
_READ_OVER = (
    exp.CharacterSetColumnConstraint,
    exp.CollateColumnConstraint,
    exp.CharacterSetProperty,
    exp.CollateProperty,
)


def _table(tree: exp.Expr) -> exp.Expr:
    """Changed in place."""
    for node in list(nodes(tree)):
        if isinstance(node, (exp.ColumnPrefix, exp.Anonymous)) and node.find_ancestor(*_KEYS):
            column = node.this if isinstance(node, exp.ColumnPrefix) else exp.to_identifier(node.name)
            node.replace(column)
        elif isinstance(node, _READ_OVER) or type(node) is exp.Property or _is_long_comment(node):
            (node.parent if isinstance(node.parent, exp.ColumnConstraint) else node).pop()
        elif isinstance(node, exp.DataType) and node.this in (exp.DType.FLOAT, exp.DType.DOUBLE):
            node.set("expressions", [])
    return tree


def _is_long_comment(node: exp.Expr) -> bool:
    return isinstance(node, (exp.CommentColumnConstraint, exp.SchemaCommentProperty)) and (
        len(node.this.name) > COMMENT_LENGTH
    )


# --- going on without a view ------------------------------------------------------------------------------------------

_VIEW = re.compile(
    r"\s*(?:CREATE|DROP)\b[^(]*?\bVIEW\s+(?:IF\s+(?:NOT\s+)?EXISTS\s+)?(?:`((?:[^`]|``)+)`|(\w+))", re.IGNORECASE
)


def _defined_view(sql: str) -> str | None:
    """The view that a statement makes or drops. It need not be one that this build can read."""
    found = _VIEW.match(sql)
    return None if found is None else found[1].replace("``", "`") if found[1] else found[2]


def without_view(recipe: Recipe, view: str) -> Recipe:
    """The recipe as if nobody had ever made the view. The same one where it has none of that name."""
    wanted = view.lower()

    def kept(names: Iterable[str | None]) -> list[bool]:
        return [name is None or name.lower() != wanted for name in names]

    entries = []
    for entry in recipe.entries:
        statements = [] if entry.ad_hoc else kept(map(_defined_view, entry.statements))
        readers = kept(entry.readers)
        if not all(statements) or not all(readers):
            entry = replace(
                entry,
                statements=tuple(each for each, keep in zip(entry.statements, statements, strict=True) if keep),
                readers=tuple(each for each, keep in zip(entry.readers, readers, strict=True) if keep),
            )
        if entry != RecipeEntry():
            entries.append(entry)
    return recipe if tuple(entries) == recipe.entries else replace(recipe, entries=tuple(entries))
