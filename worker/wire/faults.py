"""Errors on the wire: class, text and details, so that whoever asked meets what a caller in the same process would."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import NoneType
from typing import Any

from domains.errors import HeadraceError
from worker.wire.coders import LEAVES, Coder, Misfit

TAG = "HeadraceError"


def error_coder(
    known: Mapping[str, type[HeadraceError]], details: Callable[[type[HeadraceError]], tuple[str, ...]]
) -> Coder:
    """``(TAG, code, message, hint, detail …)``, an error of a class that is not ``known`` as its nearest base.

    Attributes are set as they were: a constructor may add to its message, and must not do so twice. A code that is not
    known here is read as a plain ``HeadraceError``: a process of another version says by it why it refuses this one.
    """
    names = {kind: details(kind) for kind in known.values()}

    def pack(error: HeadraceError) -> Any:
        kind = next(each for each in type(error).__mro__ if each in names)
        return (TAG, kind.code, error.message, error.hint, *(getattr(error, name) for name in names[kind]))

    def unpack(packed: Any) -> HeadraceError:
        _, code, message, hint, *found = packed
        if type(code) is not str or type(message) is not str or type(hint) not in (str, NoneType):
            raise Misfit
        if not LEAVES.issuperset(map(type, found)):
            raise Misfit
        kind = known.get(code, HeadraceError)
        error = kind.__new__(kind)
        HeadraceError.__init__(error, message, hint=hint)
        if code in known:
            for name, value in zip(names[kind], found, strict=True):
                setattr(error, name, value)
        return error

    return Coder(unpack, pack)
