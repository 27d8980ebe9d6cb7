"""How an expression becomes Python source: ``Function`` says what it writes, ``Emitter`` writes.

An operator's expression is compiled once and runs once a row, so it is not interpreted: each call contributes a piece
of Python, and NULL tests, conversions and constants are settled while writing. An expression is asked for in one of
three forms::

    value(e)     its value, None for NULL              a + 1  →  (None if r[0] is None else r[0] + k1)
    truth(e)     truthy exactly where SQL says true    a < 7  →  (r[0] is not None and r[0] < k1)
    falsity(e)   truthy exactly where SQL says false   a < 7  →  (r[0] is not None and r[0] >= k1)

so WHERE never builds a three-valued result only to test it, and NOT is the other form. Nothing of a user's text ever
stands in the source: constants are bound as names (k1), intermediate values are walrus names (t1), and what is nested
too deep for Python's parser becomes a function of its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from domains.errors import TypeViolation, Unsupported
from domains.language import documents
from domains.language.expressions import Call, Constant, Expression, Field
from domains.language.functions.conversion import converter, refuse_day_of_time
from domains.language.types import BIGINT, DOUBLE, Kind, SqlType, Value

Types = tuple[SqlType, ...]
Emit = Callable[["Emitter", Call], str]

_ATOM = re.compile(r"r\[\d+\]|[kt]\d+|None")
_BOUND = re.compile(r"k\d+")
_MOST_LEVELS = 12
"""Python's parser stops at 200 open brackets; a level of ours opens up to six, and a CASE takes several."""


@dataclass(frozen=True, slots=True)
class Function:
    """A named scalar function: how many arguments, which type, which Python."""

    name: str
    arity: tuple[int, int | None]
    """Least and greatest number of arguments; None: no bound."""
    result_type: Callable[[Types], SqlType]
    value: Emit
    truth: Emit | None = None
    falsity: Emit | None = None
    by_target: bool = False
    """The source already has the call's declared type (CASE, CAST); else it has ``result_type`` and is converted."""
    refine: Callable[[tuple[Expression, ...]], SqlType] | None = None
    """The type where it depends on a constant argument's value (ROUND's digits, an interval's unit)."""

    def check(self, count: int) -> None:
        least, most = self.arity
        if count < least or (most is not None and count > most):
            wanted = f"{least}" if most == least else f"at least {least}" if most is None else f"{least} to {most}"
            raise TypeViolation(f'function "{self.name}" takes {wanted} arguments, not {count}')


