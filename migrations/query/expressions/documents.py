"""What SQL hands to functions of JSON: values that become JSON there, and paths that have to be paths."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from domains.errors import SqlError, TypeViolation, Unsupported
from domains.language.documents import NotJson, canonical, parsed
from domains.language.expressions import Call, Constant, Expression
from domains.language.functions import UNSIGNED, call
from domains.language.functions.json.paths import is_single, path_of
from domains.language.functions.json.reading import MODES
from domains.language.functions.json.table import fitting
from domains.language.rewriting import fold
from domains.language.types import BOOL, JSON, TEXT, Kind, SqlType, Value
from migrations.parse.reading import exp
from migrations.query.plans.late_queries import Sorting

_CHANGES = ("json_set", "json_insert", "json_replace", "json_array_append", "json_array_insert")
_PATHS = {
    "json_extract": 1,
    "json_value": 1,
    "json_length": 1,
    "json_keys": 1,
    "json_remove": 1,
    "json_contains": 2,
    "json_contains_path": 2,
    "json_search": 4,
}
"""Functions whose arguments from a place on are paths."""
_MANY = ("json_extract", "json_contains_path", "json_search")
"""Functions whose paths may name several values."""


def prepared(name: str, arguments: Sequence[Expression]) -> list[Expression]:
    """The arguments of a call, checked and with SQL values as JSON where the function is one of JSON.

    :raises SqlError: a constant is no path, or no JSON, or an argument is left over.
    :raises Unsupported: a BLOB would become JSON.
    """
    found = list(arguments)
    if name == "json_object":
        return _members(found)
    if name == "json_array":
        return [as_value(argument) for argument in found]
    if name == "json_member_of":
        _check_document("MEMBER OF", found[1])
        return [as_value(found[0]), found[1]]
    if name in _CHANGES:
        if len(found) < 3 or not len(found) % 2:
            raise SqlError(f"{name.upper()} takes a document, and a path and a value once or more")
        _check_document(name, found[0])
        for at in range(1, len(found), 2):
            _check_path(name, found[at])
            found[at + 1] = as_value(found[at + 1])
    elif name in _PATHS:
        for argument in found[_PATHS[name] :]:
            _check_path(name, argument)
        for argument in found[: 2 if name == "json_contains" else 1]:
            _check_document(name, argument)
        if name in ("json_contains_path", "json_search") and len(found) > 1:
            _check_mode(name, found[1])
        if name == "json_search" and len(found) > 3:
            found[3] = _escape(found[3])
    return found


def _members(arguments: list[Expression]) -> list[Expression]:
    if len(arguments) % 2:
        raise SqlError("JSON_OBJECT takes keys and values, in turn")
    if any(isinstance(key, Constant) and key.value is None for key in arguments[::2]):
        raise SqlError("a key of JSON_OBJECT is NULL")
    return [e for key, value in zip(arguments[::2], arguments[1::2], strict=True) for e in (key, as_value(value))]


def as_value(e: Expression) -> Expression:
    """A value that becomes JSON: a comparison and its like are ``true`` or ``false`` there, a column of BOOL a number.

    :raises Unsupported: it is a BLOB.
    """
    if e.type.kind is Kind.BLOB:
        raise Unsupported("a BLOB in JSON", hint="TO_BASE64(x) or HEX(x); CAST(x AS CHAR) where it is text")
    is_truth = e.type == BOOL and isinstance(e, (Call, Constant))
    return call("json_truth", e) if is_truth else e


def as_json(e: Expression) -> Expression:
    """``CAST(e AS JSON)``: a text is parsed."""
    return call("cast", as_value(e), type=JSON)


def as_document(e: Expression) -> Expression:
    """The document of JSON_TABLE.

    :raises SqlError: a constant that is none.
    """
    if e.type.kind is Kind.JSON:
        return e
    _check_document("JSON_TABLE", e)
    return as_json(e)


def conditions(
    node: exp.Expr, type: SqlType, place: str, translate: Callable[[exp.Expr], Expression]
) -> tuple[Value, Value]:
    """The values of ON EMPTY and ON ERROR, of a type: a text is JSON, and itself where it is none.

    :raises SqlError: one is not constant, or does not fit.
    :raises Unsupported: it is ERROR.
    """
    given = node.args.get("on_condition")
    if given is None:
        return None, None
    on_empty, on_error = (_given(given.args.get(on), type, place, translate) for on in ("empty", "error"))
    return on_empty, on_error


def _given(node: exp.Expr | None, type: SqlType, place: str, translate: Callable[[exp.Expr], Expression]) -> Value:
    if node is None or isinstance(node, exp.Null):
        return None
    if isinstance(node, exp.Var):
        raise Unsupported(
            "ERROR ON EMPTY and ERROR ON ERROR", hint="NULL or DEFAULT … ON ERROR: an answer is kept, and no error is"
        )
    e = fold(translate(node))
    if not isinstance(e, Constant):
        raise SqlError(f"{place}: DEFAULT wants a constant")
    if isinstance(e.value, str):
        try:
            return fitted(parsed(e.value), type, place)
        except NotJson:
            if type.kind is Kind.JSON:
                raise SqlError(f"{place}: DEFAULT {e.value[:40]!r} is no JSON") from None
    return fitted(e.value, type, place)


def fitted(value: object, type: SqlType, place: str) -> Value:
    """:raises SqlError: it does not fit."""
    try:
        return fitting(value, type)
    except (TypeViolation, NotJson) as error:
        raise SqlError(f"{place}: {error}") from None


def sorting(e: Expression, descending: bool) -> Sorting:
    """A term of ORDER BY: documents are sorted as MySQL compares them, ENUM and SET by their members' places."""
    if e.type.kind is Kind.JSON:
        e = call("json_order", e)
    elif e.type.members:
        e = call("cast", e, type=UNSIGNED)
    return Sorting(e, descending)


def _check_path(name: str, e: Expression) -> None:
    if not isinstance(e, Constant) or e.value is None:
        return
    path = path_of(str(e.value))
    if path is None:
        raise SqlError(f"{str(e.value)[:40]!r} is no JSON path", hint="""like '$.key', '$."a key"[0]', '$[last]'""")
    if name not in _MANY and not is_single(path):
        raise SqlError(f"{name.upper()} takes a path without *, ** and ranges")
    if name == "json_remove" and not path:
        raise SqlError("JSON_REMOVE cannot remove '$', which is the whole document")


def _check_document(name: str, e: Expression) -> None:
    if not isinstance(e, Constant) or not isinstance(e.value, str) or e.type.kind is not Kind.TEXT:
        return
    try:
        canonical(e.value)
    except NotJson as error:
        raise SqlError(f"{name.upper()}: {e.value[:40]!r} is no JSON: {error}") from None


def _check_mode(name: str, e: Expression) -> None:
    if isinstance(e, Constant) and isinstance(e.value, str) and e.value.lower() not in MODES:
        raise SqlError(f"{name.upper()}: the second argument is 'one' or 'all'")


def _escape(e: Expression) -> Expression:
    """The character that takes the meaning of ``%`` and ``_`` away in JSON_SEARCH; NULL is the backslash."""
    if not isinstance(e, Constant) or not (e.value is None or isinstance(e.value, str)) or len(e.value or "") > 1:
        raise SqlError("JSON_SEARCH: the fourth argument is a constant of one character at most, or NULL")
    return Constant("\\", TEXT) if e.value is None else e
