"""What stops a load."""

from __future__ import annotations

from headrace.errors import HeadraceError


class LoadError(HeadraceError):
    """The files, or what was asked, cannot be loaded as they are. What was loaded before stays."""

    code = "load_error"


class TooManyRejects(LoadError):
    code = "too_many_rejects"
