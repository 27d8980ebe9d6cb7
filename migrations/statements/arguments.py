"""What an ad-hoc SELECT's view is read with: from the text's and the user's values to the reader's keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from domains.errors import BadRequest, SqlError
from domains.graph import Parameter, ParameterKind
from domains.types import Kind, SqlType, Value
from migrations.catalog import ViewDefinition
from migrations.parse import exp, parse_select, refuse_unfaithful
from migrations.statements.access import exact_value
from migrations.statements.constants import Argument


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
    """For each ``?`` in the order of ``PlannedView.placeholders``; a tuple for one that stands for an IN list."""
    reusable: bool = True
    """False: values of the user's parameters stand in the text, so it is not the view of the text with other values."""

    tree: exp.Query | None = field(default=None, compare=False, repr=False)
    """What the text was written from; None where only the text is known, which a recipe keeps."""

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
        elif parameter.kind is ParameterKind.IN:
            exact = _exact_list(argument if isinstance(argument, tuple) else (argument,), parameter.type)
        else:
            if isinstance(argument, tuple):
                raise BadRequest(f'parameter "{parameter.name}" is a list', hint="lists stand for IN (?) only")
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
