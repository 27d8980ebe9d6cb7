"""An ad-hoc SELECT as a view: its constants become parameters, its text in one form names it.

``select * from Stories where ID = 7`` and ``SELECT * FROM stories WHERE id = 9`` are one view, ``SELECT * FROM stories
WHERE id = ?``, read with 7 and with 9. What is turned:

* ``column = constant`` under the WHERE's own ANDs, where the column is on no side of an outer join that may be missing;
* ``column IN (constants)`` likewise, unless rows are aggregated, made distinct or counted off (LIMIT): the answer for a
  list is then not made of the answers for its values;
* conditions on the parameters of views that it reads (``supply.py``).

A ``?`` of the user's stays one where the planner takes it, below aggregates and LIMIT too; elsewhere its value is
written into the text. Where a value is not one of the column's own (``text_column = 7`` compares as numbers), or the
planner refuses, :func:`verbatim` gives the view that has every constant in its text: always right, and shared by
nobody.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import chain

from domains.errors import BadRequest, SqlError
from domains.language.types import Kind, SqlType, Value
from domains.plan.graph import Parameter, ParameterKind
from migrations.catalog import Catalog, ViewDefinition
from migrations.parse.reading import exp, nodes, parse_select, position, refuse_unfaithful, text_of
from migrations.parse.syntax import copied
from migrations.query.expressions.literals import literal
from migrations.query.expressions.scalar import conjuncts
from migrations.query.sources.hints import partial_by, without_hints
from migrations.statements.adhoc.recognising import Starts
from migrations.statements.adhoc.supply import (
    KINDS,
    MIRRORED,
    SelectSources,
    WantedParameter,
    read_sources,
    reads_views,
    wanted,
)
from migrations.statements.constants import Argument, placeholders
from migrations.statements.dml import exact_value
from migrations.statements.names import AD_HOC_PREFIX
from migrations.statements.subqueries import literal_node

# What an ad-hoc SELECT's view is read with: from the text's and the user's values to the reader's keys.


@dataclass(frozen=True, slots=True)
class Given:
    """The value of the user's parameter ``index`` (from 0)."""

    index: int


Part = Value | Given


@dataclass(frozen=True, slots=True)
class AdHoc:
    """A view for a SELECT, and what to read it with."""

    view_sql: str
    name: str
    arguments: tuple[Part | tuple[Part, ...], ...]
    """The argument of each ``?`` in the order of ``PlannedView.placeholders``; a tuple for one that stands for an IN
    list."""
    reusable: bool = True
    """False: values of the user's parameters stand in the text, so it is not the view of the text with other values."""

    turned: tuple[Starts, ...] = ()
    """The starts in the statement's text of the constants that became parameters; see ``recognising.py``."""
    tree: exp.Query | None = field(default=None, compare=False, repr=False)
    """The statement that the text was written from; None where only the text is known, which a recipe keeps."""

    def bind(self, params: Sequence[Argument]) -> tuple[Argument, ...]:
        """The arguments with the user's values in place; a list is flat and has no value twice."""
        return tuple(
            _flat(a, params) if isinstance(a, tuple) else params[a.index] if isinstance(a, Given) else a
            for a in self.arguments
        )

    def definition(self) -> ViewDefinition:
        """:raises Unsupported: the text does not read back as the SELECT that it was written from."""
        query = parse_select(self.view_sql)
        if self.tree is not None:
            refuse_unfaithful(self.tree, query)
        return ViewDefinition(self.name, self.view_sql, external=True, ad_hoc=True, relation=query)

    def meant(self) -> ViewDefinition:
        """The definition that is evaluated: of the tree, which need not read back; nothing is kept of it."""
        if self.tree is None or not self.reusable:
            return self.definition()
        return ViewDefinition(self.name, self.view_sql, external=True, ad_hoc=True, relation=self.tree)


def _flat(parts: tuple[Part, ...], params: Sequence[Argument]) -> tuple[Value, ...]:
    values: list[Value] = []
    for part in parts:
        value = params[part.index] if isinstance(part, Given) else part
        values.extend(value if isinstance(value, tuple) else (value,))
    return tuple(dict.fromkeys(values))


