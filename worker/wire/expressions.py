"""Expressions on the wire: one flat tuple in postfix order, whatever their depth.

A chain of a thousand ORs is a thousand Calls deep. msgpack nests 500 deep and Python's stack not much deeper, so an
expression is taken apart and put together with a stack of its own::

    Call("add", (Field(0, BIGINT), Constant(1, BIGINT)), BIGINT)
    ("Expression", (0, BIGINT), (None, 1, BIGINT), ("add", 2, BIGINT))        a Field is a pair
"""

from __future__ import annotations

from typing import Any

from domains.expressions import Call, Constant, Expression, Field
from worker.wire.coders import LEAVES, Coder, Misfit

TAG = "Expression"


def expression_coder(types: Coder) -> Coder:
    """``types`` packs a ``SqlType``."""
    pack_type, unpack_type = types.pack, types.unpack
    assert pack_type is not None

    def pack(expression: Expression) -> Any:
        packed: list[Any] = []
        waiting: list[Expression] = [expression]
        # Last things first, a call before its arguments and those from the right; turned round in the end.
        while waiting:
            at = waiting.pop()
            match at:
                case Field():
                    packed.append((at.position, pack_type(at.type)))
                case Constant():
                    packed.append((None, at.value, pack_type(at.type)))
                case Call():
                    packed.append((at.function, len(at.arguments), pack_type(at.type)))
                    waiting.extend(at.arguments)
        packed.append(TAG)
        packed.reverse()
        return packed

    def unpack(packed: Any) -> Expression:
        done: list[Expression] = []
        for item in packed[1:]:
            if type(item) is not tuple:
                raise Misfit
            done.append(_pair(item) if len(item) == 2 else _triple(item, done))
        (expression,) = done
        return expression

    def _pair(item: Any) -> Field:
        if type(item[0]) is not int:
            raise Misfit
        return Field(item[0], unpack_type(item[1]))

    def _triple(item: Any, done: list[Expression]) -> Expression:
        function, value, type_ = item
        if function is None:
            if type(value) not in LEAVES:
                raise Misfit
            return Constant(value, unpack_type(type_))
        if type(function) is not str or type(value) is not int or not 0 <= value <= len(done):
            raise Misfit
        place = len(done) - value
        arguments = tuple(done[place:])
        del done[place:]
        return Call(function, arguments, unpack_type(type_))

    return Coder(unpack, pack)