class Emitter:
    """Writes the source of one operator's expressions over the row named ``r``.

    A ``Field`` with a negative position is a name that :meth:`let` has bound, not a part of the row.
    """

    def __init__(self, functions: Mapping[str, Function]) -> None:
        self._functions = functions
        self.names: dict[str, object] = {}
        """The values of the source's free names."""
        self.definitions: list[str] = []
        """Statements that go before the operator's own function."""
        self._counter = 0
        self._heights: dict[int, int] = {}
        self._own_functions: dict[int, str] = {}
        self._seen: list[Call] = []
        """Keeps alive what the two dicts know by its id."""

    # --- names -----------------------------------------------------------------------------------------------

    def bind(self, value: object) -> str:
        name = f"k{len(self.names)}"
        self.names[name] = value
        return name

    def temporary(self) -> str:
        self._counter += 1
        return f"t{self._counter}"

    def function(self, name: str) -> Function:
        found = self._functions.get(name)
        if found is None:
            raise Unsupported(f'function "{name}" is not supported')
        return found

    # --- the three forms ---------------------------------------------------------------------------------------

    def value(self, e: Expression) -> str:
        """Source of the value: an atom, a call, or in brackets."""
        if isinstance(e, Field):
            return f"t{-e.position}" if e.position < 0 else f"r[{e.position}]"
        if isinstance(e, Constant):
            return "None" if e.value is None else self.bind(_plain(e.value))
        self._settle_depth(e)
        own = self._own_functions.get(id(e))
        return f"{own}(r)" if own else self._call(e)

    def _call(self, e: Call) -> str:
        function = self.function(e.function)
        function.check(len(e.arguments))
        source = function.value(self, e)
        if function.by_target:
            return source
        return self.converted(source, function.result_type(tuple(a.type for a in e.arguments)), e.type)

    def truth(self, e: Expression) -> str:
        """Source that is truthy exactly where ``e`` is true."""
        if isinstance(e, Call):
            form = self.function(e.function).truth
            if form is not None and not self._is_deep(e):
                return form(self, e)
        return self.number(e)

    def falsity(self, e: Expression) -> str:
        """Source that is truthy exactly where ``e`` is false (not NULL)."""
        if isinstance(e, Call):
            form = self.function(e.function).falsity
            if form is not None and not self._is_deep(e):
                return form(self, e)
        return f"({self.number(e)} == 0)"

    def number(self, e: Expression) -> str:
        """The value as a number of some kind, as conditions take it."""
        if e.type.kind in (Kind.TEXT, Kind.BLOB):
            return self.as_type(e, DOUBLE)
        if e.type.kind in (Kind.DATE, Kind.DATETIME, Kind.TIME):
            return self.as_type(e, BIGINT)
        if e.type.kind is Kind.JSON:
            return self.strict([self.value(e)], lambda x: f"{self.bind(documents.truth)}({x})")
        return self.value(e)

    # --- conversion and NULL -------------------------------------------------------------------------------------

    def as_type(self, e: Expression, target: SqlType) -> str:
        """The value converted to ``target``'s kind and scale."""
        if isinstance(e, Constant):
            return self.value(Constant(converted_constant(e, target), target))
        if isinstance(e, Field) and (e.type.kind, target.kind) == (Kind.INTEGER, Kind.DOUBLE):
            # A column's integer has 64 bits, so the plain constructor cannot overflow.
            return self.strict([self.value(e)], lambda x: f"{self.bind(float)}({x})")
        return self.converted(self.value(e), e.type, target)

    def converted(self, source: str, given: SqlType, target: SqlType) -> str:
        convert = converter(given, target)
        if convert is None or source == "None":
            return source
        return self.strict([source], lambda x: f"{self.bind(convert)}({x})")

    def strict(self, arguments: Sequence[str], body: Callable[..., str]) -> str:
        """``body`` over the named arguments, NULL where one of them is."""
        tests, names = self._named(arguments)
        if tests is None:
            return "None"
        if not tests:
            return f"({body(*names)})"
        return f"(None if {' or '.join(f'{test} is None' for test in tests)} else {body(*names)})"

    def present(self, arguments: Sequence[str], body: Callable[..., str]) -> str:
        """``body``, a condition, over the named arguments; falsy where one of them is NULL."""
        tests, names = self._named(arguments)
        if tests is None:
            return "False"
        return f"({' and '.join([*(f'{test} is not None' for test in tests), body(*names)])})"

    def _named(self, arguments: Sequence[str]) -> tuple[list[str] | None, list[str]]:
        tests: list[str] = []
        names: list[str] = []
        for argument in arguments:
            if argument == "None":
                return None, []
            if _ATOM.fullmatch(argument):
                names.append(argument)
                if not is_bound(argument) and argument not in tests:
                    tests.append(argument)
            else:
                name = self.temporary()
                names.append(name)
                tests.append(f"({name} := {argument})")
        return tests, names

    def named(self, argument: str) -> tuple[str, str]:
        """(the source to evaluate first, the name that holds it from then on)."""
        if _ATOM.fullmatch(argument):
            return argument, argument
        name = self.temporary()
        return f"({name} := {argument})", name

    def let(self, e: Expression, body: Callable[[Expression], str]) -> str:
        """``body`` with ``e`` evaluated once, however often the body names it."""
        if not isinstance(e, Call):
            return body(e)
        if e.function == "collate":
            return self.let(e.arguments[0], lambda x: body(Call("collate", (x,), e.type)))
        name = self.temporary()
        source = self.value(e)
        return f"((({name} := {source}),) and {body(Field(-int(name[1:]), e.type))})"

    # --- depth ---------------------------------------------------------------------------------------------------

    def _is_deep(self, e: Call) -> bool:
        self._settle_depth(e)
        return id(e) in self._own_functions

    def _settle_depth(self, root: Call) -> None:
        """Give every twelfth level below ``root`` a function of its own, from the bottom up.

        Walks with a stack, so that a chain of hundreds of additions needs no deep recursion here either.
        """
        if id(root) in self._heights:
            return
        stack: list[tuple[Call, bool]] = [(root, False)]
        while stack:
            e, ready = stack.pop()
            if id(e) in self._heights:
                continue
            below = [a for a in e.arguments if isinstance(a, Call)]
            if not ready:
                stack.append((e, True))
                stack.extend((a, False) for a in below)
                continue
            # AND in AND is written flat, so it is no level.
            flat = e.function if e.function in ("and", "or") else None
            height = max((self._heights[id(a)] + (a.function != flat) for a in below), default=1)
            is_level = height > max((self._heights[id(a)] for a in below), default=0)
            self._seen.append(e)
            self._heights[id(e)] = height
            if is_level and height % _MOST_LEVELS == 0 and not _has_local(e):
                self.move_out(e)

    def move_out(self, e: Call) -> str:
        """The value of ``e`` by way of a function of its own (in place, if it names what a ``let`` has bound)."""
        if _has_local(e):
            return self._call(e)
        if id(e) not in self._own_functions:
            source = self._call(e)
            self._seen.append(e)
            self._own_functions[id(e)] = name = f"f{len(self.definitions)}"
            self.definitions.append(f"{name} = lambda r: {source}")
        return f"{self._own_functions[id(e)]}(r)"