def exact_arguments(
    arguments: Sequence[Argument], placeholders: Sequence[int], parameters: Sequence[Parameter]
) -> tuple[Argument, ...] | None:
    """One value for each parameter, of its type (a tuple for IN); None where :func:`verbatim` must answer.

    That is where equality or order among the column's values is not that of SQL's ``=`` and ``<`` with this value:
    ``integer_column = 7.5``, ``text_column = 7``, ``column = NULL``.

    :raises SqlError: a LIMIT that is no number.
    """
    assert len(arguments) == len(placeholders), "one argument for each placeholder"
    found: dict[int, Argument] = {}
    for index, argument in zip(placeholders, arguments, strict=True):
        parameter = parameters[index]
        if parameter.kind in (ParameterKind.LIMIT, ParameterKind.OFFSET):
            if type(argument) is not int or argument < 0:
                raise SqlError(f"{parameter.kind.value.upper()} wants a number that is not negative")
            exact: Argument = argument
        elif parameter.column is None:
            exact = argument
        elif parameter.kind is ParameterKind.IN:
            exact = _exact_list(argument if isinstance(argument, tuple) else (argument,), parameter.type)
        else:
            if isinstance(argument, tuple):
                raise BadRequest(f'parameter "{parameter.name}" is a list', hint="lists are for IN (?) only")
            exact = _exact(argument, parameter.type)
        if exact is None or found.get(index, exact) != exact:
            return None
        found[index] = exact
    return tuple(found[index] for index in range(len(parameters)))


def _exact(value: Value, type: SqlType) -> Value:
    if value is None:
        return None
    # A computed column without a type of its own (NULL) and BOOL results compare as what they are given.
    return value if type.kind is Kind.NULL else exact_value(value, type)


def _exact_list(values: tuple[Value, ...], type: SqlType) -> tuple[Value, ...] | None:
    exact = [_exact(value, type) for value in values if value is not None]
    return None if None in exact else tuple(dict.fromkeys(exact))


__all__ = ["AdHoc", "Given", "comparands", "exact_arguments", "parameterise", "shape_text", "verbatim"]

MARKS = 2**40
"""The places of marks: behind those of all names in a text."""
NAME_DIGITS = 12
"""Hexadecimal digits of a name's hash: with a million views, one chance in 500 that two meet."""


def ad_hoc_name(view_sql: str) -> str:
    """The name of the view with this normalised text."""
    return AD_HOC_PREFIX + hashlib.sha256(view_sql.encode()).hexdigest()[:NAME_DIGITS]


def parameterise(query: exp.Query, catalog: Catalog, params: Sequence[Argument] = ()) -> AdHoc:
    """The view that answers this SELECT and its like. ``params`` are read only where they must stand in the text.

    :raises SqlError: a parameter of a view that it reads is given no value.
    :raises BadRequest: a list stands for a single value.
    """
    return _made(query, catalog, params, keep=True)


def verbatim(query: exp.Query, catalog: Catalog, params: Sequence[Argument] = ()) -> AdHoc:
    """The view with all constants in its text."""
    return _made(query, catalog, params, keep=False)


_CONSTANT = re.compile(r"""'(?:[^'\\]|''|\\.)*'|`[^`]*`|[\w$\x80-\uffff.]+""", re.DOTALL)
_LISTED = re.compile(r"\bIN \(\?(?:, \?)*\)")


def shape_text(view_sql: str) -> str:
    """A view's text, as :func:`parameterise` writes it, with a ``?`` for each constant, and one for a list of them."""
    return _LISTED.sub("IN (?)", _CONSTANT.sub(_mark, view_sql))


def _mark(found: re.Match[str]) -> str:
    text = found[0]
    return "?" if text[0] == "'" or text.lstrip(".")[:1].isdigit() else text


def _put(node: exp.Expr, old: exp.Expr) -> None:
    """In the place of the old one. ``replace`` goes over all that stand in a list with it: 5 s for 10,000 of them."""
    parent, key, index = old.parent, old.arg_key, old.index
    assert parent is not None
    assert key is not None
    if index is None:
        old.replace(node)
        return
    parent.args[key][index] = node
    node.parent, node.arg_key, node.index = parent, key, index


_COMPARED = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ, exp.Like)


def comparands(query: exp.Query) -> list[Starts]:
    """The constants that a parameter could stand for in a view of the query: all that are an operand of a condition of
    the outermost WHERE, at whatever depth, and those of LIMIT and OFFSET."""
    clauses = [query.args.get(name) for name in ("where", "limit", "offset")] if isinstance(query, exp.Select) else []
    found: list[Starts] = []
    for node in (each for clause in clauses if clause is not None for each in _own(clause)):
        sides: list[exp.Expr | None] = []
        if isinstance(node, exp.In) and node.expressions:
            if all(isinstance(each, exp.Literal) for each in node.expressions):
                found.append(tuple(map(position, node.expressions)))
        elif isinstance(node, exp.Between):
            sides = [node.args["low"], node.args["high"]]
        elif isinstance(node, _COMPARED):
            sides = [node.this, node.expression]
        elif isinstance(node, (exp.Limit, exp.Offset)):
            sides = [node.expression]
        found += [(position(side),) for side in sides if isinstance(side, exp.Literal)]
    return found


