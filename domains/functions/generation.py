"""From source to function: expressions and operators as generated code.

A template holds the operator's own text with one ``{}`` for the emitted expression. Sources consist of our own
templates and generated names only; everything of the user's is bound.
"""

from __future__ import annotations

from typing import Any

from domains.compiled import compiled
from domains.expressions import Call
from domains.functions import FUNCTIONS
from domains.functions.source import Emitter
from domains.types import Value


def emitter() -> Emitter:
    return Emitter(FUNCTIONS)


def defined(source: str, emitter: Emitter) -> Any:
    """The function ``operator`` that ``source`` defines, together with what the emitter has moved out."""
    names = dict(emitter.names)
    text = "\n".join([*emitter.definitions, source])
    exec(compiled(text, "<expression>"), names)
    return names["operator"]


def evaluate_constant(e: Call) -> Value:
    """The value of a call that reads no field."""
    emit = emitter()
    source = emit.value(e)
    value: Value = defined(f"def operator(r):\n    return {source}", emit)(())
    return value
