"""Commands that share options: one says its own, and is declared with those of all others of its kind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from inspect import Parameter, signature
from typing import Any, get_type_hints


def options_of(function: Callable[..., Any]) -> list[Parameter]:
    """A function's parameters as typer is to see them, with types instead of their text."""
    hints = get_type_hints(function, include_extras=True)
    return [
        each.replace(kind=Parameter.KEYWORD_ONLY, annotation=hints[name])
        for name, each in signature(function).parameters.items()
    ]


def declare(command: Callable[..., None], options: Sequence[Parameter], *, like: Callable[..., Any]) -> None:
    """Have typer take these for the command's options; name and help are those of the function that it is like."""
    command.__signature__ = signature(command).replace(parameters=options)  # type: ignore[attr-defined]
    command.__annotations__ = {**{each.name: each.annotation for each in options}, "return": None}
    command.__name__, command.__doc__ = like.__name__, like.__doc__