def is_bound(source: str) -> bool:
    """Whether it is a constant, and so never NULL; a call of something bound begins with its name too."""
    return _BOUND.fullmatch(source) is not None


def _has_local(e: Expression) -> bool:
    """Whether it names what a surrounding ``let`` has bound, which another function could not see."""
    stack = [e]
    while stack:
        at = stack.pop()
        if isinstance(at, Call):
            stack.extend(at.arguments)
        elif isinstance(at, Field) and at.position < 0:
            return True
    return False


def _plain(value: Value) -> Value:
    return int(value) if value is True or value is False else value


def converted_constant(e: Constant, target: SqlType) -> Value:
    """A constant's value as ``target``, settled while writing."""
    convert = converter(e.type, target)
    value = _plain(e.value)
    return value if value is None or convert is None else convert(value)


# --- making functions -----------------------------------------------------------------------------------------------

Parameter = SqlType | Callable[[SqlType], SqlType]
"""The type of an argument: a type, or a type made from its own."""


def implemented(
    name: str,
    parameters: Sequence[Parameter],
    result: SqlType | Callable[[Types], SqlType],
    implementation: Callable[..., Any],
    *,
    optional: int = 0,
    variadic: bool = False,
) -> Function:
    """A function that is NULL where an argument is, else ``implementation`` of the converted arguments.

    The last ``optional`` parameters may be left out; with ``variadic`` the last parameter repeats.
    """

    def value(emitter: Emitter, call: Call) -> str:
        sources = []
        for i, argument in enumerate(call.arguments):
            parameter = parameters[min(i, len(parameters) - 1)]
            target = parameter if isinstance(parameter, SqlType) else parameter(argument.type)
            sources.append(emitter.as_type(argument, target))
        return emitter.strict(sources, lambda *names: f"{emitter.bind(implementation)}({', '.join(names)})")

    def result_type(types: Types) -> SqlType:
        for i, type in enumerate(types):
            parameter = parameters[min(i, len(parameters) - 1)]
            refuse_day_of_time(type, parameter if isinstance(parameter, SqlType) else parameter(type))
        return result(types) if callable(result) else result

    least = len(parameters) - optional
    most = None if variadic else len(parameters)
    return Function(name, (least, most), result_type, value)


def registry(*functions: Function) -> dict[str, Function]:
    return {function.name: function for function in functions}