# --- making it ----------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Making:
    """A copy of the SELECT on its way to a view."""

    query: exp.Query
    params: Sequence[Argument]
    numbers: dict[int, int]
    """The user's ``?`` by node: which parameter."""
    arguments: list[Part | tuple[Part, ...]] = field(default_factory=list)
    kept: set[int] = field(default_factory=set)
    """Placeholders that stay, by node."""
    turned: list[Starts] = field(default_factory=list)

    def turn(self, argument: Part | tuple[Part, ...], nodes: Sequence[exp.Expr]) -> exp.Placeholder:
        """The mark for an argument, which stood in these nodes. Marks are told apart, and ordered, by their places."""
        mark = exp.Placeholder()
        mark.meta["start"] = MARKS + len(self.arguments)
        self.arguments.append(argument)
        self.kept |= {id(node) for node in nodes}
        if all(isinstance(node, exp.Literal) for node in nodes):
            self.turned.append(tuple(map(position, nodes)))
        return mark


def _made(query: exp.Query, catalog: Catalog, params: Sequence[Argument], *, keep: bool) -> AdHoc:
    copy = copied(query)
    parts = list(nodes(copy))
    marks = placeholders(copy) if any(isinstance(part, exp.Placeholder) for part in parts) else []
    making = _Making(copy, params, {id(node): number for number, node in enumerate(marks)})
    sources = read_sources(copy, catalog) if isinstance(copy, exp.Select) else SelectSources(())
    wants = wanted(copy, sources, catalog) if reads_views(parts, catalog) else []
    if isinstance(copy, exp.Select):
        _supply(making, copy, wants)
        if keep:
            _turn_conditions(making, copy, sources)
            _keep_limits(making, copy)
    elif wants:
        raise wants[0].missing()
    written = [node for node in marks if id(node) not in making.kept]
    for node in written:
        _write(node, params[making.numbers[id(node)]])
    if not isinstance(copy, exp.Select) or _names_a_constant(copy, partial_by(copy)):
        without_hints(copy)
    _fold_names(parts)
    text = text_of(copy)
    return AdHoc(text, ad_hoc_name(text), tuple(making.arguments), not written, tuple(making.turned), copy)


def _supply(making: _Making, select: exp.Select, wants: list[WantedParameter]) -> None:
    """Give the views' parameters what conditions of the WHERE say, and take those conditions out."""
    parts = _where_parts(select)
    for want in wants:
        for part in parts:
            found = _comparison(part)
            if found is None or not want.parameter.takes(found[0], want.alias, found[1]):
                continue
            argument = _constants(making, found[2])
            if argument is not None:
                single = len(argument) == 1 and found[1] is not ParameterKind.IN
                making.turn(argument[0] if single else argument, found[2])
                making.kept |= {id(node) for node in part.find_all(exp.Placeholder)}
                part.set("supplied", True)
                break
        else:
            raise want.missing()
    left = [part for part in parts if not part.args.pop("supplied", False)]
    if len(left) < len(parts):
        select.set("where", exp.Where(this=exp.and_(*left, copy=False)) if left else None)


def _turn_conditions(making: _Making, select: exp.Select, sources: SelectSources) -> None:
    several = _is_row_by_row(select)
    for part in list(_where_parts(select)):
        found = _comparison(part)
        if found is None:
            _keep_bounds(making, part, sources)
            continue
        column, kind, nodes = found
        users = any(isinstance(node, exp.Placeholder) for node in nodes)
        if not sources.is_present([column]) or (kind is not ParameterKind.EQUAL and not several and not users):
            continue
        argument = _constants(making, nodes)
        turned = kind in (ParameterKind.EQUAL, ParameterKind.IN)
        if argument is None or not (users or (turned and _fits(argument, sources.type_of(column)))):
            continue
        if kind is ParameterKind.IN:
            part.set("expressions", [making.turn(argument, nodes)])
        else:
            nodes[0].replace(making.turn(argument[0], nodes))


def _keep_bounds(making: _Making, part: exp.Expr, sources: SelectSources) -> None:
    """``column BETWEEN ? AND ?``: each bound that is the user's stays."""
    if not isinstance(part, exp.Between) or not isinstance(part.this, exp.Column):
        return
    if sources.is_present([part.this]):
        for bound in (part.args["low"], part.args["high"]):
            if isinstance(bound, exp.Placeholder):
                bound.replace(making.turn(Given(making.numbers[id(bound)]), [bound]))


def _keep_limits(making: _Making, select: exp.Select) -> None:
    for clause in ("limit", "offset"):
        bound = select.args.get(clause)
        node = bound.expression if bound is not None else None
        if isinstance(node, exp.Placeholder):
            node.replace(making.turn(Given(making.numbers[id(node)]), [node]))


def _names_a_constant(select: exp.Select, names: Sequence[str] | None) -> bool:
    """Whether a hint names what is no parameter of the view, and is one where the constant is another."""
    comparisons = [found for part in _where_parts(select) if (found := _comparison(part)) is not None]
    constant = {
        column.name.lower()
        for column, _, nodes in comparisons
        if not any(isinstance(n, exp.Placeholder) for n in nodes)
    }
    return not constant.isdisjoint(name.lower() for name in names or ())


def _where_parts(select: exp.Select) -> list[exp.Expr]:
    clause = select.args.get("where")
    return list(conjuncts(clause.this)) if clause is not None else []


def _comparison(part: exp.Expr) -> tuple[exp.Column, ParameterKind, list[exp.Expr]] | None:
    """The column, the comparison and the other side of ``column = x``, ``x < column`` or ``column IN (x, …)``."""
    kind = KINDS.get(type(part))
    if kind is None or part.args.get("query") is not None:
        return None
    if kind is ParameterKind.IN:
        return (part.this, kind, list(part.expressions)) if isinstance(part.this, exp.Column) else None
    left, right = part.this, part.args["expression"]
    if isinstance(left, exp.Column):
        return left, kind, [right]
    return (right, MIRRORED[kind], [left]) if isinstance(right, exp.Column) else None


def _constants(making: _Making, nodes: list[exp.Expr]) -> tuple[Part, ...] | None:
    """The values of the nodes, or parameters of the user's; None if one is neither, or NULL."""
    parts: list[Part] = []
    for node in nodes:
        if isinstance(node, exp.Placeholder):
            parts.append(Given(making.numbers[id(node)]))
            continue
        bare = node.this if isinstance(node, exp.Paren) else node
        negative = isinstance(bare, exp.Neg)
        constant = literal(bare.this if negative else bare)
        if constant is None or constant.value is None or (negative and isinstance(constant.value, (str, bytes))):
            return None
        assert not negative or not isinstance(constant.value, (str, bytes))
        parts.append(-constant.value if negative else constant.value)  # type: ignore[operator]
    return tuple(parts)


def _fits(argument: tuple[Part, ...], type: SqlType | None) -> bool:
    """Whether constants are values of the column, as far as is known before planning."""
    values = [part for part in argument if not isinstance(part, Given)]
    if type is None:
        return all(isinstance(value, (int, str)) for value in values)
    return all(exact_value(value, type) is not None for value in values)


def _is_row_by_row(select: exp.Select) -> bool:
    """Whether the answer for several values of a column is made of the answers for each of them."""
    if any(select.args.get(clause) for clause in ("group", "having", "distinct", "limit", "offset")):
        return False
    return not any(
        isinstance(node, (exp.AggFunc, exp.GroupConcat)) for item in select.expressions for node in _own(item)
    )


def _own(node: exp.Expr) -> Iterator[exp.Expr]:
    """The nodes of an expression without those of its subqueries."""
    yield node
    for child in node.iter_expressions():
        if not isinstance(child, exp.Query):
            yield from _own(child)


def _write(node: exp.Expr, value: Argument) -> None:
    """Write a value in the place of the user's ``?``."""
    if not isinstance(value, tuple):
        number = isinstance(node.parent, exp.Interval) and isinstance(value, (int, float, Decimal))
        # The parser reads INTERVAL 3 DAY as INTERVAL '3' DAY.
        _put(exp.Literal.string(str(value)) if number else literal_node(value), node)
        return
    parent = node.parent
    if not isinstance(parent, exp.In) or not value:
        raise BadRequest("a list is given for a single value", hint="lists are for IN (?), and are not empty")
    others = [literal_node(part) for part in value]
    nodes = [other for each in parent.expressions for other in (others if each is node else [each])]
    parent.set("expressions", nodes)


def _fold_names(parts: Sequence[exp.Expr]) -> None:
    """Names in lower case, but for those that the answer's columns have from the text."""
    values = (value for part in parts for value in part.args.values())
    for name in chain.from_iterable(value if type(value) is list else (value,) for value in values):
        if not isinstance(name, exp.Identifier):
            continue
        parent = name.parent
        if isinstance(parent, exp.Alias) or (isinstance(parent, exp.TableAlias) and name.arg_key == "columns"):
            continue
        if isinstance(parent, exp.Column) and name.arg_key == "this" and isinstance(parent.parent, exp.Select):
            continue
        name.set("this", name.name.lower())
